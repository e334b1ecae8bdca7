//! Report of an arena's memory.

use super::pages::{PageKind, huge_page_command};
use super::segment::{Refusal, RefusalReason};
use core::fmt;

/// One segment of an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Length in bytes.
    pub bytes: usize,
    /// Page size that was chosen.
    pub pages: PageKind,
    /// Better page sizes that were not available, and why.
    pub refused: Vec<Refusal>,
    /// Errno with which the system refused the preference for the device's NUMA node, if it did.
    pub numa_errno: Option<i32>,
}

/// Usage and limits of an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaReport {
    /// Most bytes to take from the system.
    pub limit: usize,
    /// Bytes allocated now.
    pub used: usize,
    /// Most bytes ever allocated at a time.
    pub peak: usize,
    /// Bytes of the application's own memory that are mapped for the device now.
    pub user: usize,
    /// Segments taken from the system.
    pub segments: Vec<SegmentReport>,
}

impl ArenaReport {
    /// Bytes taken from the system.
    pub fn taken(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

impl fmt::Display for ArenaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: usize| bytes.div_ceil(1024);
        write!(
            f,
            "DMA memory: {} KiB used (peak {}), {} KiB of {} KiB taken, {} KiB of the application",
            kib(self.used),
            kib(self.peak),
            kib(self.taken()),
            kib(self.limit),
            kib(self.user)
        )?;
        self.segments.iter().try_for_each(|segment| write!(f, "\n  {segment}"))
    }
}

impl fmt::Display for SegmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB of {}", self.bytes >> 10, self.pages)?;
        for (index, refusal) in self.refused.iter().enumerate() {
            write!(f, "{} {refusal}", if index == 0 { "; not" } else { ", nor" })?;
            if refusal.pages == PageKind::Huge && matches!(refusal.reason, RefusalReason::System(_)) {
                write!(f, " (make some: {})", huge_page_command(self.bytes))?;
            }
        }
        if let Some(errno) = self.numa_errno {
            write!(f, "; not bound to the device's NUMA node: {}", std::io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}
