//! Unreliable datagrams, and those of management (IBTA v1.4 §9.8.3): on InfiniBand from one queue pair of the device
//! straight to another, or as a packet to the link; on Ethernet as [`roce`] frames.
//!
//! **What it may not do.** Multicast is not modelled on InfiniBand.

mod roce;

use super::receive_queue::{Landing, Taken, Taker};
use super::send_queue::{FetchContext, Fetched};
use super::transmit::Ready;
use super::wqe::{self, Envelope};
use super::{HostMemory, Nic, cqe};
use crate::transport::{ReceiveCompletion, ReceiveKind, ReceiveStatus};
use crate::wire::infiniband::global_header;
use crate::wire::{
    BthOpcode, Deth, Extension, FrameWriter, HeaderTemplate, Network, Packet, PacketHeader, Route,
    ServiceClass, ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};
use bareverbs_prm::time::Time;

/// Bytes of a global route header; so many bytes lie before the payload in every receive (IBTA v1.4 §11.4.1.2).
const GRH: usize = 40;
/// Base and datagram headers and the invariant CRC, as the route header counts them.
const OTHER_HEADERS: usize = 12 + 8 + 4;
/// Frames that may wait for the wire before a queue pair stops to fetch.
const WAITING: usize = 64;
/// A Q_Key with this bit in a work request stands for that of the queue pair.
const CONTROLLED_QKEY: u32 = 1 << 31;
/// The numbers that every port has (IBTA v1.4 §3.9.2), and the Q_Key of the second (§9.2.4).
const MANAGEMENT: u32 = 0;
const GENERAL_SERVICES: u32 = 1;
const GENERAL_SERVICES_QKEY: u32 = 0x8001_0000;

/// A datagram on its way.
struct Datagram<'a> {
    source: Qpn,
    qkey: u32,
    partition_key: u16,
    route: Route,
    payload: &'a [u8],
    immediate: Option<u32>,
    solicited: bool,
    /// The IP header as it came; empty on InfiniBand.
    ip_header: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// What arrived; `None` if it is no datagram.
    fn received(packet: &Packet<'a>, ip_header: &'a [u8]) -> Option<Self> {
        let deth = packet.service_header.deth()?;
        Some(Self {
            source: deth.source,
            qkey: deth.q_key,
            partition_key: packet.bth.partition_key,
            route: packet.route,
            payload: packet.payload,
            immediate: packet.extension.immediate(),
            solicited: packet.bth.solicited,
            ip_header,
        })
    }

    /// LID of the source and service level; on Ethernet the kind of the network header.
    const fn origin(&self) -> (u16, u8) {
        match self.route.network {
            Network::InfiniBand(local) => (local.source, local.service_level),
            ref network => (0, roce::header_kind(network)),
        }
    }

    /// The global route header, if there is one.
    fn route_header(&self) -> Option<[u8; GRH]> {
        let immediate = if self.immediate.is_some() { 4 } else { 0 };
        global_header(&self.route, self.payload.len().next_multiple_of(4) + OTHER_HEADERS + immediate)
    }
}

