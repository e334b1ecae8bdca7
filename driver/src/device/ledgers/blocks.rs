//! A buddy allocator for a row of words: blocks of 2, 4, 8 … words, aligned to their length. Two free halves
//! of a block merge into one free block.
//!
//! Free blocks are marked in bitmaps next to the row, one bit per block of each length, and never in the row
//! itself: a previous owner may still write to its words for a moment.

use crate::ledger::Words;
use core::sync::atomic::{AtomicU32, Ordering};

/// Words of the smallest block.
const SMALLEST: usize = 2;
/// Number of block lengths: enough for a row of 2^32 words.
const ORDERS: usize = 32;

/// The bitmaps, and hints where free blocks may be. Used by one thread at a time.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The first word of the bitmaps.
    at: usize,
    /// Words of the row.
    length: usize,
    /// For each length, the first word of its bitmap that may have a bit set.
    first: [AtomicU32; ORDERS],
}

impl Blocks {
    /// Words for the bitmaps of a row of `length` words.
    pub(super) fn words_of_bits(length: usize) -> usize {
        (0..ORDERS).map(|order| bits_of(length, order)).sum()
    }

    /// A row of `length` words, all of them free. The bitmaps start at word `at`.
    pub(super) fn new(words: &impl Words, at: usize, length: usize) -> Self {
        let blocks = Self { at, length, first: [const { AtomicU32::new(0) }; ORDERS] };
        for word in at..at + Self::words_of_bits(length) {
            words.store(word, 0, Ordering::Relaxed);
        }
        let mut base = 0;
        for order in (0..ORDERS).rev() {
            while length - base >= SMALLEST << order {
                blocks.set_free(words, order, base / (SMALLEST << order));
                base += SMALLEST << order;
            }
        }
        blocks
    }

    /// Allocates `count` words, rounded up to a block. Returns the first one.
    pub(super) fn take(&self, words: &impl Words, count: usize) -> Option<usize> {
        let wanted = order_of(count);
        let (mut order, mut block) =
            (wanted..ORDERS).find_map(|order| Some((order, self.take_free(words, order)?)))?;
        while order > wanted {
            (order, block) = (order - 1, 2 * block);
            self.set_free(words, order, block + 1);
        }
        Some(block * (SMALLEST << order))
    }

    /// Frees what [`Self::take`] returned for the same count. Does nothing if the row has no such block, because both numbers
    /// were kept in memory that others may have written to.
    pub(super) fn give_back(&self, words: &impl Words, base: usize, count: usize) {
        let mut order = order_of(count);
        let size = SMALLEST << order;
        let mut block = base / size;
        if !base.is_multiple_of(size) || block >= self.length / size {
            return;
        }
        while self.take_this(words, order, block ^ 1) {
            (order, block) = (order + 1, block / 2);
        }
        self.set_free(words, order, block);
    }

