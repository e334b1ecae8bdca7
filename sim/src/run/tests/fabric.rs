//! A two-level fat tree in virtual time: what its SM configures, what discovery finds, and what happens when links
//! fail.

use super::player::Bytes;
use super::station::Station;
use crate::net::topology::SubnetTopology;
use crate::net::{
    LinkConfig, MANAGER_LID, Member, RandomFaults, SubnetConfig, SubnetSwitchConfig, SwitchConfig,
};
use crate::run::{Latency, LinkId, NodeId, NodeOrSwitch, SwitchId, TopologyBuild, TopologyError, World};
use crate::wire::infiniband::parse;
use crate::wire::management::attributes::{NodeInfo, PortInfo, SwitchInfo};
use crate::wire::management::{
    GENERAL_SERVICES_QKEY, Method, PortState, SubnetPacket, attribute, node_type, status,
};
use crate::wire::{
    BthOpcode, DEFAULT_PARTITION_KEY, Deth, Extension, FrameBuffer, FrameWriter, GlobalRoute, HeaderTemplate,
    LocalRoute, PacketHeader, ServiceClass, ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};

const LINK: LinkConfig = LinkConfig::gigabits(100);
const LEAVES: usize = 4;
const HOSTS: usize = 8;
const SPINE: u64 = 0x100;
const LEAF: u64 = 0x200;

/// Two spines and four leaves with two hosts each. The SM runs on the first leaf.
struct FatTree {
    world: World<Bytes, Station>,
    leaves: Vec<SwitchId>,
    spines: [SwitchId; 2],
    hosts: Vec<NodeId>,
    /// Cables from each leaf to the spines.
    uplinks: Vec<[LinkId; 2]>,
}

fn fat_tree(seed: u64) -> FatTree {
    let mut world = World::new(seed);
    let config = SwitchConfig::default();
    let further = |guid: u64| SubnetSwitchConfig { guid, ports: 8, description: format!("switch {guid:x}") };
    let mut leaves =
        vec![world.add_subnet("leaf 0", config, SubnetConfig { guid: LEAF, ..SubnetConfig::default() })];
    for leaf in 1..LEAVES {
        leaves.push(world.add_subnet_switch(&format!("leaf {leaf}"), config, &further(LEAF + leaf as u64)));
    }
    let spines = [0, 1]
        .map(|spine| world.add_subnet_switch(&format!("spine {spine}"), config, &further(SPINE + spine)));
    let mut hosts = Vec::new();
    for number in 0..HOSTS {
        let name = format!("host {number}");
        let host =
            world.add_node(&name, Station::new(number as u8 + 1), Bytes::default(), Latency::default());
        world.connect(host, leaves[number / 2], LINK).unwrap();
        hosts.push(host);
    }
    let mut uplink = |leaf: &SwitchId| spines.map(|spine| world.connect(*leaf, spine, LINK).unwrap());
    let uplinks = leaves.iter().map(&mut uplink).collect();
    FatTree { world, leaves, spines, hosts, uplinks }
}

impl FatTree {
    fn settled(seed: u64) -> Self {
        let mut tree = fat_tree(seed);
        tree.world.run_until_idle(Time::MAX);
        tree
    }

    fn members(&self) -> Vec<Member> {
        self.world.subnet_members(self.leaves[0]).collect()
    }

    /// LIDs of the hosts.
    fn lids(&self) -> BTreeMap<u64, u16> {
        self.members().iter().map(|member| (member.guid, member.lid)).collect()
    }

    /// LIDs of the hosts in order. Hosts were added in the order of their GUIDs.
    fn host_lids(&self) -> Vec<u16> {
        self.lids().into_values().collect()
    }

    /// Frames that each leaf has sent to each spine.
    fn climbed(&self) -> Vec<u64> {
        let ways = self.leaves.iter().flat_map(|leaf| self.spines.map(|spine| (*leaf, spine)));
        ways.map(|(leaf, spine)| self.world.link_counters(leaf, spine).unwrap().frames).collect()
    }

    fn pass(&mut self, time: Duration) {
        let deadline = self.world.now() + time;
        self.world.run_until(deadline);
    }

    fn send(&mut self, host: usize, (frame, icrc): (FrameBuffer, u32)) {
        self.world.with_device(self.hosts[host], |station, _, _| station.send(frame, icrc));
    }

