//! The only place that touches DMA memory: bounds-checked copies, single loads and stores, windows of fixed size.
//!
//! A device may change these bytes at any time, so there is never a Rust slice or reference to them. Every access is a
//! relaxed atomic of the processor's own width (one plain instruction on the machines we know), which neither tears nor
//! is a data race; what must be ordered is ordered by [`Barrier`](crate::hal::Barrier)s.

use crate::hal::{DmaMemory, Hal, HalError};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes of the largest window; memory that is used through windows must be aligned to it.
pub const BLOCK: usize = 64;

/// An access that leaves a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeError {
    /// First byte of the access.
    pub offset: u64,
    /// Bytes of the access.
    pub length: u64,
    /// Bytes of the region.
    pub region: u64,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, length, region } = self;
        write!(f, "access of {length} bytes at offset {offset} leaves the region of {region} bytes")
    }
}

impl core::error::Error for RangeError {}

/// Memory shared with the device, with checked access.
pub struct Dma<M> {
    /// Gone after [`take`](Self::take); nothing can be reached then.
    memory: Option<M>,
    base: NonNull<u8>,
    length: usize,
    /// Whole blocks that can be used through windows: zero if the memory is not aligned to a block.
    blocks: usize,
    /// The same in segments of 16 bytes and in words.
    segments: usize,
    words: usize,
}

// SAFETY: the pointer is owned together with `memory` (contract of `DmaMemory`), and every access through it is atomic.
unsafe impl<M: Send> Send for Dma<M> {}
// SAFETY: as above; shared access from several threads is a set of atomic operations.
unsafe impl<M: Sync> Sync for Dma<M> {}

impl<M: DmaMemory> Dma<M> {
    /// Takes charge of `memory`.
    pub fn new(memory: M) -> Self {
        let (base, length) = (memory.as_ptr(), memory.len());
        let blocks = if base.as_ptr().addr().is_multiple_of(BLOCK) { length / BLOCK } else { 0 };
        let (segments, words) = (blocks * (BLOCK / 16), blocks * (BLOCK / 8));
        Self { memory: Some(memory), base, length, blocks, segments, words }
    }

