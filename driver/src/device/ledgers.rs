//! Memory of all ledgers of a device, and who has which part of it.
//!
//! It belongs to the device and not to queue pairs: a completion queue may look at a record while its queue pair goes
//! away in another thread. The device is never told its address.

use crate::dma::Dma;
use crate::hal::{DmaMemory, Hal, HalError};
use crate::ledger::{RECORD_WORDS, Range, SLOT_WORDS, Words};
use core::sync::atomic::Ordering;

/// Word of a record that says which words its slots take: first and number.
const EXTENT: usize = 4;

/// Records, then slots.
pub struct Ledgers<M> {
    dma: Dma<M>,
    records: usize,
}

impl<M> Words for Ledgers<M> {
    #[inline(always)]
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.dma.word(index, order).unwrap_or(0)
    }
    #[inline(always)]
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.dma.set_word(index, value, order);
    }
    #[inline(always)]
    fn load_pair(&self, index: usize) -> [u64; 2] {
        self.dma.pair(index).unwrap_or([0; 2])
    }
    #[inline(always)]
    fn store_pair(&self, index: usize, pair: [u64; 2]) {
        self.dma.set_pair(index, pair);
    }
}

/// The part of a queue pair: number of its record, its `user_index`, its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) record: usize,
    pub(crate) user_index: u32,
    pub(crate) send: Range,
    pub(crate) receive: Range,
}

/// There is no record or not enough slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Records,
    Words { needed: usize },
}

impl<M: DmaMemory> Ledgers<M> {
    /// Memory for `records` queue pairs (rounded up to a power of two) and `words` words of slots.
    pub(crate) fn allocate<H: Hal<Dma = M>>(hal: &H, records: u32, words: u32) -> Result<Self, HalError> {
        let records = (records as usize).clamp(1, 1 << 16).next_power_of_two();
        let words = (words as usize).next_multiple_of(8);
        let dma = Dma::allocate(hal, (records * RECORD_WORDS + words) * 8, 4096)?;
        let ledgers = Self { dma, records };
        (0..records).for_each(|record| ledgers.disown(record));
        Ok(ledgers)
    }
}

impl<M> Ledgers<M> {
    /// Records; a power of two.
    #[inline(always)]
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Takes a record and slots for `send` basic blocks and `receive` receives, both powers of two or zero.
    pub(crate) fn take(&self, generation: u32, send: u32, receive: u32) -> Result<Share, Full> {
        let record = (0..self.records).find(|&record| self.extent(record).1 == 0).ok_or(Full::Records)?;
        // Slots of sends are pairs of words: every share begins at an even word.
        let needed = (send as usize * SLOT_WORDS + receive as usize).next_multiple_of(SLOT_WORDS);
        let base = self.gap(needed).ok_or(Full::Words { needed })?;
        self.store(record * RECORD_WORDS + EXTENT, (base as u64) << 32 | needed as u64, Ordering::Relaxed);
        let user_index = generation.wrapping_mul(self.records as u32).wrapping_add(record as u32) & 0xff_ffff;
        let first_receive = (base + send as usize * SLOT_WORDS) as u32;
        let send = Range { base: (base / SLOT_WORDS) as u32, slots: send };
        let receive = Range { base: first_receive, slots: receive };
        Ok(Share { record, user_index, send, receive })
    }

    /// Gives a share back.
    pub(crate) fn give_back(&self, share: Share) {
        self.disown(share.record);
    }

    fn disown(&self, record: usize) {
        self.store(record * RECORD_WORDS, u64::MAX, Ordering::Release);
        self.store(record * RECORD_WORDS + 1, u64::MAX, Ordering::Release);
        self.store(record * RECORD_WORDS + EXTENT, 0, Ordering::Release);
    }

    fn extent(&self, record: usize) -> (usize, usize) {
        let word = self.load(record * RECORD_WORDS + EXTENT, Ordering::Acquire);
        ((word >> 32) as usize, word as u32 as usize)
    }

    /// The first gap of `needed` words between the extents.
    fn gap(&self, needed: usize) -> Option<usize> {
        let end = self.dma.len() / 8;
        let mut base = self.records * RECORD_WORDS;
        while base + needed <= end {
            let hit = (0..self.records)
                .map(|record| self.extent(record))
                .find(|&(start, length)| length != 0 && start < base + needed && base < start + length);
            match hit {
                Some((start, length)) => base = start + length,
                None => return Some(base),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::Boxed;

    #[test]
    fn shares_do_not_overlap_and_gaps_are_used_again() {
        let ledgers = Ledgers { dma: Dma::new(Boxed::new((4 * RECORD_WORDS + 64) * 8)), records: 4 };
        let a = ledgers.take(0, 8, 8).unwrap();
        let b = ledgers.take(1, 8, 0).unwrap();
        assert_eq!((a.record, a.send.base, a.receive.base), (0, 64, 144));
        assert_eq!((b.record, b.user_index, b.send.base), (1, 5, 76));
        assert_eq!(ledgers.take(2, 16, 0), Err(Full::Words { needed: 32 }));
        ledgers.give_back(a);
        let c = ledgers.take(3, 8, 4).unwrap();
        assert_eq!((c.record, c.user_index, c.send.base), (0, 12, 64));
        assert!(ledgers.take(4, 1, 0).is_ok() && ledgers.take(5, 1, 0).is_ok());
        assert_eq!(ledgers.take(6, 1, 0), Err(Full::Records));
    }
}
