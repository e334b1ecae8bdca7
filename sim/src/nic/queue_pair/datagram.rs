//! Unreliable datagrams and management datagrams at one queue pair (IBTA v1.4 §9.8.3).

use super::error::PendingResponses;
use super::observed::observe_fetch;
use super::{Bus, Effects, FinishedFrame, HostMemory, QueuePair};
use crate::nic::observer::{DeviceEvent, FrameOrigin, FrameWork, WorkName};
use crate::nic::port::group_of;
use crate::nic::port_traps::{KeyViolation, PortTrap};
use crate::nic::receive_queue::{FetchedReceive, ReceiveAccess, ScatterList};
use crate::nic::send_queue::{Fetched, FetchedDatagram};
use crate::nic::shared_receive::ReceiveSource;
use crate::nic::wqe::{self, FetchContext, WorkFault};
use crate::transport::{ReceiveCompletion, ReceiveKind, ReceiveStatus};
use crate::wire::infiniband::global_header;
use crate::wire::management::{GENERAL_SERVICES_QKEY, GeneralPacket};
use crate::wire::{
    BthOpcode, Deth, Extension, FrameBuffer, FrameWriter, HeaderTemplate, Network, Packet, PacketHeader,
    Route, ServiceClass, ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;
use bareverbs_prm::wqe::OWN_QKEY;
use std::borrow::Cow;

/// Bytes of a global route header. Every receive leaves that much room before the payload (IBTA v1.4
/// §11.4.1.2).
const GRH: usize = 40;
/// Base and datagram headers and the invariant CRC, as the payload length of the GRH counts them.
const OTHER_HEADERS: usize = 12 + 8 + 4;
/// Queue pair number 0, which every port has (IBTA v1.4 §3.9.2).
const MANAGEMENT: u32 = 0;
const GENERAL_SERVICES: u32 = 1;
/// Kind of the network header in a completion: the two low bits of the field that holds the service level on
/// InfiniBand.
const IPV6: u8 = 1;
const IPV4: u8 = 2;

/// A datagram in flight.
pub(crate) struct Datagram<'a> {
    source: Qpn,
    pub(crate) qkey: u32,
    pub(crate) partition_key: u16,
    route: Route,
    payload: Cow<'a, [u8]>,
    immediate: Option<u32>,
    solicited: bool,
    /// The IP header as it arrived; empty on InfiniBand.
    ip_header: &'a [u8],
    /// Its PSN, if it arrived from the wire.
    psn: Psn,
    /// The work request that sent it, if the device is observed.
    work: Option<WorkName>,
}

/// What a turn of a datagram queue pair produces.
pub(crate) enum OutgoingDatagram {
    /// A frame for the link. Its destination may also be a queue pair of this device; the router then loops
    /// it back.
    Frame(FinishedFrame),
    /// A datagram for a queue pair of this same InfiniBand port that no other device shares. It never becomes
    /// a frame.
    Local { destination: Qpn, datagram: Datagram<'static> },
}

impl OutgoingDatagram {
    /// Bytes charged to the controller: those of the frame or, without a frame, those that fill the receive.
    fn length(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.bytes.len(),
            Self::Local { datagram, .. } => datagram.length(),
        }
    }
}

impl<'a> Datagram<'a> {
    /// The datagram that a packet with a datagram header carries.
    pub(crate) fn received(packet: &Packet<'a>, deth: Deth, ip_header: &'a [u8]) -> Self {
        Self {
            source: deth.source,
            qkey: deth.q_key,
            partition_key: packet.bth.partition_key,
            route: packet.route,
            payload: Cow::Borrowed(packet.payload),
            immediate: packet.extension.immediate(),
            solicited: packet.bth.solicited,
            ip_header,
            psn: packet.bth.psn,
            work: None,
        }
    }

    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The datagram as a packet of the general services, if its form allows that.
    pub(crate) fn to_general_services(&self) -> Option<GeneralPacket> {
        GeneralPacket::new(&self.route, self.source, self.partition_key, &self.payload)
    }

    /// The violation to report when its P_Key does not match that of the receiver.
    pub(crate) fn partition_violation(&self, destination: Qpn) -> Option<KeyViolation> {
        let ends = [self.source, destination];
        KeyViolation::new(PortTrap::PartitionKey, self.partition_key.into(), &self.route.network, ends)
    }

    /// The violation to report when its Q_Key does not match that of the receiver.
    fn queue_key_violation(&self, destination: Qpn) -> Option<KeyViolation> {
        let ends = [self.source, destination];
        KeyViolation::new(PortTrap::QueueKey, self.qkey, &self.route.network, ends)
    }

