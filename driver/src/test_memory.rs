//! Plain memory for unit tests.
extern crate std;

use crate::hal::DmaMemory;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Zeroed bytes, aligned to 4096, whose I/O virtual address is their address.
pub(crate) struct Boxed {
    base: NonNull<u8>,
    length: usize,
}

impl Boxed {
    pub(crate) fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), 4096).unwrap();
        // SAFETY: the layout has a nonzero size.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Self { base, length }
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.base.as_ptr(), Layout::from_size_align(self.length.max(1), 4096).unwrap()) };
    }
}

// SAFETY: the value owns the bytes in whichever thread it is.
unsafe impl Send for Boxed {}
// SAFETY: a shared value only exposes an address and a length.
unsafe impl Sync for Boxed {}

// SAFETY: the value owns the bytes until it is dropped.
unsafe impl DmaMemory for Boxed {
    fn iova(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.length
    }
}
