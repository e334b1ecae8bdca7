//! Memory of all ledgers of a device, and who has which part of it.
//!
//! It belongs to the device and not to queue pairs: a completion queue may look at a record while its queue pair goes
//! away in another thread. The device is never told its address.

use crate::dma::{Dma, Extent, Run};
use crate::hal::{DmaMemory, Hal, HalError};
use crate::ledger::shared::{self, Entries, SharedRecord, SharedWords};
use crate::ledger::{Pairs, RECORD_WORDS, Range, Record, SLOT_WORDS, Singles, Words};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Word of a record that says which words its slots take: first and number.
const EXTENT: usize = 4;
/// Word of a record that counts how often it was taken.
const TAKEN: usize = 11;
/// What no `user_index` is: entries of queue pairs that were reset have it.
const NOBODY: u32 = 0xff_ffff;
/// Records at most: the number of one and seven bits of generation make the 24 bits of a `user_index`.
const MAX_RECORDS: usize = 1 << 17;
/// Something was given back, so that gaps have to be looked for.
const NO_LONGER: usize = usize::MAX;

/// Records, then slots.
pub struct Ledgers<M> {
    dma: Dma<M>,
    records: usize,
    /// The first word behind all slots that were taken, or [`NO_LONGER`]. Taken from under the lock of the device; whoever
    /// gives back may write it at any time, and if that is lost, gaps are looked for only when the fresh words are used up.
    fresh: AtomicUsize,
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
    fn pairs(&self, base: u32, mask: u32) -> impl Pairs + '_ {
        Each { dma: &self.dma, base, mask }
    }
    #[inline(always)]
    fn singles(&self, base: u32, mask: u32) -> impl Singles + '_ {
        Each { dma: &self.dma, base, mask }
    }
    #[inline(always)]
    fn record(&self, base: u32) -> Option<impl Record + '_> {
        self.dma.extent::<{ RECORD_WORDS * 8 }>(base)
    }
}

impl<M> SharedWords for Ledgers<M> {
    #[inline(always)]
    fn swap(&self, index: usize, new: u64, order: Ordering) -> u64 {
        self.shared_word(index).map_or(0, |word| word.word::<0>().swap(new, order))
    }
    #[inline(always)]
    fn compare_exchange(&self, index: usize, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        let word = self.shared_word(index).ok_or(0u64)?;
        word.word::<0>().compare_exchange(current, new, order, Ordering::Relaxed)
    }
    #[inline(always)]
    fn entries(&self, base: u32, mask: u32) -> Option<impl Entries + '_> {
        self.dma.run::<16>(base, mask)
    }
    #[inline(always)]
    fn shared_record(&self, base: u32) -> Option<impl SharedRecord + '_> {
        self.dma.extent::<{ RECORD_WORDS * 8 }>(base)
    }
}

impl SharedRecord for Extent<'_, { RECORD_WORDS * 8 }> {
    #[inline(always)]
    fn compare_exchange<const W: usize>(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.word::<W>().compare_exchange(current, new, order, Ordering::Relaxed)
    }
}

impl Record for Extent<'_, { RECORD_WORDS * 8 }> {
    #[inline(always)]
    fn load<const W: usize>(&self, order: Ordering) -> u64 {
        self.word::<W>().load(order)
    }
    #[inline(always)]
    fn store<const W: usize>(&self, value: u64, order: Ordering) {
        self.word::<W>().store(value, order);
    }
}

/// Slots for single accesses: each is checked.
struct Each<'a, M> {
    dma: &'a Dma<M>,
    base: u32,
    mask: u32,
}

impl<M> Each<'_, M> {
    #[inline(always)]
    fn at(&self, index: u32) -> usize {
        self.base as usize + (index & self.mask) as usize
    }
}

impl<M> Pairs for Each<'_, M> {
    #[inline(always)]
    fn load(&self, index: u32) -> [u64; 2] {
        self.dma.pair(self.at(index)).unwrap_or([0; 2])
    }
    #[inline(always)]
    fn store(&self, index: u32, pair: [u64; 2]) {
        self.dma.set_pair(self.at(index), pair);
    }
}

