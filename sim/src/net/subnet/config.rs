//! Configuration of subnet management.

use super::partitions::Partitions;
use crate::net::topology::{NodeKind, SubnetTopology};
use std::collections::BTreeMap;

/// Default GUID of the switch.
const SWITCH_GUID: u64 = 0x0002_c903_0000_0001;
/// Default SM_Key, the same as OpenSM's. It marks trusted requests.
const SM_KEY: u64 = 1;

/// Configuration of the subnet manager (SM).
///
/// ```
/// use bareverbs_sim::net::{SubnetConfig, Switch};
/// use std::collections::BTreeMap;
///
/// // Four LIDs for each port, and the port with this GUID has LID 8 whenever it comes.
/// let known_lids = BTreeMap::from([(0x0002_c903_0000_000a, 8)]);
/// let switch = Switch::infiniband(SubnetConfig { lmc: 2, known_lids, ..SubnetConfig::default() });
/// assert_eq!(switch.topology().expect("the manager's").nodes.len(), 1, "its own switch");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetConfig {
    /// LID mask control: every port gets `1 << lmc` LIDs; at most 7.
    pub lmc: u8,
    /// Partitions and their members.
    pub partitions: Partitions,
    /// Known LIDs by port GUID, such as OpenSM's `guid2lid` has. A LID that is not aligned to the LMC (IBTA v1.4
    /// §4.1.3), is a multicast LID, or is the SM's is ignored.
    pub known_lids: BTreeMap<u64, u16>,
    /// GUID of the switch that hosts the SM, and of its port 0.
    pub guid: u64,
    /// NodeDescription of the switch, up to 64 bytes. If it is empty, a default says that the SM is there.
    pub description: String,
    /// SM_Key: requesters who know it may see more of the subnet (IBTA v1.4 §14.4.4). 0 means nobody may.
    pub sm_key: u64,
    /// SM priority, at most 15. Of several SMs the one with the highest priority becomes the master (IBTA v1.4
    /// §14.4.1).
    pub priority: u8,
}

impl Default for SubnetConfig {
    /// One LID per port, and only the default partition.
    fn default() -> Self {
        Self {
            lmc: 0,
            partitions: Partitions::default(),
            known_lids: BTreeMap::new(),
            guid: SWITCH_GUID,
            description: String::new(),
            sm_key: SM_KEY,
            priority: 0,
        }
    }
}

impl SubnetConfig {
    /// This configuration for a subnet with the given topology: the SM runs on the switch with `guid`, or on the first
    /// switch if none has that GUID. If `known_lids` is empty, the topology's LIDs are used. `None` without a switch.
    pub fn with_topology(&self, topology: &SubnetTopology) -> Option<Self> {
        let mut switches = topology.nodes.iter().filter(|node| node.kind == NodeKind::Switch);
        let own = switches.clone().find(|node| node.guid == self.guid).or_else(|| switches.next())?;
        let mut subnet = Self { guid: own.guid, ..self.clone() };
        if subnet.description.is_empty() {
            subnet.description.clone_from(&own.description);
        }
        if subnet.known_lids.is_empty() {
            let of_switches = topology.nodes.iter().map(|node| (node.port_guid, node.lid));
            let ports = topology.nodes.iter().flat_map(|node| node.links.values());
            let known =
                of_switches.chain(ports.map(|link| (link.guid, link.lid))).filter(|(_, lid)| *lid != 0);
            subnet.known_lids = known.collect();
        }
        Some(subnet)
    }
}

/// Configuration of a switch without an SM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetSwitchConfig {
    /// GUID of the switch and of its port 0. Must be unique in the subnet.
    pub guid: u64,
    /// Number of external ports, at most [`SWITCH_PORTS`](super::SWITCH_PORTS).
    pub ports: u8,
    /// NodeDescription, up to 64 bytes.
    pub description: String,
}
