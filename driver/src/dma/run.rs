//! Runs: slots that were checked once and that every number indexes safely.

use super::window::{BLOCK, Window};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Slots that a walk visits between two checks for its end.
const GROUP: usize = 4;

/// A block that belongs to nobody: runs point to it when their memory is gone.
#[repr(align(64))]
struct Nowhere([AtomicU64; BLOCK / 8]);
static NOWHERE: Nowhere = Nowhere([const { AtomicU64::new(0) }; BLOCK / 8]);

/// Slots of `N` bytes, checked once, aligned to `N`. Every number, masked, is a valid index.
#[derive(Clone, Copy)]
pub struct Run<'a, const N: usize> {
    pub(super) base: NonNull<u8>,
    /// Number of slots minus one; numbers are masked with it.
    pub(super) mask: u32,
    pub(super) memory: PhantomData<&'a ()>,
}

impl<'a, const N: usize> Run<'a, N> {
    /// A run of one slot that belongs to nobody.
    #[cold]
    #[inline(never)]
    pub(crate) fn nowhere() -> Self {
        const { assert!(N <= BLOCK) };
        Self { base: NonNull::from(&NOWHERE.0).cast(), mask: 0, memory: PhantomData }
    }

    /// Number of slots minus one.
    #[inline(always)]
    pub(crate) fn last(&self) -> u32 {
        self.mask
    }

    /// The same slots, but no more than `other` has. Two runs of equal length that are limited by each other have
    /// one mask, with which a number is masked once for both.
    #[inline(always)]
    pub(crate) fn up_to<const M: usize>(self, other: Run<'_, M>) -> Self {
        Self { mask: self.mask & other.mask, ..self }
    }

    /// Slot number `index`, masked.
    #[inline(always)]
    pub fn slot(&self, index: u32) -> Window<'a, N> {
        // A masked number is never beyond the last slot, which the compiler knows.
        self.within(index & self.mask).unwrap_or(Window { base: self.base, memory: PhantomData })
    }

    /// Slot number `index`; `None` beyond the last one.
    #[inline(always)]
    pub(crate) fn within(&self, index: u32) -> Option<Window<'a, N>> {
        if index > self.mask {
            return None;
        }
        // SAFETY: the number is at most `mask`, and `mask + 1` slots were checked (`Dma::run`), or there is one
        // (`nowhere`).
        let base = unsafe { self.base.add(index as usize * N) };
        Some(Window { base, memory: PhantomData })
    }

    /// Walks the slots from number `index` on, one for each of `items`, but not beyond the last slot. Stops
    /// before the first one that `visit` refuses, and returns how many it took.
    #[inline(always)]
    pub fn zip<T>(
        &self,
        index: u32,
        items: &mut [T],
        mut visit: impl FnMut(Window<'a, N>, &mut T) -> bool,
    ) -> usize {
        let first = (index & self.mask) as usize;
        let count = items.len().min(self.mask as usize - first + 1);
        let start = self.slot(index).base;
        // SAFETY: from `first` up to `mask` there are at least `count` slots, which were checked like those of `slot`; the
        // result is the next one of them, or one past the last.
        let after = |base: NonNull<u8>| unsafe { base.add(N) };
        let (groups, rest) = items[..count].as_chunks_mut::<GROUP>();
        let mut base = start;
        'walk: {
            for group in groups {
                for item in group {
                    if !visit(Window { base, memory: PhantomData }, item) {
                        break 'walk;
                    }
                    base = after(base);
                }
            }
            for item in rest {
                if !visit(Window { base, memory: PhantomData }, item) {
                    break;
                }
                base = after(base);
            }
        }
        (base.addr().get() - start.addr().get()) / N
    }
}

/// Two runs of equal length. A number finds the slots of both at once, and is masked only once for them.
#[derive(Clone, Copy)]
pub struct Twins<'a, const A: usize, const B: usize> {
    first: Run<'a, A>,
    second: Run<'a, B>,
}

/// The slots of [`Twins`] with one number.
#[derive(Clone, Copy)]
pub struct Twin<'a, const A: usize, const B: usize> {
    runs: Twins<'a, A, B>,
    /// Bytes before the slot of the first run.
    offset: usize,
}

impl<'a, const A: usize, const B: usize> Twins<'a, A, B> {
    /// Both runs, as far as the shorter one reaches.
    pub(crate) fn new(first: Run<'a, A>, second: Run<'a, B>) -> Self {
        const { assert!(B.is_multiple_of(A)) };
        Self { first: first.up_to(second), second: second.up_to(first) }
    }

    /// Number of slots of each, minus one.
    pub(crate) fn last(&self) -> u32 {
        self.first.mask
    }

    /// The slots number `index`, masked.
    #[inline(always)]
    pub(crate) fn slot(&self, index: u32) -> Twin<'a, A, B> {
        Twin { runs: *self, offset: (index & self.first.mask) as usize * A }
    }
}

impl<'a, const A: usize, const B: usize> Twin<'a, A, B> {
    /// The slot of the first run.
    #[inline(always)]
    pub(crate) fn first(&self) -> Window<'a, A> {
        // SAFETY: `offset` is that of a masked number (`Twins::slot`), of which the run has a slot, as in `Run::slot`.
        let base = unsafe { self.runs.first.base.add(self.offset) };
        Window { base, memory: PhantomData }
    }

    /// The slot of the second run.
    #[inline(always)]
    pub(crate) fn second(&self) -> Window<'a, B> {
        // SAFETY: the same number, whose mask is that of both runs (`Twins::new`).
        let base = unsafe { self.runs.second.base.add(self.offset * (B / A)) };
        Window { base, memory: PhantomData }
    }
}