    /// Allocates `length` zeroed bytes from `hal`.
    pub fn allocate<H: Hal<Dma = M>>(hal: &H, length: usize, alignment: usize) -> Result<Self, HalError> {
        let dma = Self::new(hal.allocate_dma(length, alignment)?);
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
    /// Takes the memory out and leaves a region of no bytes.
    #[must_use = "memory that the device may reach is freed when this is dropped"]
    pub fn take(&mut self) -> Self {
        let empty =
            Self { memory: None, base: NonNull::dangling(), length: 0, blocks: 0, segments: 0, words: 0 };
        core::mem::replace(self, empty)
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Checks that `length` bytes at `offset` are inside.
    #[inline]
    pub fn check(&self, offset: usize, length: usize) -> Result<(), RangeError> {
        if offset <= self.length && length <= self.length - offset {
            return Ok(());
        }
        Err(RangeError { offset: offset as u64, length: length as u64, region: self.length as u64 })
    }

    /// Copies `bytes` in at `offset`.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        let (head, words, tail) = self.split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(words * 8);
        first.iter().enumerate().for_each(|(i, &b)| self.put8(offset + i, b));
        let at = offset + head;
        for (i, word) in middle.chunks_exact(8).enumerate() {
            self.put64(at + i * 8, word.try_into().map_or(0, u64::from_ne_bytes));
        }
        debug_assert_eq!(last.len(), tail);
        last.iter().enumerate().for_each(|(i, &b)| self.put8(at + words * 8 + i, b));
        Ok(())
    }

    /// Copies bytes at `offset` out into `buffer`.
    pub fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, buffer.len())?;
        let (head, words, _) = self.split(offset, buffer.len());
        let (first, rest) = buffer.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * 8);
        first.iter_mut().enumerate().for_each(|(i, b)| *b = self.get8(offset + i));
        let at = offset + head;
        for (i, word) in middle.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.get64(at + i * 8).to_ne_bytes());
        }
        last.iter_mut().enumerate().for_each(|(i, b)| *b = self.get8(at + words * 8 + i));
        Ok(())
    }

    /// Fills `length` bytes at `offset` with `byte`.
    pub fn fill(&self, offset: usize, length: usize, byte: u8) -> Result<(), RangeError> {
        self.check(offset, length)?;
        let (head, words, tail) = self.split(offset, length);
        (0..head).for_each(|i| self.put8(offset + i, byte));
        let at = offset + head;
        (0..words).for_each(|i| self.put64(at + i * 8, u64::from_ne_bytes([byte; 8])));
        (0..tail).for_each(|i| self.put8(at + words * 8 + i, byte));
        Ok(())
    }

    /// Loads 64 bits in the processor's byte order; at once if `offset` is aligned, byte by byte if not.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        let mut bytes = [0; 8];
        self.copy_out(offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Stores 64 bits in the processor's byte order; at once if `offset` is aligned, byte by byte if not.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        self.copy_in(offset, &value.to_ne_bytes())
    }

    /// Loads the aligned 64-bit word number `index` with `order`; `None` beyond the end.
    #[inline(always)]
    pub fn word(&self, index: usize, order: Ordering) -> Option<u64> {
        if index >= self.words {
            return None;
        }
        // SAFETY: `index` lies inside a whole block of the memory, which is aligned to a block (`Dma::new`).
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index * 8).cast()) }.load(order))
    }

    /// Loads two neighbouring words, relaxed; `index` is that of the pair. `None` beyond the end.
    #[inline(always)]
    pub fn pair(&self, index: usize) -> Option<[u64; 2]> {
        self.segment(index).map(|window| [window.load_word::<0>(), window.load_word::<8>()])
    }

    /// Stores two neighbouring words, relaxed; `index` is that of the pair. Does nothing beyond the end and says so.
    #[inline(always)]
    pub fn set_pair(&self, index: usize, [a, b]: [u64; 2]) -> bool {
        let Some(window) = self.segment(index) else { return false };
        window.store_word::<0>(a);
        window.store_word::<8>(b);
        true
    }

    /// Stores the aligned 64-bit word number `index` with `order`; does nothing beyond the end and says so.
    #[inline(always)]
    pub fn set_word(&self, index: usize, value: u64, order: Ordering) -> bool {
        if index >= self.words {
            return false;
        }
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index * 8).cast()) }.store(value, order);
        true
    }

    /// The block number `index`; `None` beyond the end.
    #[inline(always)]
    pub fn block(&self, index: usize) -> Option<Window<'_, BLOCK>> {
        if index >= self.blocks {
            return None;
        }
        // SAFETY: the block lies inside the memory, which is aligned to a block (`Dma::new`).
        let base = unsafe { self.base.add(index * BLOCK) };
        Some(Window { base, memory: PhantomData })
    }

    /// The `N` bytes from the aligned word number `index` on, checked at once; `None` if they leave the memory. Their
    /// offsets are aligned, they as a whole to a word only.
    #[inline(always)]
    pub fn extent<const N: usize>(&self, index: u32) -> Option<Extent<'_, N>> {
        if index as u64 + N as u64 / 8 > self.words as u64 {
            return None;
        }
        // SAFETY: the words lie inside whole blocks of the memory, which is aligned to a block.
        let base = unsafe { self.base.add(index as usize * 8) };
        Some(Extent { base, memory: PhantomData })
    }

    /// The 16-byte segment number `index`; `None` beyond the end.
    #[inline(always)]
    pub fn segment(&self, index: usize) -> Option<Window<'_, 16>> {
        if index >= self.segments {
            return None;
        }
        // SAFETY: the segment lies inside a whole block of the memory, which is aligned to a block.
        let base = unsafe { self.base.add(index * 16) };
        Some(Window { base, memory: PhantomData })
    }

    /// `mask + 1` slots of `N` bytes from slot `first` on, for numbers modulo that; `None` if they leave the memory.
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
        // SAFETY: slot `first` lies inside whole blocks of the memory, which is aligned to a block (`Dma::new`).
        let base = unsafe { self.base.add(first as usize * N) };
        Some(Run { base, mask, memory: PhantomData })
    }

    /// Bytes before the first aligned word, words, bytes after the last one.
    fn split(&self, offset: usize, length: usize) -> (usize, usize, usize) {
        let misaligned = (self.base.as_ptr().addr() + offset) % 8;
        let head = ((8 - misaligned) % 8).min(length);
        (head, (length - head) / 8, (length - head) % 8)
    }

    #[inline(always)]
    fn get8(&self, offset: usize) -> u8 {
        debug_assert!(offset < self.length);
        // SAFETY: every caller has checked the range; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
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

impl<M> fmt::Debug for Dma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dma").field("length", &self.length).finish_non_exhaustive()
    }
}

