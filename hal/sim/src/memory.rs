//! The memory of a host: the device's view and the driver's handles.
//!
//! [`SimDma`] is the driver's handle of a region. All decisions *whether* a DMA access is allowed are in `arena`, which
//! is safe code.

use super::arena::{Arena, MemoryConfig, MemoryCounters};
use super::block::Block;
use bareverbs_core::hal::{Barrier, DmaMemory, HalError};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use core::ptr::NonNull;
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// The memory of one simulated host, as its device accesses it. Clones refer to the same memory.
///
/// ```
/// use bareverbs_core::hal::DmaMemory;
/// use bareverbs_hal_sim::{MemoryConfig, SimMemory};
/// use bareverbs_sim::nic::HostMemory;
/// use bareverbs_sim::run::Seed;
///
/// let mut memory = SimMemory::new(MemoryConfig::default(), Seed(1).stream("memory"));
/// let page = memory.allocate(4096, 4096).unwrap();
/// let iova = page.iova();
/// memory.write(iova, b"from the device").unwrap();
/// drop(page);
/// let fault = memory.write(iova, b"too late").unwrap_err();
/// assert_eq!((fault.iova, fault.write), (iova, true));
/// ```
#[derive(Debug, Clone)]
pub struct SimMemory {
    arena: Rc<RefCell<Arena>>,
    unforgiving: bool,
}

impl SimMemory {
    /// Memory without regions. `stream` decides which stores leak early in unforgiving mode.
    pub fn new(config: MemoryConfig, stream: ChaCha8Rng) -> Self {
        Self { arena: Rc::new(RefCell::new(Arena::new(config, stream))), unforgiving: config.unforgiving }
    }

    /// Allocates zeroed bytes that the device can access.
    pub fn allocate(&self, length: usize, alignment: usize) -> Result<SimDma, HalError> {
        let (iova, start) = self.arena.borrow_mut().allocate(length, alignment)?;
        Ok(SimDma { memory: self.clone(), start, length, iova })
    }

    /// Maps the caller's bytes for the device.
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

    /// Whether processor and device have separate views.
    pub fn is_unforgiving(&self) -> bool {
        self.unforgiving
    }

    /// Statistics so far.
    pub fn counters(&self) -> MemoryCounters {
        self.arena.borrow().counters()
    }

    /// Reconciles the views of processor and device. Does nothing in forgiving memory.
    #[inline]
    pub(crate) fn barrier(&self, kind: Barrier) {
        if self.unforgiving {
            self.arena.borrow_mut().barrier(kind);
        }
    }

    /// Makes all stores of the processor visible to the device, because time has passed.
    pub(super) fn drain_stores(&self) {
        self.arena.borrow_mut().drain_stores();
    }

    /// Occasionally makes a stored word visible to the device early.
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

/// A region of simulated memory. Dropping it unmaps it for the device.
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