impl Nic {
    /// Works off everything that was posted to a queue pair without a connection.
    pub(super) fn work_off_sends<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        while let Some(qp) = self.queue_pairs.get_mut(qpn.value()).filter(|qp| qp.state() == QpState::Rts) {
            if self.outbox.len() >= WAITING {
                return;
            }
            let context = FetchContext {
                mkeys: &self.mkeys,
                accessor: qp.accessor,
                log_max_message: qp.context.log_msg_max().min(self.port.log_largest_datagram()),
                max_wqe: self.config.limits.max_send_wqe,
                strom: false,
                strict: self.config.strict,
                format: qp.format(),
                names_queue: false,
            };
            match qp.send.fetch(memory, &context) {
                Fetched::Datagram { token, envelope, solicited } => {
                    self.counters.wqes += 1;
                    self.send_datagram(now, memory, qpn, (token, &envelope, solicited));
                }
                Fetched::KeyUpdate(pending) => {
                    self.end_update(memory, qpn, &pending);
                    self.refresh_ended(now, memory, qpn);
                }
                Fetched::Nop => {
                    self.counters.wqes += 1;
                    self.end_wqe(now, memory, qpn, Ok(()));
                }
                Fetched::Nothing | Fetched::Request(_) => return,
            }
        }
    }

    /// The work request ends when the datagram has left, whatever becomes of it.
    fn send_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        (token, envelope, solicited): (u64, &Envelope, bool),
    ) {
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let length = qp.send.slot(token).map_or(0, |slot| slot.pieces.length()) as usize;
        let mut payload = vec![0; length];
        if qp.send.gather(memory, &self.mkeys, token, 0, &mut payload).is_err() {
            self.end_wqe(now, memory, qpn, Err(wqe::DATA_ACCESS));
            self.fail_send_queue(memory, qpn);
            return;
        }
        let vector = &envelope.vector;
        let controlled = vector.qkey() & CONTROLLED_QKEY != 0;
        let index = qp.context.primary_address_path().pkey_index();
        let software_port = self.firmware.capabilities.software_source_port();
        let Some(route) = self.port.datagram_route(vector, qpn, software_port) else {
            self.end_wqe(now, memory, qpn, Err(wqe::ADDRESS));
            self.move_to_error(now, memory, qpn);
            return;
        };
        let datagram = Datagram {
            source: self.shown_number(qpn),
            qkey: if controlled { self.own_qkey(qpn) } else { vector.qkey() },
            partition_key: self.port.partition_key(index),
            route,
            payload: &payload,
            immediate: envelope.immediate,
            solicited,
            ip_header: &[],
        };
        self.end_wqe(now, memory, qpn, Ok(()));
        let destination = Qpn::from_low_bits(vector.destination());
        if !self.port.is_infiniband() {
            if let Some(ready) = self.write_frame(qpn, destination, &datagram) {
                self.send_frame(now, memory, ready);
            }
        } else if !self.port.is_ours(&datagram.route) {
            self.send_out(qpn, destination, &datagram);
        } else if let Some(target) = self.datagram_queue_pair(destination) {
            self.counters.frames_looped_back += 1;
            self.counters.bytes_looped_back += (GRH + datagram.payload.len()) as u64;
            self.receive_datagram(now, memory, target, &datagram);
        } else {
            self.counters.frames_without_path += 1;
        }
    }

    /// Puts a datagram on the link; a port that is not active loses it.
    fn send_out(&mut self, qpn: Qpn, destination: Qpn, datagram: &Datagram<'_>) {
        if !self.port.reaches_others() {
            self.counters.frames_without_path += 1;
            return;
        }
        if let Some(ready) = self.write_frame(qpn, destination, datagram) {
            self.outbox.push_back(ready);
        }
    }

    /// The packet of a datagram, with the next number of its queue pair.
    fn write_frame(&mut self, qpn: Qpn, destination: Qpn, datagram: &Datagram<'_>) -> Option<Ready> {
        let qp = self.queue_pairs.get_mut(qpn.value())?;
        let psn = qp.context.next_send_psn();
        qp.context.set_next_send_psn(psn.add(1));
        let template = HeaderTemplate::new(&datagram.route, destination, datagram.partition_key)
            .of_service(ServiceClass::UnreliableDatagram);
        let (opcode, extension) = match datagram.immediate {
            Some(data) => (BthOpcode::SendOnlyImmediate, Extension::Immediate(data)),
            None => (BthOpcode::SendOnly, Extension::None),
        };
        let header = PacketHeader {
            opcode,
            psn,
            solicited: datagram.solicited,
            ack_request: false,
            service_header: ServiceHeader::Deth(Deth { q_key: datagram.qkey, source: datagram.source }),
            extension,
        };
        let mut bytes = Vec::new();
        // Messages of datagrams fit a packet: fetching has seen to it.
        let length = datagram.payload.len();
        let mut writer = FrameWriter::begin(&mut bytes, &template, &header, length).ok()?;
        writer.payload_mut().copy_from_slice(datagram.payload);
        let icrc = writer.finish();
        Some(Ready { bytes, icrc, qpn })
    }

    /// The queue pair that takes a datagram from the link: the port and the partition are its own.
    pub(super) fn datagram_taker(&mut self, packet: &Packet<'_>) -> Option<Qpn> {
        if !self.port.is_addressed(&packet.route.network, packet.route.vlan) {
            self.counters.frames_unknown_gid += 1;
            return None;
        }
        let Some(qpn) = self.datagram_queue_pair(packet.bth.destination) else {
            self.counters.frames_unknown_qp += 1;
            return None;
        };
        self.datagram_fits(qpn, packet).then_some(qpn)
    }

    /// Whether a datagram is of the partition of a queue pair.
    fn datagram_fits(&mut self, qpn: Qpn, packet: &Packet<'_>) -> bool {
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return false };
        let own = self.port.partition_key(qp.context.primary_address_path().pkey_index());
        self.check_partition(packet.bth.partition_key, own)
    }

    /// Gives a datagram from the link to its queue pair.
    pub(super) fn deliver_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        packet: &Packet<'_>,
    ) {
        if let Some(datagram) = Datagram::received(packet, &[]) {
            self.receive_datagram(now, memory, qpn, &datagram);
        }
    }

    /// The number under which peers see a queue pair.
    fn shown_number(&self, qpn: Qpn) -> Qpn {
        match self.queue_pairs.get(qpn.value()).map(|qp| qp.context.st()) {
            Some(ServiceType::Qp0) => Qpn::from_low_bits(MANAGEMENT),
            Some(ServiceType::Qp1) => Qpn::from_low_bits(GENERAL_SERVICES),
            _ => qpn,
        }
    }

    fn own_qkey(&self, qpn: Qpn) -> u32 {
        match self.queue_pairs.get(qpn.value()) {
            Some(qp) if qp.context.st() == ServiceType::Qp1 => GENERAL_SERVICES_QKEY,
            Some(qp) => qp.context.q_key(),
            None => 0,
        }
    }

    /// The queue pair of this device behind a number: the first two are those of management.
    fn datagram_queue_pair(&self, destination: Qpn) -> Option<Qpn> {
        let number = destination.value();
        let special = match number {
            MANAGEMENT => Some(ServiceType::Qp0),
            GENERAL_SERVICES => Some(ServiceType::Qp1),
            _ => None,
        };
        let found = match special {
            Some(service) => {
                self.queue_pairs.iter().find(|(_, qp)| qp.context.st() == service).map(|(n, _)| n)
            }
            None => Some(number),
        };
        let known = found.filter(|&number| self.queue_pairs.get(number).is_some_and(|qp| qp.is_datagram()));
        known.map(Qpn::from_low_bits)
    }

    fn receive_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        datagram: &Datagram<'_>,
    ) {
        let qkey = self.own_qkey(qpn);
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let receives = !matches!(qp.state(), QpState::Reset | QpState::Init | QpState::Error);
        // Management packets have no Q_Key to be checked (IBTA v1.4 §9.8.3.2).
        if !receives || qp.context.st() != ServiceType::Qp0 && datagram.qkey != qkey {
            self.counters.datagrams_bad_qkey += u64::from(receives);
            self.counters.datagrams_dropped += u64::from(!receives);
            return;
        }
        let mut landing = Landing::default();
        match self.take_datagram(memory, qpn, &mut landing) {
            Taken::Empty => {
                self.counters.datagrams_dropped += 1;
                self.count_out_of_buffer(qpn);
            }
            Taken::Broken(_) if self.queue_pairs.get(qpn.value()).is_some_and(|qp| qp.shared.is_some()) => {
                // Nobody can say which entry it is.
                self.post_queue_event(memory, qpn, EventType::WqCatasError);
                self.move_to_error(now, memory, qpn);
            }
            Taken::Broken(fault) => self.fail_receive(now, memory, qpn, (0, fault)),
            Taken::Receive { index, capacity } if capacity < (GRH + datagram.payload.len()) as u64 => {
                self.fail_receive(now, memory, qpn, (index, wqe::RECEIVE));
            }
            Taken::Receive { index, .. } => {
                let written = self.write_datagram(memory, &landing, datagram);
                match written {
                    Ok(()) => self.complete_datagram(now, memory, (qpn, index), datagram),
                    Err(_) => self.fail_receive(now, memory, qpn, (index, wqe::DATA_KEY)),
                }
            }
        }
        if let Some(shared) = self.queue_pairs.get(qpn.value()).and_then(|qp| qp.shared) {
            self.watch_shared(memory, shared);
        }
    }

    fn take_datagram<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn, landing: &mut Landing) -> Taken {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return Taken::Empty };
        let taker = Taker { mkeys: &self.mkeys, accessor: qp.accessor, strict: self.config.strict };
        match qp.shared.and_then(|number| self.shared_receives.get_mut(number.value())) {
            Some(shared) => shared.take(memory, taker, landing),
            None => qp.receive.as_mut().map_or(Taken::Empty, |queue| queue.take(memory, taker, landing)),
        }
    }

    /// The route header, if there is one; its place is left as it was if there is none.
    fn write_datagram<M: HostMemory>(
        &self,
        memory: &mut M,
        landing: &Landing,
        datagram: &Datagram<'_>,
    ) -> Result<(), super::DmaFault> {
        let (ip_header, place) = (datagram.ip_header, roce::header_place(datagram.ip_header));
        match (datagram.route_header(), place) {
            (Some(header), _) => landing.scatter(memory, &self.mkeys, 0, &header)?,
            (None, Some(place)) if !ip_header.is_empty() => {
                landing.scatter(memory, &self.mkeys, place, ip_header)?;
            }
            _ => {}
        }
        landing.scatter(memory, &self.mkeys, GRH as u64, datagram.payload)
    }

    fn complete_datagram<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        (qpn, index): (Qpn, u16),
        datagram: &Datagram<'_>,
    ) {
        let bytes = (GRH + datagram.payload.len()) as u64;
        let (lid, service_level) = datagram.origin();
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let completion = ReceiveCompletion {
            length: bytes as u32,
            immediate: datagram.immediate,
            solicited: datagram.solicited,
            kind: if datagram.immediate.is_some() { ReceiveKind::SendImmediate } else { ReceiveKind::Send },
            status: ReceiveStatus::Success,
        };
        let mut entry = cqe::responder(&qp.context, qpn, index, &completion, now);
        entry.set_slid(lid).set_remote_qpn(datagram.source).set_service_level(service_level);
        let has_header = datagram.route_header().is_some() || !datagram.ip_header.is_empty();
        entry.set_grh(has_header.into());
        let cqn = qp.context.cqn_rcv();
        self.completions.post(memory, &mut self.events, cqn, &mut entry, datagram.solicited);
    }

    fn fail_receive<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        (index, fault): (u16, wqe::WorkFault),
    ) {
        let Some(qp) = self.queue_pairs.get(qpn.value()) else { return };
        let mut entry = cqe::responder_error(&qp.context, qpn, index, fault);
        let cqn = qp.context.cqn_rcv();
        self.completions.post(memory, &mut self.events, cqn, &mut entry, true);
        self.move_to_error(now, memory, qpn);
    }
}
