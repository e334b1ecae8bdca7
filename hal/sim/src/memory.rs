//! Raw memory that driver and device share: the only `unsafe` of this backend.
//!
//! A [`Block`] owns or borrows bytes and copies them in and out with checked offsets, never through a reference: the driver
//! holds a pointer to the same bytes. [`SimDma`] is the driver's handle. Everything that decides *whether* an access is
//! allowed is in `arena`, which is safe code.

use super::arena::{Arena, MemoryConfig, MemoryCounters};
use bareverbs_core::hal::{Barrier, DmaMemory, HalError};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use rand_chacha::ChaCha8Rng;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes at a fixed address, shared with whoever has a pointer to them.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    length: usize,
    /// How to give the bytes back; `None` if they belong to somebody else.
    owned: Option<Layout>,
}

impl Block {
    /// Zeroed bytes of our own.
    pub(super) fn allocate(length: usize, alignment: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length, alignment).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero, by the filter one line above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, length, owned: Some(layout) })
    }

    /// Bytes of somebody else.
    ///
    /// # Safety
    /// They must be valid for reads and writes as long as the block lives, and nobody may hold a reference to them while
    /// it is used.
    unsafe fn borrow(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length, owned: None }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// Copies bytes out. The range must be inside the block; it is checked.
    #[inline]
    pub(super) fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        // SAFETY: `check` has shown that the source is inside the block, which is valid by construction; the destination is a
        // unique reference and therefore does not overlap it. No reference to the block's bytes is made.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                buffer.as_mut_ptr(),
                buffer.len(),
            );
        }
    }

    /// Copies bytes in, the last one last and with release ordering: it is the owner byte of an entry.
    #[inline]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let Some((&last, body)) = bytes.split_last() else { return };
        self.check(offset, bytes.len());
        // SAFETY: `check` has shown that `bytes.len()` bytes at `offset` are inside the block, which is valid by construction;
        // `bytes` is a reference and so cannot be memory that the contract of `Block` keeps free of references. The atomic is
        // of size and alignment 1, and this thread is the only one that accesses it (`Arena` is behind an `Rc`).
        unsafe {
            let target = self.start.as_ptr().add(offset);
            core::ptr::copy_nonoverlapping(body.as_ptr(), target, body.len());
            AtomicU8::from_ptr(target.add(body.len())).store(last, Ordering::Release);
        }
    }

    /// Sets every byte.
    pub(super) fn fill(&self, value: u8) {
        // SAFETY: the whole block is valid for writes by construction and no reference to it is made.
        unsafe { core::ptr::write_bytes(self.start.as_ptr(), value, self.length) };
    }

    #[inline]
    fn check(&self, offset: usize, length: usize) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(
            inside,
            "the arena let an access of {length} bytes at {offset} out of a block of {}",
            self.length
        );
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: `allocate` got `start` from the allocator with this very layout, and a block is dropped once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// The memory of one simulated host as its device sees it. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct SimMemory {
    arena: Rc<RefCell<Arena>>,
    unforgiving: bool,
}

impl SimMemory {
    /// Memory without regions. `stream` decides what leaks early in unforgiving mode.
    pub fn new(config: MemoryConfig, stream: ChaCha8Rng) -> Self {
        Self { arena: Rc::new(RefCell::new(Arena::new(config, stream))), unforgiving: config.unforgiving }
    }

    /// Gives zeroed bytes that the device can reach.
    pub fn allocate(&self, length: usize, alignment: usize) -> Result<SimDma, HalError> {
        let (iova, start) = self.arena.borrow_mut().allocate(length, alignment)?;
        Ok(SimDma { memory: self.clone(), start, length, iova })
    }

    /// Lets the device reach bytes of the caller.
    ///
    /// # Safety
    /// As [`bareverbs_core::hal::Hal::map_user`].
    pub unsafe fn map(&self, start: NonNull<u8>, length: usize) -> Result<SimDma, HalError> {
        if length == 0 {
            return Err(HalError::BadRequest { length, alignment: 1 });
        }
        // SAFETY: the region lives in the arena until the handle returned here is dropped, and so long the caller keeps
        // the bytes valid and free of references.
        let block = unsafe { Block::borrow(start, length) };
        let iova = self.arena.borrow_mut().map(block)?;
        Ok(SimDma { memory: self.clone(), start, length, iova })
    }

    /// Whether processor and device have views of their own.
    pub fn is_unforgiving(&self) -> bool {
        self.unforgiving
    }

    /// What happened so far.
    pub fn counters(&self) -> MemoryCounters {
        self.arena.borrow().counters()
    }

    /// Moves bytes between the views of processor and device; nothing in forgiving memory.
    #[inline]
    pub(crate) fn barrier(&self, kind: Barrier) {
        if self.unforgiving {
            self.arena.borrow_mut().barrier(kind);
        }
    }

    /// Time has passed: what the processor stored has left it.
    pub(super) fn drain_stores(&self) {
        self.arena.borrow_mut().drain_stores();
    }

    /// Lets a word that the processor stored reach the device early, now and then.
    #[inline]
    pub(crate) fn leak(&self) {
        if self.unforgiving {
            self.arena.borrow_mut().leak();
        }
    }
}

impl HostMemory for SimMemory {
    #[inline]
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        self.arena.borrow_mut().read(iova, buffer)
    }

    #[inline]
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.arena.borrow_mut().write(iova, bytes)
    }
}

/// A region of simulated memory; dropping it takes it away from the device.
#[derive(Debug)]
pub struct SimDma {
    memory: SimMemory,
    start: NonNull<u8>,
    length: usize,
    iova: u64,
}

// SAFETY: `start` points to a block of `length` bytes which the arena keeps until this handle is dropped (`Arena::release` is
// called by `Drop` below and nowhere else). The arena gives each block to one handle; the device accesses it through
// `Block::read` and `Block::write`.
unsafe impl DmaMemory for SimDma {
    fn iova(&self) -> u64 {
        self.iova
    }

    fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.length
    }
}

impl Drop for SimDma {
    fn drop(&mut self) {
        self.memory.arena.borrow_mut().release(self.iova);
    }
}

#[cfg(test)]
pub(super) mod tests;
