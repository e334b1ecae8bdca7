//! Topologies survive formatting and parsing; invalid texts are refused with their line number.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Output of ibnetdiscover, with a chassis and an external port number.
const PRINTED: &str = "#
# Topology file: generated on Thu Jan  1 00:00:00 2026
#
# Initiated from node 248a070300aa0001 port 248a070300aa0001

Chassis 1 (guid 0x2c90200423e00)

# Spine Nodes
vendid=0x2c9
devid=0xcf08
sysimgguid=0x248a070300f88fe0\t\t# Chassis 1
switchguid=0x248a070300f88fe0(248a070300f88fe0)
Switch\t36 \"S-248a070300f88fe0\"\t\t# \"MF0;sw1:MSB7700/U1\" enhanced port 0 lid 1 lmc 0
[1][ext 7]\t\"H-248a070300aa0001\"[1](248a070300aa0001) \t\t# \"node1 mlx5_0\" lid 2 4xEDR s=4 w=2 v=4
[36]\t\"S-248a070300f88fe1\"[3]\t\t# \"sw #2\" lid 9 4xHDR

vendid=0x2c9
devid=0xcf08
switchguid=0x248a070300f88fe1(248a070300f88fe1)
Switch\t36 \"S-248a070300f88fe1\"\t\t# \"sw #2\" base port 0 lid 9 lmc 0
[3]\t\"S-248a070300f88fe0\"[36]\t\t# \"MF0;sw1:MSB7700/U1\" lid 1 4xHDR

vendid=0x2c9
devid=0x1017
sysimgguid=0x248a070300aa0001
caguid=0x248a070300aa0001
Ca\t2 \"H-248a070300aa0001\"\t\t# \"node1 mlx5_0\"
[1](248a070300aa0001) \t\"S-248a070300f88fe0\"[1]\t\t# lid 2 lmc 1 \"MF0;sw1:MSB7700/U1\" lid 1 4xEDR
";

#[test]
fn output_of_ibnetdiscover_is_read() {
    let topology = SubnetTopology::parse(PRINTED).expect("a topology");
    let [one, two, host] = &topology.nodes[..] else { panic!("{topology:?}") };
    assert_eq!((one.kind, one.ports, one.lid, one.is_enhanced), (NodeKind::Switch, 36, 1, true));
    assert_eq!((one.device, one.vendor, &one.description[..]), (0xcf08, 0x2c9, "MF0;sw1:MSB7700/U1"));
    assert_eq!((&two.description[..], two.is_enhanced, two.system_guid), ("sw #2", false, 0));
    assert_eq!(
        (host.kind, host.ports, host.links[&1].lid, host.links[&1].lmc),
        (NodeKind::ChannelAdapter, 2, 2, 1)
    );
    assert_eq!((one.links[&36].node, one.links[&36].port), (1, 3));
    assert_eq!(one.links[&36].speed.to_string(), "4xHDR");
    assert_eq!(host.links[&1].speed.bits_per_second(), 100_000_000_000);
    let cables = topology.cables().map(|ends| ends.map(|end| (end.node, end.port)));
    assert_eq!(cables.collect::<Vec<_>>(), [[(0, 1), (2, 1)], [(0, 36), (1, 3)]]);
    assert_eq!(SubnetTopology::parse(&topology.to_string()), Ok(topology));
}

/// ibsim accepts less: free names, optional GUIDs, and cables mentioned at one end.
#[test]
fn topology_files_of_ibsim_are_read() {
    let text = "switchguid=0x10\nSwitch 8 \"leaf\"\n[2] \"host\"\ncaguid=0x20\nHca 1 \"host\"\n";
    let topology = SubnetTopology::parse(text).expect("a topology");
    let (leaf, host) = (&topology.nodes[0], &topology.nodes[1]);
    assert_eq!((leaf.guid, leaf.links[&2].node, leaf.links[&2].port), (0x10, 1, 1));
    assert_eq!((host.guid, host.links[&1].node, host.links[&1].port), (0x20, 0, 2));
}

#[test]
fn contradictory_lines_are_refused_with_their_number() {
    let node = "Switch 4 \"S-0000000000000001\"\n";
    let other = "Ca 1 \"H-0000000000000002\"\n";
    let refused = |text: &str| SubnetTopology::parse(text).expect_err(text).to_string();
    for (text, line, why) in [
        ("Swatch 4 \"S-1\"".to_owned(), 1, "neither a node nor a port"),
        ("[1] \"S-1\"[2]".to_owned(), 1, "before any node"),
        ("\nSwitch 256 \"S-1\"".to_owned(), 2, "no number of ports"),
        ("Switch 4 S-1".to_owned(), 1, "quotation marks"),
        ("Switch 4 \"leaf\"".to_owned(), 1, "no GUID"),
        ("switchguid=0xq(1)".to_owned(), 1, "no GUID"),
        ("devid=0x10000".to_owned(), 1, "no device"),
        ("colour=7".to_owned(), 1, "neither"),
        (format!("{node}{node}"), 2, "there already"),
        (format!("{node}[5] \"H-0000000000000002\"[1]\n{other}"), 2, "port 5"),
        (format!("{node}[1] \"H-0000000000000002\"[2]\n{other}"), 2, "port 2"),
        (format!("{node}[1] \"H-0000000000000003\"[1]\n{other}"), 2, "nowhere"),
        (format!("{node}[1] \"H-0000000000000002\"[1\n{other}"), 2, "brackets"),
        (format!("{node}[1] \"H-0000000000000002\"[1](2\n{other}"), 2, "parentheses"),
        (format!("{node}[1] \"S-0000000000000001\"[1]\n"), 2, "another cable"),
        (
            format!("{node}[1] \"H-0000000000000002\"[1]\n[1] \"H-0000000000000002\"[1]\n{other}"),
            3,
            "has a cable",
        ),
        (
            format!("{node}[1] \"H-0000000000000002\"[1]\n[2] \"H-0000000000000002\"[1]\n{other}"),
            3,
            "another cable",
        ),
        ("#".repeat(5000), 1, "bytes of a line"),
    ] {
        let said = refused(&text);
        assert!(said.starts_with(&format!("line {line} ")) && said.contains(why), "{text:?}: {said}");
    }
}

