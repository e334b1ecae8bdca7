//! The receive queue: entries of a fixed number of segments, and a doorbell record without register.

use super::PostError;
use super::send::MAX_SLICE;
use crate::dma::Dma;
use crate::doorbell::{Publication, publish_record};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Poster, Words};
use crate::memory_region::MemorySlice;
use crate::work_request::{ReceiveRequest, slice_words};
use bareverbs_prm::wqe::INVALID_LKEY;

/// The receive half of a queue pair. Its ring is at the start of the memory of the queue pair.
pub(crate) struct ReceiveQueue {
    pub(crate) poster: Poster,
    /// Logarithm of the segments of an entry.
    pub(crate) log_segments: u32,
    pub(crate) max_slices: u32,
    /// Longest slice of the short way; zero if entries have another number of segments than one.
    pub(crate) max_slice: u32,
    /// Block of the doorbell record.
    pub(crate) record: u32,
}

impl ReceiveQueue {
    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(crate) fn write<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        match request.slices {
            [slice] if slice.length.wrapping_sub(1) < self.max_slice => {
                if !self.poster.has_room_for_one(words) {
                    return Err(PostError::QueueFull { needed: 1, size: self.poster.size() });
                }
                let at = (self.poster.head(), self.poster.index());
                self.poster.post_receive(words, at, request.id);
                store(memory, at.1 as usize, slice_words(slice));
                Ok(())
            }
            slices => self.write_any(memory, words, request.id, slices),
        }
    }

    /// [`Self::write`] for entries of several segments, or of none.
    #[cold]
    #[inline(never)]
    fn write_any<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        id: u64,
        slices: &[MemorySlice],
    ) -> Result<(), PostError> {
        if slices.len() > self.max_slices as usize {
            return Err(PostError::TooManySlices { count: slices.len(), limit: self.max_slices });
        }
        for (index, slice) in slices.iter().enumerate() {
            if slice.length.wrapping_sub(1) >= MAX_SLICE {
                return Err(PostError::SliceLength { index, length: slice.length });
            }
        }
        if !self.poster.has_room(words, 1) {
            return Err(PostError::QueueFull { needed: 1, size: self.poster.size() });
        }
        let at = (self.poster.head(), self.poster.index());
        let first = (at.1 << self.log_segments) as usize;
        for (index, slice) in slices.iter().enumerate() {
            store(memory, first + index, slice_words(slice));
        }
        if slices.len() < 1 << self.log_segments {
            store(memory, first + slices.len(), [INVALID_LKEY.value() as u64, 0]);
        }
        self.poster.post_receive(words, at, id);
        Ok(())
    }

    /// Lets the device see everything written.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(&self, hal: &H, memory: &Dma<H::Dma>, words: &impl Words) {
        self.poster.publish(words);
        publish_record(&Work { hal, memory, queue: self });
    }
}

#[inline(always)]
fn store<M>(memory: &Dma<M>, segment: usize, [a, b]: [u64; 2]) {
    if let Some(window) = memory.segment(segment) {
        window.store_be64::<0>(a);
        window.store_be64::<8>(b);
    }
}

struct Work<'a, H: Hal> {
    hal: &'a H,
    memory: &'a Dma<H::Dma>,
    queue: &'a ReceiveQueue,
}

impl<H: Hal> Publication for Work<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        if let Some(record) = self.memory.block(self.queue.record as usize) {
            record.store_be32::<0>(self.queue.poster.head() & 0xffff);
        }
    }
    fn ring(&self) {}
}
