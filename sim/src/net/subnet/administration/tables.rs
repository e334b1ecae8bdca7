//! Records of the tables of ports and switches: P_KeyTableRecord, GUIDInfoRecord, SLtoVLMappingTableRecord,
//! VLArbitrationTableRecord, MulticastForwardingTableRecord (IBTA v1.4 §15.2.5), and SMInfoRecord.
//!
//! The table of an adapter is what its port reported when the SM read it, after the port came up. A switch has one
//! virtual lane and therefore no lane tables. Empty blocks have no record, except for P_Keys and GUIDs.

use super::record_list::RecordList;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::wire::management::administration::{
    GuidInfoRecord, MulticastForwardingTableRecord, PartitionKeyTableRecord, SlToVlRecord, SmInfoRecord,
    VlArbitrationRecord, status,
};
use crate::wire::management::attribute;
use crate::wire::management::values::IS_SM;

/// Component mask bits: the LID, which starts all of these records, and what follows it.
const LID: u64 = 1;
const SECOND: u64 = 1 << 1;
const THIRD: u64 = 1 << 2;
const FOURTH: u64 = 1 << 3;
/// P_Keys per block.
const KEYS: usize = 32;

/// A query for tables, and its sender.
pub(super) struct TableRequest<'a> {
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
    pub(super) is_trusted: bool,
    pub(super) directory: &'a Directory<'a>,
}

impl TableRequest<'_> {
    fn asks(&self, component: u64) -> bool {
        self.mask & component != 0
    }

    /// End ports that the requester may know about, restricted to a LID if one is given.
    fn named(&self, lid: u16) -> impl Iterator<Item = &EndPort<'_>> {
        let visible = self.directory.ends.iter().filter(|end| end.is_visible_to(&self.requester));
        visible.filter(move |end| !self.asks(LID) || end.owns_lid(lid))
    }

    /// P_KeyTableRecords. Requesters without the SM_Key get none.
    pub(super) fn partition_keys(&self, query: &PartitionKeyTableRecord) -> Result<RecordList, u16> {
        if !self.is_trusted {
            return Err(status::REQUEST_INVALID);
        }
        let mut found = RecordList::new(PartitionKeyTableRecord::SIZE);
        for end in self.named(query.lid()) {
            let port = end.number();
            for (block, keys) in (0..).zip(end.partition_keys.chunks(KEYS)) {
                if self.asks(SECOND) && query.block() != block || self.asks(THIRD) && query.port() != port {
                    continue;
                }
                let mut record = PartitionKeyTableRecord::new();
                record.set_lid(end.lid).set_block(block).set_port(port);
                let mut table = [0; 64];
                for (to, key) in table.chunks_exact_mut(2).zip(keys) {
                    to.copy_from_slice(&key.to_be_bytes());
                }
                found.push(record.set_table(table))?;
            }
        }
        Ok(found)
    }

    /// GUIDInfoRecords: the first block of each end port.
    pub(super) fn guids(&self, query: &GuidInfoRecord) -> Result<RecordList, u16> {
        let mut found = RecordList::new(GuidInfoRecord::SIZE);
        for end in self.named(query.lid()).filter(|_| !self.asks(SECOND) || query.block() == 0) {
            let mut guids = end.attributes.table(attribute::GUID_INFO, 0).unwrap_or([0; 64]);
            // A port may not have reported any GUIDs; the first is always the port GUID (IBTA v1.4 §14.2.5.5).
            guids[..8].copy_from_slice(&end.guid().to_be_bytes());
            let mut record = GuidInfoRecord::new();
            found.push(record.set_lid(end.lid).set_guids(guids))?;
        }
        Ok(found)
    }

    /// SLtoVLMappingTableRecords of adapters. Their ports have one table, for input port 0.
    pub(super) fn lanes(&self, query: &SlToVlRecord) -> Result<RecordList, u16> {
        let mut found = RecordList::new(SlToVlRecord::SIZE);
        for end in self.named(query.lid()) {
            let Some(table) = end.attributes.table(attribute::SL_TO_VL, 0) else { continue };
            let port = end.number();
            if self.asks(SECOND) && query.input_port() != 0 || self.asks(THIRD) && query.output_port() != port
            {
                continue;
            }
            let mut record = SlToVlRecord::new();
            let [a, b, c, d, e, f, g, h, ..] = table;
            record.set_lid(end.lid).set_output_port(port).set_table([a, b, c, d, e, f, g, h]);
            found.push(&record)?;
        }
        Ok(found)
    }

    /// VLArbitrationTableRecords: two blocks for each priority.
    pub(super) fn arbitration(&self, query: &VlArbitrationRecord) -> Result<RecordList, u16> {
        let mut found = RecordList::new(VlArbitrationRecord::SIZE);
        for end in self.named(query.lid()) {
            let port = end.number();
            for block in 1..=4_u8 {
                let table = end.attributes.table(attribute::VL_ARBITRATION, u32::from(block) << 16);
                let Some(table) = table else { continue };
                if self.asks(SECOND) && query.port() != port || self.asks(THIRD) && query.block() != block {
                    continue;
                }
                let mut record = VlArbitrationRecord::new();
                record.set_lid(end.lid).set_port(port).set_block(block);
                found.push(record.set_table(table))?;
            }
        }
        Ok(found)
    }

    /// MulticastForwardingTableRecords of the non-empty blocks.
    pub(super) fn multicast(&self, query: &MulticastForwardingTableRecord) -> Result<RecordList, u16> {
        let mut found = RecordList::new(MulticastForwardingTableRecord::SIZE);
        for end in self.named(query.lid()).filter(|end| end.at.port == 0) {
            for (block, position, masks) in self.directory.multicast_table(end.at.switch) {
                if self.asks(SECOND) && query.position() != position
                    || self.asks(FOURTH) && query.block() != block
                {
                    continue;
                }
                let mut record = MulticastForwardingTableRecord::new();
                record.set_lid(end.lid).set_position(position).set_block(block);
                found.push(record.set_masks(masks))?;
            }
        }
        Ok(found)
    }

    /// SMInfoRecords of the known SMs. Only a requester who knows an SM_Key sees it.
    pub(super) fn managers(&self, query: &SmInfoRecord) -> Result<RecordList, u16> {
        let mut found = RecordList::new(SmInfoRecord::SIZE);
        for end in self.named(query.lid()) {
            let is_own = end.at.switch == self.directory.own_guid() && end.at.port == 0;
            let heard = end.attributes.manager.filter(|_| end.attributes.port.capability_mask() & IS_SM != 0);
            let info = if is_own { self.directory.own_manager } else { heard };
            let Some(mut info) = info else { continue };
            let (queried, asks) = (query.sm_info(), |bit: u32| self.asks(1 << bit));
            if asks(2) && queried.guid() != info.guid()
                || asks(5) && queried.priority() != info.priority()
                || asks(6) && queried.sm_state() != info.sm_state()
            {
                continue;
            }
            if !self.is_trusted {
                info.set_sm_key(0);
            }
            let mut record = SmInfoRecord::new();
            *record.sm_info_mut() = info;
            found.push(record.set_lid(end.lid))?;
        }
        Ok(found)
    }
}