/// Switches and hosts, randomly connected.
fn topology() -> impl Strategy<Value = SubnetTopology> {
    let speed = (prop::sample::select(vec![1_u8, 2, 4, 8, 12]), 0..9_usize);
    let cable = (any::<(prop::sample::Index, prop::sample::Index)>(), any::<[u8; 2]>(), speed);
    let node = ("[a-zA-Z0-9 ;:/#_-]{0,40}", 1..=254_u8, any::<(u32, u16, bool, u16)>());
    (prop::collection::vec(node, 1..20), 0..10_usize, prop::collection::vec(cable, 0..60)).prop_map(
        |(nodes, switches, cables)| {
            let nodes: Vec<_> =
                (1..).zip(nodes).map(|(guid, node)| build_node(guid, switches, node)).collect();
            let mut topology = SubnetTopology { nodes };
            for ((one, other), ports, (lanes, lane)) in cables {
                let count = topology.nodes.len();
                let lane = [
                    LaneSpeed::SDR,
                    LaneSpeed::DDR,
                    LaneSpeed::QDR,
                    LaneSpeed::FDR10,
                    LaneSpeed::FDR,
                    LaneSpeed::EDR,
                    LaneSpeed::HDR,
                    LaneSpeed::NDR,
                    LaneSpeed::XDR,
                ][lane];
                join(&mut topology, [one.index(count), other.index(count)], ports, LinkSpeed { lanes, lane });
            }
            topology
        },
    )
}

fn build_node(
    guid: u64,
    switches: usize,
    (description, ports, (vendor, device, is_enhanced, lid)): (String, u8, (u32, u16, bool, u16)),
) -> TopologyNode {
    let is_switch = guid <= switches as u64;
    let kind = if is_switch { NodeKind::Switch } else { NodeKind::ChannelAdapter };
    TopologyNode {
        kind,
        guid,
        port_guid: if is_switch { guid | 1 << 60 } else { guid },
        system_guid: u64::from(vendor),
        vendor: vendor & 0xff_ffff,
        device,
        ports,
        description,
        is_enhanced: is_enhanced && is_switch,
        lid: if is_switch { lid } else { 0 },
        lmc: if is_switch { (lid % 8) as u8 } else { 0 },
        links: BTreeMap::new(),
    }
}

fn join(topology: &mut SubnetTopology, [one, other]: [usize; 2], ports: [u8; 2], speed: LinkSpeed) {
    let port = |node: usize, number: u8| 1 + number % topology.nodes[node].ports;
    let ends = [(one, port(one, ports[0])), (other, port(other, ports[1]))];
    let is_taken = |(node, port): (usize, u8)| topology.nodes[node].links.contains_key(&port);
    if ends[0] == ends[1] || ends.into_iter().any(is_taken) {
        return;
    }
    for [(node, port), far] in [ends, [ends[1], ends[0]]] {
        let from = &mut topology.nodes[node];
        let is_switch = from.kind == NodeKind::Switch;
        let (guid, lid) =
            if is_switch { (from.port_guid, 0) } else { (from.guid << 8 | u64::from(port), u16::from(port)) };
        let lmc = if is_switch { 0 } else { port % 8 };
        from.links.insert(port, TopologyLink { guid, lid, lmc, node: far.0, port: far.1, speed });
    }
}

proptest! {
    /// Formatting and parsing returns the same topology.
    #[test]
    fn a_topology_survives_its_text(topology in topology()) {
        prop_assert_eq!(SubnetTopology::parse(&topology.to_string()), Ok(topology));
    }

    /// Any text is either a topology or an error; a parsed topology survives formatting.
    #[test]
    fn any_text_is_read_or_refused(text in "([\\[\\]()\"# =x0-9a-fSCHRt\n-]|Switch 4 |Ca 2 |caguid=0x|\"S-0000000000000001\"){0,60}") {
        if let Ok(topology) = SubnetTopology::parse(&text) {
            prop_assert!(SubnetTopology::parse(&topology.to_string()).is_ok());
        }
    }

    /// So is a damaged text.
    #[test]
    fn a_damaged_text_is_read_or_refused(at in any::<prop::sample::Index>(), length in 0..40_usize, with in "[ -~\n]{0,8}") {
        let (start, mut text) = (at.index(PRINTED.len()), PRINTED.to_owned());
        let end = (start + length).min(text.len());
        text.replace_range(start..end, &with);
        let _ = SubnetTopology::parse(&text);
    }
}
