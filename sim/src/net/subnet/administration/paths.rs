//! PathRecord: paths between end ports (IBTA v1.4 §15.2.5.16).
//!
//! A path to a multicast group has the group's attributes. Every other path is reversible, has SL 0 unless the query
//! asks for another, and any traffic class.

use super::rate;
use super::record_list::RecordList;
use super::selector::{EXACTLY, Selector};
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::{EndPort, full_member};
use crate::wire::management::administration::{McMemberRecord, PathRecord, status};
use crate::wire::management::values::SUBNET_TIMEOUT;

/// Bits of the component mask.
mod component {
    pub(super) const DGID: u64 = 1 << 2;
    pub(super) const SGID: u64 = 1 << 3;
    pub(super) const DLID: u64 = 1 << 4;
    pub(super) const SLID: u64 = 1 << 5;
    pub(super) const RAW_TRAFFIC: u64 = 1 << 6;
    pub(super) const FLOW_LABEL: u64 = 1 << 8;
    pub(super) const HOP_LIMIT: u64 = 1 << 9;
    pub(super) const TRAFFIC_CLASS: u64 = 1 << 10;
    pub(super) const NUMBER_OF_PATHS: u64 = 1 << 12;
    pub(super) const PARTITION_KEY: u64 = 1 << 13;
    pub(super) const SERVICE_LEVEL: u64 = 1 << 15;
    pub(super) const MTU_SELECTOR: u64 = 1 << 16;
    pub(super) const MTU: u64 = 1 << 17;
    pub(super) const RATE_SELECTOR: u64 = 1 << 18;
    pub(super) const RATE: u64 = 1 << 19;
    pub(super) const LIFE_TIME_SELECTOR: u64 = 1 << 20;
    pub(super) const LIFE_TIME: u64 = 1 << 21;
}

/// A query for paths.
pub(super) struct PathRequest<'a> {
    pub(super) record: &'a PathRecord,
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
    /// Whether it is a SubnAdmGet, which wants one path between two ports.
    pub(super) is_get: bool,
}

