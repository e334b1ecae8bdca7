//! Memory windows: work requests grant peers access to part of a region, and revoke it (IBTA v1.4 §10.6, memory management).
//!
//! A window of type 1 can be bound again at any time, and serves all queue pairs of its domain. A window of type 2 (2B) is
//! bound through one queue pair and serves only that one. It must be invalidated before it is bound again: by a work request
//! of that queue pair, or by its peer with SEND with invalidate.

use crate::command::CommandError;
use crate::command::WordList;
use crate::device::DeviceRef;
use crate::key_update::{Change, KeyUpdate, next_variant};
use crate::memory_key::{ANY_QUEUE_PAIR, KeyTemplate, Slices, Translations, create_key, destroy_key};
use crate::memory_region::{AccessFlags, MemoryRegion, MemorySlice};
use crate::protection_domain::ProtectionDomain;
use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::MkeyAccessMode;
use bareverbs_prm::wqe::{LONGEST_SEGMENT, mkey_mask as mask, umr_flags as flag};
use core::fmt;

/// Octwords of the list of a window: one, padded to a block.
const ROOM: u32 = 4;
/// Longest window in bytes.
const MAX_WINDOW: u64 = LONGEST_SEGMENT as u64;

/// The kind of binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowType {
    /// To a protection domain. The device chooses each key.
    #[doc(alias = "IBV_MW_TYPE_1")]
    Type1,
    /// To a queue pair; peers may invalidate it.
    #[doc(alias = "IBV_MW_TYPE_2")]
    Type2,
}

/// Why a window could not be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowError {
    /// The device does not support memory windows.
    NotOffered,
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOffered => f.write_str(
                "a memory window: the device does not offer them; ask Capabilities::memory_windows first",
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for WindowError {}

/// Why a window cannot be bound or invalidated. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// Region and window are in different protection domains.
    WrongDomain {
        /// Domain of the window.
        window: Pdn,
        /// Domain of the region.
        region: Pdn,
    },
    /// The window would have no bytes: invalidate it instead.
    Empty,
    /// At least some of the bytes are outside the region.
    Range {
        /// Offset of the first byte in the region.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// The window exceeds the maximum length.
    TooLong {
        /// Bytes.
        length: u64,
        /// The longest window.
        limit: u64,
    },
    /// The region was registered without [`AccessFlags::MEMORY_WINDOW_BIND`].
    NotBindable,
    /// The window would let peers write to a region that has no local write access.
    NotWritable,
    /// The window is of type 2 and still bound: invalidate it first.
    StillBound {
        /// The queue pair that it is bound to.
        qpn: Qpn,
    },
    /// The window is not bound, or is of type 1, which only the next binding revokes.
    NotBound,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WrongDomain { window, region } => write!(
                f,
                "window of protection domain {} to a region of {}: allocate both in one domain",
                window.value(),
                region.value()
            ),
            Self::Empty => f.write_str("a window of 0 bytes: invalidate it instead"),
            Self::Range { offset, length, region } => {
                write!(f, "window of {length} bytes at offset {offset} does not fit in a region of {region} bytes")
            }
            Self::TooLong { length, limit } => {
                write!(f, "window of {length} bytes: the longest has {limit}; bind several")
            }
            Self::NotBindable => f.write_str("window to a region that was registered without access MEMORY_WINDOW_BIND"),
            Self::NotWritable => {
                f.write_str("window with REMOTE_WRITE or REMOTE_ATOMIC to a region that was registered without LOCAL_WRITE")
            }
            Self::StillBound { qpn } => {
                write!(f, "window of type 2 is bound to queue pair {:#x}: invalidate it first", qpn.value())
            }
            Self::NotBound => f.write_str("cannot invalidate: only a window of type 2 that is bound can be invalidated"),
        }
    }
}

impl core::error::Error for BindError {}

/// What a window grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct WindowRange {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Length in bytes, at most 2^31.
    pub length: u64,
    /// What peers may do; local access flags have no effect.
    pub access: AccessFlags,
    /// Peers address the window from zero, instead of by the addresses of the region.
    pub zero_based: bool,
}

/// A memory window.
///
/// ```
/// use bareverbs_core::memory_window::WindowRange;
/// use bareverbs_core::{AccessFlags, DeviceRef, MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair, WindowType};
/// use bareverbs_prm::ids::Mkey;
/// use std::error::Error;
///
/// /// Lets the peer of one queue pair write to the first page of a region, under a key that can be taken away again.
/// fn open_page<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     region: &MemoryRegion<D>,
///     queue_pair: &mut QueuePair<D>,
/// ) -> Result<(MemoryWindow<D>, Mkey), Box<dyn Error>> {
///     let mut window = MemoryWindow::allocate(domain, WindowType::Type2)?;
///     let access = AccessFlags::REMOTE_WRITE;
///     let range = WindowRange { offset: 0, length: 4096, access, zero_based: true };
///     let bind = window.bind(region, &range, queue_pair.qpn())?;
///     queue_pair.post_send(&bind.request(1))?;
///     Ok((window, bind.key()))
/// }
/// ```
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow<D: DeviceRef> {
    device: D,
    domain: Pdn,
    key: Mkey,
    kind: WindowType,
    /// The queue pair that a window of type 2 is bound to, until it is invalidated.
    bound: Option<Qpn>,
}

