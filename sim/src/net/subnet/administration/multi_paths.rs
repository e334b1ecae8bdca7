//! MultiPathRecord: paths between several sources and several destinations at once (IBTA v1.4 §15.2.5.20).
//!
//! **What it may not do.** Paths are only as independent as their LIDs; a query for more independence is not supported.
//! The GID list ends with the datagram.

use super::paths::PathRequest;
use super::record_list::RecordList;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::wire::management::administration::{DATA, MultiPathRecord, PathRecord, status};
use zerocopy::FromBytes;

/// Components shared with PathRecord have the same order, starting at this bit; there are 16.
const COMMON_SHIFT: u32 = 6;
const COMMON: u64 = 0xffff;
const SOURCE_GID: u64 = 1 << 3;
const DESTINATION_GID: u64 = 1 << 2;
const NUMBER_OF_PATHS: u64 = 1 << 6;
const COUNTS: u64 = 1 << 19 | 1 << 20;
/// Bytes of a GID.
const GID: usize = 16;

/// A query for several paths.
pub(super) struct MultiPathRequest<'a> {
    /// The record, followed by the GIDs.
    pub(super) data: &'a [u8; DATA],
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
}

impl MultiPathRequest<'_> {
    /// Finds all matching paths, as PathRecords.
    pub(super) fn find(&self, directory: &Directory<'_>) -> Result<RecordList, u16> {
        if self.mask & COUNTS != COUNTS {
            return Err(status::INSUFFICIENT_COMPONENTS);
        }
        let (record, gids) =
            MultiPathRecord::read_from_prefix(self.data).map_err(|_| status::REQUEST_INVALID)?;
        let (sources, destinations) = (usize::from(record.sgid_count()), usize::from(record.dgid_count()));
        let gids: Vec<[u8; GID]> = gids.as_chunks().0.to_vec();
        if sources == 0 || destinations == 0 || sources + destinations > gids.len() {
            return Err(status::REQUEST_INVALID);
        }
        let mut found = RecordList::new(PathRecord::SIZE);
        let most =
            if self.mask & NUMBER_OF_PATHS != 0 { record.number_of_paths().into() } else { usize::MAX };
        for source in &gids[..sources] {
            for destination in &gids[sources..sources + destinations] {
                let mut query = common(&record);
                query.set_sgid(*source).set_dgid(*destination);
                let mask = (self.mask & COMMON) << COMMON_SHIFT | SOURCE_GID | DESTINATION_GID;
                let request = PathRequest { record: &query, mask, requester: self.requester, is_get: false };
                request.find(directory, &mut found)?;
            }
        }
        found.keep(most);
        Ok(found)
    }
}

/// The components shared with PathRecord.
fn common(record: &MultiPathRecord) -> PathRecord {
    let mut path = PathRecord::new();
    path.set_raw_traffic(record.raw_traffic()).set_flow_label(record.flow_label());
    path.set_hop_limit(record.hop_limit()).set_traffic_class(record.traffic_class());
    path.set_reversible(record.reversible()).set_number_of_paths(record.number_of_paths());
    path.set_partition_key(record.partition_key()).set_qos_class(record.qos_class());
    path.set_service_level(record.service_level());
    path.set_mtu_selector(record.mtu_selector()).set_mtu(record.mtu());
    path.set_rate_selector(record.rate_selector()).set_rate(record.rate());
    path.set_life_time_selector(record.life_time_selector()).set_life_time(record.life_time());
    path
}
