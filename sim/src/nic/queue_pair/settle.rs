//! What happens after every input: completed requests end, errors are raised, a queue pair in an error state
//! is flushed, and the scheduler learns what to do next.

use super::replies::REPLY;
use super::{Bus, Effects, HostMemory, QueuePair, earlier};
use crate::nic::observer::DeviceEvent;
use crate::nic::send_queue::{OutstandingWqe, StoppedWqe, WorkCarrier};
use crate::nic::shared_receive::ReceiveSource;
use crate::nic::wqe::{self, Format, WorkFault};
use crate::transport::{ConnectionRequester, ConnectionResponder, RequestCompletion, RequesterError};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::QpState;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_prm::wqe::fence_mode;

/// How often a queue pair in the error state checks for newly posted receives, which no doorbell announces:
/// after 1, 2, 4 … microseconds. Then it waits for a doorbell or a command, so that an idle simulation can
/// come to rest.
const RESCANS: u32 = 16;
const FIRST_RESCAN: Duration = Duration::from_micros(1);

impl QueuePair {
    /// Ends the requests that are done and returns what the queue pair needs next.
    pub(super) fn settle<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.end_requests(bus);
        self.raise_stopped(bus);
        let alarm = match self.state() {
            QpState::Error => {
                self.flush(bus);
                self.next_rescan(bus.now)
            }
            QpState::SqError => {
                self.flush_sends(bus);
                self.next_timeout()
            }
            QpState::SqDraining => {
                let alarm = self.next_timeout();
                self.end_draining(bus);
                alarm
            }
            _ => self.next_timeout(),
        };
        let held_until = self.pacer.waits_until(bus.now).filter(|_| self.has_sends());
        Effects {
            frames_wanted: self.has_responses() || held_until.is_none() && self.has_sends(),
            due: earlier(alarm, held_until).or(Some(Time::MAX)),
            rpc_delivered: false,
        }
    }

    /// Whether a work request may end although its peer has sent nothing: the device executes it, or it stopped the queue.
    #[inline]
    pub(super) fn may_end_work(&self) -> bool {
        self.has_local_front() || self.send.stopped().is_some()
    }

    /// Whether the device itself executes the oldest work request.
    #[inline]
    fn has_local_front(&self) -> bool {
        let is_local = |front: &OutstandingWqe| !matches!(front.carrier, WorkCarrier::Requester);
        self.send.front().is_some_and(is_local)
    }

    /// What the queue pair needs after a packet that another one follows: nothing has ended, no state has changed.
    #[inline]
    pub(super) fn keep_turn(&self, now: Time) -> Effects {
        let held_until = self.pacer.waits_until(now);
        Effects {
            frames_wanted: held_until.is_none() || self.has_responses(),
            due: earlier(self.next_timeout(), held_until).or(Some(Time::MAX)),
            rpc_delivered: false,
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let retransmission = self.requester.as_ref().and_then(ConnectionRequester::poll_timeout);
        earlier(retransmission, self.pacer.poll_timeout())
    }

    fn next_rescan(&self, now: Time) -> Option<Time> {
        let rescans = self.rescans < RESCANS && matches!(self.receives, ReceiveSource::Own(_));
        rescans.then(|| now + FIRST_RESCAN.saturating_mul(1 << self.rescans))
    }

    /// Checks again for receives that were posted to a queue pair in the error state.
    pub(super) fn rescan<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        self.rescans += 1;
        if self.flush_receives(bus) {
            self.rescans = 0;
        }
    }

    /// Restarts the scans for receives when a queue pair enters the error state.
    pub(super) const fn restart_rescans(&mut self) {
        self.rescans = 0;
    }

    /// Whether it owes its peer a frame.
    #[inline]
    pub(super) fn has_responses(&self) -> bool {
        self.notification.is_due() || self.responder.as_ref().is_some_and(ConnectionResponder::has_work)
    }

    /// Whether its turn may produce a request.
    fn has_sends(&self) -> bool {
        if self.format != Format::Connected {
            return self.state() == QpState::Rts && self.send.wants_fetch();
        }
        let sends = matches!(self.state(), QpState::Rts | QpState::SqDraining);
        sends && self.requester.as_ref().is_some_and(|requester| self.has_requests(requester))
    }

    fn has_requests(&self, requester: &ConnectionRequester) -> bool {
        let wanted =
            || self.send.wants_fetch() && self.send.held().is_none_or(|fence| is_clear(requester, fence));
        let replies = || self.replies.as_ref().is_some_and(|replies| replies.is_waiting());
        let fresh = || self.state() == QpState::Rts && requester.has_room() && (wanted() || replies());
        requester.has_work() || fresh()
    }

    pub(super) fn end_requests<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        while !self.end_local(bus) {
            let Some(completion) = self.requester.as_mut().and_then(ConnectionRequester::poll_completion)
            else {
                return;
            };
            self.end_request(bus, completion);
        }
    }

    /// Ends work at the front of the queue that the device executes itself, since everything before it has
    /// ended. Returns whether the front is a copy that the card has not finished, which blocks everything
    /// behind it.
    #[inline]
    fn end_local<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> bool {
        self.has_local_front() && self.end_local_wqes(bus)
    }

    #[cold]
    #[inline(never)]
    fn end_local_wqes<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> bool {
        while let Some(carrier) = self.send.front().map(|front| front.carrier) {
            let dead = matches!(self.state(), QpState::Error | QpState::SqError);
            let result = match carrier {
                WorkCarrier::Requester => return false,
                WorkCarrier::Card(_) if !dead => return true,
                WorkCarrier::Nobody | WorkCarrier::Card(_) if dead => Err(wqe::FLUSHED),
                WorkCarrier::Nobody | WorkCarrier::Card(_) => Ok(()),
                WorkCarrier::Ended(result) => result,
            };
            self.end_wqe(bus, result);
            if result.is_err() && !dead {
                self.fail_send_queue(bus);
            }
        }
        false
    }

    fn end_request<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>, completion: RequestCompletion) {
        let RequestCompletion { token, result } = completion;
        let result = result.map_err(fault_of);
        if token & REPLY == 0 {
            self.end_wqe(bus, result);
        } else if let Some(replies) = &mut self.replies {
            replies.retire();
        }
        if result.is_err() {
            self.fail_send_queue(bus);
        }
    }

    /// Removes the oldest WQE and writes its completion if it asked for one or failed.
    #[inline]
    pub(super) fn end_wqe<M: HostMemory + ?Sized>(
        &mut self,
        bus: &mut Bus<'_, M>,
        result: Result<(), WorkFault>,
    ) {
        if result.is_err() || !self.end_unsignalled(bus) {
            self.complete_wqe(bus, result);
        }
    }

    /// Removes the oldest WQE if it asked for no completion of a success. Returns whether that was so.
    #[inline]
    fn end_unsignalled<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> bool {
        let Some(name) = self.send.pop_unsignalled() else { return false };
        let (qpn, wqe) = (self.number(), name.index);
        bus.observe(|| DeviceEvent::WqeEnded { qpn, wqe });
        true
    }

    /// Removes the oldest WQE and writes its completion.
    #[inline(never)]
    fn complete_wqe<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>, result: Result<(), WorkFault>) {
        let Some(wqe) = self.send.pop() else {
            bus.shared.counters.completions_unmatched += 1;
            return;
        };
        let owner = self.owner();
        let (mut entry, event) = match result {
            Ok(()) => (owner.requester(wqe.name, wqe.pieces.length() as u32, bus.now), wqe.event),
            Err(fault) => (owner.requester_error(wqe.name, fault), true),
        };
        bus.complete(self.context.cqn_snd(), &mut entry, event);
    }

    /// Fails the WQE at which the queue stopped, once everything before it has ended.
    fn raise_stopped<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        let Some(StoppedWqe { name, fault }) = self.send.stopped() else { return };
        if self.send.front().is_some() || self.state() != QpState::Rts {
            return;
        }
        self.send.skip(bus.memory);
        let mut entry = self.owner().requester_error(name, fault);
        bus.complete(self.context.cqn_snd(), &mut entry, true);
        self.fail_send_queue(bus);
        self.end_requests(bus);
    }

    /// Flushes both rings of a queue pair in the error state: sends first, each queue in order.
    fn flush<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        self.flush_sends(bus);
        self.flush_receives(bus);
    }

    fn flush_sends<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        self.end_requests(bus);
        while let Some(name) = self.send.skip(bus.memory) {
            if mutated("lost_flush") {
                continue;
            }
            let mut entry = self.owner().requester_error(name, wqe::FLUSHED);
            bus.complete(self.context.cqn_snd(), &mut entry, true);
        }
    }

    /// Flushes the posted receives and returns whether there were any.
    fn flush_receives<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> bool {
        let owner = self.owner();
        let ReceiveSource::Own(queue) = &mut self.receives else { return false };
        let mut any = false;
        while let Some(index) = queue.skip(bus.memory) {
            let mut entry = owner.responder_error(index, wqe::FLUSHED);
            bus.complete(self.context.cqn_rcv(), &mut entry, true);
            any = true;
        }
        any
    }
}

/// Whether a memory-key update may run after the requests that `requester` holds. An update always waits
/// until their last byte is on the wire. With a fence it also waits for the responses to READs and atomics,
/// with strong ordering for all responses (IBTA v1.4 §10.8.3.3; PRM, `fm` of the control segment).
pub(super) fn is_clear(requester: &ConnectionRequester, fence: u8) -> bool {
    match fence {
        fence_mode::STRONG_ORDERING => requester.outstanding() == 0,
        fence_mode::FENCE | fence_mode::SMALL_AND_FENCE => {
            requester.is_all_sent() && !requester.awaits_data()
        }
        _ => requester.is_all_sent(),
    }
}

#[cold]
#[inline(never)]
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
