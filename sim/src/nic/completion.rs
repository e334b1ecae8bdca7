//! Completion queues: writing entries, raising events, moderation, overrun (PRM, completion queues).

mod compression;
mod moderation;
mod queue;

pub(crate) use compression::LONGEST_RUN;
pub(crate) use queue::{CompletionQueue, ResizeRefusal, stride};

use super::HostMemory;
use super::contexts::Slab;
use super::event::EventQueues;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry, ErrorEntry};
use bareverbs_prm::doorbell::CqArm;
use bareverbs_prm::eqe::CqErrorEvent;
use bareverbs_prm::ids::{Cqn, Qpn, UarIndex};
use bareverbs_prm::numbering::{CqErrorSyndrome, CqeOpcode, CqeSyndrome, EventType};
use bareverbs_prm::time::Time;
use queue::{ArmedFor, STATUS_OVERRUN};
use std::collections::BTreeSet;

/// First completion queue number.
pub(crate) const FIRST_CQ: u32 = 0x80;

/// All completion queues of a device.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    pub(crate) queues: Slab<CompletionQueue>,
    /// Queues that broke since the device last looked: the queue pairs that use them must go to the error state.
    pub(crate) newly_broken: Vec<Cqn>,
    /// Completions with error since the device last looked, for the counters of their queue pairs.
    pub(crate) failures: Vec<(Qpn, CqeOpcode, CqeSyndrome)>,
    /// Queues with an event that moderation holds back, or that raised one, since the device last looked.
    restless: Vec<Cqn>,
    /// Queues with entries that wait for more like them.
    patient: Vec<Cqn>,
    /// When events are due that moderation holds back.
    alarms: BTreeSet<(Time, u32)>,
    pub(crate) written: u64,
    /// Of these, entries that were part of a run.
    pub(crate) compressed: u64,
    pub(crate) overruns: u64,
}

impl CompletionQueues {
    pub(crate) const fn new() -> Self {
        Self {
            queues: Slab::new(FIRST_CQ, 24),
            newly_broken: Vec::new(),
            failures: Vec::new(),
            restless: Vec::new(),
            patient: Vec::new(),
            alarms: BTreeSet::new(),
            written: 0,
            compressed: 0,
            overruns: 0,
        }
    }

