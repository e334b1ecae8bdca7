//! The memory of all ledgers of a device, and its allocation.
//!
//! The memory belongs to the device and not to queue pairs, because a completion queue may read a record
//! while another thread destroys its queue pair. The hardware never learns its address, and cannot reach it
//! if there is an IOMMU ([`Hal::allocate_private`]).

mod blocks;
mod view;

use crate::dma::{Dma, Extent, Run, Table, Twin};
use crate::hal::{DmaMemory, Hal, HalError};
use crate::ledger::shared::{self, Entries, EntrySlot, SharedRecord, SharedWords};
use crate::ledger::{
    Pairs, RECORD_WORDS, Range, Record, RecordPlace, SLOT_WORDS, Singles, Slots, UserIndex, Words, close,
};
use blocks::Blocks;
use core::sync::atomic::{AtomicU32, Ordering};
use view::LedgerView;

/// Words of a record with the ranges of its send and receive slots: first word and count.
const EXTENTS: [usize; 2] = [12, 13];
/// Word of a record with the number of its allocations.
const TAKEN: usize = 11;
/// Word of a free record with the number of the next free record.
const NEXT: usize = 14;
/// No record.
const NONE: u32 = u32::MAX;
/// The number that no `user_index` has, whose field the driver writes into the entries of reset queue pairs.
const NOBODY: u32 = 0xff_ffff;
/// The largest number of records: the record's number and seven bits of generation make the 24 bits of a `user_index`.
const MAX_RECORDS: usize = 1 << 17;

/// Records, then slots, then the bitmap of free slots.
///
/// Allocation happens under the lock of the device; deallocation needs no lock.
pub struct Ledgers<M> {
    table: Table<M, { RECORD_WORDS * 8 }>,
    slots: Blocks,
    /// The first and the last free record, in allocation order.
    free: [AtomicU32; 2],
    /// The record that was freed last; it links to the earlier ones. The next allocation adds them to the
    /// free list.
    returned: AtomicU32,
}

impl<M> Words for Ledgers<M> {
    #[inline(always)]
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.dma().word(index, order).unwrap_or(0)
    }
    #[inline(always)]
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.dma().set_word(index, value, order);
    }
    #[inline(always)]
    fn pairs(&self, base: u32, mask: u32) -> impl Pairs + '_ {
        Each { dma: self.dma(), base, mask }
    }
    #[inline(always)]
    fn singles(&self, base: u32, mask: u32) -> impl Singles + '_ {
        Each { dma: self.dma(), base, mask }
    }
    #[inline(always)]
    fn pair(&self, word: usize) -> Option<impl Fn() -> [u64; 2]> {
        self.view().pair_at(word)
    }
    #[inline(always)]
    fn single(&self, word: usize) -> Option<impl Fn() -> u64> {
        self.view().single_at(word)
    }
    #[inline(always)]
    fn record(&self, number: u32) -> Option<impl Record + '_> {
        Some(self.table.row(number))
    }
    #[inline(always)]
    fn record_at(&self, place: RecordPlace) -> Option<impl Record + '_> {
        Some(self.table.view().row_at(place.shifted()))
    }
    #[inline(always)]
    fn record_of(&self, user_index: UserIndex, _: usize) -> Option<impl Record + '_> {
        Some(self.view().find(user_index))
    }
}

impl<M> SharedWords for Ledgers<M> {
    #[inline(always)]
    fn swap(&self, index: usize, new: u64, order: Ordering) -> u64 {
        self.dma().atomic(index).map_or(0, |word| word.swap(new, order))
    }
    #[inline(always)]
    fn compare_exchange(&self, index: usize, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        let word = self.dma().atomic(index).ok_or(0u64)?;
        word.compare_exchange(current, new, order, Ordering::Relaxed)
    }
    #[inline(always)]
    fn entries(&self, base: u32, mask: u32) -> Option<impl Entries + '_> {
        self.dma().run::<16>(base, mask)
    }
    #[inline(always)]
    fn shared_record(&self, number: u32) -> Option<impl SharedRecord + '_> {
        Some(self.table.row(number))
    }
    #[inline(always)]
    fn shared_record_at(&self, place: RecordPlace) -> Option<impl SharedRecord + '_> {
        Some(self.table.view().row_at(place.shifted()))
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

