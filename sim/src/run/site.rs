//! Builds a subnet from a topology, with the switches, hosts and cables of a real site.

use super::device::Device;
use super::latency::Latency;
use super::topology::{NodeId, NodeOrSwitch, SwitchId, TopologyError};
use super::world::World;
use crate::net::topology::{CableEnd, NodeKind, SubnetTopology, TopologyNode};
use crate::net::{LinkConfig, SubnetConfig, SubnetSwitchConfig, SwitchConfig};
use crate::nic::HostMemory;
use core::fmt;

/// Parameters for building a topology.
///
/// ```
/// use bareverbs_sim::net::SubnetConfig;
/// use bareverbs_sim::run::{Preset, TopologyBuild};
///
/// // Hosts like those of StRoM, at switches as they are by default; every port has two LIDs.
/// let subnet = SubnetConfig { lmc: 1, ..SubnetConfig::default() };
/// let build = TopologyBuild { latency: Preset::STROM_100G.node, subnet, ..TopologyBuild::default() };
/// assert_eq!(build.switch.mark_from, None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct TopologyBuild {
    /// Configuration of the switches.
    pub switch: SwitchConfig,
    /// Configuration of the SM. If no switch has its `guid`, the SM runs on the first switch. If it has no known LIDs,
    /// it takes those of the topology.
    pub subnet: SubnetConfig,
    /// Latencies of the hosts' nodes.
    pub latency: Latency,
}

/// A connected port of a host.
#[derive(Debug, Clone, Copy)]
pub struct HostPort<'a> {
    /// Its node in the topology.
    pub node: &'a TopologyNode,
    /// Port number.
    pub port: u8,
    /// Port GUID.
    pub guid: u64,
}

/// The result of building a topology.
#[derive(Debug, Clone)]
pub struct BuiltTopology {
    /// The switch that hosts the SM.
    pub manager: SwitchId,
    /// Switches with their GUIDs.
    pub switches: Vec<(u64, SwitchId)>,
    /// Host ports with their GUIDs; each is a node of the world.
    pub hosts: Vec<(u64, NodeId)>,
}

/// Why a topology could not be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyBuildError {
    /// There is no switch to host the SM.
    NoSwitch,
    /// The GUID of a router, which a world cannot simulate.
    Router(u64),
    /// A cable that could not be connected: GUID and port of a node, and the reason.
    Cable(u64, u8, TopologyError),
}

impl fmt::Display for TopologyBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSwitch => f.write_str("the topology has no switch: the manager of its subnet needs one"),
            Self::Router(guid) => {
                write!(
                    f,
                    "node {guid:#x} is a router, which the simulator does not support: remove it from the topology"
                )
            }
            Self::Cable(guid, port, why) => write!(f, "the cable at port {port} of node {guid:#x}: {why}"),
        }
    }
}

impl core::error::Error for TopologyBuildError {}

/// What a topology's node was built as; for hosts, by port.
#[derive(Clone)]
enum BuiltNode {
    Switch(SwitchId),
    Host(Vec<(u8, NodeId)>),
}

impl<M: HostMemory, D: Device> World<M, D> {
    /// Builds a subnet. `host` creates the device and memory of each connected host port. GUIDs of switches, ports of
    /// cables and link rates are those of the topology.
    pub fn add_topology(
        &mut self,
        topology: &SubnetTopology,
        build: &TopologyBuild,
        mut host: impl FnMut(HostPort<'_>) -> (D, M),
    ) -> Result<BuiltTopology, TopologyBuildError> {
        let subnet = build.subnet.with_topology(topology).ok_or(TopologyBuildError::NoSwitch)?;
        let mut places = Vec::new();
        for node in &topology.nodes {
            places.push(match node.kind {
                NodeKind::Switch => BuiltNode::Switch(self.add_site_switch(node, build, &subnet)),
                NodeKind::ChannelAdapter => BuiltNode::Host(self.add_host(node, build.latency, &mut host)),
                NodeKind::Router => return Err(TopologyBuildError::Router(node.guid)),
            });
        }
        for ends in topology.cables() {
            self.add_cable(topology, &places, ends)?;
        }
        Ok(built(topology, &places, subnet.guid))
    }

    fn add_site_switch(
        &mut self,
        node: &TopologyNode,
        build: &TopologyBuild,
        subnet: &SubnetConfig,
    ) -> SwitchId {
        let name = if node.description.is_empty() {
            format!("{:016x}", node.guid)
        } else {
            node.description.clone()
        };
        if node.guid == subnet.guid {
            return self.add_subnet(&name, build.switch, subnet.clone());
        }
        let config =
            SubnetSwitchConfig { guid: node.guid, ports: node.ports, description: node.description.clone() };
        self.add_subnet_switch(&name, build.switch, &config)
    }

    fn add_host(
        &mut self,
        node: &TopologyNode,
        latency: Latency,
        host: &mut impl FnMut(HostPort<'_>) -> (D, M),
    ) -> Vec<(u8, NodeId)> {
        let mut ports = Vec::new();
        for (port, link) in &node.links {
            let (device, memory) = host(HostPort { node, port: *port, guid: link.guid });
            let name = format!("{} port {port}", node.description);
            ports.push((*port, self.add_node(&name, device, memory, latency)));
        }
        ports
    }

    fn add_cable(
        &mut self,
        topology: &SubnetTopology,
        places: &[BuiltNode],
        [near, far]: [CableEnd; 2],
    ) -> Result<(), TopologyBuildError> {
        let node = &topology.nodes[near.node];
        let failed = |why| TopologyBuildError::Cable(node.guid, near.port, why);
        let end = |CableEnd { node, port }| match places.get(node) {
            Some(BuiltNode::Switch(switch)) => Some(NodeOrSwitch::SwitchPort { switch: *switch, port }),
            Some(BuiltNode::Host(ports)) => {
                ports.iter().find(|(number, _)| *number == port).map(|(_, node)| NodeOrSwitch::Node(*node))
            }
            None => None,
        };
        let (Some(one), Some(other)) = (end(near), end(far)) else {
            return Err(failed(TopologyError::Unknown));
        };
        let speed = node.links.get(&near.port).map(|link| link.speed.bits_per_second());
        let bits_per_second = speed.ok_or_else(|| failed(TopologyError::Unknown))?;
        let config = LinkConfig { bits_per_second, ..LinkConfig::gigabits(100) };
        self.connect(one, other, config).map(|_| ()).map_err(failed)
    }
}

fn built(topology: &SubnetTopology, places: &[BuiltNode], manager: u64) -> BuiltTopology {
    let mut built = BuiltTopology { manager: SwitchId(0), switches: Vec::new(), hosts: Vec::new() };
    for (node, place) in topology.nodes.iter().zip(places) {
        match place {
            BuiltNode::Switch(switch) => {
                if node.guid == manager {
                    built.manager = *switch;
                }
                built.switches.push((node.guid, *switch));
            }
            BuiltNode::Host(ports) => {
                let guid = |port: &u8| node.links.get(port).map_or(node.guid, |link| link.guid);
                built.hosts.extend(ports.iter().map(|(port, host)| (guid(port), *host)));
            }
        }
    }
    built
}