    /// LID of the source and service level. On Ethernet the second value is the kind of the network header.
    const fn origin(&self) -> (u16, u8) {
        match &self.route.network {
            Network::InfiniBand(local) => (local.source, local.service_level),
            Network::V4 { .. } => (0, IPV4),
            Network::V6 { .. } => (0, IPV6),
            Network::Version1(_) => (0, 0),
        }
    }

    /// Bytes that it occupies in a receive.
    pub(crate) fn length(&self) -> usize {
        GRH + self.payload.len()
    }

    /// The global route header, if there is one.
    fn route_header(&self) -> Option<[u8; GRH]> {
        let immediate = if self.immediate.is_some() { 4 } else { 0 };
        global_header(&self.route, self.payload.len().next_multiple_of(4) + OTHER_HEADERS + immediate)
    }

    /// Offset of the IP header, if there is one, in the room before the payload: it ends where the payload
    /// begins.
    fn ip_header_offset(&self) -> Option<u64> {
        let offset = GRH.checked_sub(self.ip_header.len())?;
        (!self.ip_header.is_empty()).then_some(offset as u64)
    }

    /// Writes the datagram into a receive: the payload, and before it the route header. Without a route
    /// header its place is left unchanged.
    fn place<M: HostMemory>(&self, bus: &mut Bus<'_, M>, receive: &ScatterList) -> Result<(), WorkFault> {
        let route_header = self.route_header();
        let (at, header): (u64, &[u8]) = match (&route_header, self.ip_header_offset()) {
            (Some(header), _) => (0, header),
            (None, Some(offset)) => (offset, self.ip_header),
            (None, None) => (0, &[]),
        };
        receive.place(
            bus.memory,
            &bus.shared.mkeys,
            self.length(),
            [(at, header), (GRH as u64, &self.payload)],
        )
    }

    fn completion(&self) -> ReceiveCompletion {
        ReceiveCompletion {
            length: self.length() as u32,
            immediate: self.immediate,
            solicited: self.solicited,
            kind: if self.immediate.is_some() { ReceiveKind::SendImmediate } else { ReceiveKind::Send },
            status: ReceiveStatus::Success,
        }
    }

    const fn opcode(&self) -> BthOpcode {
        if self.immediate.is_some() { BthOpcode::SendOnlyImmediate } else { BthOpcode::SendOnly }
    }

    /// The event that reports its arrival at a queue pair.
    #[cold]
    fn event(&self, qpn: Qpn) -> DeviceEvent {
        DeviceEvent::PacketReceived { qpn, opcode: self.opcode(), psn: self.psn }
    }

    /// Builds a frame with this PSN. A datagram always fits into one packet, because fetching checks its
    /// length.
    fn to_frame(&self, now: Time, qpn: Qpn, destination: Qpn, psn: Psn) -> Option<FinishedFrame> {
        let template = HeaderTemplate::new(&self.route, destination, self.partition_key)
            .of_service(ServiceClass::UnreliableDatagram);
        let extension = self.immediate.map_or(Extension::None, Extension::Immediate);
        let header = PacketHeader {
            opcode: self.opcode(),
            psn,
            solicited: self.solicited,
            ack_request: false,
            service_header: ServiceHeader::Deth(Deth { q_key: self.qkey, source: self.source }),
            extension,
        };
        let mut bytes = FrameBuffer::new();
        let mut writer = FrameWriter::begin(&mut bytes, &template, &header, self.payload.len()).ok()?;
        writer.payload_mut().copy_from_slice(&self.payload);
        let icrc = writer.finish();
        let origin = self.work.map(|work| FrameOrigin {
            qpn,
            work: FrameWork::Wqe(work),
            psn: Some(psn),
            again: None,
            built: Some(now),
        });
        Some(FinishedFrame { bytes, icrc, qpn, origin })
    }
}

impl QueuePair {
    /// The service that handles datagrams to a well-known queue pair number.
    pub(crate) const fn special_service(destination: Qpn) -> Option<ServiceType> {
        match destination.value() {
            MANAGEMENT => Some(ServiceType::Qp0),
            GENERAL_SERVICES => Some(ServiceType::Qp1),
            _ => None,
        }
    }

