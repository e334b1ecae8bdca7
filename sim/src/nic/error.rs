//! How requests end, how queue pairs die, and how what is left in their queues is flushed.

use super::reply::REPLY;
use super::send_queue::Stopped;
use super::wqe::{self, WorkFault};
use super::{HostMemory, Nic, cqe, shared_receive};
use crate::transport::{RequestCompletion, RequesterError};
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{EventType, QpState, ServiceType};
use bareverbs_prm::time::{Duration, Time};

/// How often a queue pair in the error state looks whether receives were posted, which no doorbell tells: after 1, 2, 4
/// … microseconds. Then it waits for a doorbell or a command, so that an idle world can come to rest.
pub(crate) const RESCANS: u32 = 16;
const FIRST_RESCAN: Duration = Duration::from_micros(1);

impl Nic {
    /// What must follow everything that moves a queue pair: its requests end, its errors are raised, its queues are
    /// flushed if it is dead, and it stands in the lists of those with work and with a deadline.
    pub(super) fn refresh<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.end_requests(now, memory, qpn);
        self.raise_stopped(now, memory, qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let mut deadline = qp.requester.as_ref().and_then(|requester| requester.poll_timeout());
        if qp.state() == QpState::SqError {
            self.flush_sends(now, memory, qpn);
        }
        self.end_draining(memory, qpn);
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if qp.state() == QpState::Error {
            self.flush(now, memory, qpn);
            let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
            deadline = (qp.rescans < RESCANS && qp.receive.is_some())
                .then(|| now + FIRST_RESCAN.saturating_mul(1 << qp.rescans));
        }
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        self.schedule.set_alarm(qp, deadline);
        if qp.has_work() {
            self.schedule.wake(qp);
        }
    }

    /// Another look at the queues of a dead queue pair is due.
    pub(super) fn rescan<M: HostMemory>(&mut self, now: Time, memory: &mut M, number: u32) {
        let qpn = Qpn::from_low_bits(number);
        match self.queue_pairs.get_mut(number) {
            Some(qp) if qp.state() == QpState::Error => qp.rescans += 1,
            _ => return,
        }
        if self.flush_receives(memory, qpn) {
            if let Some(qp) = self.queue_pairs.get_mut(number) {
                qp.rescans = 0;
            }
        }
        self.refresh(now, memory, qpn);
    }

