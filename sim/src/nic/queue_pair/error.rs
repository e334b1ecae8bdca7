//! How queue pairs enter the error states (IBTA v1.4 §10.3.1.7).

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::cqe::CompletionOwner;
use crate::nic::shared_receive::{self, ReceiveSource};
use crate::nic::wqe;
use crate::transport::ResponderError;
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};

/// What happens to responses still waiting to be sent when a queue pair enters the error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingResponses {
    /// They are dropped.
    Forgotten,
    /// They are still sent: the NAK that informs the peer is among them.
    Sent,
}

impl QueuePair {
    /// Moves the queue pair to the error state from any state, at the request of software or after a
    /// completion queue broke.
    pub(crate) fn move_to_error<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.enter_error(bus, PendingResponses::Forgotten);
        self.settle(bus)
    }

    /// Handles the failure of a completion queue that this queue pair uses (IBTA v1.4 §10.6.3.1).
    pub(crate) fn on_broken_completion_queue<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        let tally = self.counted();
        tally.cq_overflow = tally.cq_overflow.wrapping_add(1);
        bus.queue_pair_event(self.number(), EventType::WqCatasError);
        self.move_to_error(bus)
    }

    /// Handles a failed request. On an unacknowledged service only the send queue stops and the rest of the
    /// queue pair continues (IBTA v1.4 §10.3.1.6); otherwise the connection breaks.
    pub(super) fn fail_send_queue<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        match self.context.st() {
            ServiceType::Uc | ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => {
                self.enter_send_error()
            }
            _ => self.enter_error(bus, PendingResponses::Forgotten),
        }
    }

    /// Breaks the connection after the responder gave up. An event informs software, since no request of its
    /// own failed (IBTA v1.4 §11.6.3.2).
    pub(super) fn break_connection<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, error: ResponderError) {
        let kind = match error {
            ResponderError::InvalidRequest => EventType::WqInvalReqError,
            ResponderError::RemoteAccess => EventType::WqAccessError,
            ResponderError::Operational => EventType::WqCatasError,
        };
        bus.queue_pair_event(self.number(), kind);
        self.enter_error(bus, PendingResponses::Sent);
    }

    /// Enters the error state: the queue pair stops sending and receiving. [`Self::settle`] flushes its
    /// queues.
    pub(super) fn enter_error<M: HostMemory + ?Sized>(
        &mut self,
        bus: &mut Bus<'_, M>,
        pending: PendingResponses,
    ) {
        if self.state() == QpState::Error {
            return;
        }
        self.context.set_state(QpState::Error);
        self.restart_rescans();
        if let Some(requester) = &mut self.requester {
            requester.flush();
        }
        if pending == PendingResponses::Forgotten {
            self.flush_responder(bus);
        }
        if matches!(self.receives, ReceiveSource::Shared(_)) {
            // The queue pair takes no further receives, and those it took have completed (IBTA v1.4
            // §11.6.3.1, last WQE reached).
            bus.queue_pair_event(self.number(), EventType::SrqLastWqe);
        }
    }

    /// Flushes the receive of the message that was arriving.
    fn flush_responder<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        let buffer = self.responder.as_mut().and_then(|responder| responder.flush());
        let Some(buffer) = buffer else { return };
        match shared_receive::destination(&bus.shared.shared_receives, &self.context, buffer.token) {
            Some((cqn, user_index)) => {
                let owner = CompletionOwner { user_index, ..self.owner() };
                let mut entry = owner.responder_error(buffer.token as u16, wqe::FLUSHED);
                bus.complete(cqn, &mut entry, true);
            }
            None => bus.shared.counters.shared_receives_gone += 1,
        }
    }
}
