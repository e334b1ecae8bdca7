//! Who has work and who has a deadline: lists of queue pair numbers, never a scan over all queue pairs.

use super::queue_pair::QueuePair;
use super::{HostMemory, Nic};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;
use std::collections::{BTreeSet, VecDeque};

/// Queue pairs with work, in turn, and alarms in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    ready: VecDeque<u32>,
    alarms: BTreeSet<(Time, u32)>,
}

impl Schedule {
    /// Puts a queue pair at the end of the turn, unless it waits already.
    #[inline]
    pub(crate) fn wake(&mut self, qp: &mut QueuePair) {
        if !qp.ready {
            qp.ready = true;
            self.ready.push_back(qp.number.value());
        }
    }

    pub(crate) fn next(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Sets the alarm of a queue pair to `deadline` if that is earlier than the one that is set. A later deadline costs
    /// nothing: the earlier alarm goes off, finds nothing due, and sets itself again.
    #[inline]
    pub(crate) fn set_alarm(&mut self, qp: &mut QueuePair, deadline: Option<Time>) {
        let Some(deadline) = deadline.filter(|&deadline| deadline < qp.alarm) else { return };
        if qp.alarm != Time::MAX {
            self.alarms.remove(&(qp.alarm, qp.number.value()));
        }
        qp.alarm = deadline;
        self.alarms.insert((deadline, qp.number.value()));
    }

    fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|&(time, _)| time)
    }

    fn pop_due(&mut self, now: Time) -> Option<(Time, u32)> {
        let first = *self.alarms.first()?;
        if first.0 > now {
            return None;
        }
        self.alarms.pop_first()
    }
}

impl Nic {
    /// When to call [`Self::handle_timeout`]; it may find nothing due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let engine = self.engine.as_ref().and_then(|engine| engine.poll_timeout());
        let moderation = self.completions.poll_timeout();
        [self.schedule.next_alarm(), moderation, engine].into_iter().flatten().min()
    }

    /// Does what is due at `now`: retransmissions, the end of RNR waits, events that moderation held back, what the RPC
    /// engine wants.
    pub fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        while let Some((time, number)) = self.schedule.pop_due(now) {
            let Some(qp) = self.queue_pairs.get_mut(number).filter(|qp| qp.alarm == time) else { continue };
            qp.alarm = Time::MAX;
            if let Some(requester) = &mut qp.requester {
                requester.handle_timeout(now);
            }
            self.rescan(now, memory, number);
            self.refresh(now, memory, Qpn::from_low_bits(number));
        }
        self.completions.handle_timeout(now, memory, &mut self.events);
        self.run_engine(now, memory);
        self.settle(now, memory);
    }

    fn run_engine<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        let Some(engine) = &mut self.engine else { return };
        if engine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            engine.handle_timeout(now, memory);
        }
        self.take_replies();
    }
}