impl<D: DeviceRef> MemoryWindow<D> {
    /// Allocates a window that grants nothing yet.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn allocate(domain: &ProtectionDomain<D>, kind: WindowType) -> Result<Self, WindowError> {
        let device = domain.device().clone();
        if !device.device().capabilities().memory_windows {
            return Err(WindowError::NotOffered);
        }
        let mut template = KeyTemplate::free(domain.number(), MkeyAccessMode::Klms);
        template.context.set_en_rinval(kind == WindowType::Type2);
        let key =
            create_key(device.device(), template, Translations::Room(ROOM)).map_err(WindowError::Command)?;
        Ok(Self { device, domain: domain.number(), key, kind, bound: None })
    }

    /// How it is bound.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The key of the last binding, for peers.
    pub fn rkey(&self) -> Mkey {
        self.key
    }

    /// Creates the request that grants access to part of `region` under a new key, [`KeyUpdate::key`]: to the
    /// peer of one queue pair (type 2), or to the peers of all queue pairs in the domain (type 1). Post it on
    /// that queue pair. It also revokes what the window granted before.
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind(
        &mut self,
        region: &MemoryRegion<D>,
        range: &WindowRange,
        queue_pair: Qpn,
    ) -> Result<KeyUpdate, BindError> {
        self.check(region, range)?;
        let address = region.remote(range.offset).address;
        let free_first = self.kind == WindowType::Type2;
        let fields = mask::FREE | mask::KEY | mask::LENGTH | mask::START_ADDRESS;
        let mut change = Change::new(fields, if free_first { flag::FAIL_IF_NOT_FREE } else { 0 });
        change.rights(range.access, false);
        change.context.set_start_addr(if range.zero_based { 0 } else { address }).set_length(range.length);
        if self.kind == WindowType::Type2 {
            change.queue_pair(queue_pair);
            self.bound = Some(queue_pair);
        }
        // `check` allows at most 2^31 bytes.
        let slice = [MemorySlice::from_raw(address, range.length as u32, region.lkey())];
        Ok(self.update(WorkCompletionOpcode::BindWindow, change, &slice))
    }

    /// Creates the request that invalidates a type 2 window. Post it on the queue pair that the window is
    /// bound to.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn invalidate(&mut self) -> Result<KeyUpdate, BindError> {
        self.bound.take().ok_or(BindError::NotBound)?;
        let mut change = Change::new(mask::FREE | mask::KEY, flag::CHECK_QPN);
        change.context.set_free(true);
        change.queue_pair(ANY_QUEUE_PAIR);
        Ok(self.update(WorkCompletionOpcode::LocalInvalidate, change, &[]))
    }

    /// Records that a peer invalidated the window with this key ([`WorkCompletion::invalidated`]). Returns
    /// whether the key is this window's.
    ///
    /// [`WorkCompletion::invalidated`]: crate::work_completion::WorkCompletion::invalidated
    pub fn closed_by_peer(&mut self, key: Mkey) -> bool {
        let ours = self.bound.is_some() && key == self.key;
        if ours {
            self.bound = None;
        }
        ours
    }

    fn check(&self, region: &MemoryRegion<D>, range: &WindowRange) -> Result<(), BindError> {
        let WindowRange { offset, length, access, .. } = *range;
        let size = region.len() as u64;
        if let Some(qpn) = self.bound {
            return Err(BindError::StillBound { qpn });
        }
        if region.domain() != self.domain {
            return Err(BindError::WrongDomain { window: self.domain, region: region.domain() });
        }
        if length == 0 {
            return Err(BindError::Empty);
        }
        if offset > size || length > size - offset {
            return Err(BindError::Range { offset, length, region: size });
        }
        if length > MAX_WINDOW {
            return Err(BindError::TooLong { length, limit: MAX_WINDOW });
        }
        if !region.access().contains(AccessFlags::MEMORY_WINDOW_BIND) {
            return Err(BindError::NotBindable);
        }
        let writes = !access.without(AccessFlags::LOCAL_WRITE).is_consistent();
        if writes && !region.access().contains(AccessFlags::LOCAL_WRITE) {
            return Err(BindError::NotWritable);
        }
        Ok(())
    }

    fn update(&mut self, kind: WorkCompletionOpcode, change: Change, slices: &[MemorySlice]) -> KeyUpdate {
        let old = self.key;
        self.key = next_variant(old);
        let list = Slices(slices);
        KeyUpdate::new(old, self.key, kind, change, (0..list.count()).map(|index| list.word(index)))
    }
}

impl<D: DeviceRef> fmt::Debug for MemoryWindow<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("MemoryWindow");
        s.field("kind", &self.kind)
            .field("key", &self.key)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for MemoryWindow<D> {
    #[doc(alias = "ibv_dealloc_mw")]
    fn drop(&mut self) {
        destroy_key(self.device.device(), self.key, None);
    }
}