    /// The next datagram of a queue pair without a connection, unless the congestion controller holds it
    /// back. Memory-key updates and NOPs ahead of it are executed. Its [`Effects`] follow from
    /// [`Self::end_turn`].
    pub(crate) fn poll_datagram<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Option<OutgoingDatagram> {
        while self.state() == QpState::Rts
            && self.may_send_datagram(bus)
            && !bus.shared.mkeys.budget().is_spent()
        {
            match self.fetch_datagram(bus) {
                Fetched::Datagram(fetched) => {
                    bus.shared.counters.wqes += 1;
                    observe_fetch(&mut bus.shared.optional, bus.now, self.accessor.qpn, &self.send);
                    if let Some(outgoing) = self.send_datagram(bus, &fetched) {
                        self.pacer.on_sent(bus.now, outgoing.length());
                        return Some(outgoing);
                    }
                }
                Fetched::KeyUpdate(pending) => {
                    if self.end_update(bus, *pending) {
                        self.end_wqe(bus, Ok(()));
                    }
                }
                Fetched::Nop => {
                    bus.shared.counters.wqes += 1;
                    observe_fetch(&mut bus.shared.optional, bus.now, self.accessor.qpn, &self.send);
                    self.end_wqe(bus, Ok(()));
                }
                Fetched::Nothing | Fetched::Request | Fetched::Dma(_) => break,
            }
        }
        None
    }

    fn may_send_datagram<M>(&self, bus: &Bus<'_, M>) -> bool {
        self.pacer.waits_until(bus.now).is_none() || mutated("unpaced_datagrams")
    }

