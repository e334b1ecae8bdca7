//! Addresses of memory in work requests: local slices with their lkey, and a peer's memory with its rkey.

use bareverbs_prm::ids::Mkey;
use core::fmt;

/// A slice of a memory region: a scatter/gather element.
///
/// ```
/// use bareverbs_core::MemorySlice;
/// use bareverbs_prm::ids::Mkey;
///
/// let header = MemorySlice::from_raw(0x10_0000_0000, 64, Mkey::new(0x0012_3456));
/// let body = MemorySlice { address: header.address + 4096, length: 1024, ..header };
/// assert_eq!((body.address, body.lkey), (0x10_0000_1000, header.lkey));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[doc(alias = "ibv_sge")]
pub struct MemorySlice {
    /// First address, as the device uses it.
    pub address: u64,
    /// lkey of the region.
    pub lkey: Mkey,
    /// Length in bytes.
    pub length: u32,
}

impl MemorySlice {
    /// A slice made from its parts. The device validates them.
    pub const fn from_raw(address: u64, length: u32, lkey: Mkey) -> Self {
        Self { address, lkey, length }
    }
}

/// A peer's memory: the target of an RDMA operation. Because it carries its length, the driver can refuse an operation
/// that exceeds it, with both numbers; the peer would refuse it without either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteSlice {
    /// First address, as the peer's device uses it.
    pub address: u64,
    /// rkey of the peer's region.
    pub rkey: Mkey,
    /// Length in bytes. A region of 4 GiB or more takes several slices.
    pub length: u32,
}

impl RemoteSlice {
    /// A remote slice made from its parts. The peer's device validates them.
    pub const fn from_raw(address: u64, length: u32, rkey: Mkey) -> Self {
        Self { address, rkey, length }
    }

    /// `length` bytes at `offset`.
    ///
    /// ```
    /// use bareverbs_core::RemoteSlice;
    ///
    /// let memory = RemoteSlice { address: 0x1000, length: 64, ..RemoteSlice::default() };
    /// assert_eq!(memory.part(16, 8).unwrap().address, 0x1010);
    /// assert_eq!(
    ///     memory.part(60, 8).unwrap_err().to_string(),
    ///     "access of 8 bytes at offset 60 leaves the region of 64 bytes"
    /// );
    /// ```
    ///
    /// # Errors
    /// The range exceeds the slice.
    pub const fn part(self, offset: u64, length: usize) -> Result<Self, RangeError> {
        let region = self.length as u64;
        if offset > region || length as u64 > region - offset {
            return Err(RangeError { offset, length: length as u64, region });
        }
        Ok(Self { address: self.address.wrapping_add(offset), rkey: self.rkey, length: length as u32 })
    }

    /// The first `length` bytes.
    ///
    /// # Errors
    /// The slice is shorter.
    pub const fn first(self, length: usize) -> Result<Self, RangeError> {
        self.part(0, length)
    }
}

/// An access that exceeds a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeError {
    /// First byte of the access.
    pub offset: u64,
    /// Length of the access in bytes.
    pub length: u64,
    /// Length of the region in bytes.
    pub region: u64,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, length, region } = self;
        write!(f, "access of {length} bytes at offset {offset} leaves the region of {region} bytes")
    }
}

impl core::error::Error for RangeError {}
