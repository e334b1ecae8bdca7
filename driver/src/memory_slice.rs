//! Addresses of memory in work requests: local slices with their lkey, and a peer's memory with its rkey.

use bareverbs_prm::ids::Mkey;

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
