//! The program around us: its memory, its `errno`, and files for its events.

use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::{Errno, Process};
use core::ffi::c_int;
use libc::iovec;
use std::os::fd::{IntoRawFd, OwnedFd};
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
    /// Our ends of the files for events.
    event_files: Vec<OwnedFd>,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), event_files: Vec::new() }
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
    fn open_event_file(&mut self) -> Result<i32, Errno> {
        let (ours, theirs) = UnixDatagram::pair().map_err(|_| Errno::NoMemory)?;
        self.event_files.push(ours.into());
        Ok(theirs.into_raw_fd())
    }
}
