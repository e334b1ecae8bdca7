//! Hosts against each other: the simulated subnet admits everybody, knows every path, and carries datagrams
//! at once.

use super::super::port::DatagramWay;
use super::*;
use bareverbs_sim::wire::management::administration::{
    AdministrationPacket, McMemberRecord, PathRecord, method, record,
};
use proptest::prelude::*;
use zerocopy::IntoBytes as _;

const SET: u8 = 2;
const MLID: u16 = 0xc000;
const Q_KEY: u32 = 0xb1b;

fn port(index: usize) -> PortIdentity {
    PortIdentity {
        gid: Gid([index as u8 + 1; 16]),
        lid: 10 + index as u16,
        manager_lid: 1,
        partition_key: 0xffff,
    }
}

fn qpn(index: usize) -> Qpn {
    Qpn::from_low_bits(0x40 + index as u32)
}

fn ips(index: usize) -> [IpAddr; 2] {
    let last = index as u8 + 1;
    [IpAddr::from([10, 7, 0, last]), IpAddr::from([0xfd44, 0, 0, 0, 0, 0, 0, last.into()])]
}

/// The administration's answer: every group has an MLID, every port a path with service level 3 and an MTU of
/// 1,024 bytes.
fn answer(request: &[u8; SIZE]) -> [u8; SIZE] {
    let mut packet = AdministrationPacket::of(request);
    let asked = packet.mad.method();
    packet.mad.set_method(0x80 | if asked == SET { 1 } else { asked });
    match packet.mad.attribute() {
        record::PATH => {
            let mut path: PathRecord = packet.record().expect("a record");
            let lid = 9 + u16::from(path.dgid()[0]);
            path.set_dlid(lid).set_service_level(3).set_mtu(3);
            packet.data[..size_of::<PathRecord>()].copy_from_slice(path.as_bytes());
        }
        _ => {
            let mut member: McMemberRecord = packet.record().expect("a record");
            member.set_mlid(MLID).set_q_key(Q_KEY).set_mtu(4);
            packet.data[..size_of::<McMemberRecord>()].copy_from_slice(member.as_bytes());
        }
    }
    packet.to_bytes()
}

struct Subnet {
    now: Time,
    hosts: Vec<IpoibHost>,
    /// Groups of each host.
    groups: Vec<Vec<Gid>>,
    /// Methods that were requested.
    asked: Vec<u8>,
}

impl Subnet {
    fn new(count: usize) -> Self {
        let hosts = (0..count).map(|index| {
            let mut host = IpoibHost::new(qpn(index), ips(index).to_vec(), 0);
            host.handle_port(Time::ZERO, Some(port(index)));
            host
        });
        let mut subnet = Self {
            now: Time::ZERO,
            hosts: hosts.collect(),
            groups: vec![Vec::new(); count],
            asked: Vec::new(),
        };
        for _ in 0..3 {
            subnet.rest(TICK);
        }
        subnet
    }

    /// Carries datagrams until there are none.
    fn carry(&mut self) {
        while let Some((from, output)) =
            self.hosts.iter_mut().enumerate().find_map(|(index, host)| Some((index, host.poll()?)))
        {
            self.take(from, output);
        }
    }

    fn take(&mut self, from: usize, output: InterfaceOutput) {
        match output {
            InterfaceOutput::Request(request) => {
                self.asked.push(AdministrationPacket::of(&request).mad.method());
                self.hosts[from].handle_response(self.now, &answer(&request));
            }
            InterfaceOutput::Attach(group) => self.groups[from].push(group),
            InterfaceOutput::Detach(group) => self.groups[from].retain(|known| *known != group),
            InterfaceOutput::Ready { q_key, .. } => assert_eq!(q_key, Q_KEY),
            InterfaceOutput::Datagram { way, qpn: to, q_key, packet } => {
                assert_eq!(q_key, Q_KEY);
                let group = match way {
                    DatagramWay::Group { gid, .. } => Some(gid),
                    DatagramWay::Port(_) => None,
                };
                let arrival = Arrival { lid: port(from).lid, qpn: qpn(from), group };
                for index in 0..self.hosts.len() {
                    let is_for_it = match way {
                        DatagramWay::Group { gid, .. } => self.groups[index].contains(&gid),
                        DatagramWay::Port(lane) => lane.lid == port(index).lid && to == qpn(index),
                    };
                    if is_for_it {
                        self.hosts[index].handle_datagram(self.now, arrival, &packet);
                    }
                }
            }
        }
    }

    fn rest(&mut self, time: Duration) {
        self.now += time;
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        self.carry();
    }

    /// What a host resolves, given some time.
    fn find(&mut self, from: usize, ip: IpAddr) -> Option<IpoibWay> {
        for _ in 0..3 {
            if let Some(way) = self.hosts[from].way(self.now, ip) {
                return Some(way);
            }
            self.carry();
        }
        None
    }
}

