//! Which physical addresses the boot code maps.

use core::ptr::NonNull;

/// Bits of an address that the boot code maps.
const MAPPED_BITS: u32 = 39;

/// Where device registers at a physical address are seen: the boot code maps what is below 1 GiB, and from 256 GiB to
/// 512 GiB, as devices.
pub fn map_device(address: u64, length: usize) -> Option<NonNull<u8>> {
    let end = address.checked_add(length as u64)?;
    let low = end <= 1 << 30;
    let high = address >= 1 << 38 && end <= 1 << MAPPED_BITS;
    (low || high).then(|| NonNull::new(address as *mut u8))?
}
