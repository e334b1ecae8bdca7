//! The only module that accesses DMA memory: bounds-checked copies, single loads and stores, fixed-size windows.
//!
//! A device may change these bytes at any time, so no Rust slice or reference to them ever exists. Every access but one
//! is a relaxed atomic of the processor's native width (one plain instruction on known machines), which neither tears nor
//! is a data race. [`Barrier`](crate::hal::Barrier)s provide ordering where it is needed.
//!
//! **The exception** is inline data, which [`Window::store_bytes`] copies by plain stores that may be wider than a word.
//! Only the device loads these bytes, and it does so after the doorbell, which a barrier precedes. A device that loads
//! them earlier may find them half written, like any other part of an entry.
//!
//! **One access size per word.** Atomic accesses of different sizes to the same bytes are a data race too, if one of
//! them is an unordered store. Memory that several threads access through `&self` (regions, ledgers) is accessed in
//! whole aligned 64-bit words, and by single bytes only where such a word would exceed the memory. Smaller accesses
//! through a [`Window`] are for memory that one thread at a time owns: the rings of an object whose methods take `&mut
//! self`, and device queues behind a lock. The two counters of a doorbell record are two 32-bit numbers, each always
//! accessed as such.

mod private_box;
mod rings;
mod run;
mod user;
mod window;

#[cfg(test)]
mod tests;

pub use crate::memory_slice::RangeError;
pub(crate) use private_box::PrivateBox;
pub(crate) use rings::{BlockRing, Rings};
pub use run::{Run, Twin, Twins};
pub use user::UserMemory;
pub use window::{BLOCK, Extent, Window};

use crate::hal::{DmaMemory, Hal, HalError};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Memory shared with the device, with checked access.
pub struct Dma<M> {
    /// `None` after [`take`](Self::take); nothing is accessible then.
    memory: Option<M>,
    base: NonNull<u8>,
    length: usize,
    /// Whole blocks that can be used through windows: zero if the memory is not aligned to a block.
    blocks: usize,
    /// The same in segments of 16 bytes and in words.
    segments: usize,
    words: usize,
    /// The number of the last word, or zero.
    last_word: usize,
}

// SAFETY: `base` points into `memory`, which the same value owns and which may be sent to another thread.
unsafe impl<M: Send> Send for Dma<M> {}
// SAFETY: methods that several threads may call at once (`copy_in`, `copy_out`, `fill`, `word`, `pair`,
// `atomic`, `Table::row` and their stores) access each word in one size, atomically; a caller that accesses a smaller part
// of a word through a `Window` has the memory to itself (see the module).
unsafe impl<M: Sync> Sync for Dma<M> {}

impl<M: DmaMemory> Dma<M> {
    /// Takes ownership of `memory`.
    pub fn new(memory: M) -> Self {
        let (base, length) = (memory.as_ptr(), memory.len());
        let blocks = if base.as_ptr().addr().is_multiple_of(BLOCK) { length / BLOCK } else { 0 };
        let (segments, words) = (blocks * (BLOCK / 16), blocks * (BLOCK / 8));
        Self {
            memory: Some(memory),
            base,
            length,
            blocks,
            segments,
            words,
            last_word: words.saturating_sub(1),
        }
    }

    /// Allocates `length` zeroed bytes from `hal`.
    pub fn allocate<H: Hal<Dma = M>>(hal: &H, length: usize, alignment: usize) -> Result<Self, HalError> {
        Self::new(hal.allocate_dma(length, alignment)?).of_length(length, alignment)
    }

    /// Allocates `length` zeroed bytes from `hal` that the device cannot reach, if the HAL has such memory.
    pub fn allocate_private<H: Hal<Dma = M>>(
        hal: &H,
        length: usize,
        alignment: usize,
    ) -> Result<Self, HalError> {
        Self::new(hal.allocate_private(length, alignment)?).of_length(length, alignment)
    }

