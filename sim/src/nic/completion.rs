//! Completion queues: entries, arming, overrun (PRM, completion queues; contract §5.4 and §5.9).

use super::HostMemory;
use super::buffer::PagedBuffer;
use super::contexts::Slab;
use super::event::{EventQueues, entry};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry};
use bareverbs_prm::doorbell::{CompletionQueueRecord, CqArm};
use bareverbs_prm::eqe::{CompletionEvent, CqErrorEvent};
use bareverbs_prm::ids::{Cqn, Eqn, UarIndex};
use bareverbs_prm::numbering::{CqErrorSyndrome, EventType};
use zerocopy::IntoBytes;

/// First completion queue number.
pub(crate) const FIRST_CQ: u32 = 0x80;
const INDEX_MASK: u32 = 0xff_ffff;
/// `cqc.status` after an overrun or a failed write.
const STATUS_OVERRUN: u8 = 0x9;
const STATUS_WRITE_FAILURE: u8 = 0xa;

/// The queue does not take entries any more; whoever completes into it must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenQueue;

/// One completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    context: CompletionQueueContext,
    number: Cqn,
    buffer: PagedBuffer,
    producer: u32,
    /// Consumer index as the doorbell record last said.
    consumer: u32,
    /// One past the last entry that satisfies an arming for solicited completions.
    solicited_end: Option<u32>,
    armed: Option<Armed>,
    /// Zero, or why the queue is broken.
    status: u8,
    /// Send and receive queues that complete into this queue.
    pub(crate) users: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    Any,
    Solicited,
}

impl CompletionQueue {
    pub(crate) const fn new(number: Cqn, context: CompletionQueueContext, buffer: PagedBuffer) -> Self {
        Self {
            context,
            number,
            buffer,
            producer: 0,
            consumer: 0,
            solicited_end: None,
            armed: None,
            status: 0,
            users: 0,
        }
    }

    /// As QUERY_CQ shows it. `st`: 6 armed for solicited, 9 armed for any, 0xa fired.
    pub(crate) fn context(&self) -> CompletionQueueContext {
        let mut context = self.context;
        context.set_status(self.status);
        context.set_st(match self.armed {
            Some(Armed::Solicited) => 6,
            Some(Armed::Any) => 9,
            None => 0xa,
        });
        context
            .set_consumer_counter(self.consumer & INDEX_MASK)
            .set_producer_counter(self.producer & INDEX_MASK);
        context
    }

    pub(crate) fn eqn(&self) -> Eqn {
        Eqn::from_low_bits(self.context.c_eqn_or_apu_element())
    }

    pub(crate) fn uar(&self) -> UarIndex {
        self.context.uar_page()
    }

    pub(crate) fn set_overrun_ignore(&mut self, ignore: bool) {
        self.context.set_oi(ignore);
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.status != 0
    }

    fn size(&self) -> u32 {
        1 << self.context.log_cq_size()
    }

    /// Whether there is room; reads the doorbell record only if the remembered consumer index says there is none.
    fn has_room<M: HostMemory>(&mut self, memory: &mut M) -> bool {
        let used = |queue: &Self| queue.producer.wrapping_sub(queue.consumer) & INDEX_MASK;
        if used(self) < self.size() || self.context.oi() {
            return true;
        }
        let mut record = CompletionQueueRecord::new();
        if memory.read(self.context.dbr_addr(), record.as_mut_bytes()).is_ok() {
            self.consumer = record.consumer_index();
        }
        used(self) < self.size()
    }

    fn push<M: HostMemory>(
        &mut self,
        memory: &mut M,
        entry: &mut CompletionEntry,
    ) -> Result<(), BrokenQueue> {
        if self.is_broken() {
            return Err(BrokenQueue);
        }
        if !self.has_room(memory) {
            self.status = STATUS_OVERRUN;
            return Err(BrokenQueue);
        }
        let size_log = u32::from(self.context.log_cq_size());
        entry.set_owner(self.producer >> size_log & 1 != 0);
        let slot = u64::from(self.producer & (self.size() - 1));
        let mut bytes = [0; CQE_SIZE];
        bytes.copy_from_slice(entry.as_bytes());
        if self.buffer.write_entry(memory, slot * CQE_SIZE as u64, &bytes).is_err() {
            self.status = STATUS_WRITE_FAILURE;
            return Err(BrokenQueue);
        }
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }

    /// Whether entries beyond `consumer` satisfy an arming.
    fn satisfies(&self, armed: Armed, consumer: u32) -> bool {
        let beyond = |end: u32| {
            let distance = end.wrapping_sub(consumer) & INDEX_MASK;
            distance != 0 && distance <= INDEX_MASK / 2
        };
        match armed {
            Armed::Any => beyond(self.producer),
            Armed::Solicited => self.solicited_end.is_some_and(beyond),
        }
    }

    fn event(&self) -> bareverbs_prm::eqe::EventEntry {
        let mut data = CompletionEvent::new();
        data.set_cqn(self.number);
        entry(EventType::Comp, 0, &data)
    }
}

/// All completion queues of a device.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    pub(crate) queues: Slab<CompletionQueue>,
    /// Queues that broke since the device last looked: the queue pairs that use them must go to the error state.
    pub(crate) newly_broken: Vec<Cqn>,
    pub(crate) written: u64,
    pub(crate) overruns: u64,
}

impl CompletionQueues {
    pub(crate) const fn new() -> Self {
        Self { queues: Slab::new(FIRST_CQ, 24), newly_broken: Vec::new(), written: 0, overruns: 0 }
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
        let Some(queue) = self.queues.get_mut(cqn.value()) else { return };
        let was_broken = queue.is_broken();
        if queue.push(memory, entry).is_err() {
            if !was_broken {
                self.break_queue(memory, events, cqn);
            }
            return;
        }
        self.written += 1;
        if solicited {
            queue.solicited_end = Some(queue.producer & INDEX_MASK);
        }
        if queue.armed == Some(Armed::Any) || (solicited && queue.armed.is_some()) {
            queue.armed = None;
            events.post_to(memory, queue.eqn(), queue.event());
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
        let wish = if arm.solicited_only { Armed::Solicited } else { Armed::Any };
        if queue.satisfies(wish, arm.consumer_index) {
            queue.armed = None;
            events.post_to(memory, queue.eqn(), queue.event());
        } else {
            queue.armed = Some(wish);
        }
        true
    }
}