    /// Sends a datagram from every host to every other. Returns the pairs where it did not arrive exactly once.
    fn unreached(&mut self) -> Vec<(usize, usize)> {
        let lids = self.host_lids();
        assert_eq!(lids.len(), HOSTS);
        for host in &self.hosts {
            self.world.with_device(*host, |station, _, _| station.received.clear());
        }
        for from in 0..HOSTS {
            for to in (0..HOSTS).filter(|to| *to != from) {
                self.send(from, datagram(lids[from], lids[to], None));
            }
        }
        self.pass(Duration::from_millis(1));
        let mut unreached = Vec::new();
        for (to, host) in self.hosts.iter().enumerate() {
            let mut heard: Vec<u16> =
                self.world.device(*host).received.iter().map(|frame| source(frame)).collect();
            heard.sort_unstable();
            for from in (0..HOSTS).filter(|from| *from != to) {
                let times = heard.iter().filter(|lid| **lid == lids[from]).count();
                unreached.extend((times != 1).then_some((from, to)));
            }
        }
        unreached
    }

    /// The response to a directed-route request from a host.
    fn ask(&mut self, host: usize, route: &[u8], attribute: u16, modifier: u32) -> Option<SubnetPacket> {
        let transaction = self.world.now().as_nanos() | 1 << 63;
        let mut request = SubnetPacket::request(Method::Get, attribute, modifier, transaction);
        assert!(request.leave_along(route));
        self.send(host, request.to_frame(0, 0));
        self.pass(Duration::from_micros(50));
        let frames = &self.world.device(self.hosts[host]).managed;
        let responses = frames.iter().filter_map(|frame| SubnetPacket::of(&parse(frame).expect("a packet")));
        let mut responses = responses.filter(|response| {
            response.method() == Method::Response && response.transaction() == transaction
        });
        let response = responses.next()?;
        assert!(responses.next().is_none(), "two answers");
        assert_eq!(response.status(), status::OK, "{route:?} {attribute:#x} {modifier}");
        Some(response)
    }

    fn get<T: zerocopy::FromBytes>(&mut self, host: usize, route: &[u8], attribute: u16, modifier: u32) -> T {
        self.ask(host, route, attribute, modifier).expect("an answer").read().expect("its attribute")
    }

    /// Discovers the subnet from a host like ibnetdiscover, with NodeInfo and PortInfo along directed routes. Returns
    /// the ends of each cable found.
    fn discover(&mut self, host: usize) -> BTreeSet<[(u64, u8); 2]> {
        let mut cables = BTreeSet::new();
        let mut known = BTreeSet::new();
        // A host has one port, so start with the switch behind it.
        let mut routes = vec![vec![1_u8]];
        while let Some(route) = routes.pop() {
            let node: NodeInfo = self.get(host, &route, attribute::NODE_INFO, 0);
            if node.node_type() != node_type::SWITCH || !known.insert(node.node_guid()) {
                continue;
            }
            let _: SwitchInfo = self.get(host, &route, attribute::SWITCH_INFO, 0);
            for port in 1..=node.num_ports() {
                let info: PortInfo = self.get(host, &route, attribute::PORT_INFO, port.into());
                if info.port_physical_state() == 5 {
                    let next = [&route[..], &[port]].concat();
                    let far: NodeInfo = self.get(host, &next, attribute::NODE_INFO, 0);
                    let mut ends = [(node.node_guid(), port), (far.node_guid(), far.local_port_num())];
                    ends.sort_unstable();
                    cables.insert(ends);
                    routes.push(next);
                }
            }
        }
        cables
    }
}

pub(super) fn datagram(from: u16, to: u16, group: Option<[u8; 16]>) -> (FrameBuffer, u32) {
    let global = group.map(|group| GlobalRoute::new([0xfe; 16], group));
    let local = LocalRoute { source: from, destination: to, service_level: 0, virtual_lane: 0, global };
    let template = HeaderTemplate::new(&local.into(), Qpn::from_low_bits(7), DEFAULT_PARTITION_KEY)
        .of_service(ServiceClass::UnreliableDatagram);
    let deth = Deth { q_key: GENERAL_SERVICES_QKEY, source: Qpn::from_low_bits(7) };
    let header = PacketHeader {
        opcode: BthOpcode::SendOnly,
        psn: Psn::new(0),
        solicited: false,
        ack_request: false,
        service_header: ServiceHeader::Deth(deth),
        extension: Extension::None,
    };
    let mut frame = FrameBuffer::new();
    let mut writer = FrameWriter::begin(&mut frame, &template, &header, 64).expect("it fits");
    writer.payload_mut().fill(0x5a);
    let icrc = writer.finish();
    (frame, icrc)
}

fn source(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[6], frame[7]])
}

