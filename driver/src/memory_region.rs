//! Memory regions: memory that the device may reach, in a protection domain, with rights.
//!
//! The bytes are never lent as a slice, because the device and remote peers may change them at any time. The
//! application copies in and out, or loads and stores single words.

mod access;
mod error;

pub use access::AccessFlags;
pub use error::RegisterError;

use crate::command::CommandError;
use crate::device::{Device, DeviceRef, DmaOf};
use crate::dma::{Dma, RangeError, UserMemory};
use crate::memory_key::{KeyWish, Translations, create_key, destroy_key, destroy_key_now};
use crate::protection_domain::ProtectionDomain;
use crate::translation::{LOG_PAGE, PageRun};
use bareverbs_prm::ids::{Mkey, Pdn};
use bareverbs_prm::numbering::MkeyAccessMode;
use core::fmt;

/// A piece of a memory region: a scatter/gather element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[doc(alias = "ibv_sge")]
pub struct MemorySlice {
    /// First address, as the device sees it.
    pub address: u64,
    /// The key of the region, for local use.
    pub lkey: Mkey,
    /// Bytes.
    pub length: u32,
}

impl MemorySlice {
    /// A piece of memory from its parts. The device checks them.
    pub const fn from_raw(address: u64, length: u32, lkey: Mkey) -> Self {
        Self { address, lkey, length }
    }
}

/// Memory of a peer: where an RDMA operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteSlice {
    /// First address, as the peer's device sees it.
    pub address: u64,
    /// The key of the peer's region, for remote use.
    pub rkey: Mkey,
}

/// Addresses under which a region is known to work requests and peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RegionAddress {
    /// Those under which the device reaches the memory.
    #[default]
    Device,
    /// From zero on.
    #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
    Zero,
    /// From here on.
    #[doc(alias = "ibv_reg_mr_iova")]
    At(u64),
}

/// A memory region.
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<D: DeviceRef> {
    device: D,
    memory: Dma<DmaOf<D>>,
    domain: Pdn,
    address: u64,
    key: Mkey,
    access: AccessFlags,
    /// The device may have a key of the memory that nobody can destroy.
    leaks: bool,
}

impl<D: DeviceRef> MemoryRegion<D> {
    /// Allocates `length` zeroed bytes that the device may reach.
    #[doc(alias = "ibv_alloc_mr")]
    pub fn allocate(
        domain: &ProtectionDomain<D>,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        Self::allocate_at(domain, length, access, RegionAddress::Device)
    }

    /// [`Self::allocate`] with addresses of one's own. The memory begins at a page: so must the addresses.
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

    /// Lets the device reach memory of the application.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        domain: &ProtectionDomain<D>,
        memory: UserMemory<DmaOf<D>>,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        Self::register_at(domain, memory, access, RegionAddress::Device)
    }

    /// [`Self::register`] with addresses of one's own, which are at the same place in their pages as the memory.
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
        match create_page_key(device.device(), domain.number(), (iova, address, length), access) {
            Ok(key) => {
                let domain = domain.number();
                Ok(Self { device, memory, domain, address, key, access, leaks: false })
            }
            Err(error) => {
                if error.status().is_none() {
                    // No answer: the device may have made the key.
                    core::mem::forget(memory);
                }
                Err(error.into())
            }
        }
    }

    /// Gives the region other rights, or puts it into another domain. Its keys change; what is under way with the old
    /// ones fails. An error leaves the region as it was.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(
        &mut self,
        domain: &ProtectionDomain<D>,
        access: AccessFlags,
    ) -> Result<(), RegisterError> {
        let device = self.device.device();
        check(device, self.memory.len(), access)?;
        let place = (self.memory.iova(), self.address, self.memory.len() as u64);
        let key = create_page_key(device, domain.number(), place, access).inspect_err(|error| {
            self.leaks |= error.status().is_none();
        })?;
        if let Err(error) = destroy_key_now(device, self.key) {
            self.leaks |= destroy_key_now(device, key).is_err();
            return Err(error.into());
        }
        (self.key, self.domain, self.access) = (key, domain.number(), access);
        Ok(())
    }

    /// The protection domain.
    pub fn domain(&self) -> Pdn {
        self.domain
    }

    /// The key for local use.
    pub fn lkey(&self) -> Mkey {
        self.key
    }

    /// The key for peers.
    pub fn rkey(&self) -> Mkey {
        self.key
    }

    /// First address, as the device and peers see it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// What may be done with it.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// What a peer needs to reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> RemoteSlice {
        RemoteSlice { address: self.address.wrapping_add(offset), rkey: self.key }
    }

    /// `length` bytes at `offset`, for a work request.
    pub fn slice(&self, offset: usize, length: usize) -> Result<MemorySlice, RangeError> {
        let region = self.len();
        let outside = RangeError { offset: offset as u64, length: length as u64, region: region as u64 };
        if offset > region || length > region - offset {
            return Err(outside);
        }
        let length = u32::try_from(length).map_err(|_| outside)?;
        Ok(MemorySlice { address: self.address + offset as u64, lkey: self.key, length })
    }

    /// Copies `bytes` in at `offset`.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.memory.copy_in(offset, bytes)
    }

    /// Copies bytes at `offset` out into `buffer`.
    pub fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.memory.copy_out(offset, buffer)
    }

    /// Loads 64 bits at `offset` in the processor's byte order; at once if the address is aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        self.memory.load_u64(offset)
    }

    /// Stores 64 bits at `offset` in the processor's byte order; at once if the address is aligned.
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

/// A key of `length` bytes at `iova` that are known as those from `address` on, in the largest pages that both allow.
fn create_page_key<H: crate::hal::Hal>(
    device: &Device<H>,
    domain: Pdn,
    (iova, address, length): (u64, u64, u64),
    access: AccessFlags,
) -> Result<Mkey, CommandError> {
    let common = (iova ^ address).trailing_zeros() as u8;
    let run = PageRun::around(iova, length, device.config().log_max_page.min(common));
    let mut wish = KeyWish::new(domain, MkeyAccessMode::Mtt);
    access.apply(&mut wish.context);
    wish.context.set_start_addr(address).set_length(length).set_log_page_size(run.log_size);
    create_key(device, wish, Translations::Pages(run))
}
