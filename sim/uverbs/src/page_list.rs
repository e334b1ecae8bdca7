//! Page lists of the program's memory for commands. The device uses the program's own addresses, so a page of any size
//! is one entry.

use crate::Errno;
use crate::kernel_memory::PAGE;
use crate::process::Process;
use alloc::vec::Vec;

/// How many entries a list should have at most: larger pages keep commands short.
const ENTRIES: u64 = 64;
/// Logarithms of the smallest and the largest page of a memory key.
const SMALLEST: u32 = 12;
const LARGEST: u32 = 31;
/// The offset of a queue in its first page is in units of a 64th page.
const OFFSET_UNIT: u64 = PAGE / 64;

/// The memory of a queue.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    /// 64ths of a page before the first byte.
    pub(crate) page_offset: u8,
    /// Addresses of the pages, big-endian.
    pub(crate) list: Vec<u8>,
}

impl QueuePlace {
    /// The pages of a queue of `length` bytes, all of which the program must have mapped.
    pub(crate) fn find<P: Process>(
        process: &mut P,
        address: u64,
        length: u64,
        write: bool,
    ) -> Result<Self, Errno> {
        if !process.has_memory(address, length, write) {
            return Err(Errno::Fault);
        }
        let lead = address % PAGE;
        if !lead.is_multiple_of(OFFSET_UNIT) {
            return Err(Errno::Invalid);
        }
        let pages = (lead + length).div_ceil(PAGE);
        Ok(Self { page_offset: (lead / OFFSET_UNIT) as u8, list: list(address - lead, SMALLEST, pages) })
    }
}

/// The pages of a region.
#[derive(Debug)]
pub(crate) struct RegionPages {
    pub(crate) log_page: u8,
    pub(crate) count: u64,
    /// Addresses of the pages, big-endian.
    pub(crate) list: Vec<u8>,
}

impl RegionPages {
    /// The pages of `length` bytes at `start`, whose address in work requests is `first`. Both addresses must
    /// have the same offset in their page; otherwise `None`.
    pub(crate) fn find(start: u64, length: u64, first: u64) -> Option<Self> {
        let largest = (start ^ first).trailing_zeros().min(LARGEST);
        let last = start.checked_add(length.checked_sub(1)?)?;
        let count = |log_page: u32| (last >> log_page) - (start >> log_page) + 1;
        let log_page = (SMALLEST..=largest).find(|&log_page| count(log_page) <= ENTRIES).unwrap_or(largest);
        if log_page < SMALLEST {
            return None;
        }
        let count = count(log_page);
        let list = list(start >> log_page << log_page, log_page, count);
        Some(Self { log_page: log_page as u8, count, list })
    }
}

fn list(first: u64, log_page: u32, count: u64) -> Vec<u8> {
    (0..count).flat_map(|page| first.wrapping_add(page << log_page).to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_with_the_region_unless_the_addresses_differ() {
        let small = RegionPages::find(0x7000_1234, 100, 0x7000_1234).unwrap();
        assert_eq!(
            (small.log_page, small.count, small.list),
            (12, 1, 0x7000_1000_u64.to_be_bytes().to_vec())
        );
        let large = RegionPages::find(0x7000_0000, 1 << 30, 0x7000_0000).unwrap();
        assert_eq!((large.log_page, large.count), (24, 64));
        let moved = RegionPages::find(0x7000_0000, 1 << 30, 0x1000).unwrap();
        assert_eq!(
            (moved.log_page, moved.count),
            (12, 1 << 18),
            "the addresses agree in their pages of 4 KiB only"
        );
        assert!(RegionPages::find(0x7000_0000, 64, 0x10).is_none());
        assert!(RegionPages::find(u64::MAX, 2, u64::MAX).is_none());
    }
}
