//! One completion queue: its buffer, entry ownership, overrun and resizing (PRM, completion queues).

use super::compression::{self, Waiting};
use super::moderation::Moderation;
use crate::nic::HostMemory;
use crate::nic::buffer::PagedBuffer;
use crate::nic::doorbell_record::DoorbellRecord;
use crate::nic::event::{EventQueues, entry};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry};
use bareverbs_prm::doorbell::CompletionQueueRecord;
use bareverbs_prm::eqe::{CompletionEvent, EventEntry};
use bareverbs_prm::ids::{Cqn, Eqn, UarIndex};
use bareverbs_prm::numbering::{CqeOpcode, EventType};
use zerocopy::IntoBytes;

pub(super) const INDEX_MASK: u32 = 0xff_ffff;
/// `cqc.status` after an overrun or a failed write.
pub(super) const STATUS_OVERRUN: u8 = 0x9;
const STATUS_WRITE_FAILURE: u8 = 0xa;

/// The queue accepts no more entries; all its users must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenQueue;

/// Why a queue cannot be resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeRefusal {
    /// Entries that software has not consumed do not fit the new buffer, or the old buffer has no room for
    /// the final entry.
    Outstanding,
    /// The queue is broken.
    Broken,
}

/// Which completions software wants an event for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArmedFor {
    Any,
    Solicited,
}

/// One completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(super) context: CompletionQueueContext,
    pub(super) number: Cqn,
    buffer: PagedBuffer,
    record: DoorbellRecord,
    pub(super) producer: u32,
    /// Consumer index, as last read from the doorbell record.
    consumer: u32,
    /// One past the last entry that triggers a queue armed for solicited completions.
    solicited_end: Option<u32>,
    pub(super) armed: Option<ArmedFor>,
    /// One past the last entry when the last event was raised. An event is never raised twice for the same
    /// entries (`last_notified_index`).
    pub(super) notified: u32,
    pub(super) moderation: Moderation,
    /// Entries held back because similar ones may follow; oldest first.
    pub(super) waiting: Vec<Waiting>,
    /// Zero, or the reason why the queue is broken.
    pub(super) status: u8,
    /// Send and receive queues that complete into this queue.
    pub(crate) users: u32,
}

impl CompletionQueue {
    pub(crate) fn new(
        number: Cqn,
        context: CompletionQueueContext,
        buffer: PagedBuffer,
        record: DoorbellRecord,
    ) -> Self {
        Self {
            context,
            number,
            buffer,
            record,
            producer: 0,
            consumer: 0,
            solicited_end: None,
            armed: None,
            notified: 0,
            moderation: Moderation::new(&context),
            waiting: Vec::new(),
            status: 0,
            users: 0,
        }
    }

    /// The context as QUERY_CQ shows it. `st`: 6 armed for solicited, 9 armed for any, 0xa fired.
    pub(crate) fn context(&self) -> CompletionQueueContext {
        let mut context = self.context;
        context.set_status(self.status);
        context.set_st(match self.armed {
            Some(ArmedFor::Solicited) => 6,
            Some(ArmedFor::Any) => 9,
            None => 0xa,
        });
        context
            .set_consumer_counter(self.consumer & INDEX_MASK)
            .set_producer_counter(self.producer & INDEX_MASK)
            .set_last_notified_index(self.notified & INDEX_MASK);
        context
    }

    pub(crate) fn eqn(&self) -> Eqn {
        Eqn::from_low_bits(self.context.c_eqn_or_apu_element())
    }

    pub(crate) fn uar(&self) -> UarIndex {
        self.context.uar_page()
    }

    /// Applies the changes that MODIFY_CQ selected.
    pub(crate) fn modify(&mut self, edit: impl FnOnce(&mut CompletionQueueContext)) {
        edit(&mut self.context);
        self.moderation.configure(&self.context);
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.status != 0
    }

    pub(super) fn size(&self) -> u32 {
        1 << self.context.log_cq_size()
    }

