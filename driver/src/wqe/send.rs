//! Entries of send queues: a [`Head`], then data. Fast paths write the most common requests; everything else
//! is written segment by segment.

use super::head::{Head, QueuePairBits};
use super::inline::{self, InlineData};
use super::segment;
use super::{BLOCK_SEGMENTS, BLOCK_WORDS, MAX_SEGMENTS, SEGMENT_WORDS};
use crate::dma::{BLOCK, Run};
use crate::memory_slice::MemorySlice;
use bareverbs_prm::wqe::{InlineHeader, SEGMENT};

/// What follows the head. At most one of the three is not empty, so the fast paths need not check which.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendData<'a> {
    slices: &'a [MemorySlice],
    inline: InlineData<'a>,
    segments: &'a [u64],
}

impl<'a> SendData<'a> {
    const NONE: Self = Self { slices: &[], inline: InlineData::new(&[]), segments: &[] };

    /// Data in memory that the device accesses.
    #[inline(always)]
    pub(crate) const fn of_slices(slices: &'a [MemorySlice]) -> Self {
        Self { slices, ..Self::NONE }
    }

    /// Data that is copied into the entry.
    #[inline(always)]
    pub(crate) const fn of_bytes(bytes: &'a [u8]) -> Self {
        Self { inline: InlineData::new(bytes), ..Self::NONE }
    }

    /// Complete segments, in memory order.
    pub(crate) const fn of_segments(segments: &'a [u64]) -> Self {
        Self { segments, ..Self::NONE }
    }

    /// Data in memory that the device accesses.
    pub(crate) const fn slices(&self) -> &'a [MemorySlice] {
        self.slices
    }

    /// Data that is copied into the entry.
    pub(crate) const fn inline(&self) -> &InlineData<'a> {
        &self.inline
    }

    /// Complete segments, in memory order.
    pub(crate) const fn segments(&self) -> &'a [u64] {
        self.segments
    }
}

/// How an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EncodePath {
    /// Segment by segment, after checking everything.
    General = 0,
    /// The block of the head is the whole entry: it already contains the only slice.
    Block = 1,
    /// Head, then inline data that is encoded in registers: one block.
    ShortInline = 2,
    /// Head, then more inline data.
    LongInline = 3,
}

/// Number of paths.
const PATHS: usize = 4;
/// Maximum inline bytes after the largest head of the inline paths.
const MAX_INLINE: usize = (MAX_SEGMENTS - LARGEST_INLINE_HEAD) as usize * SEGMENT - InlineHeader::SIZE;
/// Segments of the largest head of the inline paths: control and remote address.
const LARGEST_INLINE_HEAD: u32 = 2;
/// Maximum inline bytes that are encoded in registers.
const MAX_SHORT: usize = 16;

/// An entry of a send queue, except for its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendEntry<'a> {
    pub(crate) head: Head,
    pub(crate) data: SendData<'a>,
    path: EncodePath,
    /// Bytes of data minus one, if the entry has a fast path; the largest number if there are none.
    last_byte: usize,
    /// Segments before the data.
    head_segments: u32,
}

impl<'a> SendEntry<'a> {
    #[inline(always)]
    pub(crate) const fn new(head: Head, data: SendData<'a>) -> Self {
        let head_segments = head.segments();
        let last_byte = data.inline.bytes().len().wrapping_sub(1);
        let mut entry = Self { head, data, path: EncodePath::General, last_byte, head_segments };
        if let [slice] = data.slices
            && head_segments < BLOCK_SEGMENTS
        {
            entry.head = head.with(segment::data(slice));
            entry.last_byte = slice.length.wrapping_sub(1) as usize;
            entry.choose(EncodePath::Block, 1);
        } else if data.slices.is_empty() && data.segments.is_empty() && head_segments <= LARGEST_INLINE_HEAD {
            // Whether there are too many bytes, or none, need not be asked here: the encoder admits neither.
            let is_short = last_byte < MAX_SHORT;
            let path = if is_short { EncodePath::ShortInline } else { EncodePath::LongInline };
            entry.choose(path, inline::inline_segments((last_byte as u32).wrapping_add(1)));
        }
        entry
    }

