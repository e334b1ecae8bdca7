//! Memory owned by the caller.

use crate::hal::{DmaMemory, Hal, HalError};
use core::ptr::NonNull;

/// Memory of the caller, mapped for the device until this is dropped; see [`Hal::map_user`].
///
/// ```
/// use bareverbs_core::{AccessFlags, DeviceRef, MemoryRegion, ProtectionDomain, UserMemory};
/// use core::ptr::NonNull;
/// use std::error::Error;
///
/// /// Registers a page of the application.
/// ///
/// /// # Safety
/// /// The page outlives the region, and nobody refers to its bytes.
/// unsafe fn register<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     page: NonNull<u8>,
/// ) -> Result<MemoryRegion<D>, Box<dyn Error>> {
///     // SAFETY: the caller promises it.
///     let memory = unsafe { UserMemory::map(domain.device().device().hal(), page, 4096) }?;
///     Ok(MemoryRegion::register(domain, memory, AccessFlags::LOCAL_WRITE)?)
/// }
/// ```
pub struct UserMemory<M>(M);

impl<M: DmaMemory> UserMemory<M> {
    /// Maps `length` bytes at `start` for the device behind `hal`.
    ///
    /// # Safety
    /// As for [`Hal::map_user`]: the memory must stay valid until the returned value, or the region made of it, is
    /// dropped, and nobody may hold a reference to it while the device may access it.
    pub unsafe fn map<H: Hal<Dma = M>>(hal: &H, start: NonNull<u8>, length: usize) -> Result<Self, HalError> {
        // SAFETY: the caller guarantees what `map_user` requires.
        unsafe { hal.map_user(start, length) }.map(Self)
    }

    /// The mapped memory.
    pub fn into_inner(self) -> M {
        self.0
    }
}