/// Requirement: RFC 4391 §9.1: ARP finds an interface's IPv4 address and neighbour discovery its IPv6 address; the
/// administration's path leads to it.
#[test]
fn hosts_find_each_other() {
    let mut subnet = Subnet::new(3);
    let expected = IpoibWay { gid: port(1).gid, lid: port(1).lid, service_level: 3, mtu: 3 };
    for ip in ips(1) {
        assert_eq!(subnet.find(0, ip), Some(expected), "{ip}");
    }
    let before = subnet.asked.len();
    assert_eq!(subnet.find(1, ips(0)[0]).map(|way| way.lid), Some(port(0).lid), "the asker is known");
    assert_eq!(subnet.asked.len(), before, "so is its path, from the answer");
    assert!(subnet.hosts[2].known.is_empty(), "a host does not learn from requests between others");
}

/// A lost request is repeated after a second and not earlier; an unused address is never resolved.
#[test]
fn an_address_is_asked_for_once_a_second() {
    let mut subnet = Subnet::new(1);
    let nobody = IpAddr::from([10, 7, 0, 99]);
    let requests = |subnet: &mut Subnet| {
        assert_eq!(subnet.hosts[0].way(subnet.now, nobody), None);
        let said = core::iter::from_fn(|| subnet.hosts[0].poll());
        said.filter(|output| matches!(output, InterfaceOutput::Datagram { .. })).count()
    };
    assert_eq!((requests(&mut subnet), requests(&mut subnet)), (1, 0));
    subnet.rest(ASK_AGAIN);
    assert_eq!(requests(&mut subnet), 1);
    assert_eq!(subnet.find(0, "fd44::99".parse().expect("an address")), None);
}

/// Nothing is resolved before the broadcast group is joined, and in the end exactly the joined groups are
/// left.
#[test]
fn a_host_joins_first_and_leaves_at_the_end() {
    let mut host = IpoibHost::new(qpn(0), ips(0).to_vec(), 0);
    assert!(!host.is_joined() && host.way(Time::ZERO, ips(1)[0]).is_none() && host.poll().is_none());
    let mut subnet = Subnet::new(2);
    assert!(subnet.hosts[0].is_joined());
    assert_eq!(
        subnet.groups[0].len(),
        2,
        "the broadcast group and the solicited-node group of its IPv6 address"
    );
    subnet.asked.clear();
    subnet.hosts[0].leave(subnet.now);
    assert!(!subnet.hosts[0].has_left());
    subnet.carry();
    assert!(subnet.hosts[0].has_left() && subnet.groups[0].is_empty());
    assert_eq!(subnet.asked, [method::DELETE; 2]);
}

/// An unsolicited answer teaches nothing, and a claim to our own address changes nothing.
#[test]
fn unsolicited_answers_are_not_learned() {
    let mut subnet = Subnet::new(1);
    let arrival = Arrival { lid: 99, qpn: qpn(9), group: None };
    let address = HardwareAddress { qpn: qpn(9), gid: Gid([9; 16]) };
    let [IpAddr::V4(own), IpAddr::V6(own6)] = ips(0) else { panic!("both families") };
    let [IpAddr::V4(other), IpAddr::V6(other6)] = ips(5) else { panic!("both families") };
    let reply = ArpPacket {
        operation: ArpOperation::Reply,
        sender: address,
        sender_ip: own,
        target: None,
        target_ip: own,
    };
    let advertisement = NeighbourMessage {
        is_solicitation: false,
        source: other6,
        destination: own6,
        target: other6,
        address: Some(address),
    };
    let for_another = ArpPacket { sender_ip: other, target_ip: other, ..reply };
    let packets = [
        link::wrap(ARP, &reply.to_infiniband()),
        link::wrap(ARP, &for_another.to_infiniband()),
        link::wrap(IPV6, &advertisement.to_packet().expect("a packet")),
    ];
    for packet in packets {
        subnet.hosts[0].handle_datagram(subnet.now, arrival, &packet);
        assert!(subnet.hosts[0].known.is_empty() && subnet.hosts[0].poll().is_none());
    }
}

proptest! {
    /// What peers send is untrusted.
    #[test]
    fn arbitrary_bytes_are_survived(
        packets in prop::collection::vec((prop::sample::select(vec![ARP, IPV6]), prop::collection::vec(any::<u8>(), 0..120)), 0..20),
        lid in any::<u16>(), number in any::<u32>(),
    ) {
        let mut subnet = Subnet::new(1);
        for (kind, bytes) in &packets {
            let from = Arrival { lid, qpn: Qpn::from_low_bits(number), group: None };
            subnet.hosts[0].handle_datagram(subnet.now, from, &link::wrap(*kind, bytes));
            subnet.hosts[0].handle_datagram(subnet.now, from, bytes);
        }
        let answer: [u8; SIZE] = core::array::from_fn(|at| packets.get(at % 8).map_or(3, |packet| packet.1.len() as u8));
        subnet.hosts[0].handle_response(subnet.now, &answer);
        prop_assert!(core::iter::from_fn(|| subnet.hosts[0].poll()).count() <= 2 * packets.len());
    }
}
