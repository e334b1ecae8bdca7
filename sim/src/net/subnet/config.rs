//! How a subnet is managed.

use super::partitions::Partitions;
use std::collections::BTreeMap;

/// GUID of the switch, if it is given no other.
const SWITCH_GUID: u64 = 0x0002_c903_0000_0001;
/// The key by which requests are trusted, if there is no other: that of OpenSM.
const SM_KEY: u64 = 1;

/// How a subnet is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetConfig {
    /// LID mask control: every port has `1 << lmc` LIDs; at most 7.
    pub lmc: u8,
    /// Who is a member of which partition.
    pub partitions: Partitions,
    /// LIDs of ports by their GUIDs, known from before, as OpenSM keeps them in `guid2lid`. One that is on no boundary of the mask
    /// (IBTA v1.4 §4.1.3), or is that of a group or of the manager, is forgotten.
    pub known_lids: BTreeMap<u64, u16>,
    /// GUID of the switch and of its port 0, where the manager is.
    pub guid: u64,
    /// Who knows it is told more of the subnet (IBTA v1.4 §14.4.4). With 0 nobody is.
    pub sm_key: u64,
    /// Of several managers the one with the highest priority is the master (IBTA v1.4 §14.4.1); at most 15.
    pub priority: u8,
}

impl Default for SubnetConfig {
    /// One LID a port, and the default partition.
    fn default() -> Self {
        Self {
            lmc: 0,
            partitions: Partitions::default(),
            known_lids: BTreeMap::new(),
            guid: SWITCH_GUID,
            sm_key: SM_KEY,
            priority: 0,
        }
    }
}

/// How a switch without a manager is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetSwitchConfig {
    /// GUID of the switch, and of its port 0. No two nodes of a subnet have the same.
    pub guid: u64,
    /// Ports for cables; at most [`SWITCH_PORTS`](super::SWITCH_PORTS).
    pub ports: u8,
    /// What NodeDescription says, up to 64 bytes.
    pub description: String,
}
