//! Memory of queues: rings and doorbell records.

use super::{BLOCK, Dma, Run, Window};
use core::marker::PhantomData;

/// Memory of a queue: a ring of segments, a ring of blocks, and the block with the doorbell record.
pub(crate) struct Rings<M> {
    /// The memory that the other fields point into. They are private and only lent out for the time of a
    /// borrow.
    dma: Dma<M>,
    /// The memory of the record, if that is no longer in `dma` because the ring of blocks was replaced.
    home: Option<Dma<M>>,
    segments: Run<'static, 16>,
    blocks: Run<'static, BLOCK>,
    record: Run<'static, BLOCK>,
}

/// Memory that holds a ring of blocks at its start.
pub(crate) struct BlockRing<M> {
    /// The memory that the other field points into.
    dma: Dma<M>,
    blocks: Run<'static, BLOCK>,
}

impl<M> BlockRing<M> {
    /// A ring of `blocks`, a power of two, in `dma`. `None` if it does not fit.
    pub(crate) fn new(dma: Dma<M>, blocks: u32) -> Option<Self> {
        let blocks = forget_borrow(dma.run(0, blocks.checked_sub(1)?)?);
        Some(Self { dma, blocks })
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Dma<M> {
        &self.dma
    }
}

// SAFETY: the runs point into `dma` or `home`, which move to the other thread together with them, or to a
// static of atomics that nobody reads.
unsafe impl<M: Send> Send for Rings<M> {}
// SAFETY: the objects that own rings access them only in methods that take `&mut self`, so that one thread at
// a time accesses a ring. A sender and a receiver of one queue pair may be two threads: they share the block
// of the record, in which each has 32 bits of its own.
unsafe impl<M: Sync> Sync for Rings<M> {}

impl<M> Rings<M> {
    /// Lays out `dma`: `segments` (in whole blocks, or none), `blocks`, the record. Both are powers of two.
    /// `None` if they do not fit.
    pub(crate) fn new(dma: Dma<M>, segments: u32, blocks: u32) -> Option<Self> {
        let first = segments / (BLOCK as u32 / 16);
        let record = forget_borrow(dma.run(first.checked_add(blocks)?, 0)?);
        let blocks = forget_borrow(dma.run(first, blocks.checked_sub(1)?)?);
        let segments = forget_borrow(dma.run(0, segments.saturating_sub(1))?);
        Some(Self { dma, home: None, segments, blocks, record })
    }

    /// Takes the memory out, except what [`Self::take_home`] returns. The rings then point to a dummy block.
    pub(crate) fn take(&mut self) -> Dma<M> {
        (self.segments, self.blocks, self.record) = (Run::nowhere(), Run::nowhere(), Run::nowhere());
        self.dma.take()
    }

    /// Takes out the memory of the record, if it is separate. The record then points to a dummy block.
    pub(crate) fn take_home(&mut self) -> Option<Dma<M>> {
        let home = self.home.take()?;
        self.record = Run::nowhere();
        Some(home)
    }

    /// Replaces the ring of blocks; the record stays where it is. Returns the memory that is now free. Only
    /// for rings without segments.
    pub(crate) fn replace_blocks(&mut self, ring: BlockRing<M>) -> Option<Dma<M>> {
        (self.segments, self.blocks) = (Run::nowhere(), ring.blocks);
        let before = core::mem::replace(&mut self.dma, ring.dma);
        if self.home.is_some() {
            return Some(before);
        }
        self.home = Some(before);
        None
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

    /// The ring of segments, two by two. It begins with a block, so that even the only segment of a ring
    /// without segments has another one behind it.
    #[inline(always)]
    pub(crate) fn segment_pairs(&self) -> Run<'_, 32> {
        Run { base: self.segments.base, mask: self.segments.mask >> 1, memory: PhantomData }
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
