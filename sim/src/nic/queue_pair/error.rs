//! How queue pairs die (IBTA v1.4 §10.3.1.7).

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::cqe::CompletionOwner;
use crate::nic::shared_receive::{self, ReceiveSource};
use crate::nic::wqe;
use crate::transport::ResponderError;
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};

/// What becomes of answers that wait to be sent when a queue pair enters the error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitingAnswers {
    /// They are forgotten.
    Forgotten,
    /// They still go out: among them is the NAK that tells the peer.
    Sent,
}

impl QueuePair {
    /// Software, or a broken completion queue, moves the queue pair to the error state, from whatever state.
    pub(crate) fn move_to_error<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.enter_error(bus, WaitingAnswers::Forgotten);
        self.settle(bus)
    }

    /// A completion queue broke that the queue pair completes into (IBTA v1.4 §10.6.3.1).
    pub(crate) fn on_broken_completion_queue<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        let tally = self.counted();
        tally.cq_overflow = tally.cq_overflow.wrapping_add(1);
        bus.queue_pair_event(self.number(), EventType::WqCatasError);
        self.move_to_error(bus)
    }

    /// A request failed. Without acknowledgements that stops the send queue alone, the rest of the queue pair goes on
    /// (IBTA v1.4 §10.3.1.6); else the connection is broken.
    pub(super) fn fail_send_queue<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        match self.context.st() {
            ServiceType::Uc | ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => {
                self.enter_send_error()
            }
            _ => self.enter_error(bus, WaitingAnswers::Forgotten),
        }
    }

    /// The responder gave up: software is told by an event, since no request of its own failed (IBTA v1.4 §11.6.3.2).
    pub(super) fn break_connection<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, error: ResponderError) {
        let kind = match error {
            ResponderError::InvalidRequest => EventType::WqInvalReqError,
            ResponderError::RemoteAccess => EventType::WqAccessError,
            ResponderError::Operational => EventType::WqCatasError,
        };
        bus.queue_pair_event(self.number(), kind);
        self.enter_error(bus, WaitingAnswers::Sent);
    }

    /// The error state begins: nothing is sent or taken any more. [`Self::settle`] flushes what is in the queues.
    pub(super) fn enter_error<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, answers: WaitingAnswers) {
        if self.state() == QpState::Error {
            return;
        }
        self.context.set_state(QpState::Error);
        self.restart_rescans();
        if let Some(requester) = &mut self.requester {
            requester.flush();
        }
        if answers == WaitingAnswers::Forgotten {
            self.flush_responder(bus);
        }
        if matches!(self.receives, ReceiveSource::Shared(_)) {
            // It takes nothing more, and what it took has completed (IBTA v1.4 §11.6.3.1, last WQE reached).
            bus.queue_pair_event(self.number(), EventType::SrqLastWqe);
        }
    }

    /// The receive that a message was being written to is flushed with the message.
    fn flush_responder<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        let buffer = self.responder.as_mut().and_then(|responder| responder.flush());
        let Some(buffer) = buffer else { return };
        match shared_receive::destination(bus.shared_receives, &self.context, buffer.token) {
            Some((cqn, user_index)) => {
                let owner = CompletionOwner { user_index, ..self.owner() };
                let mut entry = owner.responder_error(buffer.token as u16, wqe::FLUSHED);
                bus.complete(cqn, &mut entry, true);
            }
            None => bus.counters.shared_receives_gone += 1,
        }
    }
}