impl<M> Singles for Each<'_, M> {
    #[inline(always)]
    fn load(&self, index: u32) -> u64 {
        self.dma.word(self.at(index), Ordering::Relaxed).unwrap_or(0)
    }
    #[inline(always)]
    fn store(&self, index: u32, word: u64) {
        self.dma.set_word(self.at(index), word, Ordering::Relaxed);
    }
}

impl Pairs for Run<'_, 16> {
    #[inline(always)]
    fn load(&self, index: u32) -> [u64; 2] {
        let window = self.slot(index);
        [window.load_word::<0>(), window.load_word::<8>()]
    }
    #[inline(always)]
    fn store(&self, index: u32, [a, b]: [u64; 2]) {
        let window = self.slot(index);
        window.store_word::<0>(a);
        window.store_word::<8>(b);
    }
}

impl Entries for Run<'_, 16> {
    #[inline(always)]
    fn id(&self, entry: u32) -> u64 {
        self.slot(entry).load_word::<0>()
    }
    #[inline(always)]
    fn set_link(&self, entry: u32, link: u64) {
        self.slot(entry).store_word::<8>(link);
    }
    #[inline(always)]
    fn exchange_link(&self, entry: u32, current: u64, new: u64) -> bool {
        let window = self.slot(entry);
        window.word::<8>().compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Singles for Run<'_, 8> {
    #[inline(always)]
    fn load(&self, index: u32) -> u64 {
        self.slot(index).load_word::<0>()
    }
    #[inline(always)]
    fn store(&self, index: u32, word: u64) {
        self.slot(index).store_word::<0>(word);
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
        let records = (records as usize).clamp(1, MAX_RECORDS).next_power_of_two();
        let words = (words as usize).next_multiple_of(8);
        let dma = Dma::allocate(hal, (records * RECORD_WORDS + words) * 8, 4096)?;
        let ledgers = Self { dma, records, fresh: AtomicUsize::new(records * RECORD_WORDS) };
        for record in 0..records {
            ledgers.disown(record);
            shared::clear(&ledgers, record);
            ledgers.store(record * RECORD_WORDS + TAKEN, 0, Ordering::Relaxed);
        }
        Ok(ledgers)
    }
}

