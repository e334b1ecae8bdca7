//! A bridge between Ethernet and IPoIB, for IP alone: frames of one side become packets of the other.
//!
//! **What this is.** The machine's side, a TAP interface, sees Ethernet: every interface of the subnet has a MAC address there that is made up
//! here (`neighbours`). The subnet sees one interface, the own queue pair, for all hosts of the machine's side. ARP and neighbour discovery
//! are rewritten (`arp`, `discovery`), groups are joined as reports of IGMP and MLD say (`memberships`, `groups`), and the administrator is
//! asked for paths (`administration`). **What it may not do.** Routing: packets keep their addresses of IP. It knows no clock, socket or
//! device: inputs are `handle_*`, outputs come from [`Gateway::poll`].

use super::administration::{AdministrationClient, AskingPort, Question, QuestionOutcome, Role};
use super::arp::{ArpOperation, ArpPacket};
use super::discovery::{self, Discovery};
use super::groups::{GroupSending, Groups};
use super::link::{self, ARP, HEADER, HardwareAddress, IPV4, IPV6};
use super::memberships::{self, ASK_EVERY, MembershipReport, Memberships};
use super::neighbours::{Hosts, Neighbours, Sending, SubnetLane};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::SIZE;
use bareverbs_sim::wire::management::administration::{McMemberRecord, PathRecord};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);
/// How often the groups are joined again: another manager may have come that knows of none, and a group that is only sent to may have ended with
/// its last member, and have another LID by now.
const REFRESH: Duration = Duration::from_secs(30);
/// MAC address of what the gateway itself sends to the machine's side, and of interfaces whose address was never heard.
const OWN_MAC: MacAddress = MacAddress([0x02, 0x49, 0, 0, 0, 0]);
const EVERYBODY: MacAddress = MacAddress([0xff; 6]);

/// What the port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortIdentity {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    /// Where the administrator is.
    pub(super) manager_lid: u16,
    pub(super) partition_key: u16,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramWay {
    Port(SubnetLane),
    Group { lane: SubnetLane, gid: Gid, hop_limit: u8, traffic_class: u8, flow_label: u32 },
}

/// From whom a datagram came, and to which group if not to us alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) lid: u16,
    pub(super) qpn: Qpn,
    pub(super) group: Option<Gid>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GatewayOutput {
    /// A frame for the machine's side.
    Frame(Vec<u8>),
    /// A datagram for an interface or a group.
    Datagram {
        way: DatagramWay,
        qpn: Qpn,
        q_key: u32,
        packet: Vec<u8>,
    },
    /// A question for the administrator.
    Question(Box<[u8; SIZE]>),
    /// The group of broadcasts is joined: it says the Q_Key and the largest packet of IP.
    Ready {
        q_key: u32,
        mtu: usize,
    },
    /// The queue pair belongs to a group from now on, or no longer.
    Attach(Gid),
    Detach(Gid),
}

/// What was carried, and what was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GatewayCounters {
    pub(super) to_subnet: u64,
    pub(super) to_machine: u64,
    /// Packets for whom there is no way, or whose way took too long to be found.
    pub(super) without_way: u64,
    /// Packets beyond the largest of the subnet.
    pub(super) too_long: u64,
    /// What is no packet of IP or ARP.
    pub(super) foreign: u64,
}

/// See the module.
pub(super) struct Gateway {
    qpn: Qpn,
    port: Option<PortIdentity>,
    client: AdministrationClient,
    groups: Groups,
    memberships: Memberships,
    neighbours: Neighbours,
    hosts: Hosts,
    outputs: VecDeque<GatewayOutput>,
    counters: GatewayCounters,
    due: Time,
    refresh_due: Time,
    question_due: Time,
}

impl Gateway {
    /// A gateway whose interface is this queue pair. Transactions with the administrator begin behind `first`.
    pub(super) fn new(qpn: Qpn, first: u64) -> Self {
        Self {
            qpn,
            port: None,
            client: AdministrationClient::new(first),
            groups: Groups::default(),
            memberships: Memberships::default(),
            neighbours: Neighbours::default(),
            hosts: Hosts::default(),
            outputs: VecDeque::new(),
            counters: GatewayCounters::default(),
            due: Time::ZERO,
            refresh_due: Time::ZERO,
            question_due: Time::ZERO,
        }
    }

    /// The next thing to do.
    pub(super) fn poll(&mut self) -> Option<GatewayOutput> {
        self.outputs.pop_front()
    }

