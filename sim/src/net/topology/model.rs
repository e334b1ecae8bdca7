//! Nodes, their ports, and cables.

use super::speed::LinkSpeed;
use std::collections::BTreeMap;

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// A switch.
    Switch,
    /// A channel adapter.
    ChannelAdapter,
    /// A router to another subnet.
    Router,
}

/// A port with a cable, as its node has it, and what is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyLink {
    /// GUID of the port; that of a switch is the switch's.
    pub guid: u64,
    /// LID of the port, 0 if it has none or is one of a switch.
    pub lid: u16,
    /// LID mask control of the port.
    pub lmc: u8,
    /// Index of the node at the other end.
    pub node: usize,
    /// Port there.
    pub port: u8,
    /// Speed of the link.
    pub speed: LinkSpeed,
}

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CableEnd {
    /// Index of its node.
    pub node: usize,
    /// Port there.
    pub port: u8,
}

/// A node and its cables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyNode {
    /// What it is.
    pub kind: NodeKind,
    /// GUID of the node.
    pub guid: u64,
    /// GUID of its port 0, if it is a switch.
    pub port_guid: u64,
    /// GUID of the system that it is of; 0 if that is not known.
    pub system_guid: u64,
    /// Company number of its maker.
    pub vendor: u32,
    /// What the maker calls it.
    pub device: u16,
    /// How many ports it has.
    pub ports: u8,
    /// What it is called.
    pub description: String,
    /// Whether port 0 of a switch is an enhanced one.
    pub is_enhanced: bool,
    /// LID of port 0 of a switch.
    pub lid: u16,
    /// LID mask control of port 0 of a switch.
    pub lmc: u8,
    /// Ports with a cable, by their numbers.
    pub links: BTreeMap<u8, TopologyLink>,
}

/// The topology of a subnet; see the module.
///
/// ```
/// use bareverbs_sim::net::topology::{NodeKind, SubnetTopology};
///
/// let text = "\
/// switchguid=0x10(10)
/// Switch\t2 \"S-0000000000000010\"\t\t# \"rack 7\" base port 0 lid 3 lmc 0
/// [1]\t\"H-00000000000000a0\"[1](a1) \t\t# \"host\" lid 1 4xEDR
///
/// caguid=0xa0
/// Ca\t1 \"H-00000000000000a0\"\t\t# \"host\"
/// [1](a1) \t\"S-0000000000000010\"[1]\t\t# lid 1 lmc 0 \"rack 7\" lid 3 4xEDR
/// ";
/// let topology = SubnetTopology::parse(text).unwrap();
/// assert_eq!((topology.nodes.len(), topology.nodes[0].kind), (2, NodeKind::Switch));
/// assert_eq!(topology.nodes[0].links[&1].node, 1);
/// assert_eq!(SubnetTopology::parse(&topology.to_string()), Ok(topology));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubnetTopology {
    /// Its nodes.
    pub nodes: Vec<TopologyNode>,
}

impl SubnetTopology {
    /// Cables, each once.
    pub fn cables(&self) -> impl Iterator<Item = [CableEnd; 2]> + '_ {
        let ends = self.nodes.iter().enumerate().flat_map(|(node, from)| {
            let far = |link: &TopologyLink| CableEnd { node: link.node, port: link.port };
            from.links.iter().map(move |(port, link)| [CableEnd { node, port: *port }, far(link)])
        });
        ends.filter(|[near, far]| near <= far)
    }
}
