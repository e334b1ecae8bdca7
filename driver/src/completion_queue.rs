//! Completion queues: the device writes what became of work requests, the application polls.
//!
//! One queue may serve many queue pairs. It is polled by its owner alone (`&mut self`); queue pairs need only its
//! number, so that they may live in other threads. What an entry says is checked against the ledger before it is
//! believed.

mod error;
mod poll;

pub use error::{CompletionQueueError, PollError};

use self::poll::Current;
use crate::command::{CommandError, Request};
use crate::device::control::Doomed;
use crate::device::{DeviceRef, DmaOf};
use crate::dma::{BLOCK, Dma, Rings};
use crate::hal::{Barrier, Hal, HalError, Mmio};
use crate::ring::Consumer;
use crate::translation::PageRun;
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
use bareverbs_prm::cqe::OP_OWN_INITIAL;
use bareverbs_prm::doorbell::{CqArm, UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// How a completion queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionQueueConfig {
    /// Completions that it must hold; rounded up to a power of two. It must be as many as can be outstanding: all
    /// signalled sends and all receives of all its queue pairs, and all sends once a queue pair fails.
    pub entries: u32,
}

impl Default for CompletionQueueConfig {
    fn default() -> Self {
        Self { entries: 256 }
    }
}

/// A completion queue. Dropped before its queue pairs, it goes away after them.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<D: DeviceRef> {
    device: D,
    /// The entries, and the doorbell record.
    rings: Rings<DmaOf<D>>,
    consumer: Consumer,
    /// The queue pair that completed last.
    current: Current,
    cqn: Cqn,
    arm_sequence: u8,
    discarded: u64,
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Creates a queue.
    #[doc(alias = "ibv_create_cq")]
    pub fn create(device: D, config: CompletionQueueConfig) -> Result<Self, CompletionQueueError> {
        let limit = device.device().capabilities().max_completion_queue_entries;
        if config.entries == 0 || config.entries > limit {
            return Err(CompletionQueueError::Entries { asked: config.entries, limit });
        }
        let entries = config.entries.next_power_of_two() as usize;
        let hal = device.device().hal();
        let bytes = (entries + 1) * BLOCK;
        let memory = Dma::allocate(hal, bytes, 4096).map_err(CompletionQueueError::Memory)?;
        let short = HalError::OutOfDmaMemory { length: bytes, alignment: 4096 };
        let rings = Rings::new(memory, 0, entries as u32).ok_or(CompletionQueueError::Memory(short))?;
        for index in 0..entries as u32 {
            rings.blocks().slot(index).store_be32::<60>(OP_OWN_INITIAL as u32);
        }
        let log_size = entries.trailing_zeros() as u8;
        let cqn = match create(&device, rings.memory(), log_size) {
            Ok(cqn) => cqn,
            Err(error) => {
                if error.status().is_none() {
                    core::mem::forget(rings);
                }
                return Err(CompletionQueueError::Command(error));
            }
        };
        let consumer = Consumer::new(log_size);
        Ok(Self { device, rings, consumer, current: Current::NOBODY, cqn, arm_sequence: 0, discarded: 0 })
    }

    /// The number that the device gave.
    pub fn number(&self) -> Cqn {
        self.cqn
    }

    /// Completions that it holds.
    pub fn entries(&self) -> u32 {
        self.consumer.size()
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Completions of queue pairs that were gone when they were polled.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Asks for an event when the next completion (or the next solicited one) arrives. What is there already does not
    /// count: poll once more afterwards.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) {
        let consumer_index = self.consumer.counter();
        let arm = CqArm { sequence: self.arm_sequence, solicited_only, consumer_index, cqn: self.cqn };
        let device = self.device.device();
        self.rings.record().store_be32::<4>(arm.arm_word());
        device.hal().barrier(Barrier::ToDevice);
        device
            .hal()
            .mmio()
            .write64(device.uar().value() as usize * UAR_PAGE_SIZE + uar::CQ_ARM, arm.to_raw());
        device.hal().barrier(Barrier::FlushMmio);
    }

    /// The event of an arming came: the next arming is another one.
    pub fn acknowledge_event(&mut self) {
        self.arm_sequence = (self.arm_sequence + 1) & 3;
    }
}

impl<D: DeviceRef> fmt::Debug for CompletionQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("cqn", &self.cqn)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for CompletionQueue<D> {
    #[doc(alias = "ibv_destroy_cq")]
    fn drop(&mut self) {
        let doomed = Doomed { opcode: CommandOpcode::DestroyCq, number: self.cqn.value() };
        self.device.device().destroy(doomed, Some(self.rings.take()));
    }
}

fn create<D: DeviceRef>(device: &D, memory: &Dma<DmaOf<D>>, log_size: u8) -> Result<Cqn, CommandError> {
    let device = device.device();
    let entries = BLOCK << log_size;
    let run = PageRun::of_buffer(memory.iova(), entries, device.config().log_max_page);
    let mut input = CreateCqIn::new();
    input.set_opcode(CommandOpcode::CreateCq);
    input
        .cq_context_mut()
        .set_log_cq_size(log_size)
        .set_uar_page(device.uar())
        .set_c_eqn_or_apu_element(device.eqn().value())
        .set_log_page_size(run.log_page_size())
        .set_dbr_addr(memory.iova() + entries as u64);
    let output: CreateCqOut = device.call(&Request::with_tail(&input, run.list(0)))?;
    Ok(output.cqn())
}