/// `N` bytes, checked once, aligned to a word, for loads and stores that are ordered.
#[derive(Clone, Copy)]
pub struct Extent<'a, const N: usize> {
    base: NonNull<u8>,
    memory: PhantomData<&'a ()>,
}

impl<const N: usize> Extent<'_, N> {
    /// Word `W`.
    #[inline(always)]
    pub fn word<const W: usize>(&self) -> &AtomicU64 {
        const { assert!(W < N / 8) };
        // SAFETY: word `W` is inside; all are aligned (`Dma::extent`) and only ever accessed by atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(W * 8).cast()) }
    }
}

/// A block that is nobody's: where runs lead that are no more.
#[repr(align(64))]
struct Nowhere([AtomicU64; BLOCK / 8]);
static NOWHERE: Nowhere = Nowhere([const { AtomicU64::new(0) }; BLOCK / 8]);

/// Slots of `N` bytes, checked once, aligned to `N`: every number leads into them.
#[derive(Clone, Copy)]
pub struct Run<'a, const N: usize> {
    base: NonNull<u8>,
    /// Slots but one; numbers are masked with it.
    mask: u32,
    memory: PhantomData<&'a ()>,
}

impl<'a, const N: usize> Run<'a, N> {
    /// One slot that is nobody's.
    #[cold]
    #[inline(never)]
    pub(crate) fn nowhere() -> Self {
        const { assert!(N <= BLOCK) };
        Self { base: NonNull::from(&NOWHERE.0).cast(), mask: 0, memory: PhantomData }
    }

    /// The slot number `index`, masked.
    #[inline(always)]
    pub fn slot(&self, index: u32) -> Window<'a, N> {
        // SAFETY: the masked number is at most `mask`, and `mask + 1` slots were checked (`Dma::run`) or are one
        // (`nowhere`).
        let base = unsafe { self.base.add((index & self.mask) as usize * N) };
        Window { base, memory: PhantomData }
    }
}

/// Memory of a queue: a ring of segments, a ring of blocks, and the block of the doorbell record.
pub(crate) struct Rings<M> {
    /// What the others lead into. They are private, and given out for the time of a borrow only.
    dma: Dma<M>,
    segments: Run<'static, 16>,
    blocks: Run<'static, BLOCK>,
    record: Run<'static, BLOCK>,
}

// SAFETY: the runs lead into `dma`, which they are owned together with, or to a static; every access is atomic.
unsafe impl<M: Send> Send for Rings<M> {}
// SAFETY: as above; shared access from several threads is a set of atomic operations.
unsafe impl<M: Sync> Sync for Rings<M> {}

impl<M> Rings<M> {
    /// Lays out `dma`: `segments` (in whole blocks, or none), `blocks`, the record. Both are powers of two. `None` if
    /// they do not fit.
    pub(crate) fn new(dma: Dma<M>, segments: u32, blocks: u32) -> Option<Self> {
        let first = segments / (BLOCK as u32 / 16);
        let record = forget_borrow(dma.run(first.checked_add(blocks)?, 0)?);
        let blocks = forget_borrow(dma.run(first, blocks.checked_sub(1)?)?);
        let segments = forget_borrow(dma.run(0, segments.saturating_sub(1))?);
        Some(Self { dma, segments, blocks, record })
    }

    /// Takes the memory out; the rings lead nowhere then.
    pub(crate) fn take(&mut self) -> Dma<M> {
        (self.segments, self.blocks, self.record) = (Run::nowhere(), Run::nowhere(), Run::nowhere());
        self.dma.take()
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Dma<M> {
        &self.dma
    }

    /// The ring of segments.
    #[inline(always)]
    pub(crate) fn segments(&self) -> Run<'_, 16> {
        self.segments
    }

    /// The ring of blocks.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> Run<'_, BLOCK> {
        self.blocks
    }

    /// The block of the doorbell record.
    #[inline(always)]
    pub(crate) fn record(&self) -> Window<'_, BLOCK> {
        Window { base: self.record.base, memory: PhantomData }
    }
}

fn forget_borrow<const N: usize>(run: Run<'_, N>) -> Run<'static, N> {
    Run { base: run.base, mask: run.mask, memory: PhantomData }
}

/// `N` bytes of DMA memory, checked once, aligned to `N`. Offsets inside are constants checked by the compiler.
#[derive(Clone, Copy)]
pub struct Window<'a, const N: usize> {
    base: NonNull<u8>,
    memory: PhantomData<&'a ()>,
}

