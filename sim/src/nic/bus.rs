//! The bus: everything in the device that a queue pair may use while it handles an input.
//!
//! The router builds one per input. Through it a queue pair accesses time, host memory, keys, completions and events.
//! Requests to the scheduler are returned as [`Effects`](super::queue_pair::Effects).

use super::config::NicConfig;
use super::features::Features;
use super::memory::HostMemory;
use super::observer::DeviceEvent;
use super::shared_parts::SharedParts;
use crate::wire::is_same_partition;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::eqe::QueueEvent;
use bareverbs_prm::ids::{Cqn, Qpn, Srqn};
use bareverbs_prm::numbering::{CqeOpcode, EventType};
use bareverbs_prm::time::Time;

/// The part of the device that a queue pair may use during one input.
pub(crate) struct Bus<'a, M: ?Sized> {
    pub(crate) now: Time,
    pub(crate) memory: &'a mut M,
    pub(crate) config: &'a NicConfig,
    pub(crate) features: &'a Features,
    pub(crate) shared: &'a mut SharedParts,
}

impl<M: ?Sized> Bus<'_, M> {
    /// Reports an event to the observer, if there is one.
    #[inline]
    pub(crate) fn observe(&mut self, event: impl FnOnce() -> DeviceEvent) {
        if let Some(observer) = &mut self.shared.optional.observer {
            observer.push(self.now, event());
        }
    }
}

impl<M: HostMemory + ?Sized> Bus<'_, M> {
    /// Writes a completion; see [`CompletionQueues::post`].
    #[inline]
    pub(crate) fn complete(&mut self, cqn: Cqn, entry: &mut CompletionEntry, solicited: bool) {
        self.observe(|| completion_event(cqn, entry));
        let SharedParts { completions, events, .. } = &mut *self.shared;
        completions.post(self.memory, events, cqn, entry, solicited);
    }

    /// Posts an event about a queue pair.
    pub(crate) fn queue_pair_event(&mut self, qpn: Qpn, kind: EventType) {
        let mut data = QueueEvent::new();
        data.set_number(qpn);
        self.shared.events.post(self.memory, kind, 0, &data);
    }

    /// Posts the event that a shared receive queue owes software, if any.
    pub(crate) fn watch_shared(&mut self, number: Srqn) {
        let Some(queue) = self.shared.shared_receives.get_mut(number.value()) else {
            self.shared.counters.shared_receives_gone += 1;
            return;
        };
        if let Some(kind) = queue.take_event(self.memory) {
            self.queue_pair_event(Qpn::from_low_bits(number.value()), kind);
        }
    }

    /// Checks that both P_Keys belong to one partition and at least one of them is a full member (IBTA v1.4
    /// §9.6.1.1.3, §10.9.3). Counts a mismatch.
    pub(crate) fn check_partition(&mut self, theirs: u16, own: u16) -> bool {
        let matches = is_same_partition(own, theirs);
        self.shared.counters.frames_bad_pkey += u64::from(!matches);
        matches
    }
}

/// The event that reports a completion to the observer.
#[cold]
fn completion_event(cqn: Cqn, entry: &CompletionEntry) -> DeviceEvent {
    let error: &ErrorEntry = zerocopy::transmute_ref!(entry);
    let is_error = matches!(entry.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
    DeviceEvent::CompletionWritten {
        cqn,
        qpn: entry.qpn(),
        wqe: entry.wqe_counter(),
        opcode: entry.opcode(),
        syndrome: if is_error { error.syndrome().raw() } else { 0 },
    }
}
