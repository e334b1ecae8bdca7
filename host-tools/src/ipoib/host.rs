//! An interface with IP addresses that only resolves and is resolved: it answers and sends ARP and neighbour
//! discovery, and asks the administration for paths. RDMA CM needs no more of IPoIB, because no IP packets
//! are involved.

use super::arp::{ArpOperation, ArpPacket};
use super::discovery::{Discovery, NeighbourMessage};
use super::link::{self, ARP, HardwareAddress, IPV6};
use super::port::{Arrival, InterfaceOutput, PortIdentity};
use super::subnet_side::{SubnetSide, group_of};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::SIZE;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interval of timeouts.
const TICK: Duration = Duration::from_millis(100);
/// Interval between two solicitations of a neighbour (RFC 4861 §10, RETRANS_TIMER).
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Most neighbours known by IP address. Beyond that, all are forgotten and resolved again.
const MOST_KNOWN: usize = 4096;

/// The path to an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpoibWay {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    /// Code of the largest payload on the path: 128 · 2^code bytes.
    pub(crate) mtu: u8,
}

/// The host; see the module's comment.
pub(super) struct IpoibHost {
    side: SubnetSide,
    addresses: Vec<IpAddr>,
    known: BTreeMap<IpAddr, MacAddress>,
    /// Neighbours that are being resolved, and when each was last asked for.
    asked: BTreeMap<IpAddr, Time>,
    due: Time,
}

impl IpoibHost {
    /// A host with these addresses, whose interface is this queue pair. Transaction IDs start after `first`.
    pub(super) fn new(qpn: Qpn, addresses: Vec<IpAddr>, first: u64) -> Self {
        let (known, asked) = (BTreeMap::new(), BTreeMap::new());
        Self { side: SubnetSide::new(qpn, first), addresses, known, asked, due: Time::ZERO }
    }

    /// The next output.
    pub(super) fn poll(&mut self) -> Option<InterfaceOutput> {
        self.side.poll()
    }

    /// Whether the broadcast group is joined.
    pub(super) fn is_joined(&self) -> bool {
        self.side.packet_limit().is_some()
    }

    /// The port has become active with this identity, or inactive.
    pub(super) fn handle_port(&mut self, now: Time, port: Option<PortIdentity>) {
        if self.side.handle_port(now, port) {
            self.due = now;
        }
    }