    /// Checks that the memory has the requested bytes, in whole blocks.
    fn of_length(self, length: usize, alignment: usize) -> Result<Self, HalError> {
        let dma = self;
        match dma.length >= length && dma.blocks >= length / BLOCK {
            true => Ok(dma),
            false => Err(HalError::OutOfDmaMemory { length, alignment }),
        }
    }

    /// First address as the device sees it.
    pub fn iova(&self) -> u64 {
        self.memory.as_ref().map_or(0, M::iova)
    }
}

impl<M> Dma<M> {
    /// Takes the memory out and leaves an empty region.
    #[must_use = "memory that the device may reach is freed when this is dropped"]
    pub fn take(&mut self) -> Self {
        let empty = Self {
            memory: None,
            base: NonNull::dangling(),
            length: 0,
            blocks: 0,
            segments: 0,
            words: 0,
            last_word: 0,
        };
        core::mem::replace(self, empty)
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Checks that `length` bytes at `offset` are inside.
    #[inline]
    pub fn check(&self, offset: usize, length: usize) -> Result<(), RangeError> {
        if offset <= self.length && length <= self.length - offset {
            return Ok(());
        }
        Err(RangeError { offset: offset as u64, length: length as u64, region: self.length as u64 })
    }

    /// Copies `bytes` in at `offset`. Other bytes of the same words keep their value, even if another thread
    /// stores to them at the same time.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        let (head, words) = self.split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(words * 8);
        let at = offset + head;
        self.put_part(offset, first);
        for (i, word) in middle.chunks_exact(8).enumerate() {
            self.put64(at + i * 8, word.try_into().map_or(0, u64::from_ne_bytes));
        }
        self.put_part(at + words * 8, last);
        Ok(())
    }

