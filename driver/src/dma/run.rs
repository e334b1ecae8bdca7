//! Runs: slots that were checked once, into which every number leads.

use super::window::{BLOCK, Window};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// A block that is nobody's: where runs lead that are no more.
#[repr(align(64))]
struct Nowhere([AtomicU64; BLOCK / 8]);
static NOWHERE: Nowhere = Nowhere([const { AtomicU64::new(0) }; BLOCK / 8]);

/// Slots of `N` bytes, checked once, aligned to `N`: every number leads into them.
#[derive(Clone, Copy)]
pub struct Run<'a, const N: usize> {
    pub(super) base: NonNull<u8>,
    /// Slots but one; numbers are masked with it.
    pub(super) mask: u32,
    pub(super) memory: PhantomData<&'a ()>,
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

    /// Begins to walk along the slots at number `index`.
    #[inline(always)]
    pub fn cursor(&self, index: u32) -> Cursor<'a, N> {
        let last = self.mask as usize * N;
        Cursor { base: self.base, last, offset: (index as usize * N) & last, memory: PhantomData }
    }
}

/// A place in a [`Run`], after whose last slot the first one comes.
#[derive(Clone, Copy)]
pub struct Cursor<'a, const N: usize> {
    base: NonNull<u8>,
    /// Offset of the last slot; a mask, because slots and their length are powers of two.
    last: usize,
    offset: usize,
    memory: PhantomData<&'a ()>,
}

impl<'a, const N: usize> Cursor<'a, N> {
    /// The slot at this place.
    #[inline(always)]
    pub fn slot(&self) -> Window<'a, N> {
        // SAFETY: the offset is masked with that of the last slot, which was checked with the run.
        let base = unsafe { self.base.add(self.offset) };
        Window { base, memory: PhantomData }
    }

    /// Slots from `start` of the same run to this place, modulo their number.
    #[inline(always)]
    pub fn slots_since(&self, start: Self) -> usize {
        (self.offset.wrapping_sub(start.offset) & self.last) / N
    }

    /// Goes on to the next slot.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.offset = (self.offset + N) & self.last;
    }
}
