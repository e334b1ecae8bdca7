//! DMA memory of a real process: one arena of large pages a device, and memory of the application.
//!
//! **What this is.** An [`Arena`] takes memory from the system in segments, of the largest pages that can be had, tells a
//! [`Mapper`] to let the device reach them, and hands out pieces as [`HostDma`]. It says which pages it has and why not
//! better ones, what is used and what the limit is ([`Arena::report`]). Memory is taken when objects are made, never on
//! a data path.
//!
//! **What it may not do.** It knows no bus: VFIO and vfio-user are mappers.
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

/// How an arena takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaConfig {
    /// Bytes that are taken from the system at a time, at least.
    pub segment: usize,
    /// Bytes that may be taken from the system in all.
    pub limit: usize,
    /// Whether another process must be able to map the memory.
    pub shared: bool,
    /// Whether huge pages are tried.
    pub huge_pages: bool,
    /// NUMA node that the memory should be near.
    pub numa_node: Option<u32>,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { segment: 32 << 20, limit: 4 << 30, shared: false, huge_pages: true, numa_node: None }
    }
}

/// Memory that a device shall reach.
#[derive(Debug)]
pub struct Piece<'a> {
    /// First byte, at the start of a page.
    pub start: NonNull<u8>,
    /// Bytes, whole pages.
    pub length: usize,
    /// Bytes of a page.
    pub page: usize,
    /// The file that holds the bytes from its start on, if another process can map it.
    pub file: Option<&'a File>,
}

/// Addresses that are contiguous for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Offset of the first byte in the piece.
    pub offset: usize,
    /// Address as the device sees it.
    pub iova: u64,
    /// Bytes.
    pub length: usize,
}

/// Lets a device reach memory. Errors are errno values.
///
/// # Safety
/// What [`Self::map`] gives lies inside the piece, does not overlap, and names the piece's bytes: what the device accesses at
/// [`Stretch::iova`] are the bytes from [`Stretch::offset`] on, until [`Self::unmap`]. After `unmap` the device reaches them no more. A mapper that
/// cannot promise this for memory whose pages the kernel may move keeps them from being moved.
pub unsafe trait Mapper: Send + Sync {
    /// Lets the device reach a piece, at addresses that are congruent to those of the processor modulo 2 MiB or the
    /// size of a page, whichever is less for `page` and the backend.
    ///
    /// # Safety
    /// The pages must stay mapped in this process until [`Self::unmap`]. Nobody may hold a reference to bytes that the device is told of, and
    /// the device may be able to reach the others.
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32>;

    /// Takes back what [`Self::map`] gave.
    fn unmap(&self, stretch: &Stretch);
}

#[cfg(test)]
mod tests;
