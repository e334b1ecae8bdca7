//! What a connected queue pair sends. Payload is read from memory only when its frame is written.

use super::frames::{PolledFrame, Transmit, TransmitClass};
use super::observed::observe_fetch;
use super::path::Path;
use super::replies::REPLY;
use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::mkey::HostRange;
use crate::nic::send_queue::{Fetched, PendingUpdate};
use crate::nic::wqe::{FetchContext, Format};
use crate::transport::{RequesterError, ResponderError, ResponsePacket};
use crate::wire::{FrameBuffer, FrameWriter, PacketHeader, ServiceClass};
use bareverbs_prm::numbering::QpState;

/// Why no frame was written.
enum Unwritten {
    /// The frame would exceed the maximum length.
    Length,
    /// The payload cannot be read.
    Payload,
}

/// A frame that was written.
struct Written {
    transmit: Transmit,
    /// It is a request, another one can follow at once, and no request has ended.
    is_followed: bool,
}

/// A request that was written.
struct WrittenRequest {
    icrc: u32,
    /// Another one can follow at once.
    is_followed: bool,
}

/// Writes a packet of a connection and returns its invariant CRC. `fill` reads `length` bytes of payload or
/// fails.
fn write_frame(
    frame: &mut FrameBuffer,
    path: &Path,
    header: &PacketHeader,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Result<u32, Unwritten> {
    let mut writer =
        FrameWriter::begin(frame, &path.headers, header, length).map_err(|_| Unwritten::Length)?;
    if fill(writer.payload_mut()) { Ok(writer.finish()) } else { Err(Unwritten::Payload) }
}

impl QueuePair {
    /// Writes the next frame of the connection. Responses go before requests.
    pub(crate) fn poll_frame<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        frame: &mut FrameBuffer,
    ) -> (Option<PolledFrame>, Effects) {
        let loops_back = self.path.as_ref().map(|path| path.loops_back);
        let written = if loops_back.is_some() { self.next_frame(bus, frame) } else { None };
        let effects = match written {
            Some(Written { is_followed: true, .. }) if !self.may_end_work() => self.keep_turn(bus.now),
            _ => self.settle(bus),
        };
        let polled = written.zip(loops_back);
        (polled.map(|(Written { transmit, .. }, loops_back)| PolledFrame { transmit, loops_back }), effects)
    }

    fn next_frame<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        frame: &mut FrameBuffer,
    ) -> Option<Written> {
        if self.notification.is_due()
            && let Some(transmit) = self.transmit_notification(bus, frame)
        {
            return Some(Written { transmit, is_followed: false });
        }
        if let Some(transmit) = self.transmit_response(bus, frame) {
            return Some(Written { transmit, is_followed: false });
        }
        if self.pacer.waits_until(bus.now).is_some() {
            return None;
        }
        self.fetch(bus);
        let WrittenRequest { icrc, is_followed } = self.transmit_request(bus, frame)?;
        self.pacer.on_sent(bus.now, frame.len());
        let transmit = Transmit { class: TransmitClass::Request, qpn: self.number(), icrc };
        Some(Written { transmit, is_followed })
    }

    fn transmit_response<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        let responder = self.responder.as_mut().filter(|responder| responder.has_work())?;
        let packet = responder.poll_transmit()?;
        let (class, length) = match &packet.payload {
            Some(payload) => (TransmitClass::ReadResponse, payload.length as usize),
            None => (TransmitClass::Response, 0),
        };
        let written = write_frame(frame, self.path.as_ref()?, &packet.header, length, |bytes| {
            packet.payload.as_ref().is_none_or(|payload| {
                bus.shared.mkeys.read(bus.memory, &payload.range, payload.offset.into(), bytes).is_ok()
            })
        });
        match written {
            Ok(icrc) => {
                if bus.shared.optional.observer.is_some() {
                    self.observe_response(bus, packet.header.psn);
                }
                if class == TransmitClass::ReadResponse {
                    self.pacer.on_sent(bus.now, frame.len());
                }
                Some(Transmit { class, qpn: self.number(), icrc })
            }
            Err(Unwritten::Payload) => self.fail_read_response(bus, &packet, frame),
            Err(Unwritten::Length) => {
                bus.shared.counters.frames_too_long += 1;
                None
            }
        }
    }

    /// Handles a READ response whose host memory is gone: the peer gets a NAK instead, and the connection
    /// breaks.
    fn fail_read_response<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        packet: &ResponsePacket<HostRange>,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        let psn = packet.header.psn;
        self.with_responder(bus, |responder, host| {
            responder.fail_read(psn, ResponderError::RemoteAccess, host);
        });
        let responder = self.responder.as_mut()?;
        let packet = responder.poll_transmit().filter(|packet| packet.payload.is_none())?;
        let icrc = write_frame(frame, self.path.as_ref()?, &packet.header, 0, |_| true).ok()?;
        self.observe_response(bus, packet.header.psn);
        Some(Transmit { class: TransmitClass::Response, qpn: self.number(), icrc })
    }

    // Inlined into the turn of a queue pair, it would leave too few registers for the packet.
    #[inline(never)]
    fn transmit_request<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        frame: &mut FrameBuffer,
    ) -> Option<WrittenRequest> {
        let Self { requester, path, replies, send, .. } = self;
        let path = path.as_ref()?;
        let packet = requester.as_mut()?.poll_transmit(bus.now)?;
        let (token, offset) = (packet.token, packet.payload_offset);
        let length = packet.payload_length as usize;
        let written = write_frame(frame, path, &packet.header, length, |bytes| {
            if token & REPLY != 0 {
                replies.as_ref().is_some_and(|replies| replies.gather(token, offset, bytes))
            } else {
                send.gather(bus.memory, &bus.shared.mkeys, token, offset, bytes).is_ok()
            }
        });
        match written {
            Ok(icrc) => {
                if bus.shared.optional.observer.is_some() {
                    self.observe_request(bus, packet);
                }
                Some(WrittenRequest { icrc, is_followed: packet.is_followed })
            }
            Err(unwritten) => {
                self.fail_request(token, &unwritten);
                None
            }
        }
    }

    /// Fails a message whose packet could not be written. The queue pair gets another turn if another message is to be
    /// sent.
    #[cold]
    #[inline(never)]
    fn fail_request(&mut self, token: u64, unwritten: &Unwritten) {
        let error = match unwritten {
            Unwritten::Length => RequesterError::BadResponse,
            Unwritten::Payload => RequesterError::LocalProtection,
        };
        if let Some(requester) = &mut self.requester {
            requester.fail(token, error);
        }
    }

    /// Fetches WQEs from the ring and gives them to the requester while both have room and the turn is not
    /// over.
    #[inline]
    pub(super) fn fetch<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if self.send.wants_fetch() || self.replies.is_some() {
            self.fetch_posted(bus);
        }
    }

    #[inline(never)]
    fn fetch_posted<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if self.state() != QpState::Rts {
            return;
        }
        if let (Some(replies), Some(requester)) = (&mut self.replies, &mut self.requester) {
            bus.shared.counters.requests_refused += replies.submit(requester);
        }
        while self.send.wants_fetch() {
            let Some(pending) = self.fetch_requests(bus) else { return };
            if !self.update_in_order(bus, pending) || bus.shared.mkeys.budget().is_spent() {
                return;
            }
        }
    }

    /// Gives requests to the requester while it has room. Stops at a memory-key update and returns it.
    fn fetch_requests<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Option<PendingUpdate> {
        let context = FetchContext {
            mkeys: &bus.shared.mkeys,
            accessor: self.accessor,
            log_max_message: self.context.log_msg_max(),
            max_wqe: bus.config.limits.max_send_wqe,
            strom: bus.config.strom,
            strict: bus.config.strict,
            format: Format::Connected,
            mmo: self.mmo,
            names_queue: self.class == ServiceClass::ExtendedReliableConnection,
        };
        let requester = self.requester.as_mut()?;
        while requester.has_room() && !context.mkeys.budget().is_spent() {
            let requests_refused = &mut bus.shared.counters.requests_refused;
            let submit = |request| *requests_refused += u64::from(requester.submit(request).is_err());
            match self.send.fetch(bus.memory, &context, submit) {
                Fetched::Request | Fetched::Nop => {
                    bus.shared.counters.wqes += 1;
                    observe_fetch(&mut bus.shared.optional, bus.now, self.accessor.qpn, &self.send);
                }
                Fetched::Dma(copy) => {
                    bus.shared.counters.wqes += 1;
                    bus.shared.counters.dma_requests += 1;
                    observe_fetch(&mut bus.shared.optional, bus.now, self.accessor.qpn, &self.send);
                    // Only a function of a card enables these operations.
                    if let Some(card) = bus.shared.optional.card.as_mut() {
                        self.send.hand_to_card(card.request(self.accessor.qpn, *copy));
                    }
                }
                Fetched::KeyUpdate(pending) => return Some(*pending),
                Fetched::Nothing | Fetched::Datagram { .. } => break,
            }
        }
        None
    }
}