    /// Copies bytes at `offset` out into `buffer`.
    pub fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, buffer.len())?;
        let (head, words) = self.split(offset, buffer.len());
        let (first, rest) = buffer.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * 8);
        let at = offset + head;
        self.get_part(offset, first);
        for (i, word) in middle.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.get64(at + i * 8).to_ne_bytes());
        }
        self.get_part(at + words * 8, last);
        Ok(())
    }

    /// Fills `length` bytes at `offset` with `byte`.
    pub fn fill(&self, offset: usize, length: usize, byte: u8) -> Result<(), RangeError> {
        self.check(offset, length)?;
        let (head, words) = self.split(offset, length);
        let (pattern, at) = ([byte; 8], offset + head);
        self.put_part(offset, &pattern[..head]);
        (0..words).for_each(|i| self.put64(at + i * 8, u64::from_ne_bytes(pattern)));
        self.put_part(at + words * 8, &pattern[..length - head - words * 8]);
        Ok(())
    }

    /// Loads 64 bits in native byte order: in one access if `offset` is aligned, otherwise byte by byte.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        let mut bytes = [0; 8];
        self.copy_out(offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Stores 64 bits in native byte order: in one access if `offset` is aligned, otherwise byte by byte.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        self.copy_in(offset, &value.to_ne_bytes())
    }

    /// The aligned 64-bit word number `index`; `None` beyond the end.
    #[inline(always)]
    pub(crate) fn atomic(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.words {
            return None;
        }
        // SAFETY: `index` is within a whole block of the memory, which is aligned to a block (`Dma::new`).
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index * 8).cast()) })
    }

    /// Loads the aligned 64-bit word number `index` with `order`; `None` beyond the end.
    #[inline(always)]
    pub fn word(&self, index: usize, order: Ordering) -> Option<u64> {
        self.atomic(index).map(|word| word.load(order))
    }

    /// Loads two adjacent words, relaxed; `index` is that of the pair. `None` beyond the end.
    #[inline(always)]
    pub fn pair(&self, index: usize) -> Option<[u64; 2]> {
        self.segment(index).map(|window| [window.load_word::<0>(), window.load_word::<8>()])
    }

    /// Stores two adjacent words, relaxed; `index` is that of the pair. Beyond the end it does nothing and
    /// returns `false`.
    #[inline(always)]
    pub fn set_pair(&self, index: usize, [a, b]: [u64; 2]) -> bool {
        let Some(window) = self.segment(index) else { return false };
        window.store_word::<0>(a);
        window.store_word::<8>(b);
        true
    }

    /// Stores the aligned 64-bit word number `index` with `order`. Beyond the end it does nothing and returns
    /// `false`.
    #[inline(always)]
    pub fn set_word(&self, index: usize, value: u64, order: Ordering) -> bool {
        let Some(word) = self.atomic(index) else { return false };
        word.store(value, order);
        true
    }

    /// Block number `index`; `None` beyond the end.
    #[inline(always)]
    pub fn block(&self, index: usize) -> Option<Window<'_, BLOCK>> {
        if index >= self.blocks {
            return None;
        }
        // SAFETY: the block is within the memory, which is aligned to a block (`Dma::new`).
        let base = unsafe { self.base.add(index * BLOCK) };
        Some(Window { base, memory: PhantomData })
    }

    /// 16-byte segment number `index`; `None` beyond the end.
    #[inline(always)]
    pub fn segment(&self, index: usize) -> Option<Window<'_, 16>> {
        if index >= self.segments {
            return None;
        }
        // SAFETY: the segment is within a whole block of the memory, which is aligned to a block.
        let base = unsafe { self.base.add(index * 16) };
        Some(Window { base, memory: PhantomData })
    }

    /// `mask + 1` slots of `N` bytes from slot `first` on, indexed modulo that number; `None` if they exceed
    /// the memory.
    #[inline(always)]
    pub fn run<const N: usize>(&self, first: u32, mask: u32) -> Option<Run<'_, N>> {
        const { assert!(N == 8 || N == 16 || N == BLOCK) };
        let slots = match N {
            8 => self.words,
            16 => self.segments,
            _ => self.blocks,
        };
        if first as u64 + mask as u64 >= slots as u64 {
            return None;
        }
        // SAFETY: slot `first` is within whole blocks of the memory, which is aligned to a block
        // (`Dma::new`).
        let base = unsafe { self.base.add(first as usize * N) };
        Some(Run { base, mask, memory: PhantomData })
    }

    /// Number of bytes before the first aligned word, and number of whole words; less than a word remains.
    fn split(&self, offset: usize, length: usize) -> (usize, usize) {
        let misaligned = (self.base.as_ptr().addr() + offset) % 8;
        let head = ((8 - misaligned) % 8).min(length);
        (head, (length - head) / 8)
    }

    /// The aligned word that contains the byte at `offset`, and the position of that byte in it; `None` if
    /// part of the word is outside the memory. Such a word is always accessed by bytes, every other word
    /// always as a whole.
    fn word_around(&self, offset: usize) -> Option<(&AtomicU64, usize)> {
        let place = (self.base.as_ptr().addr() + offset) % 8;
        let first = offset.checked_sub(place)?;
        self.check(first, 8).ok()?;
        // SAFETY: `place` makes the word aligned, and the check keeps it within the memory.
        Some((unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(first).cast()) }, place))
    }

    /// Stores a part of one word, relaxed.
    fn put_part(&self, offset: usize, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let Some((word, place)) = self.word_around(offset) else {
            return part.iter().enumerate().for_each(|(i, &byte)| self.put8(offset + i, byte));
        };
        let merge = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes.iter_mut().skip(place).zip(part).for_each(|(byte, &new)| *byte = new);
            Some(u64::from_ne_bytes(bytes))
        };
        // This fails only if `merge` returns `None`, which it never does. It loops if another thread's store
        // came in between.
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }

    /// Loads a part of one word, relaxed.
    fn get_part(&self, offset: usize, part: &mut [u8]) {
        if part.is_empty() {
            return;
        }
        let Some((word, place)) = self.word_around(offset) else {
            return part.iter_mut().enumerate().for_each(|(i, byte)| *byte = self.get8(offset + i));
        };
        let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        part.iter_mut().zip(&bytes[place..]).for_each(|(byte, &old)| *byte = old);
    }

    /// The byte at `offset`, in a word that is partly outside the memory.
    fn get8(&self, offset: usize) -> u8 {
        debug_assert!(offset < self.length);
        // SAFETY: every caller has checked the range; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }.load(Ordering::Relaxed)
    }

    /// Like [`Self::get8`].
    fn put8(&self, offset: usize, value: u8) {
        debug_assert!(offset < self.length);
        // SAFETY: every caller has checked the range; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn get64(&self, offset: usize) -> u64 {
        debug_assert!(offset + 8 <= self.length);
        // SAFETY: every caller has checked the range and found the address aligned with `split`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn put64(&self, offset: usize, value: u64) {
        debug_assert!(offset + 8 <= self.length);
        // SAFETY: every caller has checked the range and found the address aligned with `split`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }.store(value, Ordering::Relaxed);
    }
}

