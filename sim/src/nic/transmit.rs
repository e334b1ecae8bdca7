//! The way out: from doorbells to frames. Payload is read from memory only when its frame is written.

use super::ethernet::Ethernet;
use super::mkey::HostRange;
use super::queue_pair::Path;
use super::reply::REPLY;
use super::send_queue::{FetchContext, Fetched, PendingUpdate};
use super::{HostMemory, Nic, port, wqe};
use crate::transport::{ReceivingSide, RequesterError, ResponderError, ResponsePacket, SendingSide};
use crate::wire::{FrameWriter, HeaderTemplate, PacketHeader, ServiceClass};
use bareverbs_prm::ids::{Qpn, UarIndex};
use bareverbs_prm::numbering::QpState;
use bareverbs_prm::time::Time;

/// Why a frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitClass {
    /// A request: its work request was fetched after a doorbell.
    Request,
    /// An acknowledgement: nothing had to be fetched.
    Response,
    /// A READ response: its payload was fetched from host memory.
    ReadResponse,
}

/// What is told of a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Why it is sent.
    pub class: TransmitClass,
    /// Sending queue pair.
    pub qpn: Qpn,
    /// Invariant CRC of the frame.
    pub icrc: u32,
}

/// Why there is no frame.
enum Unwritten {
    /// It would be longer than any frame.
    Length,
    /// Its payload cannot be read.
    Payload,
}

/// Writes a packet of a connection: `fill` reads `length` bytes of payload, or says that it cannot. Gives the invariant CRC.
fn write_frame(
    (frame, path): (&mut Vec<u8>, &Path),
    header: &PacketHeader,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Result<u32, Unwritten> {
    let mut writer =
        FrameWriter::begin(frame, &path.headers, header, length).map_err(|_| Unwritten::Length)?;
    if fill(writer.payload_mut()) { Ok(writer.finish()) } else { Err(Unwritten::Payload) }
}

/// A frame that is complete and waits for the wire.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) bytes: Vec<u8>,
    pub(super) icrc: u32,
    pub(super) qpn: Qpn,
}