    /// Runs what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if now < self.due {
            return;
        }
        self.due = now + TICK;
        let addresses = &self.addresses;
        self.side.handle_timeout(now, |key| {
            let groups = addresses.iter().filter_map(|address| match address {
                IpAddr::V6(own) => Some(group_of(key, NeighbourMessage::solicited_node(*own).into())),
                IpAddr::V4(_) => None,
            });
            groups.collect()
        });
    }

    /// Handles a general services datagram from the administration.
    pub(super) fn handle_response(&mut self, now: Time, datagram: &[u8; SIZE]) {
        self.side.handle_response(now, datagram);
    }

    /// Leaves all groups before the host ends.
    pub(super) fn leave(&mut self, now: Time) {
        self.side.leave(now);
    }

    /// Whether the administration has confirmed that all groups were left.
    pub(super) fn has_left(&self) -> bool {
        self.side.has_left()
    }

    /// The path to an address; `None` while it is being resolved.
    pub(super) fn way(&mut self, now: Time, ip: IpAddr) -> Option<IpoibWay> {
        let Some(mac) = self.known.get(&ip).copied() else {
            self.ask_for(now, ip);
            return None;
        };
        let (address, lane) = self.side.way(now, mac)?;
        let gid = address.gid;
        Some(IpoibWay { gid, lid: lane.lid, service_level: lane.service_level, mtu: lane.mtu })
    }

    fn ask_for(&mut self, now: Time, ip: IpAddr) {
        let was_asked = self.asked.get(&ip).is_some_and(|since| now.since(*since) < ASK_AGAIN);
        let Some(own) = self.side.address().filter(|_| !was_asked && self.is_joined()) else { return };
        let source = self.addresses.iter().find(|address| address.is_ipv4() == ip.is_ipv4());
        match (source.copied(), ip) {
            (Some(IpAddr::V4(source)), IpAddr::V4(target)) => self.ask_by_arp(now, own, source, target),
            (Some(IpAddr::V6(source)), IpAddr::V6(target)) => self.solicit(now, own, source, target),
            _ => return,
        }
        if self.asked.len() >= MOST_KNOWN {
            self.asked.clear();
        }
        self.asked.insert(ip, now);
    }

    fn ask_by_arp(&mut self, now: Time, own: HardwareAddress, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) {
        let operation = ArpOperation::Request;
        let asked = ArpPacket { operation, sender: own, sender_ip, target: None, target_ip };
        self.side.broadcast_packet(now, link::wrap(ARP, &asked.to_infiniband()));
    }

    fn solicit(&mut self, now: Time, own: HardwareAddress, source: Ipv6Addr, target: Ipv6Addr) {
        let destination = NeighbourMessage::solicited_node(target);
        let address = Some(own);
        let asked = NeighbourMessage { is_solicitation: true, source, destination, target, address };
        if let Some(packet) = asked.to_packet() {
            self.side.send_to_ip_group(now, destination.into(), link::wrap(IPV6, &packet));
        }
    }

    /// Handles a datagram from the subnet, without the room for a route header. Ignores everything but ARP
    /// and neighbour discovery.
    pub(super) fn handle_datagram(&mut self, now: Time, from: Arrival, datagram: &[u8]) {
        if self.side.is_own(from) {
            return;
        }
        match link::unwrap(datagram) {
            Some((ARP, packet)) => {
                if let Some(packet) = ArpPacket::parse_infiniband(packet) {
                    self.on_arp(now, from, packet);
                }
            }
            Some((IPV6, packet)) => {
                if let Some(message) = Discovery::parse(packet).and_then(|found| found.neighbour()) {
                    self.on_discovery(now, from, message);
                }
            }
            _ => {}
        }
    }

    /// Learns the sender of a request for us, and of an answer to our own request (RFC 826).
    fn on_arp(&mut self, now: Time, from: Arrival, packet: ArpPacket<HardwareAddress>) {
        let (sender_ip, is_for_us) = (packet.sender_ip.into(), self.has(packet.target_ip.into()));
        if !is_for_us || self.has(sender_ip) {
            return;
        }
        let Some(own) = self.side.address() else { return };
        let mac = self.learn(now, from, sender_ip, packet.sender);
        if packet.operation == ArpOperation::Request {
            let ArpPacket { sender, sender_ip, target_ip, .. } = packet;
            let (operation, target) = (ArpOperation::Reply, Some(sender));
            let answer =
                ArpPacket { operation, sender: own, sender_ip: target_ip, target, target_ip: sender_ip };
            self.side.send_to_port(now, mac, link::wrap(ARP, &answer.to_infiniband()));
        }
    }

    fn on_discovery(&mut self, now: Time, from: Arrival, message: NeighbourMessage) {
        let Some(address) = message.address else { return };
        if !message.is_solicitation {
            // An unsolicited answer is ignored.
            if self.asked.contains_key(&message.target.into()) {
                self.learn(now, from, message.target.into(), address);
            }
            return;
        }
        let is_for_us = self.has(message.target.into()) && !message.source.is_unspecified();
        let Some(own) = self.side.address().filter(|_| is_for_us && !self.has(message.source.into())) else {
            return;
        };
        let mac = self.learn(now, from, message.source.into(), address);
        let answer = NeighbourMessage {
            is_solicitation: false,
            source: message.target,
            destination: message.source,
            target: message.target,
            address: Some(own),
        };
        if let Some(packet) = answer.to_packet() {
            self.side.send_to_port(now, mac, link::wrap(IPV6, &packet));
        }
    }

    fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }

    fn learn(&mut self, now: Time, from: Arrival, ip: IpAddr, address: HardwareAddress) -> MacAddress {
        let mac = self.side.hear(now, from, address);
        if self.known.len() >= MOST_KNOWN && !self.known.contains_key(&ip) {
            self.known.clear();
        }
        self.known.insert(ip, mac);
        mac
    }
}

#[cfg(test)]
mod tests;
