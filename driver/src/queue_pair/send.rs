//! The send queue: checks, encoding into the ring, doorbell.

use super::PostError;
use crate::dma::Dma;
use crate::doorbell::{Publication, SendDoorbell, publish};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Poster, Words};
use crate::memory_region::MemorySlice;
use crate::work_request::{
    Form, MAX_SEGMENTS, Shape, WorkRequest, inline_segments, inline_words, short_inline, slice_words,
};
use core::sync::atomic::Ordering;

/// Longest scatter/gather element: a byte count of zero means 2^31.
pub(crate) const MAX_SLICE: u32 = 1 << 31;
/// Segments of a basic block.
const BLOCK_SEGMENTS: u32 = 4;

/// The send half of a queue pair.
pub(crate) struct SendQueue {
    pub(crate) poster: Poster,
    pub(crate) doorbell: SendDoorbell,
    /// First block of the ring in the memory of the queue pair.
    pub(crate) first: u32,
    pub(crate) mask: u32,
    /// Block of the doorbell record.
    pub(crate) record: u32,
    /// Queue pair number where the control segment has it.
    pub(crate) qpn_shifted: u32,
    pub(crate) max_inline: u32,
    pub(crate) max_slices: u32,
    pub(crate) max_message: u64,
    /// Longest single slice; zero if the queue takes no slice.
    pub(crate) max_slice: u32,
    /// Longest inline data of the short way.
    pub(crate) max_short: u32,
    /// First 8 bytes of the last entry, for the doorbell.
    pub(crate) last_control: u64,
}