/// Slots for single accesses, each bounds-checked.
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
    fn set_id(&self, entry: u32, id: u64) {
        self.slot(entry).store_word::<0>(id);
    }
    #[inline(always)]
    fn link(&self, entry: u32) -> u64 {
        self.slot(entry).load_word::<8>()
    }
    #[inline(always)]
    fn set_link(&self, entry: u32, link: u64, order: Ordering) {
        self.slot(entry).word::<8>().store(link, order);
    }
    #[inline(always)]
    fn exchange_link(&self, entry: u32, current: u64, new: u64) -> Option<u64> {
        let window = self.within(entry)?;
        window.word::<8>().compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(window.load_word::<0>())
    }
}

impl<const N: usize> EntrySlot for Twin<'_, 16, N> {
    #[inline(always)]
    fn link(&self) -> u64 {
        self.first().load_word::<8>()
    }
    #[inline(always)]
    fn store(&self, id: u64, link: u64, order: Ordering) {
        let window = self.first();
        window.store_word::<0>(id);
        window.word::<8>().store(link, order);
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

/// The allocation of a queue pair: the number of its record, its `user_index`, its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) record: usize,
    pub(crate) user_index: UserIndex,
    pub(crate) send: Range,
    pub(crate) receive: Range,
}

/// No record is free, or not enough slots are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Records,
    Words { needed: usize },
}

/// Memory for a number of records and slot words, in whole blocks.
fn bytes(records: usize, words: usize) -> usize {
    8 * (records * RECORD_WORDS + words + Blocks::words_of_bits(words)).next_multiple_of(8)
}

impl<M: DmaMemory> Ledgers<M> {
    /// Allocates memory for `records` queue pairs (rounded up to a power of two) and `words` slot words.
    pub(crate) fn allocate<H: Hal<Dma = M>>(hal: &H, records: u32, words: u32) -> Result<Self, HalError> {
        let records = (records as usize).clamp(1, MAX_RECORDS).next_power_of_two();
        let words = (words as usize).next_multiple_of(8);
        let length = bytes(records, words);
        let short = HalError::OutOfDmaMemory { length, alignment: 4096 };
        Self::new(Dma::allocate_private(hal, length, 4096)?, records, words).ok_or(short)
    }
}

impl<M> Ledgers<M> {
    #[inline(always)]
    fn dma(&self) -> &Dma<M> {
        self.table.memory()
    }

    /// Number of records; a power of two.
    #[inline(always)]
    pub(crate) fn records(&self) -> usize {
        self.table.rows()
    }