    fn end_requests<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.end_nops(now, memory, qpn);
        loop {
            let qp = self.queue_pairs.get_mut(qpn.value());
            let Some(completion) = qp.and_then(|qp| qp.requester.as_mut()?.poll_completion()) else { return };
            self.end_request(now, memory, qpn, completion);
            self.end_nops(now, memory, qpn);
        }
    }

    /// NOPs at the front of the queue: everything before them has ended.
    fn end_nops<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        while let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            if qp.send.front().is_none_or(|slot| slot.submitted) {
                return;
            }
            let dead = matches!(qp.state(), QpState::Error | QpState::SqError);
            self.end_wqe(now, memory, qpn, if dead { Err(wqe::FLUSHED) } else { Ok(()) });
        }
    }

    fn end_request<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        RequestCompletion { token, result }: RequestCompletion,
    ) {
        let result = result.map_err(fault_of);
        if token & REPLY == 0 {
            self.end_wqe(now, memory, qpn, result);
        } else if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            qp.replies.retire();
        }
        if result.is_err() {
            self.fail_send_queue(memory, qpn);
        }
    }

    /// Takes the oldest WQE out and writes its entry, if it asked for one or failed.
    pub(super) fn end_wqe<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        result: Result<(), WorkFault>,
    ) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let Some(slot) = qp.send.pop() else { return };
        let cqn = qp.context.cqn_snd();
        let (mut entry, event) = match result {
            Ok(()) if !slot.signalled => return,
            Ok(()) => (cqe::requester(&qp.context, qpn, &slot, now), slot.event),
            Err(fault) => (cqe::requester_error(&qp.context, qpn, (slot.index, slot.opcode), fault), true),
        };
        self.completions.post(memory, &mut self.events, cqn, &mut entry, event);
    }

    /// A WQE that could not be executed fails when everything before it has ended.
    fn raise_stopped<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let Some(Stopped { index, opcode, fault }) = qp.send.stopped.filter(|_| qp.send.front().is_none())
        else {
            return;
        };
        if qp.state() != QpState::Rts {
            return;
        }
        qp.send.skip(memory);
        let mut entry = cqe::requester_error(&qp.context, qpn, (index, opcode), fault);
        let cqn = qp.context.cqn_snd();
        self.completions.post(memory, &mut self.events, cqn, &mut entry, true);
        self.fail_send_queue(memory, qpn);
        self.end_requests(now, memory, qpn);
    }

    /// A request failed. Without acknowledgements that stops the send queue alone, the rest of the queue pair goes on
    /// (IBTA v1.4 §10.3.1.6); else the connection is broken.
    pub(super) fn fail_send_queue<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        match qp.context.st() {
            ServiceType::Uc | ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => qp.enter_send_error(),
            _ => self.enter_error(memory, qpn, true),
        }
    }

    /// Moves a queue pair to the error state and flushes it, from whatever state.
    pub(super) fn move_to_error<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.enter_error(memory, qpn, true);
        self.refresh(now, memory, qpn);
    }

    /// The responder broke the connection: as [`Self::move_to_error`], but its NAK still goes out.
    pub(super) fn move_to_error_with_nak<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.enter_error(memory, qpn, false);
        self.refresh(now, memory, qpn);
    }

    /// The error state begins: nothing is sent or taken any more. What is in the queues is flushed by [`Self::refresh`].
    fn enter_error<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn, flush_responder: bool) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        if qp.state() == QpState::Error {
            return;
        }
        qp.context.set_state(QpState::Error);
        qp.rescans = 0;
        if let Some(requester) = &mut qp.requester {
            requester.flush();
        }
        let responder = qp.responder.as_mut().filter(|_| flush_responder);
        if let Some(buffer) = responder.and_then(|responder| responder.flush()) {
            let at = shared_receive::destination(&self.shared_receives, &qp.context, buffer.token);
            if let Some((cqn, user_index)) = at {
                let mut entry = cqe::responder_error(&qp.context, qpn, buffer.token as u16, wqe::FLUSHED);
                entry.set_user_index(user_index);
                self.completions.post(memory, &mut self.events, cqn, &mut entry, true);
            }
        }
        if qp.shared.is_some() {
            // It takes nothing more, and what it took has completed (IBTA v1.4 §11.6.3.1, last WQE reached).
            self.post_queue_event(memory, qpn, EventType::SrqLastWqe);
        }
    }

    /// Flushes what is left in both rings of a dead queue pair: sends first, each queue in order.
    fn flush<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.flush_sends(now, memory, qpn);
        self.flush_receives(memory, qpn);
    }

    fn flush_sends<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        self.end_requests(now, memory, qpn);
        while let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            let Some(which) = qp.send.skip(memory) else { break };
            if mutated("lost_flush") {
                continue;
            }
            let mut entry = cqe::requester_error(&qp.context, qpn, which, wqe::FLUSHED);
            self.completions.post(memory, &mut self.events, qp.context.cqn_snd(), &mut entry, true);
        }
    }

    /// Whether there were any.
    fn flush_receives<M: HostMemory>(&mut self, memory: &mut M, qpn: Qpn) -> bool {
        let mut any = false;
        while let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            let Some(index) = qp.receive.as_mut().and_then(|queue| queue.skip(memory)) else { break };
            let mut entry = cqe::responder_error(&qp.context, qpn, index, wqe::FLUSHED);
            self.completions.post(memory, &mut self.events, qp.context.cqn_rcv(), &mut entry, true);
            any = true;
        }
        any
    }

    /// A completion queue broke: every queue pair that completes into it goes to the error state (IBTA v1.4 §10.6.3.1).
    pub(super) fn break_users<M: HostMemory>(&mut self, now: Time, memory: &mut M, cqn: Cqn) {
        let uses = |context: &bareverbs_prm::context::QueuePairContext| {
            context.cqn_snd() == cqn || context.cqn_rcv() == cqn
        };
        let users: Vec<u32> =
            self.queue_pairs.iter().filter(|(_, qp)| uses(&qp.context)).map(|(number, _)| number).collect();
        for number in users {
            let qpn = Qpn::from_low_bits(number);
            if let Some(qp) = self.queue_pairs.get_mut(number) {
                qp.tally.counted.cq_overflow = qp.tally.counted.cq_overflow.wrapping_add(1);
            }
            self.post_queue_event(memory, qpn, EventType::WqCatasError);
            self.move_to_error(now, memory, qpn);
        }
    }
}

fn fault_of(error: RequesterError) -> WorkFault {
    match error {
        RequesterError::RetryExceeded => wqe::RETRY,
        RequesterError::RnrRetryExceeded => wqe::RNR_RETRY,
        RequesterError::RemoteInvalidRequest => wqe::REMOTE_INVALID,
        RequesterError::RemoteAccess => wqe::REMOTE_ACCESS,
        RequesterError::RemoteOperational => wqe::REMOTE_OPERATION,
        RequesterError::BadResponse => wqe::BAD_RESPONSE,
        RequesterError::LocalProtection => wqe::DATA_ACCESS,
        RequesterError::LocalLength => wqe::MESSAGE,
        RequesterError::NotOffered => wqe::OPCODE,
        RequesterError::Flushed => wqe::FLUSHED,
    }
}