    /// Takes the first free block of a length.
    fn take_free(&self, words: &impl Words, order: usize) -> Option<usize> {
        let (at, count) = (self.bits_at(order), bits_of(self.length, order));
        let first = self.first[order].load(Ordering::Relaxed) as usize;
        let hit = (first..count).find_map(|word| {
            let bits = words.load(at + word, Ordering::Relaxed);
            (bits != 0).then_some((word, bits))
        });
        self.first[order].store(hit.map_or(count, |(word, _)| word) as u32, Ordering::Relaxed);
        let (word, bits) = hit?;
        words.store(at + word, bits & (bits - 1), Ordering::Relaxed);
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Takes this block, the other half of one in the row, if it is free, and returns whether it was. Even if it lies beyond
    /// the end, the bitmap of its length has a bit for it, which is never set.
    fn take_this(&self, words: &impl Words, order: usize, block: usize) -> bool {
        let at = self.bits_at(order) + block / 64;
        let (bits, bit) = (words.load(at, Ordering::Relaxed), 1 << (block % 64));
        words.store(at, bits & !bit, Ordering::Relaxed);
        bits & bit != 0
    }

    fn set_free(&self, words: &impl Words, order: usize, block: usize) {
        let at = self.bits_at(order) + block / 64;
        words.store(at, words.load(at, Ordering::Relaxed) | 1 << (block % 64), Ordering::Relaxed);
        let first = self.first[order].load(Ordering::Relaxed).min((block / 64) as u32);
        self.first[order].store(first, Ordering::Relaxed);
    }

    fn bits_at(&self, order: usize) -> usize {
        self.at + (0..order).map(|order| bits_of(self.length, order)).sum::<usize>()
    }
}

/// The order of the smallest block that holds `count` words.
fn order_of(count: usize) -> usize {
    count.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize
}

/// Words of the bitmap for the blocks of one length.
fn bits_of(length: usize, order: usize) -> usize {
    (length / (SMALLEST << order)).div_ceil(64)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::vec;
    use std::vec::Vec;

    struct Row(RefCell<Vec<u64>>);

    impl Words for Row {
        fn load(&self, index: usize, _: Ordering) -> u64 {
            self.0.borrow()[index]
        }
        fn store(&self, index: usize, value: u64, _: Ordering) {
            self.0.borrow_mut()[index] = value;
        }
    }

    fn row(length: usize) -> (Row, Blocks) {
        let row = Row(RefCell::new(vec![u64::MAX; 3 + Blocks::words_of_bits(length)]));
        let blocks = Blocks::new(&row, 3, length);
        (row, blocks)
    }

    #[test]
    fn a_row_of_any_length_is_used_up_by_powers_of_two() {
        let (row, blocks) = row(2 + 8 + 32);
        let taken = [8, 1, 16, 16].map(|count| blocks.take(&row, count));
        assert_eq!(taken, [Some(32), Some(40), Some(0), Some(16)]);
        assert_eq!(blocks.take(&row, 1), None);
        blocks.give_back(&row, 40, 1);
        assert_eq!((blocks.take(&row, 4), blocks.take(&row, 2)), (None, Some(40)));
    }

    #[test]
    fn an_empty_row_has_nothing() {
        let (row, blocks) = row(1);
        assert_eq!(blocks.take(&row, 1), None);
    }

    #[test]
    fn a_block_that_the_row_lacks_is_not_given_back() {
        let (row, blocks) = row(64);
        assert_eq!(blocks.take(&row, 64), Some(0));
        let nowhere = [(64, 2), (64, 1), (0, 65), (usize::MAX - 1, 2), (0, u32::MAX as usize)];
        for (base, count) in nowhere.into_iter().chain([(62, 4), (2, 64), (1, 1)]) {
            blocks.give_back(&row, base, count);
            assert_eq!(blocks.take(&row, 1), None, "{count} words from {base}");
        }
        blocks.give_back(&row, 62, 2);
        assert_eq!(blocks.take(&row, 1), Some(62));
    }

    #[test]
    fn looking_for_a_free_block_does_not_begin_at_the_start_each_time() {
        let (row, blocks) = row(1 << 12);
        let all = (0..1 << 11).filter(|_| blocks.take(&row, 2).is_some()).count();
        assert_eq!((all, blocks.take(&row, 2)), (1 << 11, None));
        assert_eq!(blocks.first[0].load(Ordering::Relaxed), 1 << 5);
    }

    proptest! {
        #[test]
        fn blocks_do_not_overlap_and_become_one_again(
            length in 1usize..3000,
            steps in prop::collection::vec((1usize..200, any::<prop::sample::Index>()), 1..200),
        ) {
            let (row, blocks) = row(length);
            let largest = 1 << length.ilog2();
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (count, which) in steps {
                if count % 3 == 0 && !taken.is_empty() {
                    let (base, count) = taken.swap_remove(which.index(taken.len()));
                    blocks.give_back(&row, base, count);
                } else if let Some(base) = blocks.take(&row, count) {
                    prop_assert!(base % 2 == 0 && base + count <= length);
                    prop_assert!(taken.iter().all(|&(other, size)| other + size <= base || base + count <= other));
                    taken.push((base, count));
                }
            }
            taken.iter().for_each(|&(base, count)| blocks.give_back(&row, base, count));
            prop_assert_eq!(blocks.take(&row, largest).is_some(), length > 1);
        }
    }
}