    /// Ends a turn of a queue pair without a connection.
    pub(crate) fn end_turn<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.settle(bus)
    }

    fn fetch_datagram<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Fetched {
        let context = FetchContext {
            mkeys: &bus.shared.mkeys,
            accessor: self.accessor,
            log_max_message: self.context.log_msg_max().min(bus.shared.port.log_largest_datagram()),
            max_wqe: bus.config.limits.max_send_wqe,
            strom: false,
            strict: bus.config.strict,
            format: self.format,
            mmo: false,
            names_queue: false,
        };
        // This layout has no request of a connection.
        self.send.fetch(bus.memory, &context, |_| {})
    }

    /// Sends a datagram. Its work request completes as soon as the datagram has left, whether or not it
    /// arrives.
    fn send_datagram<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        fetched: &FetchedDatagram,
    ) -> Option<OutgoingDatagram> {
        let work =
            if bus.shared.optional.observer.is_some() { self.send.work_of(fetched.token) } else { None };
        let mut payload = vec![0; self.send.length_of(fetched.token)];
        if self.send.gather(bus.memory, &bus.shared.mkeys, fetched.token, 0, &mut payload).is_err() {
            self.end_wqe(bus, Err(wqe::DATA_ACCESS));
            self.fail_send_queue(bus);
            return None;
        }
        let vector = &fetched.address.vector;
        let software_port = bus.features.software_source_port;
        let route = if self.context.st() == ServiceType::Qp0 {
            Some(bus.shared.port.management_route(vector))
        } else {
            bus.shared.port.datagram_route(vector, self.number(), software_port)
        };
        let Some(route) = route else {
            self.end_wqe(bus, Err(wqe::ADDRESS));
            self.enter_error(bus, PendingResponses::Forgotten);
            return None;
        };
        let controlled = vector.qkey() & OWN_QKEY != 0;
        let datagram = Datagram {
            source: self.shown_number(),
            qkey: if controlled { self.own_qkey() } else { vector.qkey() },
            partition_key: bus.shared.port.partition_key(self.pkey_index()),
            route,
            payload: Cow::Owned(payload),
            immediate: fetched.address.immediate,
            solicited: fetched.solicited,
            ip_header: &[],
            psn: Psn::new(0),
            work,
        };
        self.end_wqe(bus, Ok(()));
        self.dispatch_datagram(bus, vector.dqpn(), datagram)
    }

    /// Delivers or frames a datagram. On InfiniBand a datagram to this port alone needs no packet, and a port
    /// that is not active drops all datagrams to others except those of subnet management. A multicast group
    /// may have members here and elsewhere, so it always takes a frame.
    fn dispatch_datagram<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        destination: Qpn,
        datagram: Datagram<'static>,
    ) -> Option<OutgoingDatagram> {
        if bus.shared.port.is_infiniband() && group_of(&datagram.route.network).is_none() {
            let is_ours = bus.shared.port.is_ours(&datagram.route, destination);
            if is_ours && !bus.shared.port.shares(destination) {
                return Some(OutgoingDatagram::Local { destination, datagram });
            }
            let leaves = match self.context.st() {
                ServiceType::Qp0 => bus.shared.port.is_linked(),
                _ => bus.shared.port.reaches_others(),
            };
            if !is_ours && !leaves {
                bus.shared.counters.frames_without_path += 1;
                return None;
            }
        }
        let psn = self.context.next_send_psn();
        self.context.set_next_send_psn(psn.add(1));
        let frame = datagram.to_frame(bus.now, self.number(), destination, psn);
        bus.shared.counters.frames_too_long += u64::from(frame.is_none());
        frame.map(OutgoingDatagram::Frame)
    }

    /// The number by which peers address the queue pair.
    fn shown_number(&self) -> Qpn {
        match self.context.st() {
            ServiceType::Qp0 => Qpn::from_low_bits(MANAGEMENT),
            ServiceType::Qp1 => Qpn::from_low_bits(GENERAL_SERVICES),
            _ => self.number(),
        }
    }

    fn own_qkey(&self) -> u32 {
        if self.context.st() == ServiceType::Qp1 { GENERAL_SERVICES_QKEY } else { self.context.q_key() }
    }

    /// Index of the P_Key table entry that its datagrams use.
    pub(crate) fn pkey_index(&self) -> u16 {
        self.context.primary_address_path().pkey_index()
    }

    /// Takes an arriving datagram whose P_Key was already checked.
    pub(crate) fn on_datagram<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        datagram: &Datagram<'_>,
    ) -> Effects {
        if matches!(self.state(), QpState::Reset | QpState::Init | QpState::Error) {
            bus.shared.counters.datagrams_dropped += 1;
            return Effects::NONE;
        }
        // QP0 packets have no Q_Key to check (IBTA v1.4 §9.8.3.2).
        if self.context.st() != ServiceType::Qp0 && datagram.qkey != self.own_qkey() {
            bus.shared.counters.datagrams_bad_qkey += 1;
            if let Some(violation) = datagram.queue_key_violation(self.shown_number()) {
                bus.shared.port.note_violation(bus.now, &violation);
            }
            return Effects::NONE;
        }
        bus.observe(|| datagram.event(self.number()));
        let effects = self.receive_datagram(bus, datagram);
        if let ReceiveSource::Shared(number) = self.receives {
            bus.watch_shared(number);
        }
        effects
    }

    fn receive_datagram<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, datagram: &Datagram<'_>) -> Effects {
        let access =
            ReceiveAccess { mkeys: &bus.shared.mkeys, accessor: self.accessor, strict: bus.config.strict };
        let taken =
            self.receives.take(bus.memory, &mut bus.shared.shared_receives, None, access, &mut self.scatter);
        match taken.unwrap_or(FetchedReceive::Empty) {
            FetchedReceive::Empty => {
                bus.shared.counters.datagrams_dropped += 1;
                self.count_out_of_buffer();
                Effects::NONE
            }
            FetchedReceive::Broken(_) if matches!(self.receives, ReceiveSource::Shared(_)) => {
                // In a shared queue the failing entry is unknown, so an event reports the failure instead of
                // a completion.
                bus.queue_pair_event(self.number(), EventType::WqCatasError);
                self.move_to_error(bus)
            }
            FetchedReceive::Broken(fault) => self.fail_receive(bus, 0, fault),
            FetchedReceive::Receive { index, .. } => match datagram.place(bus, &self.scatter) {
                Ok(()) => self.complete_datagram(bus, index, datagram),
                Err(fault) => self.fail_receive(bus, index, fault),
            },
        }
    }

    fn complete_datagram<M: HostMemory>(
        &self,
        bus: &mut Bus<'_, M>,
        index: u16,
        datagram: &Datagram<'_>,
    ) -> Effects {
        let (lid, service_level) = datagram.origin();
        let mut entry = self.owner().responder(index, &datagram.completion(), bus.now);
        entry.set_slid(lid).set_remote_qpn(datagram.source).set_service_level(service_level);
        // Linux uses this field to look up the P_Key of a management packet
        // (`drivers/infiniband/hw/mlx5/cq.c`).
        if self.context.st() == ServiceType::Qp1 && datagram.immediate.is_none() {
            entry.set_immediate(datagram.partition_key.into());
        }
        let has_header = datagram.route_header().is_some() || !datagram.ip_header.is_empty();
        entry.set_grh(has_header.into());
        bus.complete(self.context.cqn_rcv(), &mut entry, datagram.solicited);
        Effects::NONE
    }

    fn fail_receive<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, index: u16, fault: WorkFault) -> Effects {
        let mut entry = self.owner().responder_error(index, fault);
        bus.complete(self.context.cqn_rcv(), &mut entry, true);
        self.move_to_error(bus)
    }
}
