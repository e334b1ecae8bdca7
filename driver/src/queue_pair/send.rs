//! The send queue: checks, encoding into the ring, doorbell.

use super::PostError;
use crate::dma::Dma;
use crate::doorbell::{Publication, SendDoorbell, publish};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Poster, Words};
use crate::memory_region::MemorySlice;
use crate::work_request::{
    Form, Shape, WorkRequest, inline_segments, inline_words, short_inline, slice_words,
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

/// An entry that was written: its block if there is only one, and how many there are.
pub(crate) struct Written {
    block: [u64; 8],
    blocks: u32,
}

impl SendQueue {
    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(crate) fn write<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Result<Written, PostError> {
        match request.form {
            Form::RemoteSlice => {
                let Some([a, b]) = self.slice(request) else { return self.write_any(memory, words, request) };
                self.write_block(memory, words, request, 3, |c, [d, e]| {
                    [c, request.flags(), d, e, a, b, 0, 0]
                })
            }
            Form::Slice => {
                let Some([a, b]) = self.slice(request) else { return self.write_any(memory, words, request) };
                self.write_block(memory, words, request, 2, |c, _| [c, request.flags(), a, b, 0, 0, 0, 0])
            }
            Form::RemoteShort if request.bytes.len() <= self.max_short as usize => {
                let ([f, g, h], segments) =
                    (short_inline(request.bytes), inline_segments(request.bytes.len() as u32));
                self.write_block(memory, words, request, 2 + segments, |c, [d, e]| {
                    [c, request.flags(), d, e, f, g, h, 0]
                })
            }
            Form::Short if request.bytes.len() <= self.max_short as usize => {
                let ([f, g, h], segments) =
                    (short_inline(request.bytes), inline_segments(request.bytes.len() as u32));
                self.write_block(memory, words, request, 1 + segments, |c, _| {
                    [c, request.flags(), f, g, h, 0, 0, 0]
                })
            }
            _ => self.write_any(memory, words, request),
        }
    }

    /// The only slice in memory order, if its length is allowed.
    #[inline(always)]
    fn slice(&self, request: &WorkRequest<'_>) -> Option<[u64; 2]> {
        let slice = request.slices.first()?;
        (slice.length.wrapping_sub(1) < self.max_slice).then(|| slice_words(slice).map(u64::to_be))
    }

    /// Writes a request that fits a block; `words` arranges it, given its first word and the remote address segment.
    #[inline(always)]
    fn write_block<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
        segments: u32,
        arrange: impl FnOnce(u64, [u64; 2]) -> [u64; 8],
    ) -> Result<Written, PostError> {
        if !self.poster.has_room_for_one(words) {
            return Err(PostError::QueueFull { needed: 1, size: self.mask + 1 });
        }
        let head = self.poster.head();
        let control = request.control(head, self.qpn_shifted, segments);
        let block = arrange(control.to_be(), request.remote());
        if let Some(window) = memory.block((self.first + (head & self.mask)) as usize) {
            window.store(&block);
        }
        self.last_control = control;
        self.poster.post(words, request.id, 1, request.kind as u8);
        Ok(Written { block, blocks: 1 })
    }

    /// [`Self::write`] for every other request.
    #[cold]
    #[inline(never)]
    fn write_any<M>(
        &mut self,
        memory: &Dma<M>,
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Result<Written, PostError> {
        let segments = 1 + request.shape as u32 + self.data_segments(request)?;
        let blocks = segments.div_ceil(BLOCK_SEGMENTS);
        if !self.poster.has_room(words, blocks) {
            return Err(PostError::QueueFull { needed: blocks, size: self.mask + 1 });
        }
        let head = self.poster.head();
        let control = request.control(head, self.qpn_shifted, segments);
        self.write_blocks(memory, [control.to_be(), request.flags()], request);
        let block = match blocks {
            1 => memory
                .block((self.first + (head & self.mask)) as usize)
                .map_or([0; 8], |window| window.load()),
            _ => [0; 8],
        };
        self.last_control = control;
        self.poster.post(words, request.id, blocks, request.kind as u8);
        Ok(Written { block, blocks })
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

    /// Lets the device see everything written.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(
        &mut self,
        (hal, memory): (&H, &Dma<H::Dma>),
        words: &impl Words,
        single: Option<&Written>,
    ) {
        self.poster.publish(words);
        let burst = match single {
            Some(written) if written.blocks == 1 && self.doorbell.is_blue_flame() => Some(&written.block),
            _ => None,
        };
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