    /// What was carried so far.
    pub(super) const fn counters(&self) -> GatewayCounters {
        self.counters
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(super) const fn poll_timeout(&self) -> Time {
        self.due
    }

    /// The port is active with these addresses, or it is not active. A change ends all memberships, and paths are found anew.
    pub(super) fn handle_port(&mut self, now: Time, port: Option<PortIdentity>) {
        if self.port == port {
            return;
        }
        self.port = port;
        self.client.forget();
        self.neighbours.forget_paths();
        let detached = self.groups.clear();
        self.outputs.extend(detached.into_iter().map(GatewayOutput::Detach));
        self.refresh_due = now;
        self.due = now;
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if now < self.due {
            return;
        }
        self.due = now + TICK;
        while let Some(late) = self.client.handle_timeout(now) {
            match late {
                Ok(datagram) => self.outputs.push_back(GatewayOutput::Question(Box::new(datagram))),
                Err(question) => self.take_failure(now, question),
            }
        }
        if let Some(port) = self.port {
            self.refresh(now);
            self.sync_groups(now, port);
        }
    }

    /// Joins what was joined before again, now and then, and asks who listens.
    fn refresh(&mut self, now: Time) {
        if now >= self.refresh_due {
            self.refresh_due = now + REFRESH;
            for (group, role) in self.groups.all_joined() {
                self.ask(now, Question::Join { group, role });
            }
        }
        if now >= self.question_due {
            self.question_due = now + ASK_EVERY;
            self.ask_who_listens();
        }
    }

    fn ask_who_listens(&mut self) {
        let Some(port) = self.port else { return };
        let all_hosts = Ipv4Addr::new(224, 0, 0, 1);
        let ends = FrameEnds { destination: ethernet_group(all_hosts.into()), source: OWN_MAC };
        self.send_to_machine(ends, IPV4, &memberships::ipv4_question());
        let mut sender = Ipv6Addr::from(port.gid.0).segments();
        sender[..4].copy_from_slice(&[0xfe80, 0, 0, 0]);
        if let Some(question) = memberships::ipv6_question(sender.into()) {
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let ends = FrameEnds { destination: ethernet_group(all_nodes.into()), source: OWN_MAC };
            self.send_to_machine(ends, IPV6, &question);
        }
    }

    /// Joins the group of broadcasts, then all that somebody listens to; leaves others.
    fn sync_groups(&mut self, now: Time, port: PortIdentity) {
        let broadcast = link::broadcast_group(port.partition_key);
        if self.groups.want(now, broadcast) {
            self.ask(now, Question::Join { group: broadcast, role: Role::Member });
        }
        if self.groups.record(broadcast).is_none() {
            return;
        }
        let wanted: Vec<Gid> =
            self.memberships.current(now).map(|group| group_of(port.partition_key, group)).collect();
        for group in &wanted {
            if self.groups.want(now, *group) {
                self.ask(now, Question::Join { group: *group, role: Role::Member });
            }
        }
        let unwanted = self.groups.take_unwanted(now, |gid| gid == broadcast || wanted.contains(&gid));
        for (group, role) in unwanted {
            if role == Role::Member {
                self.outputs.push_back(GatewayOutput::Detach(group));
            }
            self.ask(now, Question::Leave { group, role });
        }
    }

    fn ask(&mut self, now: Time, question: Question) {
        let Some(port) = self.port else { return };
        let asker = AskingPort { gid: port.gid, partition_key: port.partition_key };
        let broadcast = link::broadcast_group(port.partition_key);
        // The group of broadcasts is there before its members (RFC 4391 §5).
        let is_broadcast = matches!(question, Question::Join { group, .. } if group == broadcast);
        let like = self.groups.record(broadcast).filter(|_| !is_broadcast).copied();
        if let Some(datagram) = self.client.ask(now, asker, question, like.as_ref()) {
            self.outputs.push_back(GatewayOutput::Question(Box::new(datagram)));
        }
    }

    /// A datagram of general services came from the administrator.
    pub(super) fn handle_answer(&mut self, now: Time, datagram: &[u8; SIZE]) {
        let Some((question, outcome)) = self.client.handle(datagram) else { return };
        match (question, outcome) {
            (Question::Join { group, role }, QuestionOutcome::Joined(record)) => {
                self.take_membership(group, role, record);
            }
            (Question::Path { gid }, QuestionOutcome::Path(path)) => self.take_path(now, gid, Some(&path)),
            (question, QuestionOutcome::Failed(status)) => {
                if let Some(status) = status {
                    tracing::debug!(
                        "the subnet's administrator answers {question:?} with status {status:#06x}"
                    );
                }
                self.take_failure(now, question);
            }
            _ => {}
        }
    }

    fn take_membership(&mut self, group: Gid, role: Role, record: McMemberRecord) {
        let Some(port) = self.port else { return };
        if group == link::broadcast_group(port.partition_key) {
            self.outputs
                .push_back(GatewayOutput::Ready { q_key: record.q_key(), mtu: packet_limit(&record) });
        }
        if role == Role::Member {
            self.outputs.push_back(GatewayOutput::Attach(group));
        }
        for packet in self.groups.joined(group, record) {
            self.emit_to_group(group, &record, packet);
        }
    }

    fn take_path(&mut self, now: Time, gid: Gid, path: Option<&PathRecord>) {
        let lane = path.map(|path| SubnetLane { lid: path.dlid(), service_level: path.service_level() });
        for (qpn, lane, packet) in self.neighbours.set_path(now, gid, lane) {
            self.emit_to_port(qpn, lane, packet);
        }
    }

    fn take_failure(&mut self, now: Time, question: Question) {
        match question {
            Question::Join { group, .. } => {
                self.counters.without_way += self.groups.refused(now, group) as u64;
            }
            Question::Path { gid } => self.take_path(now, gid, None),
            Question::Leave { .. } => {}
        }
    }

    /// A frame of the machine's side.
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

    /// The packet as the subnet has it, and the group that it is for if it is for one.
    fn arp_to_subnet(&mut self, source: MacAddress, packet: &[u8]) -> Option<(IpAddr, Vec<u8>)> {
        let asked = ArpPacket::parse_ethernet(packet)?;
        self.hosts.hear(source, Some(asked.sender_ip.into()));
        let target = asked.target.and_then(|target| self.neighbours.address(target));
        let own = self.own_address()?;
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
        let own = self.own_address()?;
        let translated = Discovery::parse(packet).map(|message| message.to_infiniband(|_| Some(own)));
        match translated {
            Some(translated) => Some((to.into(), translated?)),
            None => Some((to.into(), packet.to_vec())),
        }
    }

    /// What somebody at the machine's side listens to has changed, perhaps: groups follow at once.
    fn listen(&mut self, now: Time, reports: Vec<MembershipReport>) {
        for report in reports {
            if self.memberships.take(now, report) {
                self.due = now;
            }
        }
    }

    fn own_address(&self) -> Option<HardwareAddress> {
        self.port.map(|port| HardwareAddress { qpn: self.qpn, gid: port.gid })
    }

    fn send_to_subnet(&mut self, now: Time, destination: MacAddress, to: IpAddr, packet: Vec<u8>) {
        let Some(port) = self.port else {
            self.counters.without_way += 1;
            return;
        };
        let broadcast = link::broadcast_group(port.partition_key);
        let Some(limit) = self.groups.record(broadcast).map(packet_limit) else {
            self.counters.without_way += 1;
            return;
        };
        if packet.len() > limit + HEADER {
            self.counters.too_long += 1;
            return;
        }
        if destination == EVERYBODY {
            self.send_to_group(now, broadcast, packet);
        } else if destination.0[0] & 1 != 0 {
            self.send_to_group(now, group_of(port.partition_key, to), packet);
        } else {
            self.send_to_port(now, destination, packet);
        }
    }

    fn send_to_group(&mut self, now: Time, group: Gid, packet: Vec<u8>) {
        match self.groups.send(now, group, packet) {
            GroupSending::Now(record, packet) => self.emit_to_group(group, &record, packet),
            GroupSending::Join => self.ask(now, Question::Join { group, role: Role::Sender }),
            GroupSending::Waits => {}
            GroupSending::Lost => self.counters.without_way += 1,
        }
    }

    fn send_to_port(&mut self, now: Time, mac: MacAddress, packet: Vec<u8>) {
        match self.neighbours.send(now, mac, packet) {
            Sending::Now(qpn, lane, packet) => self.emit_to_port(qpn, lane, packet),
            Sending::Ask(address) => self.ask(now, Question::Path { gid: address.gid }),
            Sending::Lost => self.counters.without_way += 1,
        }
    }

    fn emit_to_port(&mut self, qpn: Qpn, lane: SubnetLane, packet: Vec<u8>) {
        self.emit(DatagramWay::Port(lane), qpn, packet);
    }

    fn emit_to_group(&mut self, gid: Gid, record: &McMemberRecord, packet: Vec<u8>) {
        let way = DatagramWay::Group {
            lane: SubnetLane { lid: record.mlid(), service_level: record.service_level() },
            gid,
            hop_limit: record.hop_limit(),
            traffic_class: record.traffic_class(),
            flow_label: record.flow_label(),
        };
        self.emit(way, Qpn::from_low_bits(0xff_ffff), packet);
    }

    /// All interfaces of a partition have the Q_Key of its group of broadcasts.
    fn emit(&mut self, way: DatagramWay, qpn: Qpn, packet: Vec<u8>) {
        let broadcast = self.port.map(|port| link::broadcast_group(port.partition_key));
        let Some(record) = broadcast.and_then(|group| self.groups.record(group)) else {
            self.counters.without_way += 1;
            return;
        };
        self.counters.to_subnet += 1;
        self.outputs.push_back(GatewayOutput::Datagram { way, qpn, q_key: record.q_key(), packet });
    }

    /// A datagram of the subnet, without the room for a route header.
    pub(super) fn handle_datagram(&mut self, now: Time, from: Arrival, datagram: &[u8]) {
        // A group gives back what was sent to it.
        let is_own = self.port.is_some_and(|port| port.lid == from.lid) && from.qpn == self.qpn;
        if is_own {
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

    /// The packet as the machine's side has it, and its ends.
    fn arp_to_machine(&mut self, now: Time, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let asked = ArpPacket::parse_infiniband(packet)?;
        let sender = self.hear(now, from, asked.sender);
        let known = self.hosts.mac(asked.target_ip.into());
        let destination = match asked.operation {
            ArpOperation::Request if from.group.is_some() => EVERYBODY,
            _ => known.unwrap_or(EVERYBODY),
        };
        let target = asked.target.and(known);
        let ends = FrameEnds { destination, source: sender };
        Some((ends, asked.with(sender, target).to_ethernet()))
    }

    /// The MAC address of an interface that says its own address.
    fn hear(&mut self, now: Time, from: Arrival, address: HardwareAddress) -> MacAddress {
        // Somebody else may speak for it: then its LID is not this one.
        let lid = if address.qpn == from.qpn { from.lid } else { 0 };
        self.neighbours.hear(now, address, lid)
    }

    fn ipv4_to_machine(&self, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let [_, to] = ipv4_ends(packet)?;
        let broadcast = self.port.map(|port| link::broadcast_group(port.partition_key));
        let destination = match from.group {
            Some(group) if Some(group) == broadcast => EVERYBODY,
            _ => self.destination(to.into())?,
        };
        Some((FrameEnds { destination, source: self.source(from) }, packet.to_vec()))
    }

    fn ipv6_to_machine(&mut self, now: Time, from: Arrival, packet: &[u8]) -> Option<Carried> {
        let (_, to) = discovery::ends(packet)?;
        let translated = Discovery::parse(packet)
            .map(|message| message.to_ethernet(|address| Some(self.hear(now, from, address))));
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
        self.neighbours.source(from.lid, from.qpn).unwrap_or(OWN_MAC)
    }

    fn send_to_machine(&mut self, ends: FrameEnds, kind: u16, packet: &[u8]) {
        self.counters.to_machine += 1;
        let frame = [&ends.destination.0[..], &ends.source.0, &kind.to_be_bytes(), packet].concat();
        self.outputs.push_back(GatewayOutput::Frame(frame));
    }
}

/// Who a frame of the machine's side is for, and who sends it.
#[derive(Debug, Clone, Copy)]
struct FrameEnds {
    destination: MacAddress,
    source: MacAddress,
}

/// A packet for the machine's side, with the ends of its frame.
type Carried = (FrameEnds, Vec<u8>);

/// Destination, source, type and packet of a frame.
fn ethernet(frame: &[u8]) -> Option<(MacAddress, MacAddress, u16, &[u8])> {
    let (destination, rest) = frame.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    let (kind, packet) = rest.split_first_chunk()?;
    Some((MacAddress(*destination), MacAddress(*source), u16::from_be_bytes(*kind), packet))
}

/// Source and destination of a packet of IPv4.
fn ipv4_ends(packet: &[u8]) -> Option<[Ipv4Addr; 2]> {
    let is_ipv4 = packet.first()? >> 4 == 4;
    let ends: &[u8; 8] = packet.get(12..)?.first_chunk()?;
    let [a, b, c, d, e, f, g, h] = *ends;
    is_ipv4.then_some([Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h)])
}

fn group_of(partition_key: u16, group: IpAddr) -> Gid {
    match group {
        IpAddr::V4(group) => link::ipv4_group(partition_key, group),
        IpAddr::V6(group) => link::ipv6_group(partition_key, group),
    }
}

/// The MAC address of a group of IP (RFC 1112 §6.4, RFC 2464 §7).
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

/// The largest packet of IP in a group: its MTU without the header of IPoIB (RFC 4391 §7).
fn packet_limit(record: &McMemberRecord) -> usize {
    let mtu = 128_usize << record.mtu().clamp(1, 5);
    mtu - HEADER
}

#[cfg(test)]
mod tests;