impl<M> Ledgers<M> {
    #[inline(always)]
    fn shared_word(&self, index: usize) -> Option<Extent<'_, 8>> {
        self.dma.extent(u32::try_from(index).ok()?)
    }

    /// Records; a power of two.
    #[inline(always)]
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Slots of sends; see [`Words::pairs`].
    #[inline(always)]
    pub(crate) fn send_slots(&self, (base, mask): (u32, u32)) -> Run<'_, 16> {
        self.dma.run(base, mask).unwrap_or_else(Run::nowhere)
    }

    /// Slots of receives; see [`Words::singles`].
    #[inline(always)]
    pub(crate) fn receive_slots(&self, (base, mask): (u32, u32)) -> Run<'_, 8> {
        self.dma.run(base, mask).unwrap_or_else(Run::nowhere)
    }

    /// Takes a record and slots for `send` basic blocks (or entries of a shared receive queue) and `receive` receives,
    /// both powers of two or zero. Records are taken in turns, so that one that became free is taken late: completions
    /// of its queue pair may still be on their way.
    pub(crate) fn take(&self, generation: u32, send: u32, receive: u32) -> Result<Share, Full> {
        let turn = |step: usize| (generation as usize).wrapping_add(step) & (self.records - 1);
        let mut records = (0..self.records).map(turn);
        let record = records.find(|&record| self.extent(record).1 == 0).ok_or(Full::Records)?;
        // Slots of sends are pairs of words: every share begins at an even word.
        // One without slots has words all the same: a record without words is free.
        let slots = (send as usize * SLOT_WORDS + receive as usize).max(1);
        let needed = slots.next_multiple_of(SLOT_WORDS);
        let base = self.take_fresh(needed).or_else(|| self.gap(needed)).ok_or(Full::Words { needed })?;
        self.store(record * RECORD_WORDS + EXTENT, (base as u64) << 32 | needed as u64, Ordering::Relaxed);
        shared::clear(self, record);
        let user_index = self.next_user_index(record);
        let first_receive = (base + send as usize * SLOT_WORDS) as u32;
        let send = Range { base: (base / SLOT_WORDS) as u32, slots: send };
        let receive = Range { base: first_receive, slots: receive };
        Ok(Share { record, user_index, send, receive })
    }

    /// Another name for each time that the record is taken, however the turns go: entries of whoever had it find nobody.
    fn next_user_index(&self, record: usize) -> u32 {
        let word = record * RECORD_WORDS + TAKEN;
        let named = |taken: u64| ((taken as u32).wrapping_mul(self.records as u32) | record as u32) & NOBODY;
        let mut taken = self.load(word, Ordering::Relaxed).wrapping_add(1);
        if named(taken) == NOBODY {
            taken = taken.wrapping_add(1);
        }
        self.store(word, taken, Ordering::Relaxed);
        named(taken)
    }

    /// Gives a share back.
    pub(crate) fn give_back(&self, share: Share) {
        self.fresh.store(NO_LONGER, Ordering::Relaxed);
        self.disown(share.record);
    }

    /// Takes the words from `fresh` on; nothing was given back so far, so that there is no gap before.
    fn take_fresh(&self, needed: usize) -> Option<usize> {
        let base = self.fresh.load(Ordering::Relaxed);
        let next = base.checked_add(needed).filter(|&next| next <= self.dma.len() / 8)?;
        self.fresh.store(next, Ordering::Relaxed);
        Some(base)
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
        let dma = Dma::new(Boxed::new((4 * RECORD_WORDS + 64) * 8));
        let ledgers = Ledgers { dma, records: 4, fresh: AtomicUsize::new(4 * RECORD_WORDS) };
        let a = ledgers.take(0, 8, 8).unwrap();
        let b = ledgers.take(1, 8, 0).unwrap();
        assert_eq!((a.record, a.send.base, a.receive.base), (0, 64, 144));
        assert_eq!((b.record, b.user_index, b.send.base), (1, 5, 76));
        assert_eq!(ledgers.take(2, 16, 0), Err(Full::Words { needed: 32 }));
        ledgers.give_back(a);
        let c = ledgers.take(3, 8, 4).unwrap();
        assert_eq!((c.record, c.user_index, c.send.base), (3, 7, 64), "record 0 was used just now");
        assert!(ledgers.take(4, 1, 0).is_ok() && ledgers.take(5, 1, 0).is_ok());
        assert_eq!(ledgers.take(6, 1, 0), Err(Full::Records));
    }

    #[test]
    fn a_share_without_slots_has_its_record_alone() {
        let dma = Dma::new(Boxed::new((2 * RECORD_WORDS + 64) * 8));
        let ledgers = Ledgers { dma, records: 2, fresh: AtomicUsize::new(2 * RECORD_WORDS) };
        let target = ledgers.take(0, 0, 0).unwrap();
        assert_eq!(ledgers.take(0, 0, 0).unwrap().record, 1);
        assert_eq!(ledgers.take(0, 0, 0), Err(Full::Records));
        ledgers.give_back(target);
        assert_eq!(ledgers.take(0, 0, 0).unwrap().record, target.record);
    }

    #[test]
    fn a_record_has_another_name_each_time() {
        const RECORDS: usize = 4096;
        let dma = Dma::new(Boxed::new((RECORDS * RECORD_WORDS + 64) * 8));
        let ledgers = Ledgers { dma, records: RECORDS, fresh: AtomicUsize::new(RECORDS * RECORD_WORDS) };
        let record = RECORDS as u32 - 1;
        let mut before = None;
        for lap in 0..5000u32 {
            let share = ledgers.take(lap.wrapping_mul(RECORDS as u32).wrapping_add(record), 1, 0).unwrap();
            assert_eq!((share.record, share.user_index & record), (RECORDS - 1, record));
            assert!(share.user_index != NOBODY && Some(share.user_index) != before, "lap {lap}");
            before = Some(share.user_index);
            ledgers.give_back(share);
        }
    }
}
