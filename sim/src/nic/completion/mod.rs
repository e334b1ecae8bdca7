//! Completion queues: writing entries, raising events, moderation, overrun (PRM, completion queues).

mod compression;
mod moderation;
mod queue;
mod writer;

pub(crate) use compression::LONGEST_RUN;
pub(crate) use queue::{CompletionQueue, ResizeRefusal, stride};
pub(crate) use writer::FailedCompletion;

use super::HostMemory;
use super::contexts::Slab;
use super::event::EventQueues;
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::doorbell::CqArm;
use bareverbs_prm::ids::{Cqn, UarIndex};
use bareverbs_prm::time::Time;
use queue::ArmedFor;
use std::collections::BTreeSet;
use writer::{CompletionLog, Writer};

/// First completion queue number.
pub(crate) const FIRST_CQ: u32 = 0x80;

/// All completion queues of a device.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    pub(crate) queues: Slab<CompletionQueue>,
    pub(crate) log: CompletionLog,
    /// When the events that moderation holds back are due.
    alarms: BTreeSet<(Time, u32)>,
}

impl CompletionQueues {
    pub(crate) fn new() -> Self {
        Self { queues: Slab::new(FIRST_CQ, 24), log: CompletionLog::default(), alarms: BTreeSet::new() }
    }

    /// Drops all queues but keeps the counters.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        self.log.forget_queues();
        self.alarms.clear();
    }

    /// Writes an entry and raises the event for which the queue is armed. `solicited` is true for entries
    /// that trigger a queue armed for solicited completions: those with the bit, and all errors (IBTA v1.4
    /// §11.4.2.2).
    pub(crate) fn post<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        cqn: Cqn,
        entry: &mut CompletionEntry,
        solicited: bool,
    ) {
        match self.queues.get_mut(cqn.value()) {
            Some(queue) => Writer { queue, log: &mut self.log, events, memory }.post(entry, solicited),
            None => self.log.without_queue += 1,
        }
    }

    /// Handles the arm doorbell. If matching entries are already there, raises the event at once; each arming
    /// raises one event. The sequence number is ignored, because this model never delivers a doorbell late.
    pub(crate) fn arm<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        uar: UarIndex,
        arm: CqArm,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(arm.cqn.value()).filter(|queue| queue.uar() == uar) else {
            return false;
        };
        let armed_for = if arm.solicited_only { ArmedFor::Solicited } else { ArmedFor::Any };
        if queue.satisfies(armed_for, arm.consumer_index) {
            queue.raise(memory, events);
            self.log.unsettled.push(arm.cqn);
        } else {
            queue.armed = Some(armed_for);
        }
        true
    }

    /// Whether nothing has happened since the device last called [`Self::settle`].
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.log.is_empty()
    }

    /// Writes the entries that were held back: no more can follow before the next input.
    pub(crate) fn flush<M: HostMemory>(&mut self, memory: &mut M, events: &mut EventQueues) {
        while let Some(cqn) = self.log.compressing.pop() {
            // A queue that was destroyed meanwhile took its entries with it.
            if let Some(queue) = self.queues.get_mut(cqn.value()) {
                Writer { queue, log: &mut self.log, events, memory }.flush();
            }
        }
    }

    /// Starts the timers of the queues whose events were delayed or raised since the last call.
    pub(crate) fn settle(&mut self, now: Time) {
        while let Some(cqn) = self.log.unsettled.pop() {
            // A queue that was destroyed meanwhile has no timer.
            if let Some(queue) = self.queues.get_mut(cqn.value()) {
                let (before, due) = queue.moderation.renew(now, queue.armed.is_some());
                before.map(|before| self.alarms.remove(&(before, cqn.value())));
                due.map(|due| self.alarms.insert((due, cqn.value())));
            }
        }
    }

    /// When the next event that moderation holds back is due.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.alarms.first().map(|&(due, _)| due)
    }

    /// Raises the events that are due at `now`.
    pub(crate) fn handle_timeout<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        events: &mut EventQueues,
    ) {
        while let Some(&(_, number)) = self.alarms.first().filter(|alarm| alarm.0 <= now) {
            self.alarms.pop_first();
            // A destroyed queue has no alarm left.
            if let Some(queue) = self.queues.get_mut(number) {
                queue.moderation.due = None;
                queue.moderation.event_at(now);
                queue.raise(memory, events);
            }
        }
    }

    /// Removes a queue and its alarm.
    pub(crate) fn remove(&mut self, cqn: Cqn) {
        if let Some(due) = self.queues.remove(cqn.value()).and_then(|queue| queue.moderation.due) {
            self.alarms.remove(&(due, cqn.value()));
        }
    }
}
