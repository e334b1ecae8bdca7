//! The way in: from frames to responders and requesters.

use super::mkey::HostRange;
use super::queue_pair::QueuePair;
use super::responder_host::QueuePairHost;
use super::shared_receive::ReceiveSource;
use super::{HostMemory, Nic, is_response};
use crate::transport::{Placement, ReceivingSide, RequesterError, ResponderError};
use crate::wire::infiniband::{self, MANAGEMENT_LANE, destination_lid, virtual_lane};
use crate::wire::management::PortState;
use crate::wire::{Packet, ParseError, parse};
use bareverbs_prm::eqe::QueueEvent;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{EventType, QpState};
use bareverbs_prm::time::Time;

/// Low bits of a P_Key; the high bit says full or limited member (IBTA v1.4 §10.9.3).
const PKEY_BITS: u16 = 0x7fff;
const FULL_MEMBER: u16 = 0x8000;

impl Nic {
    /// A frame arrives at the port.
    pub fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        if self.port.is_infiniband() && virtual_lane(frame) == Some(MANAGEMENT_LANE) {
            self.handle_management(memory, frame);
        } else if !self.is_for_us(frame) && !self.accepts(frame) {
            self.counters.frames_foreign += 1;
        } else if self.is_for_flow_tables(frame) {
            self.receive_ethernet(now, memory, frame, false);
        } else {
            self.accept_frame(now, memory, frame);
        }
        self.settle(now, memory);
    }

    /// Whether the link takes a frame in. An armed port receives already (IBTA v1.4 §7.2.7).
    #[inline]
    fn is_for_us(&self, frame: &[u8]) -> bool {
        if self.port.is_infiniband() {
            return self.port.state() >= PortState::Armed
                && destination_lid(frame).is_some_and(|lid| self.port.owns_lid(lid));
        }
        let own = frame.get(..6) == Some(&self.port.mac().0);
        self.port.is_up() && (own || self.takes_group_frame(frame))
    }

    /// A frame for this device, from the wire or from itself.
    pub(super) fn accept_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        let parsed = if self.port.is_infiniband() { infiniband::parse(frame) } else { parse(frame) };
        let packet = match parsed {
            Ok(packet) => packet,
            Err(ParseError::Icrc { .. }) => {
                self.counters.frames_bad_icrc += 1;
                return;
            }
            Err(_) => {
                self.counters.frames_malformed += 1;
                return;
            }
        };
        if self.take_notification(&packet) {
            return;
        }
        let datagram = packet.service_header.deth().is_some();
        if datagram && !self.port.is_infiniband() {
            return self.accept_datagram(now, memory, &packet, frame);
        }
        let taker = if datagram { self.datagram_taker(&packet) } else { self.addressee(&packet) };
        let Some(qpn) = taker else { return };
        self.count_received(frame);
        if datagram {
            self.deliver_datagram(now, memory, qpn, &packet);
        } else {
            self.notice_congestion(now, qpn, &packet);
            self.deliver(now, memory, qpn, &packet);
        }
    }

    /// The queue pair that takes a packet: it exists, receives, and is connected with the sender.
    #[inline]
    fn addressee(&mut self, packet: &Packet<'_>) -> Option<Qpn> {
        if !self.port.is_addressed(&packet.route.network, packet.route.vlan) {
            self.counters.frames_unknown_gid += 1;
            return None;
        }
        let qpn = packet.bth.destination;
        let connected = |qp: &&QueuePair| {
            let ends = qp.path.as_ref().is_some_and(|path| path.leads_to_sender(&packet.route.network));
            ends && qp.service_class() == packet.bth.service && is_receiving(qp.state(), packet)
        };
        if self.queue_pairs.get(qpn.value()).filter(connected).is_none() {
            self.counters.frames_unknown_qp += 1;
            return None;
        }
        let own = self.queue_pairs.get(qpn.value())?.path.as_ref()?.partition_key;
        self.check_partition(packet.bth.partition_key, own).then_some(qpn)
    }

    /// Both are of one partition, and one of them is a full member of it (IBTA v1.4 §9.6.1.1.3, §10.9.3).
    pub(super) fn check_partition(&mut self, theirs: u16, own: u16) -> bool {
        let same = theirs & PKEY_BITS == own & PKEY_BITS && own & PKEY_BITS != 0;
        let matches = same && (theirs | own) & FULL_MEMBER != 0;
        self.counters.frames_bad_pkey += u64::from(!matches);
        matches
    }

    fn deliver<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn, packet: &Packet<'_>) {
        if is_response(packet) {
            self.deliver_response(now, memory, qpn, packet);
        } else {
            self.tell_established(memory, qpn);
            self.with_responder(now, memory, qpn, |responder, host| {
                responder.handle_request(now, packet, host)
            });
            self.take_replies();
        }
        self.refresh(now, memory, qpn);
    }

    /// The first packet before RTS says that the peer is there (IBTA v1.4 §11.6.3.1, communication established).
    #[inline]
    fn tell_established<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if !core::mem::replace(&mut qp.heard, true) && qp.state() == QpState::Rtr {
            self.post_queue_event(memory, qpn, EventType::CommEst);
        }
    }

    fn deliver_response<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn, packet: &Packet<'_>) {
        let host_order = self.firmware.capabilities.host_order_atomics();
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let Some(requester) = &mut qp.requester else { return };
        let (token, placed) = match requester.handle_response(now, packet) {
            Placement::None => return,
            Placement::Payload { token, offset } => {
                (token, qp.send.scatter(memory, &self.mkeys, token, offset, packet.payload))
            }
            Placement::Atomic { token, old } => {
                let bytes = if host_order { old.to_le_bytes() } else { old.to_be_bytes() };
                (token, qp.send.scatter(memory, &self.mkeys, token, 0, &bytes))
            }
        };
        if placed.is_err() {
            requester.fail(token, RequesterError::LocalProtection);
        }
    }

    /// Runs a responder with the device around it, and then what it caused.
    pub(super) fn with_responder<M, F>(&mut self, now: Time, memory: &mut M, qpn: Qpn, run: F)
    where
        M: HostMemory,
        F: FnOnce(&mut ReceivingSide<HostRange>, &mut QueuePairHost<'_, M>),
    {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let xrc_domain = qp.xrc_domain();
        let Some(responder) = &mut qp.responder else { return };
        let receives = match (qp.shared, xrc_domain) {
            (Some(number), _) => {
                let shared = self.shared_receives.get_mut(number.value());
                shared.map_or(ReceiveSource::None, ReceiveSource::Shared)
            }
            (None, Some(domain)) => {
                ReceiveSource::Xrc { queues: &mut self.shared_receives, domain, named: None }
            }
            (None, None) => qp.receive.as_mut().map_or(ReceiveSource::None, ReceiveSource::Own),
        };
        let mut number = qp.shared;
        let mut host = QueuePairHost {
            now,
            memory,
            mkeys: &mut self.mkeys,
            completions: &mut self.completions,
            events: &mut self.events,
            engine: self.engine.as_deref_mut().filter(|_| self.config.strom),
            context: &qp.context,
            accessor: qp.accessor,
            receives,
            landing: &mut qp.landing,
            strict: self.config.strict,
            error: None,
        };
        run(responder, &mut host);
        if let ReceiveSource::Xrc { named, .. } = host.receives {
            number = named;
        }
        let error = host.error;
        if let Some(number) = number {
            self.watch_shared(memory, number);
        }
        if let Some(error) = error {
            self.break_connection(now, memory, qpn, error);
        }
    }

    /// The responder gave up: software is told by an event, since no request of its own failed (IBTA v1.4 §11.6.3.2).
    fn break_connection<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        error: ResponderError,
    ) {
        let kind = match error {
            ResponderError::InvalidRequest => EventType::WqInvalReqError,
            ResponderError::RemoteAccess => EventType::WqAccessError,
            ResponderError::Operational => EventType::WqCatasError,
        };
        self.post_queue_event(memory, qpn, kind);
        self.move_to_error_with_nak(now, memory, qpn);
    }

    /// An event about a queue pair.
    pub(super) fn post_queue_event<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn, kind: EventType) {
        let mut data = QueueEvent::new();
        data.set_number(qpn);
        self.events.post(memory, kind, 0, &data);
    }
}

/// Requests are taken from RTR on, answers from RTS on; what stops the send queue alone stops neither (IBTA v1.4 §10.3.1).
fn is_receiving(state: QpState, packet: &Packet<'_>) -> bool {
    match state {
        QpState::Rts | QpState::SqDraining | QpState::SqDrained | QpState::SqError => true,
        QpState::Rtr => !is_response(packet),
        _ => false,
    }
}
