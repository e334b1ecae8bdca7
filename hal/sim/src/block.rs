//! Raw bytes shared between driver and device.
//!
//! A [`Block`] owns or borrows bytes. It copies them in and out at checked offsets and never forms a reference to them,
//! because the driver holds a pointer to the same bytes.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Bytes at a fixed address, shared with every holder of a pointer to them.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    length: usize,
    /// Layout to free them with; `None` if they are borrowed.
    owned: Option<Layout>,
}

impl Block {
    /// Allocates zeroed bytes.
    pub(super) fn allocate(length: usize, alignment: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length, alignment).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero, by the filter one line above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, length, owned: Some(layout) })
    }

    /// Borrows bytes.
    ///
    /// # Safety
    /// They must be valid for reads and writes as long as the block lives, and nobody may hold a reference to them while
    /// it is used.
    pub(super) unsafe fn borrow(start: NonNull<u8>, length: usize) -> Self {
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

    /// Copies bytes out. Panics if the range exceeds the block.
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

    /// Copies bytes in. Stores the last byte last, with release ordering, because it is the owner byte of a queue
    /// entry.
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

    /// Sets every byte to `value`.
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
