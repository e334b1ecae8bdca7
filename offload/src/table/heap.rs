//! The allocator for objects: four size classes per doubling, with a free list each.
//!
//! The lists are threaded through the free pieces themselves, so their length costs nothing. A piece is only written
//! once nobody can be reading it.

use super::{MemoryFault, TableError, TableMemory};
use crate::kernels::kv_layout::{LINE_SIZE, MAX_OBJECT, UNIT};

const CLASSES: usize = class_of(MAX_OBJECT).0 + 1;

/// The class of an object and the bytes that every piece of the class has.
const fn class_of(size: u32) -> (usize, u32) {
    let units = size.div_ceil(UNIT);
    if units <= 8 {
        return (units as usize, units * UNIT);
    }
    let shift = (units - 1).ilog2() - 2;
    let quarters = units.div_ceil(1 << shift);
    (shift as usize * 4 + quarters as usize, (quarters << shift) * UNIT)
}

/// The largest class whose pieces have at most `bytes` bytes; `bytes` is at least one [`UNIT`].
fn class_within(bytes: u64) -> (usize, u32) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(class_of(MAX_OBJECT).1);
    let (class, piece) = class_of(bytes);
    if piece <= bytes {
        return (class, piece);
    }
    // A piece of the next class is larger by at most a quarter of a power of two.
    let units = bytes / UNIT;
    let step = 1 << (units.ilog2() - 2);
    class_of(units / step * step * UNIT)
}

/// The free memory of a table.
#[derive(Debug)]
pub(super) struct Heap {
    /// Offset of the first byte that was never used.
    fresh: u64,
    end: u64,
    /// Offset of the first free piece of each class, zero if there is none.
    heads: [u64; CLASSES],
    listed: u64,
}

impl Heap {
    pub(super) const fn new(begin: u64, end: u64) -> Self {
        Self { fresh: begin.next_multiple_of(UNIT as u64), end, heads: [0; CLASSES], listed: 0 }
    }

    /// Bytes that are free.
    pub(super) const fn free(&self) -> u64 {
        self.end.saturating_sub(self.fresh) + self.listed
    }

    /// Allocates `size` bytes (at most [`MAX_OBJECT`]); `None` if there is no room.
    pub(super) fn take(&mut self, memory: &impl TableMemory, size: u32) -> Result<Option<u64>, MemoryFault> {
        let (class, bytes) = class_of(size);
        let head = self.heads[class];
        if head == 0 {
            return Ok(self.take_fresh(bytes));
        }
        let mut next = [0; 8];
        memory.read(head, &mut next)?;
        self.heads[class] = u64::from_be_bytes(next);
        self.listed -= u64::from(bytes);
        Ok(Some(head))
    }

    fn take_fresh(&mut self, bytes: u32) -> Option<u64> {
        let offset = self.fresh;
        let end = offset.checked_add(bytes.into())?;
        (end <= self.end).then(|| {
            self.fresh = end;
            offset
        })
    }

    /// Allocates never-used bytes in one piece, aligned like a line.
    pub(super) fn take_lines(&mut self, bytes: u64) -> Option<u64> {
        let offset = self.fresh.next_multiple_of(u64::from(LINE_SIZE));
        let end = offset.checked_add(bytes)?;
        (end <= self.end).then(|| {
            self.fresh = end;
            offset
        })
    }

    /// Declares that the bytes from `begin` to `end` were never used.
    pub(super) const fn never_used(&mut self, begin: u64, end: u64) {
        (self.fresh, self.end) = (begin, end);
    }

    /// Frees a range of any size, in pieces as large as possible. Begin and end are multiples of [`UNIT`].
    pub(super) fn give_gap(
        &mut self,
        memory: &mut impl TableMemory,
        begin: u64,
        end: u64,
    ) -> Result<(), TableError> {
        let mut at = begin;
        while at < end {
            let (_, piece) = class_within(end - at);
            self.give(memory, at, piece)?;
            at += u64::from(piece);
        }
        Ok(())
    }

    /// Frees the memory of an object of `size` bytes.
    pub(super) fn give(
        &mut self,
        memory: &mut impl TableMemory,
        offset: u64,
        size: u32,
    ) -> Result<(), TableError> {
        let (class, bytes) = class_of(size);
        memory.write(offset, &self.heads[class].to_be_bytes())?;
        self.heads[class] = offset;
        self.listed += u64::from(bytes);
        Ok(())
    }
}

/// Bytes that an object of `size` bytes really occupies.
pub(super) const fn footprint(size: u32) -> u64 {
    class_of(size).1 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_waste_at_most_a_quarter() {
        let mut last = (0, 0);
        for size in (UNIT..=MAX_OBJECT).step_by(UNIT as usize) {
            let (class, bytes) = class_of(size);
            assert!(bytes >= size && bytes - size <= size / 4, "{size} takes {bytes}");
            assert!(class == last.0 && bytes == last.1 || class == last.0 + 1 && bytes > last.1);
            last = (class, bytes);
        }
        assert_eq!(last.0 + 1, CLASSES);
    }

    #[test]
    fn a_gap_is_cut_into_pieces_that_are_exactly_of_a_class() {
        for units in 1..5000_u64 {
            let bytes = units * u64::from(UNIT);
            let (class, piece) = class_within(bytes);
            assert!(u64::from(piece) <= bytes && class_of(piece) == (class, piece), "{bytes}");
            let larger = (piece + UNIT).min(MAX_OBJECT);
            assert!(u64::from(class_of(larger).1) > bytes || larger <= piece, "{bytes}: not the largest");
        }
    }
}