    /// Where everything is, for a loop that keeps that in registers.
    #[inline(always)]
    pub(crate) fn view(&self) -> LedgerView<'_> {
        LedgerView::new(self.table.view())
    }

    /// Send slots; see [`Words::pairs`].
    #[inline(always)]
    pub(crate) fn send_slots(&self, slots: Slots) -> Run<'_, 16> {
        self.dma().run(slots.base as u32, slots.mask).unwrap_or_else(Run::nowhere)
    }

    /// Receive slots; see [`Words::singles`].
    #[inline(always)]
    pub(crate) fn receive_slots(&self, slots: Slots) -> Run<'_, 8> {
        self.dma().run(slots.base as u32, slots.mask).unwrap_or_else(Run::nowhere)
    }

    /// `None` if the records do not fit.
    fn new(dma: Dma<M>, records: usize, words: usize) -> Option<Self> {
        let row = First(&dma, records * RECORD_WORDS);
        let slots = Blocks::new(&row, words, words);
        let none = [const { AtomicU32::new(NONE) }; 2];
        let table = Table::new(dma, records as u32)?;
        let ledgers = Self { table, slots, free: none, returned: AtomicU32::new(NONE) };
        for record in 0..records {
            close(&ledgers, record);
            shared::clear(&ledgers, record);
            ledgers.store(record * RECORD_WORDS + TAKEN, 0, Ordering::Relaxed);
            ledgers.append(record as u32);
        }
        Some(ledgers)
    }

    /// Allocates a record, and slots for `send` basic blocks (or entries of a shared receive queue) and `receive` receives,
    /// both powers of two or zero. The record that was freed last is allocated last, because completions of its queue pair may
    /// still arrive.
    pub(crate) fn take(&self, send: u32, receive: u32) -> Result<Share, Full> {
        self.collect();
        let record = self.free[0].load(Ordering::Relaxed);
        if record == NONE {
            return Err(Full::Records);
        }
        let [sends, receives] = self.take_slots([send as usize * SLOT_WORDS, receive as usize])?;
        self.free[0].store(
            self.load(record as usize * RECORD_WORDS + NEXT, Ordering::Relaxed) as u32,
            Ordering::Relaxed,
        );
        let record = record as usize;
        for (word, (base, count)) in EXTENTS.into_iter().zip([sends, receives]) {
            self.store(record * RECORD_WORDS + word, (base as u64) << 32 | count as u64, Ordering::Relaxed);
        }
        shared::clear(self, record);
        let user_index = self.next_user_index(record);
        let send = Range { base: (sends.0 / SLOT_WORDS) as u32, slots: send };
        Ok(Share { record, user_index, send, receive: Range { base: receives.0 as u32, slots: receive } })
    }

    /// Allocates words for both sides, numbered from the start of the memory. Allocates either everything or
    /// nothing.
    fn take_slots(&self, [send, receive]: [usize; 2]) -> Result<[(usize, usize); 2], Full> {
        let (row, needed) = (self.row(), send + receive);
        let take = |count| match count {
            0 => Some(row.1),
            _ => Some(row.1 + self.slots.take(&row, count)?),
        };
        let sends = take(send).ok_or(Full::Words { needed })?;
        let Some(receives) = take(receive) else {
            self.give_back_slots(sends, send);
            return Err(Full::Words { needed });
        };
        Ok([(sends, send), (receives, receive)])
    }

    fn give_back_slots(&self, base: usize, count: usize) {
        let row = self.row();
        if count > 0
            && let Some(base) = base.checked_sub(row.1)
        {
            self.slots.give_back(&row, base, count);
        }
    }

    /// The words after the records.
    fn row(&self) -> First<'_, M> {
        First(self.dma(), self.records() * RECORD_WORDS)
    }

    /// Adds the returned records to the free list.
    fn collect(&self) {
        let mut record = self.returned.swap(NONE, Ordering::Acquire);
        // Bounded by the number of records: if something else has corrupted the list into a cycle, the loop
        // still ends.
        for _ in 0..self.records() {
            if record as usize >= self.records() {
                break;
            }
            let word = |word| self.load(record as usize * RECORD_WORDS + word, Ordering::Relaxed);
            let (next, extents) = (word(NEXT) as u32, EXTENTS.map(word));
            for extent in extents {
                self.give_back_slots((extent >> 32) as usize, extent as u32 as usize);
            }
            self.append(record);
            record = next;
        }
    }

    /// Appends a record to the free list.
    fn append(&self, record: u32) {
        self.store(record as usize * RECORD_WORDS + NEXT, NONE.into(), Ordering::Relaxed);
        let [first, last] = &self.free;
        match first.load(Ordering::Relaxed) {
            NONE => first.store(record, Ordering::Relaxed),
            _ => {
                let before = last.load(Ordering::Relaxed) as usize;
                self.store(before * RECORD_WORDS + NEXT, record.into(), Ordering::Relaxed);
            }
        }
        last.store(record, Ordering::Relaxed);
    }

    /// A new `user_index` for each allocation of the record, so that completion entries of its earlier owner
    /// match no queue pair.
    fn next_user_index(&self, record: usize) -> UserIndex {
        let word = record * RECORD_WORDS + TAKEN;
        let named =
            |taken: u64| ((taken as u32).wrapping_mul(self.records() as u32) | record as u32) & NOBODY;
        let mut taken = self.load(word, Ordering::Relaxed).wrapping_add(1);
        if named(taken) == NOBODY {
            taken = taken.wrapping_add(1);
        }
        self.store(word, taken, Ordering::Relaxed);
        UserIndex::new(named(taken))
    }

    /// Frees an allocation. The next allocation may reuse it.
    pub(crate) fn give_back(&self, share: Share) {
        close(self, share.record);
        let record = share.record as u32;
        let mut before = self.returned.load(Ordering::Relaxed);
        loop {
            self.store(share.record * RECORD_WORDS + NEXT, before.into(), Ordering::Relaxed);
            match self.returned.compare_exchange_weak(before, record, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }
}

/// The words from a given one on.
struct First<'a, M>(&'a Dma<M>, usize);

impl<M> Words for First<'_, M> {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.word(self.1 + index, order).unwrap_or(0)
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0.set_word(self.1 + index, value, order);
    }
}

#[cfg(test)]
mod tests;
