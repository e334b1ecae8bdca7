//! The surrounding program: its memory, event files and network.

use crate::connection_files::ConnectionFiles;
use crate::descriptors::{self, Descriptor};
use crate::event_files::{EventFiles, Inode};
#[cfg(target_arch = "x86_64")]
use crate::guarded;
use crate::memory::{self, Way};
use bareverbs_network::{Neighbours, OutsideNeighbours};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::Ports;
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::{ConnectionFileId, Errno, EventFileId, EventFileKind, Port, Process, SubnetPort};
use core::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The program, as seen by the device and its kernel.
#[derive(Debug)]
pub(crate) struct Program {
    start: Instant,
    pub(crate) event_files: EventFiles,
    pub(crate) connection_files: ConnectionFiles,
    neighbours: Neighbours,
    outside: OutsideNeighbours,
    ports: Ports,
    /// Number of device rounds run by the program's threads.
    pub(crate) driven_rounds: u64,
    /// Whether a neighbour outside the network is being resolved and has not answered yet.
    awaits_neighbour: bool,
    /// Whether this thread accesses memory itself, rather than through the kernel.
    is_direct: bool,
}

impl Program {
    pub(crate) fn new(neighbours: Neighbours, outside: OutsideNeighbours, ports: Ports) -> Self {
        Self {
            start: Instant::now(),
            event_files: EventFiles::default(),
            connection_files: ConnectionFiles::default(),
            neighbours,
            outside,
            ports,
            driven_rounds: 0,
            awaits_neighbour: false,
            is_direct: false,
        }
    }

    /// GIDs of the host with this MAC address; empty if there is none.
    pub(crate) fn gids_of(&mut self, mac: MacAddress) -> Vec<Gid> {
        let now = self.time();
        self.neighbours.gids_of(now, mac)
    }

    /// Whether a descriptor still refers to a connection management file. True as well for a file of the parent
    /// process; the file then does not exist.
    pub(crate) fn is_connection_file(&self, file: ConnectionFileId, descriptor: c_int) -> bool {
        file.raw() == u32::MAX || inode(descriptor).is_some_and(|inode| self.connection_files.is(file, inode))
    }

    /// Whether a neighbour that was resolved since the last call has not answered yet.
    pub(crate) fn take_awaited_neighbour(&mut self) -> bool {
        core::mem::take(&mut self.awaits_neighbour)
    }

    /// Runs `work` with direct memory access. The thread must not block the signals of its own faults.
    pub(crate) fn directly<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.is_direct = guards_copies();
        let done = work(self);
        self.is_direct = false;
        done
    }

    /// Copies in this thread; `None` if the kernel must do it.
    #[cfg(target_arch = "x86_64")]
    fn copy_directly(
        &self,
        way: Way,
        iova: u64,
        buffer: *mut u8,
        length: usize,
    ) -> Option<Result<(), DmaFault>> {
        let place = core::ptr::without_provenance_mut(usize::try_from(iova).ok().filter(|_| self.is_direct)?);
        let (to, from) = if way == Way::ToProgram { (place, buffer) } else { (buffer, place) };
        // SAFETY: `buffer` is borrowed by the callers below for the call; `is_direct` is set by `directly` only, after copies
        // are guarded, in a thread that does not block the signals.
        let copied = unsafe { guarded::copy(to, from.cast_const(), length) };
        Some(if copied { Ok(()) } else { Err(DmaFault { iova, length, write: way == Way::ToProgram }) })
    }

    /// On other processors the kernel copies.
    #[cfg(not(target_arch = "x86_64"))]
    fn copy_directly(&self, _: Way, _: u64, _: *mut u8, _: usize) -> Option<Result<(), DmaFault>> {
        None
    }

    /// Time since the device was created.
    pub(crate) fn time(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }
}

/// Whether copies can be guarded against faults.
fn guards_copies() -> bool {
    #[cfg(target_arch = "x86_64")]
    return guarded::guard();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl HostMemory for Program {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        if let Some(copied) = self.copy_directly(Way::FromProgram, iova, buffer.as_mut_ptr(), buffer.len()) {
            return copied;
        }
        // SAFETY: `buffer` is borrowed for the call.
        unsafe { memory::copy(Way::FromProgram, iova, buffer.as_mut_ptr(), buffer.len()) }
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let pointer = bytes.as_ptr().cast_mut();
        if let Some(copied) = self.copy_directly(Way::ToProgram, iova, pointer, bytes.len()) {
            return copied;
        }
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
        memory::is_mapped(address, length, write).unwrap_or_else(|error| {
            eprintln!(
                "bareverbs run: memory cannot be registered: {} cannot be read: {error}; mount /proc, or allow more open files (ulimit -n)",
                memory::MAPS
            );
            false
        })
    }

    fn resolve(&mut self, gid: Gid) -> Result<MacAddress, Errno> {
        let now = self.time();
        let found = self.neighbours.resolve(now, gid).or_else(|| self.outside.look_up(now, gid));
        self.awaits_neighbour = found.is_none() && self.outside.is_asking(gid);
        found.ok_or(if self.awaits_neighbour { Errno::Again } else { Errno::TimedOut })
    }

    fn is_reachable(&mut self, gid: Gid) -> bool {
        let now = self.time();
        if self.neighbours.resolve(now, gid).is_some() {
            return self.neighbours.has_process(now, gid);
        }
        self.outside.look_up(now, gid).is_some()
    }

    fn is_outside(&mut self, gid: Gid) -> bool {
        let now = self.time();
        self.neighbours.resolve(now, gid).is_none() && self.outside.look_up(now, gid).is_some()
    }

    fn find_subnet_port(&mut self, address: Gid) -> Option<SubnetPort> {
        let now = self.time();
        self.neighbours.subnet_port(now, address)
    }

    fn gid_of_lid(&mut self, lid: u16) -> Option<Gid> {
        let now = self.time();
        self.neighbours.gid_of_lid(now, lid)
    }

    fn claim_port(&mut self, Port { space, number }: Port) -> Result<(), Errno> {
        match self.ports.claim(space, number) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::AddressInUse),
            Err(error) => {
                eprintln!("bareverbs run: cannot take port {number} of the host: {error}");
                Err(Errno::Io)
            }
        }
    }

    fn release_port(&mut self, Port { space, number }: Port) {
        self.ports.release(space, number);
    }

    fn has_owner(&mut self, Port { space, number }: Port) -> bool {
        self.ports.has_owner(space, number)
    }

    fn is_first(&mut self) -> bool {
        self.ports.is_first()
    }

    fn connection_file(&mut self, descriptor: i32) -> Option<ConnectionFileId> {
        match descriptors::get(descriptor) {
            Descriptor::Connections(file) => Some(file),
            _ => None,
        }
    }

    fn seed(&mut self) -> u64 {
        self.wall_clock() ^ u64::from(std::process::id()) << 40
    }

    fn wall_clock(&mut self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
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
