//! The subnet that the judge has built: which port is connected to which, and what `ibnetdiscover` must print
//! of it.

use bareverbs_sim::net::SubnetConfig;
use bareverbs_sim::net::topology::{NodeKind, SubnetTopology, TopologyNode};

/// GUID, ports and name of the switch without a manager.
pub(super) const LEAF_GUID: u64 = 0x0002_c903_0000_0051;
pub(super) const LEAF_PORTS: u8 = 8;
pub(super) const LEAF: &str = "leaf";
/// Names of the nodes of the guest's ports.
pub(super) const NEAR: &str = "near";
pub(super) const FAR: &str = "far";
/// Ports of the two switches in the order in which cables are plugged in; the switch with the manager comes
/// first.
const SPINE_TO_NEAR: u8 = 1;
const SPINE_TO_LEAF: u8 = 2;
const LEAF_TO_SPINE: u8 = 1;
const LEAF_TO_FAR: u8 = 2;

/// A switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BuiltSwitch {
    pub(super) guid: u64,
    pub(super) lid: u16,
    /// Ports that lead to the guest's port near the manager, and to the other one; 0 is the switch itself.
    pub(super) to_near: u8,
    pub(super) to_far: u8,
    /// The port that leads to the other switch.
    pub(super) to_switch: u8,
}

/// A port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BuiltPort {
    pub(super) node_guid: u64,
    pub(super) guid: u64,
    pub(super) lid: u16,
}

/// The subnet; see the module's comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuiltSubnet {
    topology: SubnetTopology,
    /// The switch with the manager, and the other one.
    pub(super) spine: BuiltSwitch,
    pub(super) leaf: BuiltSwitch,
    /// The guest's port at the spine, and that at the leaf.
    pub(super) near: BuiltPort,
    pub(super) far: BuiltPort,
}

impl BuiltSubnet {
    /// What the manager has discovered, once it matches what was built: two switches, two adapters with the
    /// names that the guest gave them, three cables, and a LID for each.
    pub(super) fn of(found: &SubnetTopology) -> Option<Self> {
        let spine_guid = SubnetConfig::default().guid;
        let (spine_at, spine) = node(found, spine_guid)?;
        let (leaf_at, leaf) = node(found, LEAF_GUID)?;
        let leads = |from: &TopologyNode, port: u8, to: usize, to_port: u8| {
            from.links.get(&port).is_some_and(|link| (link.node, link.port) == (to, to_port))
        };
        let is_joined = leads(spine, SPINE_TO_LEAF, leaf_at, LEAF_TO_SPINE)
            && leads(leaf, LEAF_TO_SPINE, spine_at, SPINE_TO_LEAF);
        let is_whole = found.nodes.len() == 4 && found.cables().count() == 3 && leaf.ports == LEAF_PORTS;
        if !is_joined || !is_whole || spine.lid == 0 || leaf.lid == 0 {
            return None;
        }
        let near = adapter(found, spine, SPINE_TO_NEAR, NEAR)?;
        let far = adapter(found, leaf, LEAF_TO_FAR, FAR)?;
        Some(Self {
            topology: sorted(found),
            spine: BuiltSwitch {
                guid: spine.guid,
                lid: spine.lid,
                to_near: SPINE_TO_NEAR,
                to_far: SPINE_TO_LEAF,
                to_switch: SPINE_TO_LEAF,
            },
            leaf: BuiltSwitch {
                guid: leaf.guid,
                lid: leaf.lid,
                to_near: LEAF_TO_SPINE,
                to_far: LEAF_TO_FAR,
                to_switch: LEAF_TO_SPINE,
            },
            near,
            far,
        })
    }

    /// Whether the output of `ibnetdiscover` is this subnet: all nodes with names, ports and LIDs, and all
    /// cables with their speeds.
    pub(super) fn compare(&self, text: &str) -> Result<String, String> {
        let seen = SubnetTopology::parse(text).map_err(|error| format!("{error}: {text}"))?;
        let seen = sorted(&seen);
        if seen == self.topology {
            let (nodes, cables) = (seen.nodes.len(), seen.cables().count());
            return Ok(format!("{nodes} nodes and {cables} cables, all as built"));
        }
        let pairs = seen.nodes.iter().zip(&self.topology.nodes);
        let differing = pairs.filter(|(seen, built)| seen != built);
        let list: Vec<String> = differing.map(|(seen, built)| format!("{seen:?} is not {built:?}")).collect();
        Err(format!(
            "{} nodes of {}: {}: {text}",
            seen.nodes.len(),
            self.topology.nodes.len(),
            list.join("; ")
        ))
    }
}