/// Requirement: IBTA v1.4 §14.4.3: the subnet manager discovers ports behind several switches, assigns LIDs, activates
/// them, and fills the tables so that each port reaches every other.
#[test]
fn every_host_of_a_fat_tree_reaches_every_other() {
    let mut tree = FatTree::settled(1);
    let members = tree.members();
    assert_eq!(members.len(), HOSTS);
    assert!(members.iter().all(|member| member.is_active));
    assert_eq!(tree.lids().into_values().collect::<BTreeSet<_>>().len(), HOSTS, "a LID for each");
    // Wait for the last sweep to finish.
    tree.pass(Duration::from_millis(10));
    let before = tree.climbed();
    assert_eq!(tree.unreached(), []);
    let climbed: Vec<u64> = tree.climbed().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(climbed, [6; 8], "each cable carries as much of what leaves the leaves");
}

/// Requirement: IBTA v1.4 §14.2.2: switches forward directed routes of several hops, so a walk discovers the actual
/// subnet.
#[test]
fn a_walk_along_directed_routes_finds_the_topology_that_was_built() {
    let mut tree = FatTree::settled(1);
    let guids: Vec<u64> = tree.lids().into_keys().collect();
    let mut built = BTreeSet::new();
    for (leaf, guid) in (0..LEAVES).zip(LEAF..) {
        for host in 0..2_u8 {
            built.insert([(guid, host + 1), (guids[leaf * 2 + usize::from(host)], 1)]);
        }
        for spine in 0..2_u8 {
            built.insert([(SPINE + u64::from(spine), leaf as u8 + 1), (guid, spine + 3)]);
        }
    }
    assert_eq!(tree.discover(0), built);
    assert_eq!(tree.discover(7), built);
}

/// Every connected switch port is active, and the linear tables read back lead each LID somewhere.
#[test]
fn switches_show_what_the_manager_made_of_them() {
    let mut tree = FatTree::settled(1);
    let (spine, leaf) = ([1, 3], [1, 3, 3]);
    let info: SwitchInfo = tree.get(0, &spine, attribute::SWITCH_INFO, 0);
    assert_eq!((info.linear_top(), info.port_state_change()), (MANAGER_LID, false));
    let own: PortInfo = tree.get(0, &leaf, attribute::PORT_INFO, 0);
    assert!(own.lid() != 0 && own.master_sm_lid() == MANAGER_LID);
    for port in 1..=4 {
        let port: PortInfo = tree.get(0, &leaf, attribute::PORT_INFO, port);
        assert_eq!(port.port_state(), PortState::Active as u8);
    }
    let unused: PortInfo = tree.get(0, &leaf, attribute::PORT_INFO, 5);
    assert_eq!(unused.port_state(), PortState::Down as u8);
    let table = tree.ask(0, &leaf, attribute::LINEAR_FORWARDING, 0).expect("a block");
    for lid in tree.host_lids() {
        assert!((1..=4).contains(&table.data()[usize::from(lid)]), "LID {lid}");
    }
    assert_eq!(table.data()[0], 255);
    assert_eq!(tree.ask(0, &[1, 3, 9], attribute::NODE_INFO, 0), None, "no such port");
    assert_eq!(tree.ask(0, &[1, 3, 8], attribute::NODE_INFO, 0), None, "no cable there");
}

/// The discovered subnet, formatted like ibnetdiscover, parsed and built again, is the same subnet, and two of its
/// hosts can communicate.
#[test]
fn a_fabric_is_written_and_built_again() {
    let tree = FatTree::settled(1);
    let found = tree.world.subnet_topology(tree.leaves[0]).expect("a manager is there");
    let text = found.to_string();
    let read = SubnetTopology::parse(&text).expect("a topology");
    assert_eq!((read.nodes.len(), read.cables().count()), (LEAVES + 2 + HOSTS, 2 * LEAVES + HOSTS));
    let mut world: World<Bytes, Station> = World::new(2);
    let built = world
        .add_topology(&read, &TopologyBuild::default(), |host| {
            (Station::new(host.guid as u8), Bytes::default())
        })
        .expect("it can be built");
    assert_eq!((built.switches.len(), built.hosts.len()), (LEAVES + 2, HOSTS));
    world.run_until_idle(Time::MAX);
    let again = world.subnet_topology(built.manager).expect("a manager is there");
    assert_eq!(again.to_string(), text, "the same nodes, ports and LIDs");
    let lids = tree.host_lids();
    let node_of = |guid: u64| built.hosts.iter().find(|(known, _)| *known == guid).expect("a host").1;
    let guids: Vec<u64> = tree.lids().into_keys().collect();
    let (frame, icrc) = datagram(lids[0], lids[HOSTS - 1], None);
    world.with_device(node_of(guids[0]), |station, _, _| station.send(frame, icrc));
    world.run_until(world.now() + Duration::from_millis(1));
    let heard: Vec<u16> =
        world.device(node_of(guids[HOSTS - 1])).received.iter().map(|frame| source(frame)).collect();
    assert_eq!(heard, [lids[0]]);
}

