//! Backing memory of an arena: tries page sizes from best to worst, and records why a better one was not available.

use super::ArenaConfig;
use super::pages::{PageKind, default_huge_log};
use core::fmt;
use core::ptr::NonNull;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::alloc::Layout;
use std::fs::File;
use std::io;
use std::path::Path;

/// Why a page size was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The page size.
    pub pages: PageKind,
    /// The reason.
    pub reason: RefusalReason,
}

/// Reasons of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The segment is smaller than one page.
    TooSmall,
    /// The configuration excludes it.
    NotWanted,
    /// The system refused with this errno; ENOMEM (12) means an empty pool.
    System(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RefusalReason::TooSmall => write!(f, "{}: the segment is smaller than one", self.pages),
            RefusalReason::NotWanted => write!(f, "{}: switched off", self.pages),
            RefusalReason::System(libc::ENOMEM) => write!(f, "{}: not enough are free", self.pages),
            RefusalReason::System(errno) => {
                write!(f, "{}: {}", self.pages, io::Error::from_raw_os_error(errno))
            }
        }
    }
}

#[derive(Debug)]
enum Backing {
    Map(MmapRaw),
    /// Allocated by the crate `hugepage-rs`, which needs the layout to free it.
    HugePage {
        start: NonNull<u8>,
        layout: Layout,
    },
}

/// Whole pages, and the file behind them if they are shared.
#[derive(Debug)]
struct Allocated {
    backing: Backing,
    length: usize,
    file: Option<File>,
}

/// Memory with one page size.
#[derive(Debug)]
pub struct Segment {
    backing: Backing,
    start: NonNull<u8>,
    length: usize,
    pages: PageKind,
    refused: Vec<Refusal>,
    file: Option<File>,
    numa_errno: Option<i32>,
}

// SAFETY: the bytes belong to this value alone, and it hands out nothing but their address.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Allocates at least `length` bytes, rounded up to whole pages of the best size available.
    pub(super) fn acquire(length: usize, config: &ArenaConfig) -> io::Result<Self> {
        let mut refused = Vec::new();
        for pages in [PageKind::Gigantic, PageKind::Huge] {
            let reason = if !config.huge_pages {
                RefusalReason::NotWanted
            } else if length < pages.bytes() {
                RefusalReason::TooSmall
            } else {
                match allocate(length, pages, config.shared) {
                    Ok(allocated) => return Ok(Self::new(allocated, pages, refused).near(config.numa_node)),
                    Err(error) => RefusalReason::System(error.raw_os_error().unwrap_or(libc::ENOMEM)),
                }
            };
            refused.push(Refusal { pages, reason });
        }
        let allocated = allocate(length, PageKind::Small, config.shared)?;
        let segment = Self::new(allocated, PageKind::Small, refused).near(config.numa_node);
        segment.lock()?;
        Ok(segment)
    }

    fn new(allocated: Allocated, pages: PageKind, refused: Vec<Refusal>) -> Self {
        let Allocated { backing, length, file } = allocated;
        let start = match &backing {
            Backing::Map(map) => NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling()),
            Backing::HugePage { start, .. } => *start,
        };
        Self { backing, start, length, pages, refused, file, numa_errno: None }
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the segment is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Page size.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    /// Why no better page size was used.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// The file behind the bytes, if they can be shared with another process.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Errno with which the system refused the preference for the device's NUMA node, if it did.
    pub fn numa_errno(&self) -> Option<i32> {
        self.numa_errno
    }

    /// Sets the preferred NUMA node before any page is touched. A refusal is recorded and is no error.
    fn near(mut self, node: Option<u32>) -> Self {
        let Some(node) = node.filter(|node| *node < 64) else { return self };
        let mask = 1u64 << node;
        // SAFETY: the range is this segment's own; the policy of its pages changes and none of their bytes. The mask
        // is a local of 64 bits, and the kernel reads one bit less than it is told.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.length,
                libc::MPOL_PREFERRED,
                &raw const mask,
                u64::BITS as usize + 1,
                0,
            )
        };
        self.numa_errno = (result != 0).then(last_errno);
        self
    }

    /// Locks small pages in memory. The kernel will also pin them for the device, but this reports a limit early. Shared
    /// memory has a device in software, which needs no page before it touches it. Locking that memory would take most of
    /// the run time of a short program, and exceed the 8 MiB that a user may usually lock.
    fn lock(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Map(map) if self.file.is_none() => map.lock(),
            Backing::Map(_) | Backing::HugePage { .. } => Ok(()),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Backing::HugePage { start, layout } = self.backing {
            // SAFETY: `start` came from `hugepage_rs::alloc` with this layout and is given back once.
            unsafe { hugepage_rs::dealloc(start.as_ptr(), layout) };
        }
    }
}

/// Allocates memory with one page size: the backing, its length in whole pages, and the file if it is shared.
fn allocate(length: usize, pages: PageKind, shared: bool) -> io::Result<Allocated> {
    let length = length.checked_next_multiple_of(pages.bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
    if shared {
        let file = memory_file(length, pages)?;
        let map = MmapOptions::new().len(length).map_raw(&file)?;
        return Ok(Allocated { backing: Backing::Map(map), length, file: Some(file) });
    }
    let backing = match pages {
        PageKind::Small => Backing::Map(MmapOptions::new().len(length).map_anon()?.into()),
        // The crate only knows the default huge page size, and panics on a kernel without huge pages.
        PageKind::Huge if default_huge_log(Path::new("/")) == Some(pages.log()) => by_crate(length, pages)?,
        _ => Backing::Map(MmapOptions::new().len(length).huge(Some(pages.log())).map_anon()?.into()),
    };
    if let Backing::Map(map) = &backing {
        // A child process must not take over the pages through copy-on-write.
        map.advise(memmap2::Advice::DontFork)?;
    }
    Ok(Allocated { backing, length, file: None })
}

fn by_crate(length: usize, pages: PageKind) -> io::Result<Backing> {
    let layout = Layout::from_size_align(length, pages.bytes()).map_err(io::Error::other)?;
    // SAFETY: the layout is not empty: `length` is a whole number of pages, and callers ask for at least one byte.
    let start = NonNull::new(unsafe { hugepage_rs::alloc(layout) });
    let start = start.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    Ok(Backing::HugePage { start, layout })
}

/// A memory file, on huge pages if `pages` is one.
fn memory_file(length: usize, pages: PageKind) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | match pages {
            PageKind::Small => MemfdFlags::empty(),
            PageKind::Huge => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
            PageKind::Gigantic => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
        };
    let file = memfd_create("bareverbs", flags)?;
    ftruncate(&file, length as u64)?;
    // A server only maps a file that nobody can truncate later.
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(File::from(file))
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