/// Memory that begins with rows of `N` bytes, which were checked once and which every number indexes safely.
pub(crate) struct Table<M, const N: usize> {
    /// Never taken out and never replaced, so that the rows stay where they are.
    dma: Dma<M>,
    /// The offset of the last row, which masks those of all others.
    last: u32,
}

impl<M, const N: usize> Table<M, N> {
    /// A table of `rows`, a power of two, at the start of `dma`. `None` if they do not fit.
    pub(crate) fn new(dma: Dma<M>, rows: u32) -> Option<Self> {
        const { assert!(N.is_power_of_two() && N >= BLOCK) };
        let last = rows.checked_sub(1)?.checked_mul(N as u32)?;
        let fits = rows.is_power_of_two() && rows as usize <= dma.blocks / (N / BLOCK);
        fits.then_some(Self { dma, last })
    }

    /// The memory.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Dma<M> {
        &self.dma
    }

    /// Number of rows.
    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.view().rows()
    }

    /// Row `number`, modulo the number of rows.
    #[inline(always)]
    pub(crate) fn row(&self, number: u32) -> Extent<'_, N> {
        self.view().row_at(number.wrapping_mul(N as u32))
    }

    /// Where rows and words are, for a loop that keeps that in registers.
    #[inline(always)]
    pub(crate) fn view(&self) -> TableView<'_, N> {
        let &Self { dma: Dma { base, last_word, .. }, last } = self;
        TableView { base, last, last_word, memory: PhantomData }
    }
}

/// The rows and the words of a [`Table`].
#[derive(Clone, Copy)]
pub(crate) struct TableView<'a, const N: usize> {
    base: NonNull<u8>,
    last: u32,
    last_word: usize,
    memory: PhantomData<&'a ()>,
}

impl<'a, const N: usize> TableView<'a, N> {
    /// Number of rows.
    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.last as usize / N + 1
    }

    /// The row that has the byte at `offset`, modulo the bytes of all rows.
    #[inline(always)]
    pub(crate) fn row_at(&self, offset: u32) -> Extent<'a, N> {
        let offset = offset & self.last;
        // SAFETY: the number of rows and `N` are powers of two, so the masked offset is that of a row, all of which are
        // within the blocks of the memory (`Table::new`); it is aligned to a block.
        let base = unsafe { self.base.add(offset as usize) };
        Extent { base, memory: PhantomData }
    }

    /// Word number `index`; `None` beyond the end.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> Option<Window<'a, 8>> {
        if index > self.last_word {
            return None;
        }
        // SAFETY: the word is within whole blocks of the memory, which is aligned to a block (`Dma::new`); a table has at
        // least one row (`Table::new`), so `last_word` is a word.
        let base = unsafe { self.base.add(index * 8) };
        Some(Window { base, memory: PhantomData })
    }

    /// Words number `index` and `index + 1`; `None` if the second one is beyond the end.
    #[inline(always)]
    pub(crate) fn two_words(&self, index: usize) -> Option<[Window<'a, 8>; 2]> {
        if index >= self.last_word {
            return None;
        }
        Some([self.word(index)?, self.word(index + 1)?])
    }
}

impl<M> fmt::Debug for Dma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dma").field("length", &self.length).finish_non_exhaustive()
    }
}