#[test]
fn cables_go_to_the_ports_that_are_named() {
    let mut world: World<Bytes, Station> = World::new(1);
    let switch = world.add_subnet("switch", SwitchConfig::default(), SubnetConfig::default());
    let mut host =
        |number| world.add_node("host", Station::new(number), Bytes::default(), Latency::default());
    let hosts = [host(1), host(2)];
    let at = |port| NodeOrSwitch::SwitchPort { switch, port };
    world.connect(hosts[0], at(7), LINK).expect("a free port");
    for port in [0, 7, 255] {
        assert_eq!(world.connect(hosts[1], at(port), LINK), Err(TopologyError::SwitchPort(switch, port)));
    }
    world.connect(hosts[1], at(3), LINK).expect("a free port");
    world.run_until_idle(Time::MAX);
    let ports: Vec<usize> = world.subnet_members(switch).map(|member| member.port).collect();
    assert_eq!(ports, [2, 6], "counted from 0");
}

/// A failed cable is routed around, and LIDs stay the same. When it comes back it is used again.
#[test]
fn a_link_that_flaps_is_routed_around() {
    let mut tree = FatTree::settled(1);
    let lids = tree.lids();
    for (leaf, spine) in [(0, 0), (3, 1), (2, 0)] {
        let link = tree.uplinks[leaf][spine];
        tree.world.set_link_up(link, false).unwrap();
        tree.pass(Duration::from_millis(2));
        assert_eq!(
            (tree.unreached(), tree.lids()),
            (vec![], lids.clone()),
            "leaf {leaf} without spine {spine}"
        );
    }
    // Leaf 0 has only spine 1, and leaf 3 only spine 0: they meet at leaf 1.
    for (leaf, spine) in [(0, 0), (3, 1), (2, 0)] {
        tree.world.set_link_up(tree.uplinks[leaf][spine], true).unwrap();
    }
    tree.pass(Duration::from_secs(1));
    assert_eq!((tree.unreached(), tree.lids()), (vec![], lids));
}

/// A leaf that loses both uplinks disappears with its hosts, and returns with them and their LIDs.
#[test]
fn a_leaf_that_is_cut_off_comes_back() {
    let mut tree = FatTree::settled(1);
    let lids = tree.lids();
    for link in tree.uplinks[2] {
        tree.world.set_link_up(link, false).unwrap();
    }
    tree.pass(Duration::from_secs(1));
    assert_eq!(tree.members().len(), HOSTS - 2);
    for link in tree.uplinks[2] {
        tree.world.set_link_up(link, true).unwrap();
    }
    tree.pass(Duration::from_secs(1));
    assert_eq!((tree.unreached(), tree.lids()), (vec![], lids));
}

/// The subnet comes up even if every cable loses packets, and the same seed gives the same digest.
#[test]
fn a_fat_tree_comes_up_while_packets_are_lost() {
    let run = |seed| {
        let mut tree = fat_tree(seed);
        tree.world.set_random_faults_everywhere(RandomFaults::loss(0.1));
        tree.pass(Duration::from_secs(20));
        tree.world.set_random_faults_everywhere(RandomFaults::loss(0.0));
        tree.pass(Duration::from_secs(3));
        assert_eq!(tree.unreached(), []);
        tree.world.digest()
    };
    assert_eq!(run(5), run(5));
}

/// A new cable has each node and switch once on its side, also behind parallel cables and in loops.
#[test]
fn the_side_of_a_cable_has_each_place_once() {
    let mut tree = fat_tree(1);
    tree.world.connect(tree.leaves[0], tree.spines[0], LINK).unwrap();
    assert_eq!(tree.world.side(tree.leaves[0].into()).ends.len(), LEAVES + tree.spines.len() + HOSTS);
    let config = SwitchConfig::default();
    let further = SubnetSwitchConfig { guid: 0x300, ports: 8, description: String::new() };
    let other = tree.world.add_subnet("other", config, SubnetConfig::default());
    let behind = tree.world.add_subnet_switch("behind", config, &further);
    tree.world.connect(other, behind, LINK).unwrap();
    let refused = tree.world.connect(behind, tree.leaves[LEAVES - 1], LINK);
    assert_eq!(refused, Err(TopologyError::SecondSubnetManager), "both managers are further away");
}