impl PathRequest<'_> {
    fn asks(&self, component: u64) -> bool {
        self.mask & component == component
    }

    /// Adds all matching paths.
    pub(super) fn find(&self, directory: &Directory<'_>, found: &mut RecordList) -> Result<(), u16> {
        let query = self.record;
        if self.asks(component::RAW_TRAFFIC) && query.raw_traffic() {
            return Ok(());
        }
        let sgid = self.asks(component::SGID).then(|| query.sgid());
        let slid = self.asks(component::SLID).then(|| query.slid());
        let dgid = self.asks(component::DGID).then(|| query.dgid());
        let dlid = self.asks(component::DLID).then(|| query.dlid());
        let sources = self.ends(directory, sgid, slid)?;
        let destinations = self.ends(directory, dgid, dlid)?;
        for source in &sources {
            for destination in &destinations {
                if let Some(path) = self.path(directory, source, destination) {
                    self.add_lids(path, [source, destination], found)?;
                }
            }
        }
        Ok(())
    }

    /// The MGID that is asked for, if there is one.
    pub(super) fn group(&self) -> Option<[u8; 16]> {
        Some(self.record.dgid()).filter(|gid| self.asks(component::DGID) && gid[0] == 0xff)
    }

    /// The path to a group, if the query matches the group and names a source that is in its partition.
    pub(super) fn to_group(
        &self,
        group: &McMemberRecord,
        directory: &Directory<'_>,
        found: &mut RecordList,
    ) -> Result<(), u16> {
        let (query, asks) = (self.record, |component| self.asks(component));
        let agrees = (!asks(component::DLID) || query.dlid() == group.mlid())
            && (!asks(component::PARTITION_KEY) || query.partition_key() == group.partition_key())
            && (!asks(component::SERVICE_LEVEL) || query.service_level() == group.service_level())
            && (!asks(component::FLOW_LABEL) || query.flow_label() == group.flow_label())
            && (!asks(component::HOP_LIMIT) || query.hop_limit() == group.hop_limit())
            && (!asks(component::TRAFFIC_CLASS) || query.traffic_class() == group.traffic_class());
        let sgid = self.asks(component::SGID).then(|| query.sgid());
        let slid = self.asks(component::SLID).then(|| query.slid());
        let accepts_key = |end: &EndPort<'_>| end.accepts_key(full_member(group.partition_key()));
        for source in self.ends(directory, sgid, slid)?.iter().filter(|end| agrees && accepts_key(end)) {
            let mut path = PathRecord::new();
            path.set_dgid(group.mgid()).set_sgid(source.gid()).set_dlid(group.mlid());
            path.set_slid(slid.unwrap_or(source.lid)).set_number_of_paths(1);
            path.set_flow_label(group.flow_label()).set_hop_limit(group.hop_limit());
            path.set_traffic_class(group.traffic_class()).set_partition_key(group.partition_key());
            path.set_service_level(group.service_level());
            path.set_mtu_selector(EXACTLY).set_mtu(group.mtu());
            path.set_rate_selector(EXACTLY).set_rate(group.rate());
            path.set_life_time_selector(EXACTLY).set_life_time(group.life_time());
            found.push(&path)?;
        }
        Ok(())
    }

    /// End ports that match a GID and a LID and that the requester may know about.
    fn ends<'a>(
        &self,
        directory: &Directory<'a>,
        gid: Option<[u8; 16]>,
        lid: Option<u16>,
    ) -> Result<Vec<EndPort<'a>>, u16> {
        if gid.is_some_and(|gid| directory.by_gid(&gid).is_none()) {
            return Err(status::INVALID_GID);
        }
        let named = directory.ends.iter().filter(|end| {
            gid.is_none_or(|gid| end.gid() == gid)
                && lid.is_none_or(|lid| end.owns_lid(lid))
                && end.is_visible_to(&self.requester)
        });
        Ok(named.copied().collect())
    }

    /// The path between two ports without its LIDs, if one satisfies the query.
    fn path(
        &self,
        directory: &Directory<'_>,
        source: &EndPort<'_>,
        destination: &EndPort<'_>,
    ) -> Option<PathRecord> {
        let (query, mut path) = (self.record, PathRecord::new());
        path.set_sgid(source.gid()).set_dgid(destination.gid()).set_reversible(true).set_number_of_paths(1);
        path.set_partition_key(self.partition_key(source, destination)?);
        if self.asks(component::SERVICE_LEVEL) {
            path.set_service_level(query.service_level());
        }
        if self.asks(component::TRAFFIC_CLASS) {
            path.set_traffic_class(query.traffic_class());
        }
        if self.asks(component::FLOW_LABEL) {
            path.set_flow_label(query.flow_label());
        }
        if self.asks(component::HOP_LIMIT) {
            path.set_hop_limit(query.hop_limit());
        }
        let mut links = directory.hops(source, destination.lid)?;
        links.extend([&source.attributes.port, &destination.attributes.port]);
        let mtu = links.iter().map(|link| link.neighbor_mtu()).min()?;
        path.set_mtu_selector(EXACTLY).set_mtu(self.mtu(mtu)?);
        let rate = links.into_iter().map(rate::of_port).reduce(rate::slower)?;
        path.set_rate_selector(EXACTLY).set_rate(self.rate(rate)?);
        path.set_life_time_selector(EXACTLY).set_life_time(self.life_time()?);
        Some(path)
    }

    /// P_Key of a path: the requested one if both ends accept it, in the form of the source's table.
    fn partition_key(&self, source: &EndPort<'_>, destination: &EndPort<'_>) -> Option<u16> {
        if !self.asks(component::PARTITION_KEY) {
            return source.common_key(destination);
        }
        let requested = self.record.partition_key();
        let mut own = source.partition_keys.iter().copied();
        // Compare without the full-membership bit.
        own.find(|key| key << 1 == requested << 1 && destination.accepts_key(*key))
    }

    /// Chooses the MTU of a path that supports up to `most`, if the query can be satisfied.
    fn mtu(&self, most: u8) -> Option<u8> {
        let asks = self.asks(component::MTU_SELECTOR | component::MTU);
        let selector = if asks { Selector::from_raw(self.record.mtu_selector()) } else { Selector::Largest };
        selector.choose(self.record.mtu(), most).filter(|mtu| *mtu > 0)
    }

    fn rate(&self, most: u8) -> Option<u8> {
        if !self.asks(component::RATE_SELECTOR | component::RATE) {
            return Some(most);
        }
        let selector = Selector::from_raw(self.record.rate_selector());
        selector.choose(rate::rank(self.record.rate())?, rate::rank(most)?).and_then(rate::of_rank)
    }

    fn life_time(&self) -> Option<u8> {
        let asks = self.asks(component::LIFE_TIME_SELECTOR | component::LIFE_TIME);
        let selector =
            if asks { Selector::from_raw(self.record.life_time_selector()) } else { Selector::Largest };
        selector.choose(self.record.life_time(), SUBNET_TIMEOUT)
    }

    /// Adds the path once per pair of LIDs, up to the requested number.
    fn add_lids(
        &self,
        mut path: PathRecord,
        [source, destination]: [&EndPort<'_>; 2],
        found: &mut RecordList,
    ) -> Result<(), u16> {
        let query = self.record;
        let all = 1_u16 << source.lmc.max(destination.lmc);
        let limit = self.asks(component::NUMBER_OF_PATHS).then(|| u16::from(query.number_of_paths()));
        let is_one = self.is_get || self.asks(component::SLID | component::DLID);
        let paths = if is_one { 1 } else { limit.unwrap_or(all).min(all) };
        for index in 0..paths {
            let lid = |end: &EndPort<'_>| end.lid + (index & ((1 << end.lmc) - 1));
            let slid = if self.asks(component::SLID) { query.slid() } else { lid(source) };
            let dlid = if self.asks(component::DLID) { query.dlid() } else { lid(destination) };
            found.push(path.set_slid(slid).set_dlid(dlid))?;
        }
        Ok(())
    }
}
