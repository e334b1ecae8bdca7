//! Memory that the device of a kernel may use. A device address is the processor's own.
//!
//! The kernel pins memory when it registers it, and translates for the device. Memory for queues is registered once for a whole piece, when
//! the first queue is created in it; a memory key has a registration of its own.

use super::context::{KernelContext, RegisteredMemory};
use crate::memory::{Mapper, Piece, Stretch};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A position in registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UserMemoryPlace {
    /// Number of the user memory object.
    pub(super) id: u32,
    /// Offset in bytes.
    pub(super) offset: u64,
}

#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    length: u64,
    registered: Option<RegisteredMemory>,
}

// SAFETY: the address names memory that stays mapped as long as it is in the table (`Mapper::map`), whichever thread holds the table.
unsafe impl Send for Mapped {}

impl Mapped {
    fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// The offset of `length` bytes at `address`, if all of them are in the piece.
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.address()).filter(|offset| *offset < self.length)?;
        (length <= self.length - offset).then_some(offset)
    }
}

/// The pieces of memory that are mapped for the device.
#[derive(Debug)]
pub struct KernelMemory {
    context: Arc<KernelContext>,
    pieces: Mutex<Vec<Mapped>>,
}

impl KernelMemory {
    pub(super) fn new(context: Arc<KernelContext>) -> Self {
        Self { context, pieces: Mutex::default() }
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<Mapped>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all of a range is mapped for the device.
    pub(super) fn contains(&self, address: u64, length: u64) -> bool {
        self.pieces().iter().any(|piece| piece.offset_of(address, length).is_some())
    }

    /// Where an address is in registered memory, which is registered now if it is not yet.
    ///
    /// # Errors
    /// EFAULT if the address is not mapped; otherwise the kernel's errno.
    pub(super) fn locate(&self, address: u64) -> Result<UserMemoryPlace, i32> {
        let mut pieces = self.pieces();
        let found = pieces.iter_mut().find_map(|piece| Some((piece.offset_of(address, 1)?, piece)));
        let (offset, piece) = found.ok_or(libc::EFAULT)?;
        let registered = match piece.registered {
            Some(registered) => registered,
            None => *piece.registered.insert(self.context.register(address - offset, piece.length)?),
        };
        Ok(UserMemoryPlace { id: registered.id, offset })
    }

    /// Copies bytes out, as the device would read them.
    ///
    /// # Errors
    /// EFAULT if the range is not mapped.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let pieces = self.pieces();
        let from = pointer(&pieces, address, buffer.len())?;
        fence(Ordering::Acquire);
        for (index, byte) in buffer.iter_mut().enumerate() {
            // SAFETY: `pointer` has checked that the range is mapped. The driver has handed it to the device, whose part this plays, and does
            // not write to it before it is answered.
            *byte = unsafe { from.add(index).read_volatile() };
        }
        Ok(())
    }

    /// Copies bytes in, in ascending order, as the device would write them.
    ///
    /// # Errors
    /// EFAULT if the range is not mapped.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), i32> {
        let pieces = self.pieces();
        let to = pointer(&pieces, address, bytes.len())?;
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read`; nobody holds a reference to memory that is shared with the device (`DmaMemory`).
            unsafe { to.add(index).write_volatile(*byte) };
        }
        fence(Ordering::Release);
        Ok(())
    }
}

fn pointer(pieces: &[Mapped], address: u64, length: usize) -> Result<*mut u8, i32> {
    let find = |piece: &Mapped| {
        let offset = piece.offset_of(address, length as u64)?;
        Some(piece.start.as_ptr().wrapping_add(offset as usize))
    };
    pieces.iter().find_map(find).ok_or(libc::EFAULT)
}

// SAFETY: the stretch is the whole piece at its own addresses. The kernel pins the pages of what it registers, and the device reaches nothing
// else. Memory that the kernel does not give back in `unmap`, because an object is still in it, stays pinned: the device then reaches pages
// that this process no longer maps.
unsafe impl Mapper for KernelMemory {
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
        let mapped = Mapped { start: piece.start, length: piece.length as u64, registered: None };
        let stretch = Stretch { offset: 0, iova: mapped.address(), length: piece.length };
        self.pieces().push(mapped);
        Ok(vec![stretch])
    }

    fn unmap(&self, stretch: &Stretch) {
        let mut pieces = self.pieces();
        // Regions of the application may share a page, so there may be two equal pieces; they are never registered.
        let is_it = |piece: &Mapped| piece.address() == stretch.iova && piece.length == stretch.length as u64;
        let Some(index) = pieces.iter().position(is_it) else { return };
        if let Some(registered) = pieces.swap_remove(index).registered {
            let _ = self.context.deregister(registered.handle);
        }
    }
}