fn node(found: &SubnetTopology, guid: u64) -> Option<(usize, &TopologyNode)> {
    found.nodes.iter().enumerate().find(|(_, node)| node.guid == guid)
}

/// The adapter with this name and a LID behind a port of a switch.
fn adapter(found: &SubnetTopology, at: &TopologyNode, port: u8, name: &str) -> Option<BuiltPort> {
    let link = at.links.get(&port)?;
    let node = found.nodes.get(link.node)?;
    if node.kind != NodeKind::ChannelAdapter || node.description != name {
        return None;
    }
    let port = node.links.get(&link.port).filter(|port| port.lid != 0)?;
    Some(BuiltPort { node_guid: node.guid, guid: port.guid, lid: port.lid })
}

/// The same subnet with its nodes in the order of their GUIDs.
fn sorted(topology: &SubnetTopology) -> SubnetTopology {
    let mut order: Vec<usize> = (0..topology.nodes.len()).collect();
    order.sort_by_key(|index| topology.nodes[*index].guid);
    let place = |index: usize| order.iter().position(|at| *at == index).unwrap_or(index);
    let mut nodes: Vec<TopologyNode> = order.iter().map(|index| topology.nodes[*index].clone()).collect();
    for link in nodes.iter_mut().flat_map(|node| node.links.values_mut()) {
        link.node = place(link.node);
    }
    SubnetTopology { nodes }
}

/// A subnet as the manager discovers it.
#[cfg(test)]
pub(super) fn example() -> BuiltSubnet {
    BuiltSubnet::of(&SubnetTopology::parse(tests::TEXT).expect("a topology")).expect("as built")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as text, with adapters 0xa0 and 0xb0.
    pub(super) const TEXT: &str = "\
switchguid=0x2c90300000051(2c90300000051)
Switch\t8 \"S-0002c90300000051\"\t\t# \"leaf\" base port 0 lid 3 lmc 0
[1]\t\"S-0002c90300000001\"[2]\t\t# \"spine\" lid 49151 4xEDR
[2]\t\"H-00000000000000b0\"[1](b1) \t\t# \"far\" lid 2 4xEDR

switchguid=0x2c90300000001(2c90300000001)
Switch\t2 \"S-0002c90300000001\"\t\t# \"spine\" base port 0 lid 49151 lmc 0
[1]\t\"H-00000000000000a0\"[1](a1) \t\t# \"near\" lid 1 4xEDR
[2]\t\"S-0002c90300000051\"[1]\t\t# \"leaf\" lid 3 4xEDR

caguid=0xa0
Ca\t1 \"H-00000000000000a0\"\t\t# \"near\"
[1](a1) \t\"S-0002c90300000001\"[1]\t\t# lid 1 lmc 0 \"spine\" lid 49151 4xEDR

caguid=0xb0
Ca\t1 \"H-00000000000000b0\"\t\t# \"far\"
[1](b1) \t\"S-0002c90300000051\"[2]\t\t# lid 2 lmc 0 \"leaf\" lid 3 4xEDR
";

    #[test]
    fn the_built_subnet_is_known_and_another_is_not() {
        let built = example();
        assert_eq!((built.near.lid, built.far.lid, built.leaf.lid, built.far.guid), (1, 2, 3, 0xb1));
        assert!(built.compare(TEXT).is_ok());
        for (from, to) in
            [("4xEDR", "4xHDR"), ("lid 3 lmc 0", "lid 4 lmc 0"), ("\"leaf\" base", "\"other\" base")]
        {
            assert!(built.compare(&TEXT.replacen(from, to, 1)).is_err(), "{to}");
        }
        let unaddressed = SubnetTopology::parse(&TEXT.replace("lid 2", "lid 0")).expect("a topology");
        assert_eq!(BuiltSubnet::of(&unaddressed), None);
    }
}
