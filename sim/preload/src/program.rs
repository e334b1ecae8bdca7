//! The program around us: its memory, its `errno`, and files for its events.

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::{Errno, EventFileId, EventFileKind, Process, VirtualHost};
use core::ffi::c_int;
use core::ops::Range;
use libc::iovec;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

/// Sets `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library gives each thread a place for its number.
    unsafe { *libc::__errno_location() = number };
}

/// The program, as the device and its kernel see it.
#[derive(Debug)]
pub(crate) struct Program {
    start: Instant,
    /// The files for events.
    event_files: Vec<EventFile>,
    host: VirtualHost,
}

/// A file for events: our end, which keeps the program's open, and the inode of the program's.
#[derive(Debug)]
struct EventFile {
    id: EventFileId,
    _ours: OwnedFd,
    inode: (u64, u64),
}

impl Program {
    pub(crate) fn new(host: VirtualHost) -> Self {
        Self { start: Instant::now(), event_files: Vec::new(), host }
    }
}

/// Which way `process_vm_*` copies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    FromProgram,
    ToProgram,
}

/// Copies between a buffer of ours and an address of the program, in the kernel: a wrong address is an error, not a fault.
fn copy(way: Way, iova: u64, buffer: *mut u8, length: usize) -> Result<(), DmaFault> {
    let fault = DmaFault { iova, length, write: way == Way::ToProgram };
    let address = usize::try_from(iova).map_err(|_| fault)?;
    let local = iovec { iov_base: buffer.cast(), iov_len: length };
    let remote = iovec { iov_base: core::ptr::without_provenance_mut(address), iov_len: length };
    // SAFETY: `buffer` has `length` bytes, which the callers below borrow for the call; the remote side is checked by the
    // kernel. The program made the range available by its request, and answers for who else uses it.
    let copied = unsafe {
        match way {
            Way::FromProgram => libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0),
            Way::ToProgram => libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0),
        }
    };
    if usize::try_from(copied) == Ok(length) { Ok(()) } else { Err(fault) }
}

impl HostMemory for Program {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        copy(Way::FromProgram, iova, buffer.as_mut_ptr(), buffer.len())
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        // The kernel only reads from here.
        copy(Way::ToProgram, iova, bytes.as_ptr().cast_mut(), bytes.len())
    }
}

impl Process for Program {
    fn now(&mut self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// A pair of sockets keeps the borders of events, and the program can poll its end like any descriptor.
    fn open_event_file(&mut self, file: EventFileId, _: EventFileKind) -> Result<i32, Errno> {
        let (ours, theirs) = UnixDatagram::pair().map_err(|_| Errno::NoMemory)?;
        let inode = inode(theirs.as_raw_fd()).ok_or(Errno::NoMemory)?;
        self.event_files.push(EventFile { id: file, _ours: ours.into(), inode });
        Ok(theirs.into_raw_fd())
    }

    fn event_file(&mut self, descriptor: i32) -> Option<EventFileId> {
        let inode = inode(descriptor)?;
        self.event_files.iter().find(|file| file.inode == inode).map(|file| file.id)
    }

    /// Nobody drives the device yet, so nothing is in the files.
    fn discard_events(&mut self, _: EventFileId, _: u64) -> u32 {
        0
    }

    fn hang_up(&mut self, file: EventFileId) {
        self.event_files.retain(|known| known.id != file);
    }

    fn has_memory(&mut self, address: u64, length: u64, write: bool) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        address.checked_add(length).is_some_and(|end| covers(&maps, address..end, write))
    }

    fn resolve(&mut self, gid: Gid) -> Option<MacAddress> {
        self.host.gids().contains(&gid).then(|| self.host.mac())
    }

    fn inode(&mut self, descriptor: i32) -> Option<(u64, u64)> {
        inode(descriptor)
    }
}

/// Device and inode of a descriptor.
fn inode(descriptor: c_int) -> Option<(u64, u64)> {
    let status = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some((status.dev(), status.ino()))
}

/// Whether the mappings of a process, as `/proc/self/maps` lists them in the order of their addresses, leave no hole in a
/// range.
fn covers(maps: &str, range: Range<u64>, write: bool) -> bool {
    let mut covered = range.start;
    for line in maps.lines() {
        let mut words = line.split([' ', '-']);
        let mut number = || words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (Some(start), Some(end)) = (number(), number()) else { continue };
        let rights = words.next().unwrap_or_default();
        let usable = rights.starts_with('r') && (!write || rights[1..].starts_with('w'));
        if usable && (start..end).contains(&covered) {
            covered = end;
        }
    }
    covered >= range.end
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_range_needs_mappings_without_a_hole() {
        let maps = "1000-2000 rw-p 00000000 00:00 0\n2000-4000 r--p 00000000 00:00 0\n5000-6000 ---p 00000000 00:00 0\n";
        assert!(covers(maps, 0x1000..0x2000, true));
        assert!(covers(maps, 0x1800..0x3800, false));
        assert!(!covers(maps, 0x1800..0x3800, true), "the second may only be read");
        assert!(!covers(maps, 0x3000..0x5000, false), "a hole");
        assert!(!covers(maps, 0x5000..0x6000, false), "no rights");
        assert!(!covers(maps, 0x800..0x2000, false), "begins before");
    }
}
