//! Access to the program's memory: copies that survive invalid addresses, and checks of its mappings.

use bareverbs_sim::nic::DmaFault;
use libc::iovec;
use std::{fs, io};

/// Where the kernel says what this process has mapped.
pub(crate) const MAPS: &str = "/proc/self/maps";

/// Direction of a copy by `process_vm_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    FromProgram,
    ToProgram,
}

/// Copies between our buffer and an address of the program inside the kernel: an invalid address gives an error, not a
/// fault.
///
/// # Safety
/// `buffer` has `length` bytes that the caller may read, and also write if the way is from the program.
pub(crate) unsafe fn copy(way: Way, iova: u64, buffer: *mut u8, length: usize) -> Result<(), DmaFault> {
    let fault = DmaFault { iova, length, write: way == Way::ToProgram };
    let address = usize::try_from(iova).map_err(|_| fault)?;
    let local = iovec { iov_base: buffer.cast(), iov_len: length };
    let remote = iovec { iov_base: core::ptr::without_provenance_mut(address), iov_len: length };
    // SAFETY: the caller answers for `buffer`; the remote side is checked by the kernel. The program made the range available
    // by its request, and answers for who else uses it.
    let copied = unsafe {
        match way {
            Way::FromProgram => libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0),
            Way::ToProgram => libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0),
        }
    };
    if usize::try_from(copied) == Ok(length) { Ok(()) } else { Err(fault) }
}

/// Whether the program has a whole range mapped readable, and writable if `write` is set. Fails if the
/// kernel's list cannot be read.
pub(crate) fn is_mapped(address: u64, length: u64, write: bool) -> io::Result<bool> {
    let maps = fs::read_to_string(MAPS)?;
    Ok(address.checked_add(length).is_some_and(|end| covers(&maps, address, end, write)))
}

/// The same, for the text of `/proc/PID/maps`, whose lines are sorted by address.
pub(crate) fn covers(maps: &str, address: u64, end: u64, write: bool) -> bool {
    let mut reached = address;
    for line in maps.lines() {
        let Some((start, stop, rights)) = mapping(line) else { continue };
        if stop <= reached {
            continue;
        }
        if reached >= end || start > reached {
            break;
        }
        if !rights.starts_with('r') || write && !rights[1..].starts_with('w') {
            return false;
        }
        reached = stop;
    }
    reached >= end
}

/// Start, end and rights of a mapping.
fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, stop) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(stop)?, words.next().filter(|rights| rights.len() >= 2)?))
}
