//! Indirect regions: slices of regions, of windows or of other indirect regions, concatenated under one key.
//!
//! The memory remains that of the parts: an access fails if the key of the part it hits is gone.

use crate::command::CommandError;
use crate::device::DeviceRef;
use crate::dma::RangeError;
use crate::memory_key::{KeyTemplate, Slices, Translations, create_key, destroy_key};
use crate::memory_region::{AccessFlags, MemorySlice, RemoteSlice};
use crate::protection_domain::ProtectionDomain;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::MkeyAccessMode;
use bareverbs_prm::wqe::LONGEST_SEGMENT;
use core::fmt;

/// Longest piece in bytes.
const MAX_PIECE: u32 = LONGEST_SEGMENT;

/// Why an indirect region could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndirectError {
    /// There are no slices.
    Empty,
    /// More slices than a key supports. The limit is zero if the device does not support indirect keys.
    TooManyPieces {
        /// Number of slices.
        count: usize,
        /// The limit.
        limit: u32,
    },
    /// An empty slice, or one of more than 2^31 bytes.
    PieceLength {
        /// Index of the slice.
        index: usize,
        /// Its length.
        length: u32,
    },
    /// Remote write or atomic access without local write access.
    InconsistentAccess {
        /// The requested access.
        access: AccessFlags,
    },
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for IndirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("an indirect region of no pieces: name at least 1"),
            Self::TooManyPieces { count, limit } => {
                write!(f, "an indirect region of {count} pieces: the device allows {limit}, nest several")
            }
            Self::PieceLength { index, length } => {
                write!(f, "piece {index} of an indirect region has {length} bytes: 1 to 2^31 are possible")
            }
            Self::InconsistentAccess { access } => {
                write!(f, "access {access:?}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")
            }
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for IndirectError {}

/// Slices under one key. Addresses start at zero.
///
/// ```
/// use bareverbs_core::{AccessFlags, DeviceRef, IndirectRegion, MemoryRegion, ProtectionDomain};
/// use std::error::Error;
///
/// /// The headers of one region and the data of another, as one range for peers.
/// fn join<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     headers: &MemoryRegion<D>,
///     data: &MemoryRegion<D>,
/// ) -> Result<IndirectRegion<D>, Box<dyn Error>> {
///     let pieces = [headers.slice(0, 64)?, data.slice(0, 65536)?];
///     Ok(IndirectRegion::create(domain, &pieces, AccessFlags::REMOTE_READ)?)
/// }
/// ```
#[doc(alias = "mlx5dv_create_mkey")]
pub struct IndirectRegion<D: DeviceRef> {
    device: D,
    key: Mkey,
    length: u64,
}

impl<D: DeviceRef> IndirectRegion<D> {
    /// Creates a region from `pieces` in the same protection domain. Each one must have the local rights that `access`
    /// grants.
    pub fn create(
        domain: &ProtectionDomain<D>,
        pieces: &[MemorySlice],
        access: AccessFlags,
    ) -> Result<Self, IndirectError> {
        let device = domain.device().clone();
        let length = check(pieces, access, device.device().capabilities().max_key_list)?;
        let mut template = KeyTemplate::new(domain.number(), MkeyAccessMode::Klms);
        access.apply(&mut template.context);
        template.context.set_length(length);
        let list = Slices(pieces);
        let key = create_key(device.device(), template, Translations::Slices(&list))
            .map_err(IndirectError::Command)?;
        Ok(Self { device, key, length })
    }

    /// The device of the region.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Key for local use.
    pub fn lkey(&self) -> Mkey {
        self.key
    }

    /// Key for peers.
    pub fn rkey(&self) -> Mkey {
        self.key
    }

    /// Total length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it has at least one byte")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// A remote slice from `offset` to the end, limited to 4 GiB - 1 bytes. Empty if `offset` is beyond the end.
    pub fn remote(&self, offset: u64) -> RemoteSlice {
        let length = u32::try_from(self.length.saturating_sub(offset)).unwrap_or(u32::MAX);
        RemoteSlice::from_raw(offset, length, self.key)
    }

    /// A slice of `length` bytes at `offset` for a work request.
    pub fn slice(&self, offset: u64, length: u32) -> Result<MemorySlice, RangeError> {
        if offset > self.length || u64::from(length) > self.length - offset {
            return Err(RangeError { offset, length: length.into(), region: self.length });
        }
        Ok(MemorySlice::from_raw(offset, length, self.key))
    }
}

/// Checks the pieces and returns their total length.
fn check(pieces: &[MemorySlice], access: AccessFlags, limit: u32) -> Result<u64, IndirectError> {
    let count = pieces.len();
    if count == 0 {
        return Err(IndirectError::Empty);
    }
    if count > limit as usize {
        return Err(IndirectError::TooManyPieces { count, limit });
    }
    if !access.is_consistent() {
        return Err(IndirectError::InconsistentAccess { access });
    }
    let wrong = |slice: &MemorySlice| slice.length.wrapping_sub(1) >= MAX_PIECE;
    if let Some(index) = pieces.iter().position(wrong) {
        return Err(IndirectError::PieceLength { index, length: pieces[index].length });
    }
    Ok(pieces.iter().map(|slice| u64::from(slice.length)).sum())
}

impl<D: DeviceRef> fmt::Debug for IndirectRegion<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("IndirectRegion");
        s.field("length", &self.length).field("key", &self.key).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for IndirectRegion<D> {
    fn drop(&mut self) {
        destroy_key(self.device.device(), self.key, None);
    }
}
