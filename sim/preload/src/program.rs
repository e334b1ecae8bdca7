//! The program around us: its memory, files for its events, and its network.

use crate::descriptors::{self, Descriptor};
use crate::event_files::{EventFiles, Inode};
use crate::memory::{self, Way};
use crate::neighbours::Neighbours;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::{Errno, EventFileId, EventFileKind, Process};
use core::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::Instant;

/// The program, as the device and its kernel see it.
#[derive(Debug)]
pub(crate) struct Program {
    start: Instant,
    pub(crate) event_files: EventFiles,
    neighbours: Neighbours,
}

impl Program {
    pub(crate) fn new(neighbours: Neighbours) -> Self {
        Self { start: Instant::now(), event_files: EventFiles::default(), neighbours }
    }

    /// Time since the device was made.
    pub(crate) fn time(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }
}

impl HostMemory for Program {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        // SAFETY: `buffer` is borrowed for the call.
        unsafe { memory::copy(Way::FromProgram, iova, buffer.as_mut_ptr(), buffer.len()) }
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let pointer = bytes.as_ptr().cast_mut();
        // SAFETY: `bytes` is borrowed for the call, and only read in this direction.
        unsafe { memory::copy(Way::ToProgram, iova, pointer, bytes.len()) }
    }
}

impl Process for Program {
    fn now(&mut self) -> Time {
        self.time()
    }

    fn open_event_file(&mut self, file: EventFileId, _kind: EventFileKind) -> Result<i32, Errno> {
        let theirs = self.event_files.open(file).map_err(|_| Errno::NoMemory)?;
        if !descriptors::insert(theirs.as_raw_fd(), Descriptor::Events(file)) {
            self.event_files.remove(file);
            return Err(Errno::NoMemory);
        }
        Ok(theirs.into_raw_fd())
    }

    fn event_file(&mut self, descriptor: i32) -> Option<EventFileId> {
        self.event_files.find(inode(descriptor)?)
    }

    fn discard_events(&mut self, file: EventFileId, element: u64) -> u32 {
        self.event_files.discard(file, element)
    }

    fn hang_up(&mut self, file: EventFileId) {
        self.event_files.remove(file);
    }

    fn has_memory(&mut self, address: u64, length: u64, write: bool) -> bool {
        memory::is_mapped(address, length, write)
    }

    fn resolve(&mut self, gid: Gid) -> Option<MacAddress> {
        let now = self.time();
        self.neighbours.resolve(now, gid)
    }

    fn inode(&mut self, descriptor: i32) -> Option<(u64, u64)> {
        inode(descriptor).map(|inode| (inode.device, inode.number))
    }
}

fn inode(descriptor: c_int) -> Option<Inode> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the number is given to `fstat` alone, which fails for one that is not open.
    Inode::of(unsafe { BorrowedFd::borrow_raw(descriptor) })
}
