//! Where the bytes of an arena come from: a ladder of page kinds, the best first, and why each better one was not had.

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

/// Why pages of a kind were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub pages: PageKind,
    /// Why.
    pub reason: RefusalReason,
}

/// Reasons of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The segment is smaller than a page.
    TooSmall,
    /// The configuration says so.
    NotWanted,
    /// The system said no, with this errno: ENOMEM (12) is an empty pool.
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
    /// From the crate `hugepage-rs`, which wants the layout back.
    HugePage {
        start: NonNull<u8>,
        layout: Layout,
    },
}

/// A run of memory of one kind of pages.
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
    /// Takes `length` bytes at least, rounded up to whole pages of the best kind that can be had.
    pub(super) fn acquire(length: usize, config: &ArenaConfig) -> io::Result<Self> {
        let mut refused = Vec::new();
        for pages in [PageKind::Gigantic, PageKind::Huge] {
            let reason = if !config.huge_pages {
                RefusalReason::NotWanted
            } else if length < pages.bytes() {
                RefusalReason::TooSmall
            } else {
                match backing(length, pages, config.shared) {
                    Ok(taken) => return Ok(Self::new(taken, pages, refused).near(config.numa_node)),
                    Err(error) => RefusalReason::System(error.raw_os_error().unwrap_or(libc::ENOMEM)),
                }
            };
            refused.push(Refusal { pages, reason });
        }
        let taken = backing(length, PageKind::Small, config.shared)?;
        let segment = Self::new(taken, PageKind::Small, refused).near(config.numa_node);
        segment.lock()?;
        Ok(segment)
    }

    fn new(
        (backing, length, file): (Backing, usize, Option<File>),
        pages: PageKind,
        refused: Vec<Refusal>,
    ) -> Self {
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

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes; there always are.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Kind of the pages.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    /// Why not a better kind.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// The file behind the bytes, if they can be shared with another process.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// What the system said to the wish for memory near the device, if it refused.
    pub fn numa_errno(&self) -> Option<i32> {
        self.numa_errno
    }

    /// Prefers pages of a NUMA node, before any page is touched. A refusal is remembered and is no error.
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

    /// Keeps small pages in memory. The kernel pins them for the device as well; this reports a limit in time.
    fn lock(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Map(map) => map.lock(),
            Backing::HugePage { .. } => Ok(()),
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

/// Memory of one kind, its length in whole pages, and the file if it is shared.
fn backing(length: usize, pages: PageKind, shared: bool) -> io::Result<(Backing, usize, Option<File>)> {
    let length = length.checked_next_multiple_of(pages.bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
    if shared {
        let file = memory_file(length, pages)?;
        let map = MmapOptions::new().len(length).map_raw(&file)?;
        return Ok((Backing::Map(map), length, Some(file)));
    }
    let backing = match pages {
        PageKind::Small => Backing::Map(MmapOptions::new().len(length).map_anon()?.into()),
        // The crate knows the default size only, and panics where the kernel has no huge pages at all.
        PageKind::Huge if default_huge_log(Path::new("/")) == Some(pages.log()) => by_crate(length, pages)?,
        _ => Backing::Map(MmapOptions::new().len(length).huge(Some(pages.log())).map_anon()?.into()),
    };
    if let Backing::Map(map) = &backing {
        // A child of this process must not take the pages away by copy-on-write.
        map.advise(memmap2::Advice::DontFork)?;
    }
    Ok((backing, length, None))
}

fn by_crate(length: usize, pages: PageKind) -> io::Result<Backing> {
    let layout = Layout::from_size_align(length, pages.bytes()).map_err(io::Error::other)?;
    // SAFETY: the layout is not empty: `length` is a whole number of pages, and callers ask for at least one byte.
    let start = NonNull::new(unsafe { hugepage_rs::alloc(layout) });
    let start = start.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    Ok(Backing::HugePage { start, layout })
}

/// A file that lives in memory, of huge pages if the kind is one.
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
    // A server maps the file only if nobody can make it shorter behind its back.
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(File::from(file))
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
