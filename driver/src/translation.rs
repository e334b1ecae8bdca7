//! Page lists: how commands describe memory to the device (PRM, physical address structures and memory translation
//! tables). Memory of the [`Hal`](crate::hal::Hal) is contiguous for the device, so a list is a run of pages of one size.

use crate::command::Tail;

/// log2 of the smallest page size.
pub(crate) const LOG_PAGE: u8 = 12;

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRun {
    /// First page, aligned to its size.
    pub(crate) first: u64,
    /// log2 of the page size in bytes.
    pub(crate) log_size: u8,
    /// Pages.
    pub(crate) count: u32,
}

impl PageRun {
    /// The pages of a buffer that begins at a page boundary: the largest that its alignment allows, up to
    /// 2^`log_max`.
    pub(crate) fn of_buffer(iova: u64, length: usize, log_max: u8) -> Self {
        let fits = (length.max(1) as u64).next_power_of_two().trailing_zeros() as u8;
        let log_size = (iova.trailing_zeros() as u8).min(fits).min(log_max).max(LOG_PAGE);
        Self { first: iova, log_size, count: (length as u64).div_ceil(1 << log_size) as u32 }
    }

    /// The pages that contain `length` bytes at any address, as large as the memory is long, up to
    /// 2^`log_max`. The bounds of the memory key exclude the memory around it.
    pub(crate) fn around(iova: u64, length: u64, log_max: u8) -> Self {
        let log_size = (length.max(1).ilog2() as u8).clamp(LOG_PAGE, log_max.clamp(LOG_PAGE, 31));
        let last = iova.saturating_add(length.saturating_sub(1)) >> log_size;
        let first = iova >> log_size;
        Self { first: first << log_size, log_size, count: (last - first + 1).min(u32::MAX as u64) as u32 }
    }

    /// The value of `log_page_size` in a context.
    pub(crate) const fn log_page_size(&self) -> u8 {
        self.log_size - LOG_PAGE
    }

    /// The list, with `flags` in the low bits of each entry.
    pub(crate) const fn list(&self, flags: u64) -> Tail<'static> {
        Tail::Pages { first: self.first | flags, log_size: self.log_size, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_use_the_largest_page_their_alignment_allows() {
        let run = |iova, length| PageRun::of_buffer(iova, length, 21);
        assert_eq!(run(0x1000, 4096), PageRun { first: 0x1000, log_size: 12, count: 1 });
        assert_eq!(run(0x1_0000, 0x1_0040), PageRun { first: 0x1_0000, log_size: 16, count: 2 });
        assert_eq!(run(0x1000, 0x4_0000), PageRun { first: 0x1000, log_size: 12, count: 64 });
        assert_eq!(run(1 << 30, 1 << 22).count, 2);
    }

    #[test]
    fn regions_are_covered_from_the_page_below() {
        let run = |iova, length, max| PageRun::around(iova, length, max);
        assert_eq!(run(0x1234, 16, 21), PageRun { first: 0x1000, log_size: 12, count: 1 });
        assert_eq!(run(0x1ff8, 16, 21), PageRun { first: 0x1000, log_size: 12, count: 2 });
        assert_eq!(run(0x10_0000, 4 << 20, 12).count, 1024);
        assert_eq!(run(0x50_1000, 4 << 20, 21), PageRun { first: 0x40_0000, log_size: 21, count: 3 });
    }
}
