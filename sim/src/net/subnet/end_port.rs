//! End ports: their attributes, and which ports can communicate.

use super::switch_port::SwitchPort;
use crate::wire::management::attributes::{NodeInfo, PortInfo, SmInfo};
use crate::wire::{MEMBERSHIP_BIT, is_same_partition};

/// Bytes of NodeDescription.
pub(super) const DESCRIPTION: usize = 64;

/// Attributes reported by an end port and its node.
#[derive(Debug, Clone)]
pub(super) struct PortAttributes {
    pub(super) node: NodeInfo,
    pub(super) description: [u8; DESCRIPTION],
    pub(super) port: PortInfo,
    /// SMInfo, if an SM runs there.
    pub(super) manager: Option<SmInfo>,
    /// Tables read from the port, by attribute and modifier.
    pub(super) tables: Vec<((u16, u32), [u8; 64])>,
}

impl PortAttributes {
    /// A table of the port, if it has been read.
    pub(super) fn table(&self, attribute: u16, modifier: u32) -> Option<[u8; 64]> {
        let known = self.tables.iter().find(|(place, _)| *place == (attribute, modifier));
        known.map(|(_, table)| *table)
    }

    /// Stores a table of the port.
    pub(super) fn learn_table(&mut self, attribute: u16, modifier: u32, data: &[u8]) {
        let mut table = [0; 64];
        for (to, byte) in table.iter_mut().zip(data) {
            *to = *byte;
        }
        let place = (attribute, modifier);
        self.tables.retain(|(known, _)| *known != place);
        self.tables.push((place, table));
    }

    /// Sets NodeDescription; truncates a long text.
    pub(super) fn describe(&mut self, text: &str) {
        let length = text.len().min(DESCRIPTION);
        self.description = [0; DESCRIPTION];
        self.description[..length].copy_from_slice(&text.as_bytes()[..length]);
    }

    /// GID of the port.
    pub(super) fn gid(&self) -> [u8; 16] {
        let gid = u128::from(self.port.gid_prefix()) << 64 | u128::from(self.node.port_guid());
        gid.to_be_bytes()
    }

    pub(super) const fn new() -> Self {
        Self {
            node: NodeInfo::new(),
            description: [0; DESCRIPTION],
            port: PortInfo::new(),
            manager: None,
            tables: Vec::new(),
        }
    }
}

/// An end port that has a LID.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndPort<'a> {
    /// Base LID.
    pub(super) lid: u16,
    /// LMC: the port has `1 << lmc` LIDs.
    pub(super) lmc: u8,
    /// The switch port that leads to it: an external port, or port 0 of the switch itself.
    pub(super) at: SwitchPort,
    pub(super) attributes: &'a PortAttributes,
    /// P_Key table of the port.
    pub(super) partition_keys: &'a [u16],
}

impl EndPort<'_> {
    pub(super) fn guid(&self) -> u64 {
        self.attributes.node.port_guid()
    }

    pub(super) fn gid(&self) -> [u8; 16] {
        self.attributes.gid()
    }

    /// Port number within its node. For an adapter it is the port that was queried; a switch reports the ingress port,
    /// so port 0 is meant.
    pub(super) fn number(&self) -> u8 {
        if self.at.port == 0 { 0 } else { self.attributes.port.local_port_num() }
    }

    pub(super) fn owns_lid(&self, lid: u16) -> bool {
        lid >> self.lmc == self.lid >> self.lmc
    }

    /// Whether the port accepts packets with this P_Key (IBTA v1.4 §10.9.3).
    pub(super) fn accepts_key(&self, theirs: u16) -> bool {
        self.partition_keys.iter().any(|own| is_same_partition(*own, theirs))
    }

    /// Whether `requester` may learn about this port: the port itself may, and ports that share a partition (IBTA v1.4
    /// §15.4.1).
    pub(super) fn is_visible_to(&self, requester: &EndPort<'_>) -> bool {
        self.guid() == requester.guid() || self.common_key(requester).is_some()
    }

    /// The first P_Key of this port that the other port accepts.
    pub(super) fn common_key(&self, other: &EndPort<'_>) -> Option<u16> {
        self.partition_keys.iter().copied().find(|key| other.accepts_key(*key))
    }
}

/// The P_Key of a full member of this partition.
pub(super) const fn full_member(key: u16) -> u16 {
    key | MEMBERSHIP_BIT
}