impl Nic {
    /// A send doorbell.
    pub(super) fn ring_send_queue<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        page: UarIndex,
        qpn: Qpn,
    ) {
        if Ethernet::is_send_queue(qpn) {
            return self.ring_ethernet_queue(memory, page, qpn);
        }
        let known = self.queue_pairs.get_mut(qpn.value()).filter(|qp| qp.context.uar_page() == page);
        let Some(qp) = known else {
            self.counters.doorbells_ignored += 1;
            return;
        };
        self.counters.send_doorbells += 1;
        if qp.send.ring(memory, qp.record.address, self.config.strict).is_err() {
            qp.send.stop(0, wqe::FETCH);
        }
        // A dead queue is flushed by what follows; one that drains, or waits for its state, remembers what was posted.
        if qp.state() == QpState::Rts {
            self.schedule.wake(qp);
        }
        self.refresh(now, memory, qpn);
    }

    /// Whether [`Self::poll_transmit`] may have a frame. It may still find that there is none.
    pub fn has_transmit(&self) -> bool {
        !self.schedule.is_empty() || !self.outbox.is_empty() || self.ethernet.has_transmit()
    }

    /// Writes the next frame to `frame`, whose capacity is used again. Queue pairs with work take turns, one frame each;
    /// a queue pair answers before it asks.
    pub fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let transmit = self.next_frame(now, memory, frame);
        self.settle(now, memory);
        transmit
    }

    /// RDMA and Ethernet take turns.
    fn next_frame<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.ethernet.take_turn() {
            let sent = self.transmit_ethernet(now, memory, frame);
            return sent.or_else(|| self.transmit_rdma(now, memory, frame));
        }
        let sent = self.transmit_rdma(now, memory, frame);
        sent.or_else(|| self.transmit_ethernet(now, memory, frame))
    }

    fn transmit_rdma<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        loop {
            if let Some(transmit) = self.transmit_ready(frame) {
                return Some(transmit);
            }
            let Some(number) = self.schedule.next() else { break };
            let qpn = Qpn::from_low_bits(number);
            let Some(qp) = self.queue_pairs.get_mut(number) else { continue };
            qp.ready = false;
            let sent = self.transmit_one(now, memory, qpn, frame);
            self.refresh(now, memory, qpn);
            let Some((transmit, loops_back)) = sent else { continue };
            if loops_back {
                self.counters.frames_looped_back += 1;
                self.counters.bytes_looped_back += frame.len() as u64;
                self.accept_frame(now, memory, frame);
                continue;
            }
            if !self.port.reaches_others() {
                self.counters.frames_without_path += 1;
                continue;
            }
            self.count_sent(frame);
            return Some(transmit);
        }
        None
    }

    /// A frame that was complete before its turn came.
    fn transmit_ready(&mut self, frame: &mut Vec<u8>) -> Option<Transmit> {
        let ready = self.outbox.pop_front()?;
        *frame = ready.bytes;
        self.count_sent(frame);
        Some(Transmit { class: TransmitClass::Request, qpn: ready.qpn, icrc: ready.icrc })
    }

    fn transmit_one<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        frame: &mut Vec<u8>,
    ) -> Option<(Transmit, bool)> {
        if self.queue_pairs.get(qpn.value())?.format() != wqe::Format::Connected {
            self.work_off_sends(now, memory, qpn);
            return None;
        }
        let loops_back = self.queue_pairs.get(qpn.value())?.path.as_ref()?.loops_back;
        if let Some(transmit) = self.transmit_notification(qpn, frame) {
            return Some((transmit, loops_back));
        }
        let transmit = match self.transmit_response(now, memory, qpn, frame) {
            Some(transmit) => transmit,
            None => {
                self.fetch(memory, qpn);
                self.transmit_request(now, memory, qpn, frame)?
            }
        };
        Some((transmit, loops_back))
    }

    fn transmit_response<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let qp = self.queue_pairs.get_mut(qpn.value())?;
        let packet = qp.responder.as_mut()?.poll_transmit(now)?;
        let (class, length) = match &packet.payload {
            Some(payload) => (TransmitClass::ReadResponse, payload.length as usize),
            None => (TransmitClass::Response, 0),
        };
        let written = write_frame((&mut *frame, qp.path.as_ref()?), &packet.header, length, |bytes| {
            let Some(payload) = &packet.payload else { return true };
            self.mkeys.read(memory, &payload.range, payload.offset.into(), bytes).is_ok()
        });
        match written {
            Ok(icrc) => Some(Transmit { class, qpn, icrc }),
            Err(Unwritten::Payload) => self.fail_read_response(now, memory, qpn, &packet, frame),
            Err(Unwritten::Length) => None,
        }
    }

    /// Host memory of a READ response is gone: the peer gets a NAK instead, and the connection breaks.
    fn fail_read_response<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        packet: &ResponsePacket<HostRange>,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let psn = packet.header.psn;
        self.with_responder(now, memory, qpn, |responder: &mut ReceivingSide<HostRange>, host| {
            responder.fail_read(psn, ResponderError::RemoteAccess, host);
        });
        let qp = self.queue_pairs.get_mut(qpn.value())?;
        let packet = qp.responder.as_mut()?.poll_transmit(now).filter(|packet| packet.payload.is_none())?;
        let icrc = write_frame((&mut *frame, qp.path.as_ref()?), &packet.header, 0, |_| true).ok()?;
        Some(Transmit { class: TransmitClass::Response, qpn, icrc })
    }

    fn transmit_request<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let qp = self.queue_pairs.get_mut(qpn.value())?;
        let requester = qp.requester.as_mut()?;
        // A message whose payload cannot be read fails; the next packet may belong to another one.
        while let Some(packet) = requester.poll_transmit(now) {
            let (token, offset) = (packet.token, packet.payload_offset);
            let length = packet.payload_length as usize;
            let written = write_frame((&mut *frame, qp.path.as_ref()?), &packet.header, length, |bytes| {
                if token & REPLY != 0 {
                    qp.replies.gather(token, offset, bytes)
                } else {
                    qp.send.gather(memory, &self.mkeys, token, offset, bytes).is_ok()
                }
            });
            match written {
                Ok(icrc) => return Some(Transmit { class: TransmitClass::Request, qpn, icrc }),
                Err(Unwritten::Length) => requester.fail(token, RequesterError::BadResponse),
                Err(Unwritten::Payload) => requester.fail(token, RequesterError::LocalProtection),
            }
        }
        None
    }

    /// Takes WQEs out of the ring and gives them to the requester while both have room.
    fn fetch<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if qp.state() != QpState::Rts {
            return;
        }
        if let Some(requester) = &mut qp.requester {
            qp.replies.submit(requester);
        }
        while let Some(pending) = self.fetch_requests(memory, qpn) {
            if !self.update_in_order(memory, qpn, &pending) {
                return;
            }
        }
    }

    /// Gives requests to the requester while it has room, up to a change of a memory key, which is given back.
    fn fetch_requests<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) -> Option<PendingUpdate> {
        let qp = self.queue_pairs.get_mut(qpn.value())?;
        let context = FetchContext {
            mkeys: &self.mkeys,
            accessor: qp.accessor,
            log_max_message: qp.context.log_msg_max(),
            max_wqe: self.config.limits.max_send_wqe,
            strom: self.config.strom,
            strict: self.config.strict,
            format: wqe::Format::Connected,
            names_queue: qp.service_class() == ServiceClass::ExtendedReliableConnection,
        };
        let requester = qp.requester.as_mut()?;
        while requester.has_room() {
            match qp.send.fetch(memory, &context) {
                Fetched::Request(request) => {
                    self.counters.wqes += 1;
                    // There is room, so this cannot be refused.
                    let _ = requester.submit(request);
                }
                Fetched::Nop => self.counters.wqes += 1,
                Fetched::KeyUpdate(pending) => return Some(pending),
                Fetched::Nothing | Fetched::Datagram { .. } => break,
            }
        }
        None
    }
}

