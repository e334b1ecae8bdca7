//! An IPoIB interface as the subnet sees it: it joins and leaves groups, knows other interfaces by their
//! addresses and the administration's paths to them, and sends packets to them. It knows no clock, socket or
//! device: inputs are `handle_*` and packets to send, outputs come from [`SubnetSide::poll`].

use super::administration::{AdministrationClient, AdministrationRequest, AskingPort, RequestOutcome, Role};
use super::groups::{GroupSending, Groups};
use super::link::{self, HEADER, HardwareAddress};
use super::neighbours::{Neighbours, Sending, SubnetLane};
use super::port::{Arrival, DatagramWay, InterfaceOutput, PortIdentity};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::SIZE;
use bareverbs_sim::wire::management::administration::{McMemberRecord, PathRecord};
use std::collections::VecDeque;
use std::net::IpAddr;

/// How often the groups are joined again: a new manager may not know them, and a send-only group may have
/// ended with its last member and have another LID by now.
const REFRESH: Duration = Duration::from_secs(30);
/// The queue pair number of packets to groups (IBTA v1.4 §10.5.1).
const ALL_MEMBERS: Qpn = Qpn::from_low_bits(0xff_ffff);

/// Counts of packets sent and lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SentPackets {
    pub(super) sent: u64,
    /// There was no path, or it took too long to resolve.
    pub(super) without_way: u64,
}

/// The interface; see the module's comment.
pub(super) struct SubnetSide {
    qpn: Qpn,
    port: Option<PortIdentity>,
    client: AdministrationClient,
    groups: Groups,
    neighbours: Neighbours,
    outputs: VecDeque<InterfaceOutput>,
    packets: SentPackets,
    refresh_due: Time,
}

impl SubnetSide {
    /// The interface of this queue pair. Transaction IDs start after `first`.
    pub(super) fn new(qpn: Qpn, first: u64) -> Self {
        Self {
            qpn,
            port: None,
            client: AdministrationClient::new(first),
            groups: Groups::default(),
            neighbours: Neighbours::default(),
            outputs: VecDeque::new(),
            packets: SentPackets::default(),
            refresh_due: Time::ZERO,
        }
    }

    /// The next output.
    pub(super) fn poll(&mut self) -> Option<InterfaceOutput> {
        self.outputs.pop_front()
    }

    /// Counts of what was sent so far.
    pub(super) const fn packets(&self) -> SentPackets {
        self.packets
    }

    /// The port, while it is active.
    pub(super) const fn port(&self) -> Option<PortIdentity> {
        self.port
    }

    /// The own address.
    pub(super) fn address(&self) -> Option<HardwareAddress> {
        self.port.map(|port| HardwareAddress { qpn: self.qpn, gid: port.gid })
    }

    /// The broadcast group, once it is joined.
    fn broadcast(&self) -> Option<(Gid, &McMemberRecord)> {
        let group = link::broadcast_group(self.port?.partition_key);
        Some((group, self.groups.record(group)?))
    }

    /// Whether it is the broadcast group.
    pub(super) fn is_broadcast(&self, group: Gid) -> bool {
        self.port.is_some_and(|port| link::broadcast_group(port.partition_key) == group)
    }

    /// MTU for IP packets; `None` until the broadcast group is joined.
    pub(super) fn packet_limit(&self) -> Option<usize> {
        self.broadcast().map(|(_, record)| packet_limit(record))
    }

    /// Known interfaces.
    pub(super) const fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The port has become active with this identity, or inactive. Returns whether that is a change. A change
    /// ends all memberships, and paths are resolved anew.
    pub(super) fn handle_port(&mut self, now: Time, port: Option<PortIdentity>) -> bool {
        if self.port == port {
            return false;
        }
        self.port = port;
        self.client.forget();
        self.neighbours.forget_paths();
        let detached = self.groups.clear();
        self.outputs.extend(detached.into_iter().map(InterfaceOutput::Detach));
        self.refresh_due = now;
        true
    }

