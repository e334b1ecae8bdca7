//! SQD: the send queue ends what has begun and then rests, so that software may change the connection (IBTA v1.4
//! §10.3.1.5). Receives go on.

use super::queue_pair::QueuePair;
use super::{HostMemory, Nic};
use crate::transport::SendingSide;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{EventType, QpState};
use bareverbs_prm::time::Time;

impl QueuePair {
    /// A service without a requester has ended what it took.
    fn is_drained(&self) -> bool {
        self.requester.as_ref().is_none_or(SendingSide::is_drained)
    }

    /// SQE: nothing is sent any more, and what is posted is flushed; receives go on.
    pub(super) fn enter_send_error(&mut self) {
        if !matches!(self.state(), QpState::Rts | QpState::SqDraining) {
            return;
        }
        self.context.set_state(QpState::SqError);
        if let Some(requester) = &mut self.requester {
            requester.flush();
        }
    }
}

impl Nic {
    /// RTS2SQD: no further message begins.
    pub(super) fn drain<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if let Some(requester) = &mut qp.requester {
            requester.drain();
        }
        self.refresh(now, memory, qpn);
    }

    /// The last message that had begun has ended: the queue is drained, and software is told.
    pub(super) fn end_draining<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) {
        let draining = |qp: &&mut QueuePair| qp.state() == QpState::SqDraining && qp.is_drained();
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()).filter(draining) else { return };
        qp.context.set_state(QpState::SqDrained);
        self.post_queue_event(memory, qpn, EventType::SqDrained);
    }

    /// SQD2RTS: messages begin again.
    pub(super) fn resume(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if let Some(requester) = &mut qp.requester {
            requester.resume();
        }
        self.schedule.wake(qp);
    }

    /// SQERR2RTS: sending goes on behind what was flushed. PSNs go on as well.
    pub(super) fn recover_send_queue(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        qp.send.stopped = None;
        if let Some(requester) = &qp.requester {
            qp.context.set_next_send_psn(requester.next_psn());
        }
        self.start_sending(qpn);
    }

    /// SQD2SQD: what the context says now holds for both halves of the transport and for the way of packets.
    pub(super) fn change_connection(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let Some(mtu) = super::firmware::path_mtu(qp.context.mtu()) else { return };
        let parameters = qp.parameters(mtu, &self.config);
        if let Some(requester) = &mut qp.requester {
            requester.change(&parameters);
        }
        if let Some(responder) = &mut qp.responder {
            responder.set_max_remembered_reads(parameters.max_remembered_reads);
        }
        self.set_path(qpn);
    }
}
