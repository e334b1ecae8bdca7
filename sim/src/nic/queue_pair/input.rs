//! The inputs of a queue pair: doorbells, timeouts, packets of its connection, and replies of the RPC engine.

use super::responder_host::QueuePairHost;
use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::extension::RpcReply;
use crate::nic::mkey::HostRange;
use crate::nic::shared_receive::ReceiveSource;
use crate::transport::{ConnectionResponder, Placement, RequesterError};
use crate::wire::Packet;
use bareverbs_prm::numbering::{EventType, QpState};

impl QueuePair {
    /// Handles a send doorbell.
    pub(crate) fn on_doorbell<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.send.on_doorbell(bus.memory, bus.config.strict);
        bus.observe(|| self.doorbell_event());
        // `settle` flushes a queue in an error state. A queue that drains, or is not yet in RTS, remembers
        // what was posted.
        let sends = self.state() == QpState::Rts;
        self.fetch_dma(bus);
        let effects = self.settle(bus);
        Effects { frames_wanted: effects.frames_wanted || sends, ..effects }
    }

    /// Handles the alarm: a retransmission, the end of an RNR wait, a paced frame, or another scan of the
    /// receives of a queue pair in the error state may be due. An alarm may also have become obsolete.
    pub(crate) fn on_timeout<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        if let Some(requester) = &mut self.requester {
            requester.handle_timeout(bus.now);
        }
        self.pacer.handle_timeout(bus.now);
        if self.state() == QpState::Error {
            self.rescan(bus);
        }
        self.settle(bus)
    }

    /// Takes a packet of the connection that [`Self::accepts`].
    pub(crate) fn on_packet<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, packet: &Packet<'_>) -> Effects {
        self.notice_congestion(bus, packet);
        if packet.bth.opcode.is_response() {
            self.handle_response(bus, packet);
            return self.settle(bus);
        }
        self.report_established(bus);
        let rpc_delivered =
            self.with_responder(bus, |responder, host| responder.handle_request(packet, host));
        match self.state() {
            // Nothing outside the responder has changed.
            QpState::Rtr | QpState::Rts => {
                Effects { frames_wanted: self.has_responses(), rpc_delivered, ..Effects::NONE }
            }
            _ => Effects { rpc_delivered, ..self.settle(bus) },
        }
    }

    /// Reports the first packet that arrives before RTS: the peer is there (IBTA v1.4 §11.6.3.1,
    /// communication established).
    #[inline]
    fn report_established<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if !core::mem::replace(&mut self.peer_seen, true) && self.state() == QpState::Rtr {
            bus.queue_pair_event(self.number(), EventType::CommEst);
        }
    }

    /// Queues a reply of the RPC engine. Returns `None` if the queue pair cannot send it, because it no
    /// longer sends, because the reply is longer than any message, or because [`MOST_REPLIES`](super::replies::MOST_REPLIES)
    /// wait for the peer already; the caller counts it as dropped.
    pub(crate) fn push_reply(&mut self, reply: RpcReply) -> Option<Effects> {
        if self.state() != QpState::Rts || u32::try_from(reply.bytes.len()).is_err() {
            return None;
        }
        self.replies.get_or_insert_default().push(reply).then_some(Effects::TURN)
    }

    fn handle_response<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, packet: &Packet<'_>) {
        let Some(requester) = &mut self.requester else {
            bus.shared.counters.packets_without_side += 1;
            return;
        };
        self.pacer.on_ack(bus.now);
        let (token, placed) = match requester.handle_response(bus.now, packet) {
            Placement::None => return,
            Placement::Payload { token, offset } => {
                (token, self.send.scatter(bus.memory, &bus.shared.mkeys, token, offset, packet.payload))
            }
            Placement::Atomic { token, old } => {
                let host_order = bus.features.host_order_atomics;
                let bytes = if host_order { old.to_le_bytes() } else { old.to_be_bytes() };
                (token, self.send.scatter(bus.memory, &bus.shared.mkeys, token, 0, &bytes))
            }
        };
        if placed.is_err() {
            requester.fail(token, RequesterError::LocalProtection);
        }
    }

    /// Gives the responder access to the device for one call and handles the consequences. Returns whether a
    /// packet went to the RPC engine.
    pub(super) fn with_responder<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        run: impl FnOnce(&mut ConnectionResponder<HostRange>, &mut QueuePairHost<'_, '_, M>),
    ) -> bool {
        let Some(responder) = &mut self.responder else {
            bus.shared.counters.packets_without_side += 1;
            return false;
        };
        let mut host = QueuePairHost {
            bus,
            context: &self.context,
            accessor: self.accessor,
            receives: &mut self.receives,
            named: None,
            scatter: &mut self.scatter,
            error: None,
            rpc_delivered: false,
        };
        run(responder, &mut host);
        let (named, error, rpc_delivered) = (host.named, host.error, host.rpc_delivered);
        let shared = if let ReceiveSource::Shared(number) = self.receives { Some(number) } else { named };
        if let Some(number) = shared {
            bus.watch_shared(number);
        }
        if let Some(error) = error {
            self.break_connection(bus, error);
        }
        rpc_delivered
    }
}
