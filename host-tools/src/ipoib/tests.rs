//! Two gateways in one world: their machines communicate over a subnet with a switch, its manager and its
//! administration.

use super::arp::{ArpOperation, ArpPacket};
use super::bridge::Bridge;
use super::discovery::{self, Discovery, ICMPV6};
use super::link::HardwareAddress;
use bareverbs_core::{Device, DeviceConfig};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::real_time::FrameIo;
use bareverbs_sim::net::{LinkConfig, SubnetConfig, SwitchConfig};
use bareverbs_sim::nic::{Nic, NicConfig, SubnetMembership};
use bareverbs_sim::run::{Latency, LinkId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

const IPS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
const IPS6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)];
const LIMIT: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_micros(50);
const LONG_REST: Duration = Duration::from_millis(1);

/// The cable between a gateway and its machine; the test plays the machine.
#[derive(Clone, Default)]
struct Cable(Rc<RefCell<[VecDeque<Vec<u8>>; 2]>>);

impl FrameIo for Cable {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.0.borrow_mut()[0].push_back(frame.to_vec());
        Ok(true)
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let next = self.0.borrow_mut()[1].pop_front();
        Ok(next.map(|next| *frame = next).is_some())
    }

    fn wait(&mut self, _: std::time::Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Cable {
    fn mac(index: usize) -> MacAddress {
        MacAddress([2, 0, 0, 0, 1, index as u8])
    }

    /// The machine sends a packet.
    fn say(&self, index: usize, to: MacAddress, kind: u16, packet: &[u8]) {
        let frame = [&to.0[..], &Self::mac(index).0, &kind.to_be_bytes(), packet].concat();
        self.0.borrow_mut()[1].push_back(frame);
    }

    /// The next received frame of this type, without the gateway's own queries: its sender and its packet.
    fn hear(&self, kind: u16) -> Option<(MacAddress, Vec<u8>)> {
        let mut ends = self.0.borrow_mut();
        let is_it =
            |frame: &Vec<u8>| frame[12..14] == kind.to_be_bytes() && frame[6..12] != [2, 0x49, 0, 0, 0, 0];
        let at = ends[0].iter().position(is_it)?;
        let frame = ends[0].remove(at)?;
        Some((MacAddress(frame[6..12].try_into().ok()?), frame[14..].to_vec()))
    }
}

type Gateways<'d> = [Bridge<'d, SimHal<Nic>, Cable>; 2];

/// Two hosts at a switch.
struct SubnetScene {
    world: SimWorld<Nic>,
    devices: [Device<SimHal<Nic>>; 2],
    links: [LinkId; 2],
    cables: [Cable; 2],
}

impl SubnetScene {
    fn new() -> Self {
        let world = SimWorld::new(7);
        let switch =
            world.with(|world| world.add_subnet("switch", SwitchConfig::default(), SubnetConfig::default()));
        let nodes = [1, 2].map(|number| {
            let config = NicConfig {
                subnet: SubnetMembership::Managed,
                ..NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, number]))
            };
            let name = format!("host{number}");
            world.add_node(&name, Nic::new(config), Latency::default(), MemoryConfig::default())
        });
        let links =
            nodes.map(|node| world.connect(node, switch, LinkConfig::gigabits(100)).expect("a cable"));
        let devices =
            nodes.map(|node| Device::open(world.hal(node), DeviceConfig::default()).expect("a device"));
        Self { world, devices, links, cables: Default::default() }
    }

    fn gateways(&self) -> Gateways<'_> {
        let mut gateways = [0, 1].map(|index| {
            Bridge::open(&self.devices[index], self.cables[index].clone(), 0).expect("a bridge")
        });
        self.until(&mut gateways, |gateways, _| {
            gateways.iter().all(|gateway| gateway.mtu() == Some(2044)).then_some(())
        });
        gateways
    }

    /// Runs both gateways until `seen` returns something.
    fn until<R>(
        &self,
        gateways: &mut Gateways<'_>,
        mut seen: impl FnMut(&Gateways<'_>, &[Cable; 2]) -> Option<R>,
    ) -> R {
        let deadline = self.world.now() + LIMIT;
        loop {
            for gateway in gateways.iter_mut() {
                gateway.step().expect("a gateway that works");
            }
            if let Some(seen) = seen(gateways, &self.cables) {
                return seen;
            }
            assert!(self.world.now() < deadline, "{:?}", gateways.each_ref().map(Bridge::counters));
            let next = self.world.now() + REST;
            self.world.run_until(next);
        }
    }

    fn rest(&self, gateways: &mut Gateways<'_>, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            for gateway in gateways.iter_mut() {
                gateway.step().expect("a gateway that works");
            }
            self.world.run_until(self.world.now() + LONG_REST);
        }
    }

    /// The next frame of this type that a machine receives.
    fn heard(&self, gateways: &mut Gateways<'_>, index: usize, kind: u16) -> (MacAddress, Vec<u8>) {
        self.until(gateways, |_, cables| cables[index].hear(kind))
    }
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let [high, low] = length.to_be_bytes();
    let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0];
    [&head[..], &from.octets(), &to.octets(), payload].concat()
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, high, low, next, 255][..], &from.octets(), &to.octets(), payload].concat()
}

