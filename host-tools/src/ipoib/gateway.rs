//! A bridge between Ethernet and IPoIB for IP traffic: converts frames of one side to packets of the other.
//!
//! **What this is.** The machine's side, a TAP interface, is Ethernet: every interface of the subnet has a
//! made-up MAC address there (`neighbours`). The subnet sees a single interface, our queue pair, for all
//! hosts on the machine's side. ARP and neighbour discovery are rewritten (`arp`, `discovery`), and groups
//! are joined as IGMP and MLD reports demand (`memberships`); `subnet_side` does the rest.
//!
//! **What it may not do.** It does not route: packets keep their IP addresses. It knows no clock, socket or
//! device: inputs are `handle_*`, outputs come from [`Gateway::poll`].

use super::arp::{ArpOperation, ArpPacket};
use super::discovery::{self, Discovery};
use super::link::{self, ARP, HEADER, IPV4, IPV6};
use super::memberships::{self, ASK_EVERY, MembershipReport, Memberships};
use super::neighbours::Hosts;
use super::port::{Arrival, InterfaceOutput, PortIdentity};
use super::subnet_side::{SubnetSide, group_of};
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::SIZE;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interval of timeouts.
const TICK: Duration = Duration::from_millis(100);
/// MAC address of the gateway's own frames to the machine, and of interfaces whose address is unknown.
const OWN_MAC: MacAddress = MacAddress([0x02, 0x49, 0, 0, 0, 0]);
const EVERYBODY: MacAddress = MacAddress([0xff; 6]);

/// An output of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GatewayOutput {
    /// A frame for the machine.
    Frame(Vec<u8>),
    /// An output for the interface on the subnet.
    Interface(InterfaceOutput),
}

/// Counts of packets carried and lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GatewayCounters {
    pub(super) to_subnet: u64,
    pub(super) to_machine: u64,
    /// Packets without a path, or whose path took too long to resolve.
    pub(super) without_way: u64,
    /// Packets larger than the subnet's MTU.
    pub(super) too_long: u64,
    /// Packets that are neither IP nor ARP.
    pub(super) foreign: u64,
}

/// Counts of the machine's packets.
#[derive(Debug, Clone, Copy, Default)]
struct MachineCounters {
    to_machine: u64,
    without_way: u64,
    too_long: u64,
    foreign: u64,
}

/// The gateway; see the module's comment.
pub(super) struct Gateway {
    subnet: SubnetSide,
    memberships: Memberships,
    hosts: Hosts,
    frames: VecDeque<Vec<u8>>,
    counters: MachineCounters,
    due: Time,
    query_due: Time,
}

impl Gateway {
    /// A gateway whose interface is this queue pair. Transaction IDs start after `first`.
    pub(super) fn new(qpn: Qpn, first: u64) -> Self {
        Self {
            subnet: SubnetSide::new(qpn, first),
            memberships: Memberships::default(),
            hosts: Hosts::default(),
            frames: VecDeque::new(),
            counters: MachineCounters::default(),
            due: Time::ZERO,
            query_due: Time::ZERO,
        }
    }

    /// The next output.
    pub(super) fn poll(&mut self) -> Option<GatewayOutput> {
        let frame = self.frames.pop_front().map(GatewayOutput::Frame);
        frame.or_else(|| self.subnet.poll().map(GatewayOutput::Interface))
    }