    /// An entry that consists of the block of its head; the device transfers `length` bytes.
    #[inline(always)]
    pub(crate) const fn of_block(head: Head, length: u32) -> Self {
        let (path, head_segments) = (EncodePath::General, head.segments());
        let last_byte = length.wrapping_sub(1) as usize;
        let mut entry = Self { head, data: SendData::NONE, path, last_byte, head_segments };
        entry.choose(EncodePath::Block, 0);
        entry
    }

    const fn choose(&mut self, path: EncodePath, data_segments: u32) {
        self.path = path;
        self.head.set_entry_segments(self.head_segments + data_segments);
    }

    /// Leaves the fast path: the entry is checked and written segment by segment.
    pub(crate) const fn use_general_path(&mut self) {
        (self.path, self.last_byte) = (EncodePath::General, usize::MAX);
        self.head.set_entry_segments(0);
    }

    /// Basic blocks of an entry that has a fast path.
    #[inline(always)]
    pub(crate) const fn blocks(&self) -> u32 {
        // Rounded up by a shift: the number is small, which the compiler does not know.
        (self.head.entry_segments() + BLOCK_SEGMENTS - 1) >> BLOCK_SEGMENTS.ilog2()
    }

    /// The path on which it is written.
    #[inline(always)]
    pub(crate) const fn path(&self) -> EncodePath {
        self.path
    }

    /// Segments without those that the service adds.
    pub(crate) const fn segments(&self) -> u32 {
        let SendData { slices, inline, segments } = &self.data;
        let inline = match inline.bytes().len() as u32 {
            0 => 0,
            length => inline::inline_segments(length),
        };
        self.head_segments + slices.len() as u32 + inline + (segments.len() / SEGMENT_WORDS) as u32
    }
}

/// What all entries of a send queue have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendEncoder {
    pub(crate) owner: QueuePairBits,
    /// Maximum bytes of data for each path; zero if the path is closed.
    longest: [usize; PATHS],
}

/// The position of an entry.
#[derive(Clone, Copy)]
pub(crate) struct SendPlace<'a> {
    pub(crate) ring: Run<'a, BLOCK>,
    /// Counter of its first basic block.
    pub(crate) counter: u32,
}

impl SendEncoder {
    /// An encoder whose fast paths take a single slice of `longest_slice` bytes, and `longest_inline` inline bytes.
    pub(crate) const fn new(owner: QueuePairBits, longest_slice: u32, longest_inline: u32) -> Self {
        let mut longest = [0; PATHS];
        let inline = if longest_inline as usize > MAX_INLINE { MAX_INLINE } else { longest_inline as usize };
        longest[EncodePath::Block as usize] = longest_slice as usize;
        longest[EncodePath::ShortInline as usize] = inline;
        longest[EncodePath::LongInline as usize] = inline;
        Self { owner, longest }
    }

    /// The same encoder without fast paths.
    pub(crate) const fn without_fast_paths(self) -> Self {
        Self::new(self.owner, 0, 0)
    }

    /// Whether the entry may be written on its fast path.
    #[inline(always)]
    pub(crate) const fn admits(&self, entry: &SendEntry<'_>) -> bool {
        entry.last_byte < self.longest[entry.path as usize]
    }

    /// Writes an entry whose block already contains its slice, and passes the first word as a number and the block
    /// to `then`, which needs the block if it is the `ONLY` one before the doorbell.
    #[inline(always)]
    pub(crate) fn write_block<const ONLY: bool>(
        &self,
        place: SendPlace<'_>,
        entry: &SendEntry<'_>,
        then: impl FnOnce(u64, &[u64; BLOCK_WORDS]),
    ) {
        let control = entry.head.control(place.counter, self.owner);
        let block = place.ring.slot(place.counter);
        let words = entry.head.block(control);
        if ONLY {
            // All words at once: they stay in registers for the doorbell register.
            block.store_first::<BLOCK_WORDS>(&words);
        } else {
            // Word by word, so that each word stays in a register only briefly.
            block.store_word_at(0, control.to_be());
            for (index, word) in entry.head.rest().iter().enumerate() {
                block.store_word_at(index + 1, *word);
            }
        }
        then(control, &words);
    }