fn request() -> ArpPacket<MacAddress> {
    ArpPacket {
        operation: ArpOperation::Request,
        sender: Cable::mac(0),
        sender_ip: IPS[0],
        target: None,
        target_ip: IPS[1],
    }
}

const EVERYBODY: MacAddress = MacAddress([0xff; 6]);

/// The first machine resolves the second by ARP. Returns the MAC address that each has for the other.
fn meet(scene: &SubnetScene, gateways: &mut Gateways<'_>) -> [MacAddress; 2] {
    scene.cables[0].say(0, EVERYBODY, 0x0806, &request().to_ethernet());
    let (first, packet) = scene.heard(gateways, 1, 0x0806);
    let asked = ArpPacket::parse_ethernet(&packet).expect("a request");
    assert_eq!(asked, ArpPacket { sender: first, ..request() });
    let reply = ArpPacket {
        operation: ArpOperation::Reply,
        sender: Cable::mac(1),
        sender_ip: IPS[1],
        target: Some(first),
        target_ip: IPS[0],
    };
    scene.cables[1].say(1, first, 0x0806, &reply.to_ethernet());
    let (second, packet) = scene.heard(gateways, 0, 0x0806);
    let told = ArpPacket::parse_ethernet(&packet).expect("a reply");
    assert_eq!(told, ArpPacket { sender: second, target: Some(Cable::mac(0)), ..reply });
    [second, first]
}

/// Requirement: RFC 4391 §9.1: ARP finds the other interface, and packets of up to the group's MTU arrive unchanged in
/// both directions.
#[test]
fn two_machines_speak_ipv4_over_the_subnet() {
    let scene = SubnetScene::new();
    let mut gateways = scene.gateways();
    let [second, first] = meet(&scene, &mut gateways);
    for (length, number) in [(1, 0), (2024, 1), (700, 2)] {
        let payload: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
        let packet = ipv4(IPS[0], IPS[1], &payload);
        scene.cables[0].say(0, second, 0x0800, &packet);
        assert_eq!(scene.heard(&mut gateways, 1, 0x0800), (first, packet));
        let packet = ipv4(IPS[1], IPS[0], &payload);
        scene.cables[1].say(1, first, 0x0800, &packet);
        assert_eq!(scene.heard(&mut gateways, 0, 0x0800), (second, packet));
    }
    scene.cables[0].say(0, second, 0x0800, &ipv4(IPS[0], IPS[1], &[0; 2025]));
    scene.cables[0].say(0, MacAddress([2, 9, 9, 9, 9, 9]), 0x0800, &ipv4(IPS[0], IPS[1], &[0; 8]));
    scene.rest(&mut gateways, Duration::from_millis(5));
    let counters = gateways[0].counters();
    assert_eq!((counters.too_long, counters.without_way, counters.foreign), (1, 1, 0));
    assert_eq!(scene.cables[1].hear(0x0800), None, "neither packet arrived");
}