    /// Retransmits unanswered requests, joins the broadcast group and then the wanted groups, and leaves
    /// others.
    pub(super) fn handle_timeout(&mut self, now: Time, wanted: impl FnOnce(u16) -> Vec<Gid>) {
        while let Some(late) = self.client.handle_timeout(now) {
            match late {
                Ok(datagram) => self.outputs.push_back(InterfaceOutput::Request(Box::new(datagram))),
                Err(request) => self.take_failure(now, request),
            }
        }
        let Some(port) = self.port else { return };
        if now >= self.refresh_due {
            self.refresh_due = now + REFRESH;
            for (group, role) in self.groups.all_joined() {
                self.ask(now, AdministrationRequest::Join { group, role });
            }
        }
        let broadcast = link::broadcast_group(port.partition_key);
        self.join_wanted(now, broadcast);
        if self.groups.record(broadcast).is_some() {
            self.sync_groups(now, broadcast, &wanted(port.partition_key));
        }
    }

    fn join_wanted(&mut self, now: Time, group: Gid) {
        if self.groups.want(now, group) {
            self.ask(now, AdministrationRequest::Join { group, role: Role::Member });
        }
    }

    fn sync_groups(&mut self, now: Time, broadcast: Gid, wanted: &[Gid]) {
        wanted.iter().for_each(|group| self.join_wanted(now, *group));
        let unwanted = self.groups.take_unwanted(now, |gid| gid == broadcast || wanted.contains(&gid));
        self.leave_groups(now, unwanted);
    }

    fn leave_groups(&mut self, now: Time, groups: Vec<(Gid, Role)>) {
        for (group, role) in groups {
            if role == Role::Member {
                self.outputs.push_back(InterfaceOutput::Detach(group));
            }
            self.ask(now, AdministrationRequest::Leave { group, role });
        }
    }

    /// Leaves all groups before the interface ends. Afterwards only [`Self::poll`], [`Self::handle_response`]
    /// and [`Self::has_left`] may be called.
    pub(super) fn leave(&mut self, now: Time) {
        self.client.forget();
        let joined = self.groups.all_joined();
        self.leave_groups(now, joined);
        self.groups.clear();
    }

    /// Whether the administration has answered all requests.
    pub(super) fn has_left(&self) -> bool {
        self.outputs.is_empty() && self.client.is_idle()
    }

    fn ask(&mut self, now: Time, request: AdministrationRequest) {
        let Some(port) = self.port else { return };
        let asker = AskingPort { gid: port.gid, partition_key: port.partition_key };
        // The broadcast group exists before its members (RFC 4391 §5).
        let is_broadcast =
            matches!(request, AdministrationRequest::Join { group, .. } if self.is_broadcast(group));
        let like = self.broadcast().filter(|_| !is_broadcast).map(|(_, record)| *record);
        if let Some(datagram) = self.client.ask(now, asker, request, like.as_ref()) {
            self.outputs.push_back(InterfaceOutput::Request(Box::new(datagram)));
        }
    }

    /// Handles a general services datagram from the administration.
    pub(super) fn handle_response(&mut self, now: Time, datagram: &[u8; SIZE]) {
        let Some((request, outcome)) = self.client.handle(datagram) else { return };
        match (request, outcome) {
            (AdministrationRequest::Join { group, role }, RequestOutcome::Joined(record)) => {
                self.take_membership(group, role, record);
            }
            (AdministrationRequest::Path { gid }, RequestOutcome::Path(path)) => {
                self.take_path(now, gid, Some(&path))
            }
            (request, RequestOutcome::Failed(status)) => {
                if let Some(status) = status {
                    tracing::debug!(
                        "the subnet administration answered {request:?} with status {status:#06x}"
                    );
                }
                self.take_failure(now, request);
            }
            _ => {}
        }
    }

    pub(super) fn take_membership(&mut self, group: Gid, role: Role, record: McMemberRecord) {
        if self.is_broadcast(group) {
            let (q_key, mtu) = (record.q_key(), packet_limit(&record));
            self.outputs.push_back(InterfaceOutput::Ready { q_key, mtu });
        }
        if role == Role::Member {
            self.outputs.push_back(InterfaceOutput::Attach(group));
        }
        for packet in self.groups.joined(group, record) {
            self.emit_to_group(group, &record, packet);
        }
    }

    fn take_path(&mut self, now: Time, gid: Gid, path: Option<&PathRecord>) {
        let lane = path.map(|path| SubnetLane {
            lid: path.dlid(),
            service_level: path.service_level(),
            mtu: path.mtu(),
        });
        for (qpn, lane, packet) in self.neighbours.set_path(now, gid, lane) {
            self.emit(DatagramWay::Port(lane), qpn, packet);
        }
    }

