//! Writes an entry to a completion queue and records the follow-up that the device has to do.

use super::compression::{Waiting, follows, is_compressible};
use super::queue::{ArmedFor, CompletionQueue, STATUS_OVERRUN};
use crate::nic::HostMemory;
use crate::nic::event::EventQueues;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::eqe::CqErrorEvent;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CqErrorSyndrome, CqeOpcode, CqeSyndrome, EventType};

/// What happened to the queues since the device last looked, and counters.
#[derive(Debug, Default)]
pub(crate) struct CompletionLog {
    /// Queues that broke: the queue pairs that use them must go to the error state.
    pub(crate) newly_broken: Vec<Cqn>,
    /// Completions with error, for the counters of their queue pairs.
    pub(crate) failures: Vec<FailedCompletion>,
    /// Queues that raised an event, or whose event is delayed by moderation.
    pub(super) unsettled: Vec<Cqn>,
    /// Queues with entries that are held back.
    pub(super) compressing: Vec<Cqn>,
    pub(crate) written: u64,
    /// How many of these entries were part of a run.
    pub(crate) compressed: u64,
    pub(crate) overruns: u64,
    /// Entries for a nonexistent queue.
    pub(crate) without_queue: u64,
}

/// A completion with error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedCompletion {
    pub(crate) qpn: Qpn,
    pub(crate) opcode: CqeOpcode,
    pub(crate) syndrome: CqeSyndrome,
}

impl CompletionLog {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        let Self { newly_broken, failures, unsettled, compressing, .. } = self;
        // One branch for all of them, because every event of the device asks.
        newly_broken.len() | failures.len() | unsettled.len() | compressing.len() == 0
    }

    /// Drops all queues but keeps the counters.
    pub(super) fn forget_queues(&mut self) {
        self.newly_broken.clear();
        self.failures.clear();
        self.unsettled.clear();
        self.compressing.clear();
    }
}

/// One queue, and what else changes when an entry is written to it.
pub(super) struct Writer<'a, M: ?Sized> {
    pub(super) queue: &'a mut CompletionQueue,
    pub(super) log: &'a mut CompletionLog,
    pub(super) events: &'a mut EventQueues,
    pub(super) memory: &'a mut M,
}

impl<M: HostMemory + ?Sized> Writer<'_, M> {
    pub(super) fn post(mut self, entry: &mut CompletionEntry, solicited: bool) {
        if !self.queue.context.cqe_comp_en() || !self.wait_for_more(entry, solicited) {
            self.write(entry, solicited);
        }
    }

    /// Holds back a compressible entry until the device has finished its current input, because similar ones
    /// may follow. If the entry does not fit the ones held back, writes those first. Returns `false` if the
    /// entry must be written at once.
    fn wait_for_more(&mut self, entry: &CompletionEntry, solicited: bool) -> bool {
        let fits = match self.queue.waiting.last() {
            Some(last) => follows(&last.entry, entry),
            None => is_compressible(entry),
        };
        if !fits || self.queue.waiting.len() >= self.queue.longest_run() {
            self.flush();
        }
        let waits = is_compressible(entry) && !self.queue.is_broken();
        if waits {
            if self.queue.waiting.is_empty() {
                self.log.compressing.push(self.queue.number);
            }
            self.queue.waiting.push(Waiting { entry: *entry, solicited });
        }
        waits
    }

    /// Writes the entries that were held back, as a run if there are several and all have room.
    pub(super) fn flush(&mut self) {
        let run = core::mem::take(&mut self.queue.waiting);
        if run.len() < 2 || !self.queue.has_room(self.memory, run.len() as u32) {
            for mut waiting in run {
                self.write(&mut waiting.entry, waiting.solicited);
            }
            return;
        }
        if self.queue.push_run(self.memory, &run).is_err() {
            return self.tell_broken();
        }
        self.log.compressed += run.len() as u64;
        for waiting in run {
            self.notify(waiting.solicited);
        }
    }

    fn write(&mut self, entry: &mut CompletionEntry, solicited: bool) {
        let was_broken = self.queue.is_broken();
        if self.queue.push(self.memory, entry).is_err() {
            if !was_broken {
                self.tell_broken();
            }
            return;
        }
        if let CqeOpcode::RequesterError | CqeOpcode::ResponderError = entry.opcode() {
            let failure: ErrorEntry = zerocopy::transmute!(*entry);
            let (qpn, opcode, syndrome) = (failure.qpn(), failure.opcode(), failure.syndrome());
            self.log.failures.push(FailedCompletion { qpn, opcode, syndrome });
        }
        self.notify(solicited);
    }

    /// Raises the event for which the queue is armed, after an entry was written, unless moderation delays
    /// it.
    fn notify(&mut self, solicited: bool) {
        self.log.written += 1;
        if solicited {
            self.queue.mark_solicited();
        }
        match self.queue.armed {
            Some(ArmedFor::Any) => {}
            Some(ArmedFor::Solicited) if solicited => {}
            _ => return,
        }
        let at_once = solicited && self.queue.context.scqe_break_moderation_en();
        if self.queue.moderation.completed() || at_once {
            self.queue.raise(self.memory, self.events);
        }
        if !self.log.unsettled.contains(&self.queue.number) {
            self.log.unsettled.push(self.queue.number);
        }
    }

    /// Notifies software that the queue broke. The device will then stop its users.
    #[cold]
    fn tell_broken(&mut self) {
        let overrun = self.queue.status == STATUS_OVERRUN;
        self.log.overruns += u64::from(overrun);
        self.log.newly_broken.push(self.queue.number);
        let mut data = CqErrorEvent::new();
        data.set_cqn(self.queue.number).set_syndrome(if overrun {
            CqErrorSyndrome::CqOverrun
        } else {
            CqErrorSyndrome::CqAccessViolationError
        });
        self.events.post(self.memory, EventType::CqError, 0, &data);
    }
}
