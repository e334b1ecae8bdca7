//! DMA memory of a real process: one arena per device, on the largest pages available, and mappings of the
//! application's memory.
//!
//! **What this is.** An [`Arena`] takes segments of memory from the system, on the largest pages available, lets a
//! [`Mapper`] map them for the device, and hands out pieces as [`HostDma`]. [`Arena::report`] has the page sizes and
//! why not better ones, the usage and the limit. Memory is allocated when objects are created, never on a data path.
//!
//! **What it may not do.** It knows no bus: VFIO and vfio-user implement the mapper.
//!
//! **Where to read first.** [`Arena::allocate`].

mod arena;
mod pages;
#[cfg(any(feature = "vfio", feature = "vfio-user"))]
mod placement;
mod report;
mod segment;

pub use arena::{Arena, HostDma};
pub use pages::{HugePagePool, PageKind, huge_page_command};
#[cfg(any(feature = "vfio", feature = "vfio-user"))]
pub(crate) use placement::Placement;
pub use report::{ArenaReport, SegmentReport};
pub use segment::{Refusal, RefusalReason, Segment};

use core::ptr::NonNull;
use std::fs::File;

/// Configuration of an arena.
///
/// ```
/// use bareverbs_hal::memory::ArenaConfig;
///
/// // At most 1 GiB, near the processors of NUMA node 1.
/// let config = ArenaConfig { limit: 1 << 30, numa_node: Some(1), ..ArenaConfig::default() };
/// assert!(config.huge_pages);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaConfig {
    /// Smallest segment in bytes.
    pub segment: usize,
    /// Most bytes to take from the system in total.
    pub limit: usize,
    /// Whether another process must be able to map the memory.
    pub shared: bool,
    /// Whether to try huge pages.
    pub huge_pages: bool,
    /// Preferred NUMA node of the memory.
    pub numa_node: Option<u32>,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { segment: 32 << 20, limit: 4 << 30, shared: false, huge_pages: true, numa_node: None }
    }
}

/// Memory to map for a device.
#[derive(Debug)]
pub struct Piece<'a> {
    /// First byte, page-aligned.
    pub start: NonNull<u8>,
    /// Length in bytes, a multiple of the page size.
    pub length: usize,
    /// Page size in bytes.
    pub page: usize,
    /// The file that contains the bytes from its start, if another process can map it.
    pub file: Option<&'a File>,
}

/// A device-contiguous address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Offset of the first byte within the piece.
    pub offset: usize,
    /// Device address of the first byte.
    pub iova: u64,
    /// Length in bytes.
    pub length: usize,
}

/// Maps memory for a device. Errors are errno values.
///
/// # Safety
/// What [`Self::map`] returns lies inside the piece, does not overlap, and refers to the piece's bytes: until
/// [`Self::unmap`], the device's accesses at [`Stretch::iova`] hit the bytes from [`Stretch::offset`]. After `unmap`
/// the device cannot access them. A mapper that cannot promise this for memory whose pages the kernel may move must pin
/// them.
pub unsafe trait Mapper: Send + Sync {
    /// Maps a piece for the device. Device addresses are congruent to processor addresses modulo 2 MiB or a page size,
    /// whichever is less for `page` and the backend.
    ///
    /// # Safety
    /// The pages must stay mapped in this process until [`Self::unmap`]. Nobody may hold a reference to the bytes that
    /// the device is told about, and the device may be able to access the rest of the pages.
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32>;

    /// Unmaps a stretch that [`Self::map`] returned.
    fn unmap(&self, stretch: &Stretch);
}

#[cfg(test)]
mod tests;
