//! Fast registration: a region whose pages are registered by work requests (IBTA v1.4 §10.6, fast register physical
//! MR).
//!
//! The region owns the memory, so no work request can direct the device anywhere else. Each registration selects the
//! pages, their order, their addresses and the access rights.

use crate::command::CommandError;
use crate::device::{DeviceRef, DmaOf};
use crate::dma::{Dma, RangeError};
use crate::hal::HalError;
use crate::key_update::{Change, KeyUpdate, MAX_OCTWORDS, next_variant};
use crate::memory_key::{KeyTemplate, Translations, create_key, destroy_key};
use crate::memory_region::{AccessFlags, MemorySlice, RemoteSlice};
use crate::protection_domain::ProtectionDomain;
use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::MkeyAccessMode;
use bareverbs_prm::wqe::{mkey_mask as mask, umr_flags as flag};
use core::fmt;

/// Maximum number of pages per registration.
pub const MAX_PAGES: usize = MAX_OCTWORDS * 2;
/// log2 of the possible page sizes.
const PAGE_SIZES: core::ops::RangeInclusive<u8> = 12..=31;
/// Low bits of a page entry: present for writing, present for reading.
const PRESENT: u64 = 3;

/// Why a fast registration region could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastRegionError {
    /// The device does not support fast registration.
    NotOffered,
    /// An unsupported page size.
    PageSize {
        /// Log2 of the page size.
        log_size: u8,
    },
    /// No pages, or more than one request can register.
    Pages {
        /// Number of pages.
        count: usize,
    },
    /// Allocating the memory failed.
    Memory(HalError),
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for FastRegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOffered => f.write_str(
                "fast registration: the device does not offer it; ask Capabilities::memory_windows first",
            ),
            Self::PageSize { log_size } => {
                write!(f, "pages of 2^{log_size} bytes: 2^12 to 2^31 are possible")
            }
            Self::Pages { count } => {
                write!(f, "{count} pages: 1 to {MAX_PAGES} are possible, use larger ones")
            }
            Self::Memory(error) => write!(f, "fast registration: {error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for FastRegionError {}

/// Why a registration is impossible. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastRegisterError {
    /// The region is already registered: invalidate it first.
    StillRegistered,
    /// The region is not registered.
    NotRegistered,
    /// No pages, or more than the region was created for.
    TooManyPages {
        /// Pages requested.
        count: usize,
        /// The region's limit.
        limit: usize,
    },
    /// A page number beyond the region.
    Page {
        /// The page number.
        page: u32,
        /// Number of pages in the region.
        pages: usize,
    },
    /// An empty range, or one that exceeds the pages.
    Range {
        /// First address of the range.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Remote write or atomic access without local write access.
    InconsistentAccess {
        /// The requested access.
        access: AccessFlags,
    },
}

impl fmt::Display for FastRegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::StillRegistered => {
                f.write_str("registering pages of a region that is registered: invalidate it")
            }
            Self::NotRegistered => f.write_str("invalidating a region that is not registered"),
            Self::TooManyPages { count, limit } => {
                write!(f, "registering {count} pages: the region was made for 1 to {limit}")
            }
            Self::Page { page, pages } => {
                write!(
                    f,
                    "registering page {page} of {pages}: pages are numbered from 0, use a smaller number"
                )
            }
            Self::Range { address, length } => write!(
                f,
                "registering {length} bytes from {address:#x}: they are none or leave the pages; add pages or register fewer bytes"
            ),
            Self::InconsistentAccess { access } => {
                write!(f, "access {access:?}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")
            }
        }
    }
}

impl core::error::Error for FastRegisterError {}

/// A registration of pages.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ib_reg_wr")]
pub struct FastRegistration<'a> {
    /// Page numbers of the region, in the order in which peers see them.
    pub pages: &'a [u32],
    /// First address. Its offset in its page is that of the first byte in the first page.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Access rights.
    pub access: AccessFlags,
}

/// Memory whose pages work requests can register.
///
/// ```
/// use bareverbs_core::fast_region::FastRegistration;
/// use bareverbs_core::{AccessFlags, DeviceRef, FastRegion, ProtectionDomain, QueuePair};
/// use std::error::Error;
///
/// /// Pages 3 and 1 become 8 KiB from address 0 on that a peer may read: no command, just a work request.
/// fn offer<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     queue_pair: &mut QueuePair<D>,
/// ) -> Result<FastRegion<D>, Box<dyn Error>> {
///     let mut region = FastRegion::allocate(domain, 4, 12)?;
///     let access = AccessFlags::REMOTE_READ;
///     let update = region.register(&FastRegistration { pages: &[3, 1], address: 0, length: 8192, access })?;
///     queue_pair.post_send(&update.request(1))?;
///     Ok(region)
/// }
/// ```
#[doc(alias = "ib_alloc_mr")]
pub struct FastRegion<D: DeviceRef> {
    device: D,
    memory: Dma<DmaOf<D>>,
    log_page: u8,
    key: Mkey,
    registered: bool,
}

