//! Resizing: the device switches to another ring, and unpolled entries move into it (PRM, MODIFY_CQ).
//!
//! The device ends the old ring with an entry of its own and continues in the new ring. Software moves the
//! unpolled entries from the old ring into the new one, one slot further on, so that the following entries
//! are adjacent to them.

use super::builder::{Size, allocate_ring};
use super::entries::BadRun;
use super::{CompletionQueue, CompletionQueueError};
use crate::command::Request;
use crate::cqe::CqeView;
use crate::cqe::ownership::opcode;
use crate::device::{DeviceRef, DmaOf};
use crate::dma::BlockRing;
use crate::hal::{Barrier, Hal, HalError};
use crate::ring::Consumer;
use crate::translation::PageRun;
use bareverbs_prm::command::cq::{ModifyCqIn, ModifyCqOut};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode};

/// `op_mod` of MODIFY_CQ, and the fields that it selects: size, page offset, page size.
const RESIZE: u16 = 1;
const SELECT: u32 = 0b111;

impl<D: DeviceRef> CompletionQueue<D> {
    /// Makes the queue hold `entries` completions, rounded up to a power of two. Unpolled completions stay.
    /// If they do not fit, the device refuses and nothing changes.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, entries: u32) -> Result<(), CompletionQueueError> {
        let device = self.device.clone();
        let device = device.device();
        if !device.capabilities().completion_queue_resize {
            return Err(CompletionQueueError::NotOffered { feature: "resizing (cq_resize)" });
        }
        let size = Size::of(device.capabilities(), entries, self.wide)?;
        let short = HalError::OutOfDmaMemory { length: size.bytes(), alignment: 4096 };
        let ring = BlockRing::new(allocate_ring(device.hal(), size, 0)?, size.blocks())
            .ok_or(CompletionQueueError::Memory(short))?;
        let run = PageRun::of_buffer(ring.memory().iova(), size.bytes(), device.config().log_max_page);
        let mut input = ModifyCqIn::new();
        input.set_opcode(CommandOpcode::ModifyCq).set_op_mod(RESIZE).set_cqn(self.cqn);
        input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(SELECT);
        let context = input.cq_context_mut();
        context.set_log_cq_size(size.log).set_cqe_sz(size.wide.into()).set_log_page_size(run.log_page_size());
        if let Err(error) = device.call::<ModifyCqOut>(&Request::with_tail(&input, run.list(0))) {
            if error.status().is_none() {
                core::mem::forget(ring);
            }
            return Err(CompletionQueueError::Command(error));
        }
        self.move_to(ring, size)
    }

    /// Moves unpolled entries into the ring that the device now uses.
    fn move_to(&mut self, ring: BlockRing<DmaOf<D>>, size: Size) -> Result<(), CompletionQueueError> {
        let next = self.consumer.moved_to(size.log);
        let mut count = 0;
        let mut ended = false;
        while count < self.consumer.size() && !ended {
            let at = self.consumer.ahead(count);
            match self.take_entry(at) {
                Ok(Some(byte)) if opcode(byte) == CqeOpcode::ResizeCq => ended = true,
                Ok(Some(_)) => self.copy_entry(at, &ring, next.ahead(count)),
                Ok(None) | Err(BadRun(_)) => break,
            }
            count += 1;
        }
        let hal = self.device.device().hal();
        hal.barrier(Barrier::ToDevice);
        drop(self.rings.replace_blocks(ring));
        self.consumer = next;
        self.rings.record().store_be32::<0>(next.counter());
        if ended { Ok(()) } else { Err(CompletionQueueError::EntriesLost { moved: count }) }
    }

    /// Copies an entry and sets the owner bit for the current pass of the new ring.
    fn copy_entry(&self, from: Consumer, ring: &BlockRing<DmaOf<D>>, to: Consumer) {
        let block = if self.wide { to.slot() << 1 | 1 } else { to.slot() };
        if let Some(window) = ring.memory().block(block) {
            CqeView(window).store(self.entry(from.index()).load(), to.phase());
        }
    }
}
