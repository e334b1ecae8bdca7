//! Event queues: entries, arming, overrun (PRM, event queues).

use super::HostMemory;
use super::buffer::PagedBuffer;
use super::contexts::Slab;
use super::interrupt::Interrupts;
use bareverbs_prm::context::EventQueueContext;
use bareverbs_prm::eqe::{EQE_SIZE, EventEntry};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::{EventQueueStatus, EventType};
use zerocopy::{Immutable, IntoBytes};

/// First event queue number.
pub(crate) const FIRST_EQ: u32 = 4;
/// Producer and consumer indices have this many bits in doorbells.
const INDEX_MASK: u32 = 0xff_ffff;

/// One event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// As created. [`Self::context`] fills in status and counters.
    context: EventQueueContext,
    pub(crate) events: [u8; 32],
    buffer: PagedBuffer,
    producer: u32,
    consumer: u32,
    armed: bool,
    failed: bool,
}

impl EventQueue {
    pub(crate) const fn new(context: EventQueueContext, events: [u8; 32], buffer: PagedBuffer) -> Self {
        Self { context, events, buffer, producer: 0, consumer: 0, armed: false, failed: false }
    }

    /// The context as QUERY_EQ shows it. `st`: 9 armed, 0xa fired.
    pub(crate) fn context(&self) -> EventQueueContext {
        let mut context = self.context;
        let status = if self.failed { EventQueueStatus::WriteFailure } else { EventQueueStatus::Ok };
        context.set_status(status);
        context.set_st(if self.armed { 9 } else { 0xa });
        context
            .set_consumer_counter(self.consumer & INDEX_MASK)
            .set_producer_counter(self.producer & INDEX_MASK);
        context
    }

    pub(crate) fn uar(&self) -> UarIndex {
        self.context.uar_page()
    }

    /// Whether the queue receives events of this type: bit `n` of the 256-bit mask, four words of 64 bits.
    fn takes(&self, kind: EventType) -> bool {
        let bit = kind.raw();
        let word = usize::from(bit >> 6) * 8;
        let byte = word + 7 - usize::from(bit & 63) / 8;
        self.events[byte] >> (bit & 7) & 1 != 0
    }

    fn is_full(&self) -> bool {
        let used = self.producer.wrapping_sub(self.consumer) & INDEX_MASK;
        used >= 1 << self.context.log_eq_size()
    }

    /// Writes an entry; the caller then fires if the queue is armed. Returns `false` if the entry was lost.
    fn push<M: HostMemory + ?Sized>(&mut self, memory: &mut M, entry: &mut EventEntry) -> bool {
        let size_log = u32::from(self.context.log_eq_size());
        if self.failed || self.is_full() {
            self.failed = true;
            return false;
        }
        entry.set_owner(self.producer >> size_log & 1 != 0);
        let slot = u64::from(self.producer & ((1 << size_log) - 1));
        let mut bytes = [0; EQE_SIZE];
        bytes.copy_from_slice(entry.as_bytes());
        if self.buffer.write_entry(memory, slot * EQE_SIZE as u64, &bytes).is_err() {
            self.failed = true;
            return false;
        }
        self.producer = self.producer.wrapping_add(1);
        true
    }

    fn fire_if_armed(&mut self, interrupts: &mut Interrupts) {
        if self.armed && (self.producer ^ self.consumer) & INDEX_MASK != 0 {
            self.armed = false;
            interrupts.raise(self.context.intr());
        }
    }
}

/// All event queues of a device and the interrupts they raise.
#[derive(Debug)]
pub(crate) struct EventQueues {
    pub(crate) queues: Slab<EventQueue>,
    pub(crate) interrupts: Interrupts,
    /// Entries that were lost because a queue was full, broken or missing.
    pub(crate) lost: u64,
}

impl EventQueues {
    pub(crate) fn new() -> Self {
        Self { queues: Slab::new(FIRST_EQ, 8), interrupts: Interrupts::default(), lost: 0 }
    }

    /// The queue that receives events of a type: the one with the lowest number that subscribed to it.
    pub(crate) fn subscriber(&self, kind: EventType) -> Option<Eqn> {
        let queue = self.queues.iter().find(|(_, queue)| queue.takes(kind));
        queue.map(|(number, _)| Eqn::from_low_bits(number))
    }

    /// Writes an event into a given queue.
    pub(crate) fn post_to<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        eqn: Eqn,
        mut entry: EventEntry,
    ) {
        let queue = self.queues.get_mut(eqn.value());
        match queue.and_then(|queue| queue.push(memory, &mut entry).then_some(queue)) {
            Some(queue) => queue.fire_if_armed(&mut self.interrupts),
            None => self.lost += 1,
        }
    }

    /// Writes an event into the queue that subscribed to its type. Without a subscriber nothing is lost.
    pub(crate) fn post<M: HostMemory + ?Sized, D: IntoBytes + Immutable>(
        &mut self,
        memory: &mut M,
        kind: EventType,
        sub_type: u8,
        data: &D,
    ) {
        if let Some(eqn) = self.subscriber(kind) {
            self.post_to(memory, eqn, entry(kind, sub_type, data));
        }
    }

    /// The doorbell of a queue: the consumer index, and whether to arm it. A queue that is not empty fires as
    /// soon as it is armed, so no event is lost between software's last look and the arming.
    pub(crate) fn doorbell(&mut self, eqn: Eqn, uar: UarIndex, consumer: u32, arm: bool) -> bool {
        let Some(queue) = self.queues.get_mut(eqn.value()).filter(|queue| queue.uar() == uar) else {
            return false;
        };
        queue.consumer = consumer & INDEX_MASK;
        if arm {
            queue.armed = true;
            queue.fire_if_armed(&mut self.interrupts);
        }
        true
    }
}

/// An event queue entry with its data.
pub(crate) fn entry<D: IntoBytes + Immutable>(kind: EventType, sub_type: u8, data: &D) -> EventEntry {
    let mut entry = EventEntry::new();
    let mut bytes = [0; 28];
    let data = data.as_bytes();
    let length = data.len().min(28);
    bytes[..length].copy_from_slice(&data[..length]);
    entry.set_kind(kind).set_sub_type(sub_type).set_data(bytes);
    entry
}
