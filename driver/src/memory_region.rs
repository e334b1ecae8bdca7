//! Memory regions: memory that the device may reach, in a protection domain, with rights.
//!
//! The bytes are never lent as a slice, because the device and remote peers may change them at any time. The
//! application copies in and out, or loads and stores single words.

use crate::command::{CommandError, Request};
use crate::device::control::Doomed;
use crate::device::{Device, DeviceRef, DmaOf};
use crate::dma::{Dma, RangeError, UserMemory};
use crate::hal::HalError;
use crate::protection_domain::ProtectionDomain;
use crate::translation::PageRun;
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};
use core::fmt;
use core::ops::BitOr;

/// Low bits of a translation entry: present for writing, present for reading.
const PRESENT: u64 = 3;
/// The queue pair number that stands for all of them.
const ANY_QUEUE_PAIR: Qpn = Qpn::from_low_bits(0xff_ffff);

/// What may be done with a memory region. Local reading is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_access_flags")]
pub struct AccessFlags(u8);

impl AccessFlags {
    /// Only local reading.
    pub const LOCAL_READ: Self = Self(0);
    /// The device may write on behalf of the application: receives, RDMA READ responses.
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write; needs local writing.
    #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
    pub const REMOTE_WRITE: Self = Self(4);
    /// Peers may do atomics; needs local writing.
    #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// Whether all of `other` is allowed.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// IBTA v1.4 §10.6.3.1: remote writing and atomics need local writing.
    const fn is_consistent(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) == 0 || self.contains(Self::LOCAL_WRITE)
    }
}

impl BitOr for AccessFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

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

/// Why a memory region could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The region has no bytes.
    Empty,
    /// Remote writing or atomics without local writing.
    InconsistentAccess {
        /// What was asked for.
        access: AccessFlags,
    },
    /// The peers are to do atomics, which the device does not.
    NoAtomics,
    /// There is no memory, or it cannot be mapped.
    Memory(HalError),
    /// The device refused.
    Command(CommandError),
}

impl From<HalError> for RegisterError {
    fn from(error: HalError) -> Self {
        Self::Memory(error)
    }
}

impl From<CommandError> for RegisterError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("a memory region of 0 bytes: ask for at least 1"),
            Self::InconsistentAccess { access } => {
                write!(f, "access {access:?}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")
            }
            Self::NoAtomics => f.write_str("access REMOTE_ATOMIC: the device has no atomics"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for RegisterError {}

/// A memory region.
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<D: DeviceRef> {
    device: D,
    memory: Dma<DmaOf<D>>,
    address: u64,
    key: Mkey,
    access: AccessFlags,
}

impl<D: DeviceRef> MemoryRegion<D> {
    /// Allocates `length` zeroed bytes that the device may reach.
    #[doc(alias = "ibv_alloc_mr")]
    pub fn allocate(
        domain: &ProtectionDomain<D>,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        let device = domain.device();
        check(device.device(), length, access)?;
        let memory = Dma::allocate(device.device().hal(), length, 4096)?;
        Self::register_dma(domain, memory, access)
    }

    /// Lets the device reach memory of the application.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        domain: &ProtectionDomain<D>,
        memory: UserMemory<DmaOf<D>>,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        let memory = Dma::new(memory.into_inner());
        check(domain.device().device(), memory.len(), access)?;
        Self::register_dma(domain, memory, access)
    }

    fn register_dma(
        domain: &ProtectionDomain<D>,
        memory: Dma<DmaOf<D>>,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        let device = domain.device().clone();
        let (address, length) = (memory.iova(), memory.len() as u64);
        match create_key(device.device(), domain.number(), (address, length), access) {
            Ok(key) => Ok(Self { device, memory, address, key, access }),
            Err(error) => {
                if error.status().is_none() {
                    // No answer: the device may have made the key.
                    core::mem::forget(memory);
                }
                Err(error.into())
            }
        }
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
        let doomed = Doomed { opcode: CommandOpcode::DestroyMkey, number: self.key.index().value() };
        self.device.device().destroy(doomed, Some(self.memory.take()));
    }
}

fn check<H: crate::hal::Hal>(
    device: &Device<H>,
    length: usize,
    access: AccessFlags,
) -> Result<(), RegisterError> {
    if length == 0 {
        return Err(RegisterError::Empty);
    }
    if !access.is_consistent() {
        return Err(RegisterError::InconsistentAccess { access });
    }
    if access.contains(AccessFlags::REMOTE_ATOMIC) && !device.capabilities().atomics {
        return Err(RegisterError::NoAtomics);
    }
    Ok(())
}

/// CREATE_MKEY with translation entries, addresses as the device sees them.
fn create_key<H: crate::hal::Hal>(
    device: &Device<H>,
    domain: Pdn,
    (address, length): (u64, u64),
    access: AccessFlags,
) -> Result<Mkey, CommandError> {
    let run = PageRun::around(address, length, device.config().log_max_page);
    let nothing = bareverbs_prm::command::entry::CommandHeaderIn::new();
    let variant = device.control(&Request::new(&nothing), |control, _| control.next_variant())?;
    let mut input = CreateMkeyIn::new();
    let octwords = run.count.div_ceil(2);
    input
        .set_opcode(CommandOpcode::CreateMkey)
        .set_pg_access(true)
        .set_translations_octword_actual_size(octwords);
    input
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(MkeyAccessMode::Mtt.raw())
        .set_lr(true)
        .set_lw(access.contains(AccessFlags::LOCAL_WRITE))
        .set_rr(access.contains(AccessFlags::REMOTE_READ))
        .set_rw(access.contains(AccessFlags::REMOTE_WRITE))
        .set_a(access.contains(AccessFlags::REMOTE_ATOMIC))
        .set_qpn(ANY_QUEUE_PAIR)
        .set_mkey_7_0(variant)
        .set_pd(domain)
        .set_start_addr(address)
        .set_length(length)
        .set_translations_octword_size(octwords)
        .set_log_page_size(run.log_size);
    let request = Request::with_tail(&input, run.list(PRESENT));
    let request = request.padded_to(CreateMkeyIn::KLM_PAS_MTT_OFFSET + octwords as usize * 16);
    let output: CreateMkeyOut = device.call(&request)?;
    Ok(Mkey::from_parts(output.mkey_index(), variant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_needs_local_writing() {
        assert!(!AccessFlags::REMOTE_WRITE.is_consistent());
        assert!(!(AccessFlags::REMOTE_ATOMIC | AccessFlags::REMOTE_READ).is_consistent());
        assert!((AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE).is_consistent());
        assert!(AccessFlags::REMOTE_READ.is_consistent());
    }
}