    /// Counts of what was carried so far.
    pub(super) const fn counters(&self) -> GatewayCounters {
        let (subnet, MachineCounters { to_machine, without_way, too_long, foreign }) =
            (self.subnet.packets(), self.counters);
        let without_way = subnet.without_way + without_way;
        GatewayCounters { to_subnet: subnet.sent, to_machine, without_way, too_long, foreign }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(super) const fn poll_timeout(&self) -> Time {
        self.due
    }

    /// The port has become active with this identity, or inactive.
    pub(super) fn handle_port(&mut self, now: Time, port: Option<PortIdentity>) {
        if self.subnet.handle_port(now, port) {
            self.due = now;
        }
    }

    /// Runs what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if now < self.due {
            return;
        }
        self.due = now + TICK;
        if self.subnet.port().is_some() && now >= self.query_due {
            self.query_due = now + ASK_EVERY;
            self.ask_who_listens();
        }
        let memberships = &mut self.memberships;
        self.subnet
            .handle_timeout(now, |key| memberships.current(now).map(|group| group_of(key, group)).collect());
    }

    /// Leaves all groups before the gateway ends.
    pub(super) fn leave(&mut self, now: Time) {
        self.subnet.leave(now);
    }

    /// Whether the administration has confirmed that all groups were left.
    pub(super) fn has_left(&self) -> bool {
        self.subnet.has_left()
    }

    fn ask_who_listens(&mut self) {
        let Some(port) = self.subnet.port() else { return };
        let all_hosts = Ipv4Addr::new(224, 0, 0, 1);
        let ends = FrameEnds { destination: ethernet_group(all_hosts.into()), source: OWN_MAC };
        self.send_to_machine(ends, IPV4, &memberships::ipv4_query());
        let mut sender = Ipv6Addr::from(port.gid.0).segments();
        sender[..4].copy_from_slice(&[0xfe80, 0, 0, 0]);
        if let Some(query) = memberships::ipv6_query(sender.into()) {
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let ends = FrameEnds { destination: ethernet_group(all_nodes.into()), source: OWN_MAC };
            self.send_to_machine(ends, IPV6, &query);
        }
    }

    /// Handles a general services datagram from the administration.
    pub(super) fn handle_response(&mut self, now: Time, datagram: &[u8; SIZE]) {
        self.subnet.handle_response(now, datagram);
    }

    /// Handles a frame from the machine.
    pub(super) fn handle_frame(&mut self, now: Time, frame: &[u8]) {
        let Some((destination, source, kind, packet)) = ethernet(frame) else {
            self.counters.foreign += 1;
            return;
        };
        let carried = match kind {
            ARP => self.arp_to_subnet(source, packet),
            IPV4 => self.ipv4_to_subnet(now, source, packet),
            IPV6 => self.ipv6_to_subnet(now, source, packet),
            _ => None,
        };
        match carried {
            Some((group, packet)) => self.send_to_subnet(now, destination, group, link::wrap(kind, &packet)),
            None => self.counters.foreign += 1,
        }
    }

    /// The ARP packet for the subnet, and its group if it is for one.
    fn arp_to_subnet(&mut self, source: MacAddress, packet: &[u8]) -> Option<(IpAddr, Vec<u8>)> {
        let asked = ArpPacket::parse_ethernet(packet)?;
        self.hosts.hear(source, Some(asked.sender_ip.into()));
        let target = asked.target.and_then(|target| self.subnet.neighbours().address(target));
        let own = self.subnet.address()?;
        Some((Ipv4Addr::BROADCAST.into(), asked.with(own, target).to_infiniband()))
    }

    fn ipv4_to_subnet(&mut self, now: Time, source: MacAddress, packet: &[u8]) -> Option<(IpAddr, Vec<u8>)> {
        let [from, to] = ipv4_ends(packet)?;
        self.hosts.hear(source, Some(from.into()));
        self.listen(now, memberships::ipv4_reports(packet));
        Some((to.into(), packet.to_vec()))
    }

    fn ipv6_to_subnet(&mut self, now: Time, source: MacAddress, packet: &[u8]) -> Option<(IpAddr, Vec<u8>)> {
        let (from, to) = discovery::ends(packet)?;
        self.hosts.hear(source, Some(from.into()));
        self.listen(now, memberships::ipv6_reports(packet));
        let own = self.subnet.address()?;
        let translated = Discovery::parse(packet).map(|message| message.to_infiniband(|_| Some(own)));
        match translated {
            Some(translated) => Some((to.into(), translated?)),
            None => Some((to.into(), packet.to_vec())),
        }
    }

    /// The groups that the machine listens to may have changed: joins or leaves them at once.
    fn listen(&mut self, now: Time, reports: Vec<MembershipReport>) {
        for report in reports {
            if self.memberships.take(now, report) {
                self.due = now;
            }
        }
    }

    fn send_to_subnet(&mut self, now: Time, destination: MacAddress, to: IpAddr, packet: Vec<u8>) {
        let Some(limit) = self.subnet.packet_limit() else {
            self.counters.without_way += 1;
            return;
        };
        if packet.len() > limit + HEADER {
            self.counters.too_long += 1;
            return;
        }
        if destination == EVERYBODY {
            self.subnet.broadcast_packet(now, packet);
        } else if destination.0[0] & 1 != 0 {
            self.subnet.send_to_ip_group(now, to, packet);
        } else {
            self.subnet.send_to_port(now, destination, packet);
        }
    }

    /// Handles a datagram from the subnet, without the room for a route header.
    pub(super) fn handle_datagram(&mut self, now: Time, from: Arrival, datagram: &[u8]) {
        if self.subnet.is_own(from) {
            return;
        }
        let carried = link::unwrap(datagram).and_then(|(kind, packet)| {
            let packet = match kind {
                ARP => self.arp_to_machine(now, from, packet),
                IPV4 => self.ipv4_to_machine(from, packet),
                IPV6 => self.ipv6_to_machine(now, from, packet),
                _ => None,
            };
            packet.map(|(ends, packet)| (kind, ends, packet))
        });
        match carried {
            Some((kind, ends, packet)) => self.send_to_machine(ends, kind, &packet),
            None => self.counters.foreign += 1,
        }
    }

    /// The ARP packet for the machine, and its ends.
    fn arp_to_machine(&mut self, now: Time, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let asked = ArpPacket::parse_infiniband(packet)?;
        let sender = self.subnet.hear(now, from, asked.sender);
        let known = self.hosts.mac(asked.target_ip.into());
        let destination = match asked.operation {
            ArpOperation::Request if from.group.is_some() => EVERYBODY,
            _ => known.unwrap_or(EVERYBODY),
        };
        let target = asked.target.and(known);
        let ends = FrameEnds { destination, source: sender };
        Some((ends, asked.with(sender, target).to_ethernet()))
    }

    fn ipv4_to_machine(&self, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let [_, to] = ipv4_ends(packet)?;
        let destination = match from.group {
            Some(group) if self.subnet.is_broadcast(group) => EVERYBODY,
            _ => self.destination(to.into())?,
        };
        Some((FrameEnds { destination, source: self.source(from) }, packet.to_vec()))
    }

    fn ipv6_to_machine(&mut self, now: Time, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let (_, to) = discovery::ends(packet)?;
        let subnet = &mut self.subnet;
        let translated = Discovery::parse(packet)
            .map(|message| message.to_ethernet(|address| Some(subnet.hear(now, from, address))));
        let packet = match translated {
            Some(translated) => translated?,
            None => packet.to_vec(),
        };
        let ends = FrameEnds { destination: self.destination(to.into())?, source: self.source(from) };
        Some((ends, packet))
    }

    fn destination(&self, to: IpAddr) -> Option<MacAddress> {
        if to.is_multicast() { Some(ethernet_group(to)) } else { self.hosts.mac(to) }
    }

    fn source(&self, from: Arrival) -> MacAddress {
        self.subnet.neighbours().source(from.lid, from.qpn).unwrap_or(OWN_MAC)
    }

    fn send_to_machine(&mut self, ends: FrameEnds, kind: u16, packet: &[u8]) {
        self.counters.to_machine += 1;
        let frame = [&ends.destination.0[..], &ends.source.0, &kind.to_be_bytes(), packet].concat();
        self.frames.push_back(frame);
    }
}

