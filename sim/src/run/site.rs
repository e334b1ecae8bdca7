//! A subnet from a topology: switches, hosts and cables as they are at a site.

use super::device::Device;
use super::latency::Latency;
use super::topology::{NodeId, NodeOrSwitch, SwitchId, TopologyError};
use super::world::World;
use crate::net::topology::{CableEnd, NodeKind, SubnetTopology, TopologyNode};
use crate::net::{LinkConfig, SubnetConfig, SubnetSwitchConfig, SwitchConfig};
use crate::nic::HostMemory;
use core::fmt;

/// How a topology is built.
#[derive(Debug, Clone, Default)]
pub struct TopologyBuild {
    /// How switches are built.
    pub switch: SwitchConfig,
    /// How the subnet is managed. If no switch has `guid`, the manager is in the first one. LIDs of the topology are known to it, if it
    /// knows none.
    pub subnet: SubnetConfig,
    /// Times between hosts and their devices.
    pub latency: Latency,
}

/// A port of a host that has a cable.
#[derive(Debug, Clone, Copy)]
pub struct HostPort<'a> {
    /// Its node.
    pub node: &'a TopologyNode,
    /// Its number.
    pub port: u8,
    /// Its GUID.
    pub guid: u64,
}

/// What was built.
#[derive(Debug, Clone)]
pub struct BuiltTopology {
    /// The switch with the manager.
    pub manager: SwitchId,
    /// Switches and their GUIDs.
    pub switches: Vec<(u64, SwitchId)>,
    /// Ports of hosts and their GUIDs; each is a node.
    pub hosts: Vec<(u64, NodeId)>,
}

/// Why a topology was not built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyBuildError {
    /// There is no switch in which the manager could be.
    NoSwitch,
    /// A node that no world has: its GUID.
    Router(u64),
    /// A cable could not be plugged in: GUID of a node, its port, and why.
    Cable(u64, u8, TopologyError),
}

impl fmt::Display for TopologyBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSwitch => f.write_str("the topology has no switch: the manager of its subnet needs one"),
            Self::Router(guid) => {
                write!(
                    f,
                    "node {guid:#x} is a router, which a world has none of: take it out of the topology"
                )
            }
            Self::Cable(guid, port, why) => write!(f, "the cable at port {port} of node {guid:#x}: {why}"),
        }
    }
}

impl core::error::Error for TopologyBuildError {}

/// What the nodes of a topology have become; hosts by their ports.
#[derive(Clone)]
enum BuiltNode {
    Switch(SwitchId),
    Host(Vec<(u8, NodeId)>),
}

impl<M: HostMemory, D: Device> World<M, D> {
    /// Builds a subnet: `host` makes the device of each port of a host that has a cable, and its memory. Switches have their GUIDs, and cables the
    /// ports that the topology says. Links are as fast as it says.
    pub fn add_topology(
        &mut self,
        topology: &SubnetTopology,
        build: &TopologyBuild,
        mut host: impl FnMut(HostPort<'_>) -> (D, M),
    ) -> Result<BuiltTopology, TopologyBuildError> {
        let subnet = subnet_of(topology, &build.subnet)?;
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

/// How the subnet is managed, with the switch where the manager is, and LIDs that are known.
fn subnet_of(topology: &SubnetTopology, wish: &SubnetConfig) -> Result<SubnetConfig, TopologyBuildError> {
    let mut switches = topology.nodes.iter().filter(|node| node.kind == NodeKind::Switch);
    let first = switches.clone().next().ok_or(TopologyBuildError::NoSwitch)?.guid;
    let mut subnet = wish.clone();
    if !switches.any(|node| node.guid == subnet.guid) {
        subnet.guid = first;
    }
    if subnet.known_lids.is_empty() {
        let of_switches = topology.nodes.iter().map(|node| (node.port_guid, node.lid));
        let ports = topology.nodes.iter().flat_map(|node| node.links.values());
        let known = of_switches.chain(ports.map(|link| (link.guid, link.lid))).filter(|(_, lid)| *lid != 0);
        subnet.known_lids = known.collect();
    }
    Ok(subnet)
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