    /// Forgets all queues.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        self.newly_broken.clear();
        self.failures.clear();
        self.restless.clear();
        self.patient.clear();
        self.alarms.clear();
    }

    /// Writes an entry and raises the event for which the queue is armed. `solicited` is true for entries that satisfy
    /// an arming for solicited completions: those with the bit, and all errors (IBTA v1.4 §11.4.2.2).
    #[inline]
    pub(crate) fn post<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        cqn: Cqn,
        entry: &mut CompletionEntry,
        solicited: bool,
    ) {
        self.post_with_data(memory, events, (cqn, None), entry, solicited);
    }

    /// As [`Self::post`], with what stands in the first half of an entry of 128 bytes.
    pub(crate) fn post_with_data<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        (cqn, data): (Cqn, Option<&[u8; CQE_SIZE]>),
        entry: &mut CompletionEntry,
        solicited: bool,
    ) {
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return };
        if queue.context.cqe_comp_en() && self.wait_for_more(memory, events, cqn, entry, solicited) {
            return;
        }
        self.write(memory, events, (cqn, data), entry, solicited);
    }

    /// Keeps a compressible entry back until the device has done what it does, so that more like it may come. What waits
    /// already is written first if the entry is not like it. `false`: the entry is to be written at once.
    fn wait_for_more<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        cqn: Cqn,
        entry: &CompletionEntry,
        solicited: bool,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return false };
        let fits = match queue.waiting.last() {
            Some(last) => compression::follows(&last.entry, entry),
            None => compression::is_compressible(entry),
        };
        if !fits || queue.waiting.len() >= LONGEST_RUN {
            self.write_waiting(memory, events, cqn);
        }
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return false };
        let waits = compression::is_compressible(entry) && !queue.is_broken();
        if waits {
            if queue.waiting.is_empty() {
                self.patient.push(cqn);
            }
            queue.waiting.push(compression::Waiting { entry: *entry, solicited });
        }
        waits
    }

    /// Writes what waits for more, as a run if there is more than one and room for all.
    fn write_waiting<M: HostMemory>(&mut self, memory: &mut M, events: &mut EventQueues, cqn: Cqn) {
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return };
        let run = core::mem::take(&mut queue.waiting);
        if run.len() < 2 || !queue.has_room(memory, run.len() as u32) {
            for mut waiting in run {
                self.write(memory, events, (cqn, None), &mut waiting.entry, waiting.solicited);
            }
            return;
        }
        if queue.push_run(memory, &run).is_err() {
            return self.break_queue(memory, events, cqn);
        }
        self.compressed += run.len() as u64;
        for waiting in run {
            self.written(memory, events, cqn, waiting.solicited);
        }
    }

    fn write<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        (cqn, data): (Cqn, Option<&[u8; CQE_SIZE]>),
        entry: &mut CompletionEntry,
        solicited: bool,
    ) {
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return };
        let was_broken = queue.is_broken();
        if queue.push(memory, entry, data).is_err() {
            if !was_broken {
                self.break_queue(memory, events, cqn);
            }
            return;
        }
        if let CqeOpcode::RequesterError | CqeOpcode::ResponderError = entry.opcode() {
            let failure: ErrorEntry = zerocopy::transmute!(*entry);
            self.failures.push((failure.qpn(), failure.opcode(), failure.syndrome()));
        }
        self.written(memory, events, cqn, solicited);
    }

    /// An entry was written: raises the event for which the queue is armed, unless moderation holds it back.
    fn written<M: HostMemory>(
        &mut self,
        memory: &mut M,
        events: &mut EventQueues,
        cqn: Cqn,
        solicited: bool,
    ) {
        self.written += 1;
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return };
        if solicited {
            queue.mark_solicited();
        }
        match queue.armed {
            Some(ArmedFor::Any) => {}
            Some(ArmedFor::Solicited) if solicited => {}
            _ => return,
        }
        let at_once = solicited && queue.context.scqe_break_moderation_en();
        if queue.moderation.completed() || at_once {
            raise(memory, events, queue);
        }
        if !self.restless.contains(&cqn) {
            self.restless.push(cqn);
        }
    }

    fn break_queue<M: HostMemory>(&mut self, memory: &mut M, events: &mut EventQueues, cqn: Cqn) {
        let overrun = self.queues.get(cqn.value()).is_some_and(|queue| queue.status == STATUS_OVERRUN);
        self.overruns += u64::from(overrun);
        self.newly_broken.push(cqn);
        let mut data = CqErrorEvent::new();
        data.set_cqn(cqn).set_syndrome(if overrun {
            CqErrorSyndrome::CqOverrun
        } else {
            CqErrorSyndrome::CqAccessViolationError
        });
        events.post(memory, EventType::CqError, 0, &data);
    }

    /// The arm doorbell. If entries that satisfy it are already there, the event is raised at once; one event an arming.
    /// The sequence number is not looked at: a doorbell is never delivered late here.
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
        let wish = if arm.solicited_only { ArmedFor::Solicited } else { ArmedFor::Any };
        if queue.satisfies(wish, arm.consumer_index) {
            raise(memory, events, queue);
            self.restless.push(arm.cqn);
        } else {
            queue.armed = Some(wish);
        }
        true
    }

    /// Whether nothing happened since the device last looked.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        let Self { newly_broken, failures, restless, patient, .. } = self;
        newly_broken.is_empty() && failures.is_empty() && restless.is_empty() && patient.is_empty()
    }

    /// Writes the entries that waited for more like them: there will be no more before the next input.
    pub(crate) fn flush<M: HostMemory>(&mut self, memory: &mut M, events: &mut EventQueues) {
        while let Some(cqn) = self.patient.pop() {
            self.write_waiting(memory, events, cqn);
        }
    }

    /// Sets the clocks of the queues whose events wait or were raised since the last call.
    pub(crate) fn settle(&mut self, now: Time) {
        while let Some(cqn) = self.restless.pop() {
            let Some(queue) = self.queues.get_mut(cqn.value()) else { continue };
            if let Some(due) = queue.moderation.due.take() {
                self.alarms.remove(&(due, cqn.value()));
            }
            if queue.armed.is_none() {
                queue.moderation.event_at(now);
            } else if let Some(due) = queue.moderation.settle(now) {
                self.alarms.insert((due, cqn.value()));
            }
        }
    }

    /// When the next event is due that moderation holds back.
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
            let Some(queue) = self.queues.get_mut(number) else { continue };
            queue.moderation.due = None;
            queue.moderation.event_at(now);
            raise(memory, events, queue);
        }
    }

    /// Forgets a queue and what it waits for.
    pub(crate) fn remove(&mut self, cqn: Cqn) {
        if let Some(due) = self.queues.remove(cqn.value()).and_then(|queue| queue.moderation.due) {
            self.alarms.remove(&(due, cqn.value()));
        }
    }
}

/// Raises the event of a queue; its arming has been used up.
fn raise<M: HostMemory>(memory: &mut M, events: &mut EventQueues, queue: &mut CompletionQueue) {
    queue.armed = None;
    queue.moderation.restart_count();
    events.post_to(memory, queue.eqn(), queue.event());
}