    /// Distance between entries in bytes: 64, or 128, where the entry is the second half.
    fn stride(&self) -> u64 {
        stride(&self.context)
    }

    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }

    /// Reads software's consumer index from the doorbell record.
    fn look_at_consumer<M: HostMemory + ?Sized>(&mut self, memory: &mut M) {
        let mut record = CompletionQueueRecord::new();
        if memory.read(self.record.address, record.as_mut_bytes()).is_ok() {
            self.consumer = record.consumer_index();
        }
    }

    /// Whether there is room for `count` entries. Reads the doorbell record only if there is none according
    /// to the known consumer index.
    pub(super) fn has_room<M: HostMemory + ?Sized>(&mut self, memory: &mut M, count: u32) -> bool {
        if self.used() + count <= self.size() || self.context.oi() {
            return true;
        }
        self.look_at_consumer(memory);
        self.used() + count <= self.size()
    }

    /// Writes an entry.
    pub(super) fn push<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        entry: &mut CompletionEntry,
    ) -> Result<(), BrokenQueue> {
        if self.is_broken() {
            return Err(BrokenQueue);
        }
        if !self.has_room(memory, 1) {
            self.status = STATUS_OVERRUN;
            return Err(BrokenQueue);
        }
        entry.set_owner(self.owner_at(self.producer));
        self.write(memory, self.producer, entry)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }

    /// The owner bit of the entry at this index.
    pub(super) fn owner_at(&self, index: u32) -> bool {
        index >> self.context.log_cq_size() & 1 != 0
    }

    /// Writes entry number `index`. In a stride of 128 bytes it is the second half; the first half is for
    /// scattered data, which this model never writes.
    fn write<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        index: u32,
        entry: &CompletionEntry,
    ) -> Result<(), BrokenQueue> {
        let mut bytes = [0; CQE_SIZE];
        bytes.copy_from_slice(entry.as_bytes());
        self.write_half(memory, index, self.stride() - CQE_SIZE as u64, &bytes)
    }

    /// Writes 64 bytes at offset `within` of entry number `index`. In a collapsed queue (`cc`) all entries
    /// are the first one.
    pub(super) fn write_half<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        index: u32,
        within: u64,
        bytes: &[u8; CQE_SIZE],
    ) -> Result<(), BrokenQueue> {
        let last = if self.context.cc() { 0 } else { self.size() - 1 };
        let at = u64::from(index & last) * self.stride() + within;
        self.buffer.write_entry(memory, at, bytes).map_err(|_| {
            self.status = STATUS_WRITE_FAILURE;
            BrokenQueue
        })
    }

    /// The maximum length of a run, which may not wrap around the end of the ring. Vectorized drivers such as
    /// DPDK's read its arrays from the title on without checking for the end.
    pub(super) fn longest_run(&self) -> usize {
        let to_the_end = self.size() - (self.producer & (self.size() - 1));
        compression::LONGEST_RUN.min(to_the_end as usize)
    }

    /// Writes a run of at least two entries, its title last. The caller has checked that there is room.
    pub(super) fn push_run<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        run: &[Waiting],
    ) -> Result<(), BrokenQueue> {
        let Some(first) = run.first() else { return Ok(()) };
        for (place, bytes) in compression::arrays(run, self.context.mini_cqe_res_format()) {
            self.write_half(memory, self.producer.wrapping_add(place), 0, &bytes)?;
        }
        let mut title = compression::title(&first.entry, run.len() as u32);
        title.set_owner(self.owner_at(self.producer));
        let mut bytes = [0; CQE_SIZE];
        bytes.copy_from_slice(title.as_bytes());
        self.write_half(memory, self.producer, 0, &bytes)?;
        self.producer = self.producer.wrapping_add(run.len() as u32);
        Ok(())
    }

    /// Records that the next entry triggers a queue armed for solicited completions.
    pub(super) fn mark_solicited(&mut self) {
        self.solicited_end = Some(self.producer & INDEX_MASK);
    }

    /// Whether there are matching entries after `consumer` that no event has reported yet.
    pub(super) fn satisfies(&self, armed: ArmedFor, consumer: u32) -> bool {
        let start = if is_beyond(self.notified, consumer) { self.notified } else { consumer };
        match armed {
            ArmedFor::Any => is_beyond(self.producer, start),
            ArmedFor::Solicited => self.solicited_end.is_some_and(|end| is_beyond(end, start)),
        }
    }

    /// Raises the event of the queue and uses up its arming.
    pub(super) fn raise<M: HostMemory + ?Sized>(&mut self, memory: &mut M, events: &mut EventQueues) {
        self.armed = None;
        self.notified = self.producer;
        self.moderation.restart_count();
        events.post_to(memory, self.eqn(), self.event());
    }

    fn event(&self) -> EventEntry {
        let mut data = CompletionEvent::new();
        data.set_cqn(self.number);
        entry(EventType::Comp, 0, &data)
    }

    /// Switches to another buffer with the geometry in `context`. A final entry of its own marks the end of
    /// the old buffer and counts as an entry; software copies the unconsumed entries before it into the new
    /// buffer, one slot further on.
    pub(crate) fn resize<M: HostMemory + ?Sized>(
        &mut self,
        memory: &mut M,
        context: &CompletionQueueContext,
        buffer: PagedBuffer,
    ) -> Result<(), ResizeRefusal> {
        if self.is_broken() {
            return Err(ResizeRefusal::Broken);
        }
        self.look_at_consumer(memory);
        if self.used() >= self.size() || self.used() > 1 << context.log_cq_size() {
            return Err(ResizeRefusal::Outstanding);
        }
        let mut end = CompletionEntry::new();
        end.set_opcode(CqeOpcode::ResizeCq);
        self.push(memory, &mut end).map_err(|BrokenQueue| ResizeRefusal::Broken)?;
        self.buffer = buffer;
        self.context.set_log_cq_size(context.log_cq_size()).set_cqe_sz(context.cqe_sz());
        self.context.set_log_page_size(context.log_page_size()).set_page_offset(context.page_offset());
        Ok(())
    }
}

/// Whether an index comes after another one; indices wrap.
const fn is_beyond(end: u32, start: u32) -> bool {
    let distance = end.wrapping_sub(start) & INDEX_MASK;
    distance != 0 && distance <= INDEX_MASK / 2
}

/// Bytes per entry in a queue with this context.
pub(crate) fn stride(context: &CompletionQueueContext) -> u64 {
    if context.cqe_sz() == 0 { CQE_SIZE as u64 } else { 2 * CQE_SIZE as u64 }
}