impl<const N: usize> Window<'_, N> {
    /// Loads the byte at `O`.
    #[inline(always)]
    pub fn load_u8<const O: usize>(&self) -> u8 {
        const { assert!(O < N) };
        // SAFETY: the window has `N` bytes; `O` is inside.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(O)) }.load(Ordering::Relaxed)
    }

    /// Loads the big-endian 16-bit number at `O`.
    #[inline(always)]
    pub fn load_be16<const O: usize>(&self) -> u16 {
        const { assert!(O + 2 <= N && O.is_multiple_of(2)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        u16::from_be(unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(O).cast()) }.load(Ordering::Relaxed))
    }

    /// Loads 32 bits at `O` in memory order.
    #[inline(always)]
    pub fn load_raw32<const O: usize>(&self) -> u32 {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(O).cast()) }.load(Ordering::Relaxed)
    }

    /// Loads the big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn load_be32<const O: usize>(&self) -> u32 {
        u32::from_be(self.load_raw32::<O>())
    }

    /// Stores a big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn store_be32<const O: usize>(&self, value: u32) {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        // SAFETY: as in `load_raw32`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(O).cast()) }
            .store(value.to_be(), Ordering::Relaxed);
    }

    /// Loads the big-endian 64-bit number at `O`.
    #[inline(always)]
    pub fn load_be64<const O: usize>(&self) -> u64 {
        u64::from_be(self.load_word::<O>())
    }

    /// Stores a big-endian 64-bit number at `O`.
    #[inline(always)]
    pub fn store_be64<const O: usize>(&self, value: u64) {
        self.store_word::<O>(value.to_be());
    }

    /// Loads 64 bits at `O` in memory order.
    #[inline(always)]
    pub fn load_word<const O: usize>(&self) -> u64 {
        const { assert!(O + 8 <= N && O.is_multiple_of(8)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(O).cast()) }.load(Ordering::Relaxed)
    }

    /// Stores 64 bits at `O` in memory order.
    #[inline(always)]
    pub fn store_word<const O: usize>(&self, value: u64) {
        const { assert!(O + 8 <= N && O.is_multiple_of(8)) };
        // SAFETY: as in `load_word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(O).cast()) }.store(value, Ordering::Relaxed);
    }
}

impl Window<'_, 64> {
    /// Stores the first `K` words of a block, in memory order.
    #[inline(always)]
    pub fn store_first<const K: usize>(&self, words: &[u64; 8]) {
        const { assert!(K <= 8) };
        let put = |index: usize| {
            // SAFETY: the window is aligned to 64 and has 64 bytes; `index` is below `K`, which is at most 8.
            unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index * 8).cast()) }
                .store(words[index], Ordering::Relaxed)
        };
        (0..K).for_each(put);
    }

    /// Stores word number `index` of the block, modulo 8, in memory order.
    #[inline(always)]
    pub fn store_word_at(&self, index: usize, word: u64) {
        // SAFETY: the window is aligned to 64 and has 64 bytes; the number is below 8.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index % 8 * 8).cast()) }
            .store(word, Ordering::Relaxed)
    }

    /// Loads a whole block, eight words in memory order.
    #[inline(always)]
    pub fn load(&self) -> [u64; 8] {
        [
            self.load_word::<0>(),
            self.load_word::<8>(),
            self.load_word::<16>(),
            self.load_word::<24>(),
            self.load_word::<32>(),
            self.load_word::<40>(),
            self.load_word::<48>(),
            self.load_word::<56>(),
        ]
    }

    /// Copies the block out as bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (out, word) in bytes.chunks_exact_mut(8).zip(self.load()) {
            out.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Memory of the caller that the device may reach until this is dropped; see [`Hal::map_user`].
pub struct UserMemory<M>(M);

impl<M: DmaMemory> UserMemory<M> {
    /// Lets the device behind `hal` reach `length` bytes at `start`.
    ///
    /// # Safety
    /// As for [`Hal::map_user`]: the memory must stay valid until the returned value, or the region made of it, is
    /// dropped, and nobody may hold a reference to it while the device may access it.
    pub unsafe fn map<H: Hal<Dma = M>>(hal: &H, start: NonNull<u8>, length: usize) -> Result<Self, HalError> {
        // SAFETY: the caller promises what `map_user` asks for.
        unsafe { hal.map_user(start, length) }.map(Self)
    }

