//! Entries of receive queues: scatter lists with a fixed number of segments, terminated if they are shorter.

use super::MAX_SLICE;
use super::segment::{self, END_OF_LIST, Segment};
use crate::dma::{Run, Window};
use crate::memory_slice::MemorySlice;
use crate::post_error::PostError;
use bareverbs_prm::wqe::SEGMENT;

/// How an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReceivePath {
    /// Segment by segment, after checking everything.
    General,
    /// One slice of a valid length, encoded when the request is built.
    OneSlice,
    /// The path of no request: a queue with this path takes the general path for all.
    Disabled,
}

impl ReceivePath {
    /// The fast path of a queue whose entries have `max_slices`.
    pub(crate) const fn of_queue(max_slices: u32) -> Self {
        if max_slices == 1 { Self::OneSlice } else { Self::Disabled }
    }
}

/// The scatter list of a receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScatterList<'a> {
    pub(crate) slices: &'a [MemorySlice],
    pub(crate) path: ReceivePath,
    /// The only slice, for the one-slice path.
    pub(crate) first: Segment,
}

impl<'a> ScatterList<'a> {
    #[inline(always)]
    pub(crate) const fn new(slices: &'a [MemorySlice]) -> Self {
        let (path, first) = match slices {
            [slice] if slice.length.wrapping_sub(1) < MAX_SLICE => {
                (ReceivePath::OneSlice, segment::data(slice))
            }
            _ => (ReceivePath::General, [0; 2]),
        };
        Self { slices, path, first }
    }

    /// Whether a queue whose receives have at most `limit` slices can take it.
    pub(crate) fn check(&self, limit: u32) -> Result<(), PostError> {
        let count = self.slices.len();
        if count > limit as usize {
            return Err(PostError::TooManySlices { count, limit });
        }
        let wrong = |slice: &&MemorySlice| slice.length.wrapping_sub(1) >= MAX_SLICE;
        match self.slices.iter().zip(0..).find(|(slice, _)| wrong(slice)) {
            Some((slice, index)) => Err(PostError::SliceLength { index, length: slice.length }),
            None => Ok(()),
        }
    }

    /// Writes the slices to the segments from `first` on; an entry has `room` segments for them.
    pub(crate) fn write(&self, segments: Run<'_, SEGMENT>, first: u32, room: u32) {
        for (at, slice) in (first..).zip(self.slices) {
            store_segment(segments, at, segment::data(slice));
        }
        let used = self.slices.len() as u32;
        if used < room {
            store_segment(segments, first.wrapping_add(used), END_OF_LIST);
        }
    }
}

/// Writes a segment.
#[inline(always)]
pub(crate) fn store_segment(segments: Run<'_, SEGMENT>, index: u32, [a, b]: Segment) {
    let window = segments.slot(index);
    window.store_word::<0>(a);
    window.store_word::<8>(b);
}

/// Writes an entry of a shared receive queue that has one slice: the entry that the device takes next, and the
/// slice.
#[inline(always)]
pub(crate) fn store_shared_slice(entry: Window<'_, { 2 * SEGMENT }>, next: u32, [a, b]: Segment) {
    entry.store_word::<0>(segment::next_entry(next));
    entry.store_word::<SEGMENT>(a);
    entry.store_word::<{ SEGMENT + 8 }>(b);
}

/// In an entry of a shared receive queue that begins at segment `first`, names the entry that the device
/// takes next. The rest of that segment is always zero.
#[inline(always)]
pub(crate) fn store_next_entry(segments: Run<'_, SEGMENT>, first: u32, next: u32) {
    segments.slot(first).store_word::<0>(segment::next_entry(next));
}