    fn take_failure(&mut self, now: Time, request: AdministrationRequest) {
        match request {
            AdministrationRequest::Join { group, .. } => {
                self.packets.without_way += self.groups.refused(now, group) as u64;
            }
            AdministrationRequest::Path { gid } => self.take_path(now, gid, None),
            AdministrationRequest::Leave { .. } => {}
        }
    }

    /// Whether we sent a datagram ourselves: a group returns what was sent to it.
    pub(super) fn is_own(&self, from: Arrival) -> bool {
        self.port.is_some_and(|port| port.lid == from.lid) && from.qpn == self.qpn
    }

    /// The MAC address for an interface that has announced its own address.
    pub(super) fn hear(&mut self, now: Time, from: Arrival, address: HardwareAddress) -> MacAddress {
        // Another node may speak for it; then the sender's LID is not its own.
        let lid = if address.qpn == from.qpn { from.lid } else { 0 };
        self.neighbours.hear(now, address, lid)
    }

    /// The path to an interface, and its hardware address. `None` if it is not known; then the administration
    /// is asked.
    pub(super) fn way(&mut self, now: Time, mac: MacAddress) -> Option<(HardwareAddress, SubnetLane)> {
        let (address, lane) = self.neighbours.lane(now, mac)?;
        if lane.is_none() {
            self.ask(now, AdministrationRequest::Path { gid: address.gid });
        }
        Some((address, lane?))
    }

    /// Sends a packet to the broadcast group.
    pub(super) fn broadcast_packet(&mut self, now: Time, packet: Vec<u8>) {
        match self.broadcast().map(|(group, _)| group) {
            Some(group) => self.send_to_group(now, group, packet),
            None => self.packets.without_way += 1,
        }
    }

    /// Sends a packet to an IP multicast group.
    pub(super) fn send_to_ip_group(&mut self, now: Time, to: IpAddr, packet: Vec<u8>) {
        match self.port {
            Some(port) => self.send_to_group(now, group_of(port.partition_key, to), packet),
            None => self.packets.without_way += 1,
        }
    }

    fn send_to_group(&mut self, now: Time, group: Gid, packet: Vec<u8>) {
        match self.groups.send(now, group, packet) {
            GroupSending::Now(record, packet) => self.emit_to_group(group, &record, packet),
            GroupSending::Join => self.ask(now, AdministrationRequest::Join { group, role: Role::Sender }),
            GroupSending::Waits => {}
            GroupSending::Lost => self.packets.without_way += 1,
        }
    }

    /// Sends a packet to the interface behind a MAC address.
    pub(super) fn send_to_port(&mut self, now: Time, mac: MacAddress, packet: Vec<u8>) {
        match self.neighbours.send(now, mac, packet) {
            Sending::Now(qpn, lane, packet) => self.emit(DatagramWay::Port(lane), qpn, packet),
            Sending::Ask(address) => self.ask(now, AdministrationRequest::Path { gid: address.gid }),
            Sending::Lost => self.packets.without_way += 1,
        }
    }

    fn emit_to_group(&mut self, gid: Gid, record: &McMemberRecord, packet: Vec<u8>) {
        let way = DatagramWay::Group {
            lane: SubnetLane { lid: record.mlid(), service_level: record.service_level(), mtu: record.mtu() },
            gid,
            hop_limit: record.hop_limit(),
            traffic_class: record.traffic_class(),
            flow_label: record.flow_label(),
        };
        self.emit(way, ALL_MEMBERS, packet);
    }

    /// All interfaces of a partition have the Q_Key of its broadcast group.
    fn emit(&mut self, way: DatagramWay, qpn: Qpn, packet: Vec<u8>) {
        let Some((_, record)) = self.broadcast() else {
            self.packets.without_way += 1;
            return;
        };
        let q_key = record.q_key();
        self.packets.sent += 1;
        self.outputs.push_back(InterfaceOutput::Datagram { way, qpn, q_key, packet });
    }
}

/// The InfiniBand group of an IP multicast address.
pub(super) fn group_of(partition_key: u16, group: IpAddr) -> Gid {
    match group {
        IpAddr::V4(group) => link::ipv4_group(partition_key, group),
        IpAddr::V6(group) => link::ipv6_group(partition_key, group),
    }
}

/// The MTU for IP packets in a group: its MTU without IPoIB's header (RFC 4391 §7).
fn packet_limit(record: &McMemberRecord) -> usize {
    let mtu = 128_usize << record.mtu().clamp(1, 5);
    mtu - HEADER
}