impl SendQueue {
    /// Checks and writes one request, then calls `then` with its block if it is only one. Nothing is written if it is
    /// refused.
    #[inline(always)]
    pub(crate) fn write<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
        then: impl FnOnce(&mut Self, Option<&[u64; 8]>),
    ) -> Result<(), PostError> {
        let block = match request.form {
            Form::RemoteSlice if self.allows(&request.first) => {
                let ([a, b], [c, d]) = (slice_words(&request.first).map(u64::to_be), request.remote());
                self.write_block::<M, 6>(memory, words, request, [c, d, a, b, 0, 0])
            }
            Form::RemoteShort if request.bytes.len() <= self.max_short as usize => {
                let ([a, b, e], [c, d]) = (short_inline(request.bytes), request.remote());
                self.write_block::<M, 7>(memory, words, request, [c, d, a, b, e, 0])
            }
            Form::Slice if self.allows(&request.first) => {
                let [a, b] = slice_words(&request.first).map(u64::to_be);
                self.write_block::<M, 4>(memory, words, request, [a, b, 0, 0, 0, 0])
            }
            Form::Short if request.bytes.len() <= self.max_short as usize => {
                let [a, b, c] = short_inline(request.bytes);
                self.write_block::<M, 5>(memory, words, request, [a, b, c, 0, 0, 0])
            }
            _ => {
                self.write_any(memory, words, request)?;
                then(self, None);
                return Ok(());
            }
        };
        match block {
            Some(block) => {
                then(self, Some(&block));
                Ok(())
            }
            None => Err(PostError::QueueFull { needed: 1, size: self.mask + 1 }),
        }
    }

    /// Whether the queue takes a single slice of this length.
    #[inline(always)]
    fn allows(&self, slice: &MemorySlice) -> bool {
        slice.length.wrapping_sub(1) < self.max_slice
    }

    /// Writes the `N` words of a request that fits a block, of which `tail` is what follows the control segment.
    /// Returns the block if there was room.
    #[inline(always)]
    fn write_block<M, const N: usize>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
        tail: [u64; 6],
    ) -> Option<[u64; 8]> {
        if !self.poster.has_room_for_one(words) {
            return None;
        }
        let (head, index) = (self.poster.head(), self.poster.index());
        let control = request.control(head, self.qpn_shifted);
        let [a, b, c, d, e, f] = tail;
        let block = [control.to_be(), request.flags(), a, b, c, d, e, f];
        self.last_control = control;
        self.poster.post_one(words, (head, index), request.id, request.posted(head));
        if let Some(window) = memory.block((self.first + index) as usize) {
            window.store_first::<N>(&block);
        }
        Some(block)
    }

    /// [`Self::write`] for every other request.
    #[cold]
    #[inline(never)]
    fn write_any<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let segments = 1 + request.shape as u32 + self.data_segments(request)?;
        let blocks = segments.div_ceil(BLOCK_SEGMENTS);
        if !self.poster.has_room(words, blocks) {
            return Err(PostError::QueueFull { needed: blocks, size: self.mask + 1 });
        }
        // A form of its own has its segments counted already.
        let control =
            request.control(self.poster.head(), self.qpn_shifted) & !(MAX_SEGMENTS as u64) | segments as u64;
        self.write_blocks(memory, [control.to_be(), request.flags()], request);
        self.last_control = control;
        self.poster.post(words, request.id, blocks, request.kind as u8);
        Ok(())
    }

    /// Segments of the data, after checking them.
    fn data_segments(&self, request: &WorkRequest<'_>) -> Result<u32, PostError> {
        if request.bytes.len() > self.max_inline as usize {
            return Err(PostError::InlineTooLong { length: request.bytes.len(), limit: self.max_inline });
        }
        if request.slices.len() > self.max_slices as usize {
            return Err(PostError::TooManySlices { count: request.slices.len(), limit: self.max_slices });
        }
        check_slices(request.slices, self.max_message)?;
        if request.shape == Shape::Atomic {
            check_atomic(request.slices)?;
        }
        let inline = if request.bytes.is_empty() { 0 } else { inline_segments(request.bytes.len() as u32) };
        Ok(inline + request.slices.len() as u32)
    }

    /// Writes an entry of several blocks word by word; it may wrap around the end of the ring.
    #[inline(never)]
    fn write_blocks<M>(&self, memory: &Dma<M>, start: [u64; 2], request: &WorkRequest<'_>) {
        let mut at = (self.poster.head() & self.mask) * 8;
        let mut put = |word: u64| {
            let index = self.first * 8 + (at & ((self.mask * 8) | 7));
            memory.set_word(index as usize, word, Ordering::Relaxed);
            at += 1;
        };
        start.into_iter().for_each(&mut put);
        if request.shape != Shape::Plain {
            request.remote().into_iter().for_each(&mut put);
        }
        if request.shape == Shape::Atomic {
            request.atomic.into_iter().for_each(&mut put);
        }
        if !request.bytes.is_empty() {
            inline_words(request.bytes, &mut put);
        }
        request.slices.iter().flat_map(slice_words).for_each(|word| put(word.to_be()));
    }

    /// Lets the device see everything written. `block` is that of the only request, if it has only one.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(
        &mut self,
        (hal, memory): (&H, &Dma<H::Dma>),
        words: &impl Words,
        block: Option<&[u64; 8]>,
    ) {
        self.poster.publish(words);
        let burst = if self.doorbell.is_blue_flame() { block } else { None };
        publish(&Work { hal, memory, queue: self, burst });
        if burst.is_some() {
            self.doorbell.alternate();
        }
    }
}

fn check_slices(slices: &[MemorySlice], limit: u64) -> Result<(), PostError> {
    let mut length = 0;
    for (index, slice) in slices.iter().enumerate() {
        if slice.length.wrapping_sub(1) >= MAX_SLICE {
            return Err(PostError::SliceLength { index, length: slice.length });
        }
        length += slice.length as u64;
    }
    if length > limit { Err(PostError::MessageTooLong { length, limit }) } else { Ok(()) }
}

fn check_atomic(slices: &[MemorySlice]) -> Result<(), PostError> {
    match slices {
        [MemorySlice { length: 8, .. }] => Ok(()),
        _ => Err(PostError::SliceLength { index: 0, length: slices.first().map_or(0, |slice| slice.length) }),
    }
}

struct Work<'a, H: Hal> {
    hal: &'a H,
    memory: &'a Dma<H::Dma>,
    queue: &'a SendQueue,
    burst: Option<&'a [u64; 8]>,
}

impl<H: Hal> Publication for Work<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        if let Some(record) = self.memory.block(self.queue.record as usize) {
            record.store_be32::<4>(self.queue.poster.head() & 0xffff);
        }
    }
    #[inline(always)]
    fn ring(&self) {
        match self.burst {
            Some(block) => self.queue.doorbell.burst(self.hal, block),
            None => self.queue.doorbell.ring(self.hal, self.queue.last_control),
        }
    }
}
