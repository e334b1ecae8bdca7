//! Memory regions: memory that the device may access, in a protection domain, with access rights.
//!
//! The driver never lends the bytes as a slice, because the device and remote peers may change them at any time. The
//! application copies bytes in and out, loads and stores single words, or whole values through a [`RegionCell`].

mod access;
mod cell;
mod error;

pub use crate::memory_slice::{MemorySlice, RemoteSlice};
pub use access::AccessFlags;
pub use cell::{RegionCell, RegionCells};
pub use error::RegisterError;

use crate::command::CommandError;
use crate::device::{Device, DeviceRef, DmaOf};
use crate::dma::{Dma, RangeError, UserMemory};
use crate::memory_key::{KeyTemplate, Translations, create_key, destroy_key, destroy_key_now};
use crate::protection_domain::ProtectionDomain;
use crate::translation::{LOG_PAGE, PageRun};
use bareverbs_prm::ids::{Mkey, Pdn};
use bareverbs_prm::numbering::MkeyAccessMode;
use core::fmt;

/// The addresses that work requests and peers use for a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RegionAddress {
    /// The I/O virtual addresses of the memory.
    #[default]
    Device,
    /// Addresses start at zero.
    #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
    Zero,
    /// Addresses start here.
    #[doc(alias = "ibv_reg_mr_iova")]
    At(u64),
}

/// A memory region.
///
/// ```
/// use bareverbs_core::{AccessFlags, DeviceRef, MemoryRegion, ProtectionDomain, RemoteSlice};
/// use std::error::Error;
///
/// /// Memory that peers may read, and what they need to know of its first 64 bytes.
/// fn publish<D: DeviceRef>(domain: &ProtectionDomain<D>) -> Result<(MemoryRegion<D>, RemoteSlice), Box<dyn Error>> {
///     let region = MemoryRegion::allocate(domain, 1 << 20, AccessFlags::REMOTE_READ)?;
///     region.copy_in(0, b"read me")?;
///     let first = region.remote(0).first(64)?;
///     Ok((region, first))
/// }
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<D: DeviceRef> {
    device: D,
    memory: Dma<DmaOf<D>>,
    domain: Pdn,
    address: u64,
    key: Mkey,
    access: AccessFlags,
    /// The device may have a key for the memory that the driver cannot destroy.
    leaks: bool,
}

impl<D: DeviceRef> MemoryRegion<D> {
    /// Allocates `length` zeroed bytes and registers them.
    ///
    /// # Errors
    /// The arguments are refused, the HAL has no memory left, or the command failed.
    #[doc(alias = "ibv_alloc_mr")]
    pub fn allocate(
        domain: &ProtectionDomain<D>,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        Self::allocate_at(domain, length, access, RegionAddress::Device)
    }

    /// Like [`Self::allocate`], with addresses chosen by the caller. The first must be a multiple of 4096.
    pub fn allocate_at(
        domain: &ProtectionDomain<D>,
        length: usize,
        access: AccessFlags,
        address: RegionAddress,
    ) -> Result<Self, RegisterError> {
        let device = domain.device();
        check(device.device(), length, access)?;
        let memory = Dma::allocate(device.device().hal(), length, 1 << LOG_PAGE)?;
        Self::register_dma(domain, memory, access, address)
    }