/// Destination and source of a frame for the machine.
#[derive(Debug, Clone, Copy)]
struct FrameEnds {
    destination: MacAddress,
    source: MacAddress,
}

/// A packet for the machine, with the ends of its frame.
type Carried = (FrameEnds, Vec<u8>);

/// Destination, source, type and packet of a frame.
fn ethernet(frame: &[u8]) -> Option<(MacAddress, MacAddress, u16, &[u8])> {
    let (destination, rest) = frame.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    let (kind, packet) = rest.split_first_chunk()?;
    Some((MacAddress(*destination), MacAddress(*source), u16::from_be_bytes(*kind), packet))
}

/// Source and destination of an IPv4 packet.
fn ipv4_ends(packet: &[u8]) -> Option<[Ipv4Addr; 2]> {
    let is_ipv4 = packet.first()? >> 4 == 4;
    let ends: &[u8; 8] = packet.get(12..)?.first_chunk()?;
    let [a, b, c, d, e, f, g, h] = *ends;
    is_ipv4.then_some([Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h)])
}

/// The MAC address of an IP multicast group (RFC 1112 §6.4, RFC 2464 §7).
fn ethernet_group(group: IpAddr) -> MacAddress {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            MacAddress([0x01, 0, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) => {
            let octets = group.octets();
            MacAddress([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
        }
    }
}

#[cfg(test)]
mod tests;