    /// The mapped memory.
    pub fn into_inner(self) -> M {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::Boxed;

    #[test]
    fn copies_at_every_alignment() {
        let dma = Dma::new(Boxed::new(256));
        let bytes: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
        for offset in 0..16 {
            for length in 0..40 {
                dma.fill(0, 256, 0xee).unwrap();
                dma.copy_in(offset, &bytes[..length]).unwrap();
                let mut out = [0; 60];
                dma.copy_out(0, &mut out).unwrap();
                assert_eq!(&out[offset..offset + length], &bytes[..length]);
                assert!(out[..offset].iter().chain(&out[offset + length..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn what_leaves_the_region_is_refused() {
        let dma = Dma::new(Boxed::new(128));
        assert!(dma.copy_in(121, &[0; 8]).is_err());
        assert!(dma.copy_out(usize::MAX, &mut [0; 8]).is_err());
        assert!(dma.load_u64(120).is_ok());
        assert_eq!(dma.store_u64(121, 0), Err(RangeError { offset: 121, length: 8, region: 128 }));
        assert!(dma.block(1).is_some() && dma.block(2).is_none());
        assert!(dma.segment(7).is_some() && dma.segment(8).is_none());
        assert!(dma.word(15, Ordering::Relaxed).is_some() && dma.word(16, Ordering::Relaxed).is_none());
        assert!(!dma.set_word(16, 1, Ordering::Relaxed));
    }

    #[test]
    fn nothing_is_reached_where_the_memory_was_taken() {
        let mut dma = Dma::new(Boxed::new(128));
        let taken = dma.take();
        assert!(taken.copy_in(0, &[1; 128]).is_ok());
        assert!(dma.copy_in(0, &[1]).is_err() && dma.copy_in(0, &[]).is_ok());
        assert!(
            dma.block(0).is_none() && dma.segment(0).is_none() && dma.word(0, Ordering::Relaxed).is_none()
        );
    }

    #[test]
    fn every_number_leads_into_a_run() {
        let dma = Dma::new(Boxed::new(256));
        assert!(dma.run::<16>(14, 1).is_some() && dma.run::<16>(15, 1).is_none());
        assert!(dma.run::<8>(u32::MAX, u32::MAX).is_none() && dma.run::<64>(0, 3).is_some());
        let run = dma.run::<16>(2, 3).unwrap();
        (0..9).for_each(|index| run.slot(index).store_word::<0>(index as u64));
        assert_eq!([2, 3, 4, 5].map(|at| dma.pair(at).unwrap()[0]), [8, 5, 6, 7]);
        assert!((0..16).filter(|at| !(2..6).contains(at)).all(|at| dma.pair(at) == Some([0; 2])));
    }

    #[test]
    fn rings_follow_each_other_and_lead_nowhere_at_the_end() {
        assert!(Rings::new(Dma::new(Boxed::new(256)), 4, 3).is_none());
        assert!(Rings::new(Dma::new(Boxed::new(256)), u32::MAX, u32::MAX).is_none());
        let mut rings = Rings::new(Dma::new(Boxed::new(256)), 4, 2).unwrap();
        rings.segments().slot(1).store_word::<0>(1);
        rings.blocks().slot(1).store_word::<0>(2);
        rings.record().store_word::<0>(3);
        let memory = rings.take();
        rings.segments().slot(1).store_word::<0>(9);
        rings.blocks().slot(1).store_word::<0>(9);
        rings.record().store_word::<0>(9);
        let words = [2, 16, 24].map(|at| memory.word(at, Ordering::Relaxed).unwrap());
        assert_eq!((words, memory.word(0, Ordering::Relaxed)), ([1, 2, 3], Some(0)));
        assert!(rings.memory().is_empty());
    }

    #[test]
    fn byte_orders() {
        let dma = Dma::new(Boxed::new(64));
        let block = dma.block(0).unwrap();
        block.store_be32::<4>(0x0102_0304);
        block.store_be64::<8>(0x1112_1314_1516_1718);
        let bytes = block.to_bytes();
        assert_eq!(bytes[4..16], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert_eq!((block.load_be32::<4>(), block.load_be64::<8>()), (0x0102_0304, 0x1112_1314_1516_1718));
    }
}
