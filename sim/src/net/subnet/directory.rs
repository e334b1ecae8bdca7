//! What the SM knows about the end ports of its subnet, for answering queries.

use super::agent::SwitchAgent;
use super::end_port::EndPort;
use super::forwarding_plan::GroupPort;
use super::manager::Manager;
use super::switch_port::SwitchPort;
use crate::wire::management::attributes::{PortInfo, SmInfo, SwitchInfo};
use std::collections::BTreeMap;

/// All end ports with a LID, and the links between switches.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    pub(super) ends: Vec<EndPort<'a>>,
    /// Links between switches.
    pub(super) cables: Vec<[SwitchPort; 2]>,
    /// SMInfo of this SM, if the requester may see it.
    pub(super) own_manager: Option<SmInfo>,
    groups: Option<&'a BTreeMap<u16, Vec<GroupPort>>>,
    manager: &'a Manager,
    own: &'a SwitchAgent,
}

impl<'a> Directory<'a> {
    /// Everything the SM knows, including port 0 of the switch that hosts it.
    pub(super) fn new(manager: &'a Manager, own: &'a SwitchAgent) -> Self {
        let ends = manager.end_ports().chain([own_port(own)]).collect();
        let cables = manager.cables().into_iter().collect();
        Self { ends, cables, own_manager: None, groups: None, manager, own }
    }

    /// Adds the members of multicast groups, by LID, and this SM's SMInfo.
    pub(super) fn with(mut self, groups: &'a BTreeMap<u16, Vec<GroupPort>>, info: SmInfo) -> Self {
        (self.groups, self.own_manager) = (Some(groups), Some(info));
        self
    }

    /// GUID of the switch that hosts the SM.
    pub(super) fn own_guid(&self) -> u64 {
        self.own.guid()
    }

    /// Non-empty blocks of a switch's multicast forwarding table: block, position, port masks.
    pub(super) fn multicast_table(&self, guid: u64) -> Vec<(u16, u8, [u8; 64])> {
        let tables = self.groups.map(|groups| self.manager.plan().multicast(groups));
        let blocks = tables.and_then(|mut tables| tables.remove(&guid)).unwrap_or_default();
        let parts = |modifier: u32| ((modifier & 0x1ff) as u16, (modifier >> 28) as u8);
        blocks
            .into_iter()
            .map(|(place, masks)| (parts(place.modifier).0, parts(place.modifier).1, masks))
            .collect()
    }

    pub(super) fn by_lid(&self, lid: u16) -> Option<EndPort<'a>> {
        self.ends.iter().find(|end| end.owns_lid(lid)).copied()
    }

    pub(super) fn by_gid(&self, gid: &[u8; 16]) -> Option<EndPort<'a>> {
        self.ends.iter().find(|end| end.gid() == *gid).copied()
    }

    pub(super) fn by_guid(&self, guid: u64) -> Option<EndPort<'a>> {
        self.ends.iter().find(|end| end.guid() == guid).copied()
    }

    /// Port 0 of a switch as an end port.
    pub(super) fn switch(&self, guid: u64) -> Option<EndPort<'a>> {
        self.ends.iter().find(|end| end.at == SwitchPort { switch: guid, port: 0 }).copied()
    }

    /// PortInfo of the egress ports between switches on the path from one end port to a LID; `None` if there is no
    /// path.
    pub(super) fn hops(&self, from: &EndPort<'_>, lid: u16) -> Option<Vec<&'a PortInfo>> {
        let hops = self.manager.plan().hops(from.at.switch, lid)?;
        hops.into_iter().map(|at| self.port_info(at)).collect()
    }

    /// SwitchInfo of a switch.
    pub(super) fn switch_info(&self, guid: u64) -> Option<&'a SwitchInfo> {
        match guid == self.own.guid() {
            true => Some(self.own.info()),
            false => self.manager.switch_info(guid),
        }
    }

    /// Non-empty blocks of a switch's linear forwarding table, with their numbers.
    pub(super) fn linear_table(&self, guid: u64) -> impl Iterator<Item = (u16, [u8; 64])> {
        let blocks = self.manager.plan().linear(guid).into_iter();
        // A LID has 16 bits, so its block number does too.
        blocks.map(|(place, block)| (place.modifier as u16, block))
    }

    /// PortInfo of a switch's external port.
    pub(super) fn port_info(&self, at: SwitchPort) -> Option<&'a PortInfo> {
        match at.switch == self.own.guid() {
            true => self.own.port(at.port),
            false => self.manager.port_info(at),
        }
    }
}

/// Port 0 of the switch that hosts the SM.
pub(super) fn own_port(own: &SwitchAgent) -> EndPort<'_> {
    EndPort {
        lid: own.lid(),
        lmc: 0,
        at: SwitchPort { switch: own.guid(), port: 0 },
        attributes: own.attributes(),
        partition_keys: own.partition_keys(),
    }
}