/// Requirement: RFC 4391 §9.3: neighbour discovery uses the solicited-node group, which is joined as MLD reports it; on
/// the wire its options have InfiniBand hardware addresses.
#[test]
fn two_machines_speak_ipv6_over_the_subnet() {
    let scene = SubnetScene::new();
    let mut gateways = scene.gateways();
    let solicited: Ipv6Addr = "ff02::1:ff00:2".parse().expect("an address");
    let mut report = vec![ICMPV6, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0];
    report.extend(solicited.octets());
    let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 22);
    let report = ipv6(IPS6[1], routers, 0, &report);
    scene.cables[1].say(1, MacAddress([0x33, 0x33, 0, 0, 0, 22]), 0x86dd, &report);
    scene.rest(&mut gateways, Duration::from_millis(300));
    let message = |kind: u8, option: u8, from: usize, about: Ipv6Addr, to: Ipv6Addr| {
        let body = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &about.octets(), &[option, 1], &Cable::mac(from).0];
        let mut packet = ipv6(IPS6[from], to, ICMPV6, &body.concat());
        discovery::finish(&mut packet).expect("a message");
        packet
    };
    let asked = message(135, 1, 0, IPS6[1], solicited);
    scene.cables[0].say(0, MacAddress([0x33, 0x33, 0xff, 0, 0, 2]), 0x86dd, &asked);
    let (first, heard) = scene.heard(&mut gateways, 1, 0x86dd);
    assert_eq!(heard[66..72], first.0, "the option holds the interface's MAC address on this side");
    assert_eq!((heard.len(), &heard[48..66]), (72, &asked[48..66]));
    let told = message(136, 2, 1, IPS6[1], IPS6[0]);
    scene.cables[1].say(1, first, 0x86dd, &told);
    let (second, heard) = scene.heard(&mut gateways, 0, 0x86dd);
    assert_eq!(heard[66..72], second.0);
    assert!(Discovery::parse(&heard).is_some_and(|message| {
        message
            .to_infiniband(|mac| (mac == second).then(|| HardwareAddress::parse(&[1; 20])).flatten())
            .is_some()
    }));
    let packet = ipv6(IPS6[0], IPS6[1], 17, &[5; 2004]);
    scene.cables[0].say(0, second, 0x86dd, &packet);
    assert_eq!(scene.heard(&mut gateways, 1, 0x86dd), (first, packet));
}

/// Requirement: RFC 4391 §4: an IPv4 group is joined when a machine reports it, and left when the machine leaves it;
/// nobody receives its own packets.
#[test]
fn groups_are_joined_as_the_machine_reports() {
    let scene = SubnetScene::new();
    let mut gateways = scene.gateways();
    meet(&scene, &mut gateways);
    let (group, mac) = (Ipv4Addr::new(239, 1, 1, 1), MacAddress([1, 0, 0x5e, 1, 1, 1]));
    let report = |kind: u8| {
        let mut packet = vec![0x46, 0, 0, 40, 0, 0, 0, 0, 1, 2, 0, 0];
        packet.extend(IPS[1].octets());
        packet.extend([224, 0, 0, 22, 0x94, 4, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0]);
        packet.extend(group.octets());
        packet
    };
    let datagram = ipv4(IPS[0], group, b"to whom it may concern");
    let is_heard = |gateways: &mut Gateways<'_>, listens: u8| {
        scene.cables[1].say(1, MacAddress([1, 0, 0x5e, 0, 0, 22]), 0x0800, &report(listens));
        // A group without members is queried again after 2 s.
        scene.rest(gateways, Duration::from_secs(3));
        scene.cables[0].say(0, mac, 0x0800, &datagram);
        scene.rest(gateways, Duration::from_millis(300));
        assert_eq!(scene.cables[0].hear(0x0800), None, "the sender is not a member");
        core::iter::from_fn(|| scene.cables[1].hear(0x0800)).any(|(_, packet)| packet == datagram)
    };
    assert!(is_heard(&mut gateways, 4), "the report changes to EXCLUDE with no sources");
    assert!(!is_heard(&mut gateways, 3), "the report changes to INCLUDE with no sources");
    assert!(is_heard(&mut gateways, 4));
}

/// A gateway that ends leaves its groups, and the administration confirms it.
#[test]
fn gateways_that_end_have_left_the_subnet() {
    let scene = SubnetScene::new();
    for gateway in scene.gateways() {
        assert!(gateway.close().expect("a gateway that works"));
    }
}

/// After a cable was pulled and plugged in again, groups are joined anew, and paths are resolved again.
#[test]
fn the_subnet_is_joined_again_after_the_cable_was_pulled_out() {
    let scene = SubnetScene::new();
    let mut gateways = scene.gateways();
    meet(&scene, &mut gateways);
    scene.world.with(|world| world.set_link_up(scene.links[0], false)).expect("a cable");
    scene.rest(&mut gateways, Duration::from_secs(2));
    scene.cables[0].say(0, EVERYBODY, 0x0806, &request().to_ethernet());
    scene.rest(&mut gateways, Duration::from_millis(50));
    assert_eq!(scene.cables[1].hear(0x0806), None);
    scene.world.with(|world| world.set_link_up(scene.links[0], true)).expect("a cable");
    scene.rest(&mut gateways, Duration::from_secs(8));
    let [second, first] = meet(&scene, &mut gateways);
    let packet = ipv4(IPS[0], IPS[1], b"again");
    scene.cables[0].say(0, second, 0x0800, &packet);
    assert_eq!(scene.heard(&mut gateways, 1, 0x0800), (first, packet));
    assert!(scene.world.now() > Time::ZERO);
}
