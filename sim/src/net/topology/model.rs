//! Nodes, their ports, and cables.

use super::speed::LinkSpeed;
use std::collections::BTreeMap;

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// A switch.
    Switch,
    /// A channel adapter.
    ChannelAdapter,
    /// A router to another subnet.
    Router,
}

/// A connected port as its own node describes it, with its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyLink {
    /// GUID of the port; for a switch, the switch's GUID.
    pub guid: u64,
    /// LID of the port; 0 if it has none or belongs to a switch.
    pub lid: u16,
    /// LMC of the port.
    pub lmc: u8,
    /// Index of the peer node.
    pub node: usize,
    /// Port number at the peer.
    pub port: u8,
    /// Speed of the link.
    pub speed: LinkSpeed,
}

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CableEnd {
    /// Index of its node.
    pub node: usize,
    /// Port number.
    pub port: u8,
}

/// A node and its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyNode {
    /// Kind of the node.
    pub kind: NodeKind,
    /// GUID of the node.
    pub guid: u64,
    /// GUID of port 0 of a switch.
    pub port_guid: u64,
    /// System image GUID; 0 if unknown.
    pub system_guid: u64,
    /// Vendor ID.
    pub vendor: u32,
    /// Device ID.
    pub device: u16,
    /// Number of ports.
    pub ports: u8,
    /// Node description.
    pub description: String,
    /// Whether port 0 of a switch is enhanced.
    pub is_enhanced: bool,
    /// LID of port 0 of a switch.
    pub lid: u16,
    /// LMC of port 0 of a switch.
    pub lmc: u8,
    /// Connected ports, by port number.
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
    /// All cables, each once.
    pub fn cables(&self) -> impl Iterator<Item = [CableEnd; 2]> + '_ {
        let ends = self.nodes.iter().enumerate().flat_map(|(node, from)| {
            let far = |link: &TopologyLink| CableEnd { node: link.node, port: link.port };
            from.links.iter().map(move |(port, link)| [CableEnd { node, port: *port }, far(link)])
        });
        ends.filter(|[near, far]| near <= far)
    }
}