    /// Registers memory of the application.
    ///
    /// # Errors
    /// The arguments are invalid, or the command failed.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        domain: &ProtectionDomain<D>,
        memory: UserMemory<DmaOf<D>>,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        Self::register_at(domain, memory, access, RegionAddress::Device)
    }

    /// Like [`Self::register`], with addresses chosen by the caller. The first address must have the same offset in its
    /// page as the memory.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub fn register_at(
        domain: &ProtectionDomain<D>,
        memory: UserMemory<DmaOf<D>>,
        access: AccessFlags,
        address: RegionAddress,
    ) -> Result<Self, RegisterError> {
        let memory = Dma::new(memory.into_inner());
        check(domain.device().device(), memory.len(), access)?;
        Self::register_dma(domain, memory, access, address)
    }

    fn register_dma(
        domain: &ProtectionDomain<D>,
        memory: Dma<DmaOf<D>>,
        access: AccessFlags,
        address: RegionAddress,
    ) -> Result<Self, RegisterError> {
        let device = domain.device().clone();
        let (iova, length) = (memory.iova(), memory.len() as u64);
        let address = choose_address(address, iova, length)?;
        match create_page_key(device.device(), domain.number(), RegionSpan { iova, address, length }, access)
        {
            Ok(key) => {
                let domain = domain.number();
                Ok(Self { device, memory, domain, address, key, access, leaks: false })
            }
            Err(error) => {
                if error.status().is_none() {
                    // Without an answer, the device may have created the key.
                    core::mem::forget(memory);
                }
                Err(error.into())
            }
        }
    }

    /// Changes the access rights or the protection domain. The region gets new keys, and operations that still use the old
    /// ones fail. If this returns an error, the region is unchanged.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(
        &mut self,
        domain: &ProtectionDomain<D>,
        access: AccessFlags,
    ) -> Result<(), RegisterError> {
        let device = self.device.device();
        check(device, self.memory.len(), access)?;
        let span =
            RegionSpan { iova: self.memory.iova(), address: self.address, length: self.memory.len() as u64 };
        let key = create_page_key(device, domain.number(), span, access).inspect_err(|error| {
            self.leaks |= error.status().is_none();
        })?;
        if let Err(error) = destroy_key_now(device, self.key) {
            self.leaks |= destroy_key_now(device, key).is_err();
            return Err(error.into());
        }
        (self.key, self.domain, self.access) = (key, domain.number(), access);
        Ok(())
    }

    /// The device of the region.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Protection domain of the region.
    pub fn domain(&self) -> Pdn {
        self.domain
    }

    /// Key for local use.
    pub fn lkey(&self) -> Mkey {
        self.key
    }

    /// Key for peers.
    pub fn rkey(&self) -> Mkey {
        self.key
    }

    /// First address, as used by work requests and peers.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Access rights.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// A remote slice from `offset` to the end of the region, limited to 4 GiB - 1 bytes. Empty if `offset` is beyond
    /// the end.
    pub fn remote(&self, offset: u64) -> RemoteSlice {
        let left = (self.len() as u64).saturating_sub(offset);
        let length = u32::try_from(left).unwrap_or(u32::MAX);
        RemoteSlice { address: self.address.wrapping_add(offset), rkey: self.key, length }
    }

    /// A slice of `length` bytes at `offset` for a work request.
    ///
    /// # Errors
    /// The range exceeds the region.
    pub fn slice(&self, offset: usize, length: usize) -> Result<MemorySlice, RangeError> {
        let region = self.len();
        let outside = RangeError { offset: offset as u64, length: length as u64, region: region as u64 };
        if offset > region || length > region - offset {
            return Err(outside);
        }
        let length = u32::try_from(length).map_err(|_| outside)?;
        Ok(MemorySlice { address: self.address + offset as u64, lkey: self.key, length })
    }

    /// Copies `bytes` to `offset`.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.memory.copy_in(offset, bytes)
    }

    /// Copies bytes from `offset` into `buffer`.
    pub fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.memory.copy_out(offset, buffer)
    }

    /// Loads 64 bits at `offset` in native byte order. Single-copy atomic if the address is aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        self.memory.load_u64(offset)
    }

    /// Stores 64 bits at `offset` in native byte order. Single-copy atomic if the address is aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        self.memory.store_u64(offset, value)
    }

    /// Fills `length` bytes at `offset` with `byte`.
    pub fn fill(&self, offset: usize, length: usize, byte: u8) -> Result<(), RangeError> {
        self.memory.fill(offset, length, byte)
    }
}

impl<D: DeviceRef> fmt::Debug for MemoryRegion<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("MemoryRegion");
        s.field("address", &self.address)
            .field("length", &self.len())
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for MemoryRegion<D> {
    #[doc(alias = "ibv_dereg_mr")]
    fn drop(&mut self) {
        let mut memory = Some(self.memory.take());
        if self.leaks {
            core::mem::forget(memory.take());
        }
        destroy_key(self.device.device(), self.key, memory);
    }
}

fn check<H: crate::hal::Hal>(
    device: &Device<H>,
    length: usize,
    access: AccessFlags,
) -> Result<(), RegisterError> {
    let capabilities = device.capabilities();
    if length == 0 {
        return Err(RegisterError::Empty);
    }
    if !access.is_consistent() {
        return Err(RegisterError::InconsistentAccess { access });
    }
    if access.contains(AccessFlags::REMOTE_ATOMIC) && !capabilities.atomics {
        return Err(RegisterError::NoAtomics);
    }
    if access.contains(AccessFlags::RELAXED_ORDERING) && !capabilities.relaxed_ordering {
        return Err(RegisterError::NoRelaxedOrdering);
    }
    Ok(())
}

/// The first address of a region over memory at `iova`.
fn choose_address(address: RegionAddress, iova: u64, length: u64) -> Result<u64, RegisterError> {
    let address = match address {
        RegionAddress::Device => iova,
        RegionAddress::Zero => 0,
        RegionAddress::At(address) => address,
    };
    if (address ^ iova) & ((1 << LOG_PAGE) - 1) != 0 {
        return Err(RegisterError::Unaligned { address, memory: iova });
    }
    match address.checked_add(length.saturating_sub(1)) {
        Some(_) => Ok(address),
        None => Err(RegisterError::Range { address, length }),
    }
}

/// The bytes of a region, and the address of the first one for work requests and peers.
#[derive(Clone, Copy)]
struct RegionSpan {
    iova: u64,
    address: u64,
    length: u64,
}

/// Creates a key for the bytes of `span`, with the largest pages that both of its addresses allow.
fn create_page_key<H: crate::hal::Hal>(
    device: &Device<H>,
    domain: Pdn,
    span: RegionSpan,
    access: AccessFlags,
) -> Result<Mkey, CommandError> {
    let RegionSpan { iova, address, length } = span;
    let common = (iova ^ address).trailing_zeros() as u8;
    let run = PageRun::around(iova, length, device.config().log_max_page.min(common));
    let mut template = KeyTemplate::new(domain, MkeyAccessMode::Mtt);
    access.apply(&mut template.context);
    template.context.set_start_addr(address).set_length(length).set_log_page_size(run.log_size);
    create_key(device, template, Translations::Pages(run))
}