impl Nic {
    /// INIT2RTR: the responder and the way of packets begin.
    pub(super) fn connect(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let Some(mtu) = super::firmware::path_mtu(qp.context.mtu()) else { return };
        let reliable = qp.service_class() != ServiceClass::UnreliableConnection;
        qp.responder = Some(ReceivingSide::new(reliable, &qp.parameters(mtu, &self.config)));
        self.set_path(qpn);
    }

    /// The way of packets, as the context says it.
    pub(super) fn set_path(&mut self, qpn: Qpn) {
        let software_port = self.firmware.capabilities.software_source_port();
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let service = qp.service_class();
        qp.path = self.port.route(&qp.context, qpn.value(), software_port).map(|route| {
            let (local, remote) = port::ends(&route.network);
            let partition_key = self.port.partition_key(qp.context.primary_address_path().pkey_index());
            Path {
                headers: HeaderTemplate::new(&route, qp.context.remote_qpn(), partition_key)
                    .of_service(service),
                local,
                remote,
                version: port::version(&route.network),
                partition_key,
                loops_back: self.port.is_ours(&route),
            }
        });
    }

    /// RTR2RTS: the requester begins, with what was posted before.
    pub(super) fn start_sending(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if qp.format() != wqe::Format::Connected {
            self.schedule.wake(qp);
            return;
        }
        let Some(mtu) = super::firmware::path_mtu(qp.context.mtu()) else { return };
        let reliable = qp.service_class() != ServiceClass::UnreliableConnection;
        qp.requester = Some(SendingSide::new(reliable, &qp.parameters(mtu, &self.config)));
        self.schedule.wake(qp);
    }

    /// Takes replies of the RPC engine. A reply over a queue pair that cannot send is dropped with it.
    pub(super) fn take_replies(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        while let Some(reply) = engine.poll_reply() {
            let sending = self.queue_pairs.get_mut(reply.qpn.value()).filter(|qp| qp.state() == QpState::Rts);
            if let Some(qp) = sending {
                qp.replies.push(reply);
                self.schedule.wake(qp);
            }
        }
    }
}