    /// Writes an entry with a few inline bytes, and passes the first word as a number and the block to `then`, as
    /// [`Self::write_block`].
    #[inline(always)]
    pub(crate) fn write_short_inline<const ONLY: bool>(
        &self,
        place: SendPlace<'_>,
        entry: &SendEntry<'_>,
        then: impl FnOnce(u64, &[u64; BLOCK_WORDS]),
    ) {
        let data = &entry.data.inline;
        let control = entry.head.control(place.counter, self.owner);
        let [a, b, c, ..] = *entry.head.rest();
        let block = place.ring.slot(place.counter);
        // Most inline requests have eight bytes, a word for the peer.
        let (words, count) = match data.eight() {
            Some([x, y]) => ([x, y, 0], 2),
            None => (inline::short_words(data), 3),
        };
        let [x, y, z] = words;
        // A word more is cheaper than another way to the doorbell register.
        let count = if ONLY { 3 } else { count };
        if entry.head_segments == LARGEST_INLINE_HEAD {
            let words = [control.to_be(), a, b, c, x, y, z, 0];
            if count == 2 {
                block.store_first::<6>(&words)
            } else {
                block.store_first::<7>(&words)
            }
            then(control, &words);
        } else {
            let words = [control.to_be(), a, x, y, z, 0, 0, 0];
            if count == 2 {
                block.store_first::<4>(&words)
            } else {
                block.store_first::<5>(&words)
            }
            then(control, &words);
        }
    }

    /// Writes an entry with more inline bytes, and returns the first word as a number.
    #[inline(always)]
    pub(crate) fn write_long_inline(&self, place: SendPlace<'_>, entry: &SendEntry<'_>) -> u64 {
        let data = &entry.data.inline;
        let control = entry.head.control(place.counter, self.owner);
        let [a, b, c, ..] = *entry.head.rest();
        let block = place.ring.slot(place.counter);
        if entry.head_segments == LARGEST_INLINE_HEAD {
            block.store_first::<4>(&[control.to_be(), a, b, c, 0, 0, 0, 0]);
            inline::write::<32, 28>(place.ring, place.counter, data);
        } else {
            block.store_first::<2>(&[control.to_be(), a, 0, 0, 0, 0, 0, 0]);
            inline::write::<16, 44>(place.ring, place.counter, data);
        }
        control
    }

    /// Writes any entry segment by segment, with `address` after the control segment, and returns its first
    /// word as a number. The entry may wrap around the end of the ring.
    pub(crate) fn write_segments(&self, place: SendPlace<'_>, entry: &SendEntry<'_>, address: &[u64]) -> u64 {
        let mut head = entry.head;
        head.set_entry_segments(entry.segments() + (address.len() / SEGMENT_WORDS) as u32);
        let control = head.control(place.counter, self.owner);
        let (mut block, mut at) = (place.counter, 0);
        let mut put = |word: u64| {
            place.ring.slot(block).store_word_at(at, word);
            at = (at + 1) % BLOCK_WORDS;
            block = block.wrapping_add((at == 0) as u32);
        };
        let (flags, before_data) = head.rest().split_at(1);
        put(control.to_be());
        flags.iter().chain(address).copied().for_each(&mut put);
        let count = (entry.head_segments as usize - 1) * SEGMENT_WORDS;
        before_data.iter().take(count).copied().for_each(&mut put);
        let SendData { slices, inline, segments } = &entry.data;
        slices.iter().flat_map(segment::data).for_each(&mut put);
        if !inline.bytes().is_empty() {
            inline::for_each_word(inline, &mut put);
        }
        segments.iter().copied().for_each(put);
        control
    }
}
