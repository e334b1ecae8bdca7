//! What a connection may read and write: a region, checked on every access.
//!
//! A kernel handles only offsets into the region of its grant. An offset is untrusted; [`Grant::check`] is the only way
//! to turn it into a [`Checked`] range that can be read, and [`Grant::check_write`] into a [`Writable`] one. Nobody
//! else can construct these types.

use crate::status::Status;
use core::fmt;

/// Names memory that a [`HostDma`](crate::host_dma::HostDma) can reach, by its numbering. One with a single memory
/// knows only number zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HostRegion(pub u16);

/// The right to read one region, and to write it if it is [`Grant::writable`].
///
/// ```
/// use bareverbs_offload::grant::Grant;
///
/// let grant = Grant::new(0x1000, 64)?;
/// assert_eq!(grant.check(16, 8)?.address(), 0x1010);
/// assert!(grant.check(60, 8).is_err(), "four bytes leave the region");
/// assert!(grant.check_write(16, 8).is_err(), "a grant is for reading at first");
/// assert_eq!(grant.writable().check_write(16, 8)?.range().address(), 0x1010);
/// assert!(Grant::new(u64::MAX, 2).is_err(), "a region that wraps");
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    base: u64,
    length: u64,
    region: HostRegion,
    may_write: bool,
}

/// A range that was checked to lie inside a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    address: u64,
    offset: u64,
    length: u32,
    region: HostRegion,
}

/// A range that was checked to lie inside a grant that allows writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writable(Checked);

/// Why a range may not be accessed, or why a grant cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantFault {
    /// The range leaves the region.
    Outside {
        /// First byte of the range, from the start of the region.
        offset: u64,
        /// Bytes of the range.
        length: u32,
        /// Bytes of the region.
        region: u64,
    },
    /// The range has no bytes.
    Empty {
        /// Offset at which it would begin.
        offset: u64,
    },
    /// The grant is read-only.
    ReadOnly {
        /// Offset of the refused write.
        offset: u64,
    },
    /// The word of a compare-and-swap is not aligned to eight bytes.
    Unaligned {
        /// Its address.
        address: u64,
    },
    /// The region itself wraps around the end of the address space.
    Wraps {
        /// First address of the region.
        base: u64,
        /// Bytes of the region.
        region: u64,
    },
}

impl Grant {
    /// The right to read nothing.
    pub const NONE: Self = Self { base: 0, length: 0, region: HostRegion(0), may_write: false };

    /// The right to read `length` bytes from address `base` on, in region zero.
    pub const fn new(base: u64, length: u64) -> Result<Self, GrantFault> {
        Self::within(HostRegion(0), base, length)
    }

    /// The right to read `length` bytes from address `base` on, in the given region.
    pub const fn within(region: HostRegion, base: u64, length: u64) -> Result<Self, GrantFault> {
        match base.checked_add(length) {
            Some(_) => Ok(Self { base, length, region, may_write: false }),
            None => Err(GrantFault::Wraps { base, region: length }),
        }
    }

    /// The same region with the right to write it as well.
    pub const fn writable(self) -> Self {
        Self { may_write: true, ..self }
    }

    /// Bytes of the region.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The range of `length` bytes at `offset`, if it may be written and lies wholly in the region.
    pub const fn check_write(&self, offset: u64, length: u32) -> Result<Writable, GrantFault> {
        if !self.may_write {
            return Err(GrantFault::ReadOnly { offset });
        }
        match self.check(offset, length) {
            Ok(range) => Ok(Writable(range)),
            Err(fault) => Err(fault),
        }
    }

    /// The eight-byte word at `offset`, if it may be written and is aligned for a compare-and-swap.
    pub const fn check_word(&self, offset: u64) -> Result<Writable, GrantFault> {
        match self.check_write(offset, 8) {
            Ok(Writable(range)) if !range.address.is_multiple_of(8) => {
                Err(GrantFault::Unaligned { address: range.address })
            }
            checked => checked,
        }
    }

