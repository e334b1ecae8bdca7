//! Memory is mapped one to one: the first 512 GiB by the boot code, and the 512 GiB around one BAR beyond them.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// A page table.
#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; 512]>);

// SAFETY: changed by `map_device` only, which runs before anything else could read it, on one processor.
unsafe impl Sync for Table {}

// SAFETY: both are in `boot.s`, of this size and alignment.
unsafe extern "C" {
    safe static page_map_level_4: Table;
    safe static spare_directory: Table;
}

/// Present, writable, write-through, uncached, a page of 1 GiB.
const DEVICE_PAGE: u64 = 0x9b;
/// Present, writable.
const TABLE: u64 = 0x3;
/// Bits of an address that one entry of the top table covers.
const TOP_SHIFT: u32 = 39;

/// Where device registers at a physical address are seen, if the page tables reach there. The firmware has declared the
/// first 512 GiB's device memory uncached (MTRR).
pub fn map_device(address: u64, length: usize) -> Option<NonNull<u8>> {
    let last = address.checked_add(length as u64)?.checked_sub(1)?;
    let (top, top_of_last) = (address >> TOP_SHIFT, last >> TOP_SHIFT);
    // The lower half of the address space: no sign to extend.
    if top != top_of_last || top >= 256 {
        return None;
    }
    if top != 0 {
        let directory = spare_directory.0.get();
        for (gigabyte, at) in (0..512_u64).zip(0..) {
            // SAFETY: inside the table; the only change, before the only use.
            unsafe { (*directory)[at] = top << TOP_SHIFT | gigabyte << 30 | DEVICE_PAGE };
        }
        // SAFETY: `top` is below 256; an entry that was not present needs no flush.
        unsafe { (*page_map_level_4.0.get())[top as usize] = directory as u64 | TABLE };
    }
    NonNull::new(address as *mut u8)
}
