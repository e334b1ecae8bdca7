//! Writing an entry to a completion queue, and the follow-up that the device has to do.

use super::compression::{Waiting, follows, is_compressible};
use super::queue::{ArmedFor, CompletionQueue, STATUS_OVERRUN};
use crate::nic::HostMemory;
use crate::nic::event::EventQueues;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::eqe::CqErrorEvent;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CqErrorSyndrome, CqeOpcode, CqeSyndrome, EventType};

/// What happened to all queues since the device last looked, and what was counted.
#[derive(Debug, Default)]
pub(crate) struct CompletionLog {
    /// Queues that broke: the queue pairs that use them must go to the error state.
    pub(crate) newly_broken: Vec<Cqn>,
    /// Completions with error, for the counters of their queue pairs.
    pub(crate) failures: Vec<FailedCompletion>,
    /// Queues with an event that moderation holds back, or that raised one.
    pub(super) unsettled: Vec<Cqn>,
    /// Queues with entries that wait for more like them.
    pub(super) compressing: Vec<Cqn>,
    pub(crate) written: u64,
    /// Of these, entries that were part of a run.
    pub(crate) compressed: u64,
    pub(crate) overruns: u64,
    /// Entries for a queue that does not exist.
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
        newly_broken.is_empty() && failures.is_empty() && unsettled.is_empty() && compressing.is_empty()
    }

    /// All queues are gone; what was counted stays.
    pub(super) fn forget_queues(&mut self) {
        self.newly_broken.clear();
        self.failures.clear();
        self.unsettled.clear();
        self.compressing.clear();
    }
}

/// One queue, and what else changes when something is written to it.
pub(super) struct Writer<'a, M> {
    pub(super) queue: &'a mut CompletionQueue,
    pub(super) log: &'a mut CompletionLog,
    pub(super) events: &'a mut EventQueues,
    pub(super) memory: &'a mut M,
}

impl<M: HostMemory> Writer<'_, M> {
    pub(super) fn post(mut self, entry: &mut CompletionEntry, solicited: bool) {
        if !self.queue.context.cqe_comp_en() || !self.wait_for_more(entry, solicited) {
            self.write(entry, solicited);
        }
    }

    /// Keeps a compressible entry back until the device has done what it does, so that more like it may come. What waits
    /// already is written first if the entry is not like it. `false`: the entry is to be written at once.
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

    /// Writes what waits for more, as a run if there is more than one and room for all.
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

    /// An entry was written: raises the event for which the queue is armed, unless moderation holds it back.
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

    /// The queue broke: software is told, and the device will stop its users.
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