    /// The range of `length` bytes at `offset`, if it lies wholly in the region.
    #[inline]
    pub const fn check(&self, offset: u64, length: u32) -> Result<Checked, GrantFault> {
        if length == 0 {
            return Err(GrantFault::Empty { offset });
        }
        match offset.checked_add(length as u64) {
            // `base + length` was found not to wrap, so `base + offset` cannot either.
            Some(end) if end <= self.length => {
                Ok(Checked { address: self.base + offset, offset, length, region: self.region })
            }
            _ => Err(GrantFault::Outside { offset, length, region: self.length }),
        }
    }
}

impl Checked {
    /// The region that it lies in.
    pub const fn region(self) -> HostRegion {
        self.region
    }
    /// First address, as the DMA engine knows it.
    pub const fn address(self) -> u64 {
        self.address
    }
    /// Offset from the start of the region.
    pub const fn offset(self) -> u64 {
        self.offset
    }
    /// Length in bytes, never zero.
    pub const fn length(self) -> u32 {
        self.length
    }
}

impl Writable {
    /// The range as a readable one.
    pub const fn range(self) -> Checked {
        self.0
    }
}

impl From<GrantFault> for Status {
    fn from(fault: GrantFault) -> Self {
        match fault {
            GrantFault::ReadOnly { .. } => Self::ReadOnly,
            GrantFault::Unaligned { .. } => Self::BadParameters,
            GrantFault::Outside { .. } | GrantFault::Empty { .. } | GrantFault::Wraps { .. } => {
                Self::OutOfBounds
            }
        }
    }
}

impl fmt::Display for GrantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Outside { offset, length, region } => {
                write!(f, "{length} bytes at offset {offset:#x} leave the granted region of {region} bytes")
            }
            Self::Empty { offset } => write!(f, "an access of 0 bytes at offset {offset:#x}"),
            Self::ReadOnly { offset } => {
                write!(f, "a write at offset {offset:#x} of a region that is granted read-only")
            }
            Self::Unaligned { address } => {
                write!(f, "a word at {address:#x} that is compared and swapped: need a multiple of 8")
            }
            Self::Wraps { base, region } => {
                write!(f, "a region of {region} bytes at {base:#x} wraps around the address space")
            }
        }
    }
}

impl core::error::Error for GrantFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_of_the_region() {
        let grant = Grant::new(0x1000, 64).expect("fits");
        assert_eq!(grant.check(0, 64).map(Checked::address), Ok(0x1000));
        assert_eq!(grant.check(63, 1).map(Checked::address), Ok(0x103f));
        assert!(grant.check(63, 2).is_err());
        assert!(grant.check(64, 1).is_err());
        assert!(grant.check(u64::MAX, 1).is_err());
        assert_eq!(grant.check(5, 0), Err(GrantFault::Empty { offset: 5 }));
        assert!(Grant::new(u64::MAX, 1).is_err());
    }

    #[test]
    fn writing_is_a_right_of_its_own() {
        let read = Grant::new(0x1000, 64).expect("fits");
        assert_eq!(read.check_write(0, 8), Err(GrantFault::ReadOnly { offset: 0 }));
        assert_eq!(read.check_word(0), Err(GrantFault::ReadOnly { offset: 0 }));
        let write = read.writable();
        assert_eq!(write.check_write(0, 64).map(|range| range.range().length()), Ok(64));
        assert!(matches!(write.check_write(1, 64), Err(GrantFault::Outside { .. })));
        assert_eq!(write.check_word(4), Err(GrantFault::Unaligned { address: 0x1004 }));
        assert_eq!(write.check_word(56).map(|word| word.range().length()), Ok(8));
        assert!(write.check_word(64).is_err());
        assert_eq!(Grant::NONE.check_write(0, 1), Err(GrantFault::ReadOnly { offset: 0 }));
    }

    proptest! {
        #[test]
        fn a_checked_range_lies_inside(base: u64, region: u64, offset: u64, length: u32) {
            let Ok(grant) = Grant::new(base, region) else { return Ok(()) };
            if let Ok(range) = grant.check(offset, length) {
                prop_assert!(range.address() >= base);
                prop_assert!(u128::from(range.address()) + u128::from(length) <= u128::from(base) + u128::from(region));
            }
        }
    }
}