impl<D: DeviceRef> FastRegion<D> {
    /// Allocates `pages` zeroed pages of `2^log_page` bytes, which are not accessible yet.
    pub fn allocate(
        domain: &ProtectionDomain<D>,
        pages: usize,
        log_page: u8,
    ) -> Result<Self, FastRegionError> {
        let device = domain.device().clone();
        if !device.device().capabilities().memory_windows {
            return Err(FastRegionError::NotOffered);
        }
        if !PAGE_SIZES.contains(&log_page) {
            return Err(FastRegionError::PageSize { log_size: log_page });
        }
        let length = pages.checked_mul(1 << log_page).filter(|_| (1..=MAX_PAGES).contains(&pages));
        let length = length.ok_or(FastRegionError::Pages { count: pages })?;
        let memory =
            Dma::allocate(device.device().hal(), length, 1 << log_page).map_err(FastRegionError::Memory)?;
        let mut template = KeyTemplate::free(domain.number(), MkeyAccessMode::Mtt);
        template.context.set_log_page_size(log_page).set_en_rinval(true);
        match create_key(device.device(), template, Translations::Room(MAX_OCTWORDS as u32)) {
            Ok(key) => Ok(Self { device, memory, log_page, key, registered: false }),
            // If the device created the key without answering, the key grants no access, so the memory can be
            // freed.
            Err(error) => Err(FastRegionError::Command(error)),
        }
    }

    /// The key of the latest registration, for local use.
    pub fn lkey(&self) -> Mkey {
        self.key
    }

    /// The key of the latest registration, for peers.
    pub fn rkey(&self) -> Mkey {
        self.key
    }

    /// A remote slice of `length` bytes from `address` in the latest registration. The device checks the range.
    pub fn remote(&self, address: u64, length: u32) -> RemoteSlice {
        RemoteSlice::from_raw(address, length, self.key)
    }

    /// A local slice of `length` bytes from `address` in the latest registration. The device checks the range.
    pub fn slice(&self, address: u64, length: u32) -> MemorySlice {
        MemorySlice::from_raw(address, length, self.key)
    }

    fn pages(&self) -> usize {
        self.memory.len() >> self.log_page
    }

    /// Creates the work request that registers pages under a new key, [`KeyUpdate::key`].
    #[doc(alias = "IB_WR_REG_MR")]
    pub fn register(&mut self, template: &FastRegistration<'_>) -> Result<KeyUpdate, FastRegisterError> {
        self.check(template)?;
        let fields = mask::FREE | mask::KEY | mask::LENGTH | mask::START_ADDRESS;
        let mut change = Change::new(fields, flag::FAIL_IF_NOT_FREE);
        change.rights(template.access, true);
        change.context.set_start_addr(template.address).set_length(template.length);
        let (first, log_page) = (self.memory.iova(), self.log_page);
        let entries = template.pages.iter().map(|&page| (first + ((page as u64) << log_page)) | PRESENT);
        self.registered = true;
        let old = self.key;
        self.key = next_variant(old);
        Ok(KeyUpdate::new(old, self.key, WorkCompletionOpcode::FastRegister, change, entries))
    }

    /// Creates the work request that invalidates the key.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn invalidate(&mut self) -> Result<KeyUpdate, FastRegisterError> {
        if !core::mem::take(&mut self.registered) {
            return Err(FastRegisterError::NotRegistered);
        }
        let mut change = Change::new(mask::FREE, 0);
        change.context.set_free(true);
        let entries = core::iter::empty();
        Ok(KeyUpdate::new(self.key, self.key, WorkCompletionOpcode::LocalInvalidate, change, entries))
    }

    /// Notes that a peer invalidated `key`
    /// ([`WorkCompletion::invalidated`](crate::work_completion::WorkCompletion::invalidated)). Returns whether it was
    /// this region's key.
    pub fn closed_by_peer(&mut self, key: Mkey) -> bool {
        let ours = self.registered && key == self.key;
        self.registered &= !ours;
        ours
    }

    fn check(&self, template: &FastRegistration<'_>) -> Result<(), FastRegisterError> {
        let FastRegistration { pages, address, length, access } = *template;
        let limit = self.pages();
        if self.registered {
            return Err(FastRegisterError::StillRegistered);
        }
        if !(1..=MAX_PAGES).contains(&pages.len()) {
            return Err(FastRegisterError::TooManyPages { count: pages.len(), limit: MAX_PAGES });
        }
        if let Some(&page) = pages.iter().find(|page| **page as usize >= limit) {
            return Err(FastRegisterError::Page { page, pages: limit });
        }
        let room = ((pages.len() as u64) << self.log_page) - (address & ((1 << self.log_page) - 1));
        let ends = address.checked_add(length.saturating_sub(1)).is_some();
        if length == 0 || length > room || !ends {
            return Err(FastRegisterError::Range { address, length });
        }
        if access.is_consistent() { Ok(()) } else { Err(FastRegisterError::InconsistentAccess { access }) }
    }

    /// Copies `bytes` to `offset` of the memory, regardless of the registration.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.memory.copy_in(offset, bytes)
    }

    /// Copies bytes from `offset` of the memory into `buffer`, regardless of the registration.
    pub fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.memory.copy_out(offset, buffer)
    }
}

impl<D: DeviceRef> fmt::Debug for FastRegion<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastRegion")
            .field("length", &self.memory.len())
            .field("key", &self.key)
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for FastRegion<D> {
    fn drop(&mut self) {
        destroy_key(self.device.device(), self.key, Some(self.memory.take()));
    }
}
