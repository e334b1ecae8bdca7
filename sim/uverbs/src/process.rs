//! Services required from the owner of the program.

use crate::Errno;
use crate::connection_names::{ConnectionFileId, Port, SubnetPort};
use crate::event_record::{EventFileId, EventFileKind};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;

/// What an operating system provides for the program: memory, time, event files, neighbours.
///
/// # Files of events
///
/// The program reads [`EventRecord`](crate::EventRecord)s from descriptors, one record per read, in the order of
/// [`Uverbs::poll_event`](crate::Uverbs::poll_event). [`Self::open_event_file`] creates a file; from then on its
/// [`EventFileId`] identifies it, because a program may duplicate, pass on and close descriptors. When its last
/// descriptor is closed, call [`Uverbs::close_event_file`](crate::Uverbs::close_event_file).
///
/// **Records are counted.** A record from `poll_event` counts as read by the program unless [`Self::discard_events`]
/// reports that it took the record back. So a record that could not be put into its file must be counted there too.
/// libibverbs waits until the program has acknowledged everything that it has read, and would otherwise wait forever.
pub trait Process: HostMemory {
    /// Time since the device was created.
    fn now(&mut self) -> Time;

    /// Opens an event file and returns its descriptor, which is close-on-exec.
    fn open_event_file(&mut self, file: EventFileId, kind: EventFileKind) -> Result<i32, Errno>;

    /// The event file behind a descriptor; `None` if it is something else.
    fn event_file(&mut self, descriptor: i32) -> Option<EventFileId>;

    /// Discards the unread records of an element (the first 8 bytes of a record) and returns their number. Afterwards
    /// the program reads none of it.
    fn discard_events(&mut self, file: EventFileId, element: u64) -> u32;

    /// The device file behind an event file is gone. Remaining records can be read; then reads fail with `EIO` and
    /// `poll` reports `POLLERR`.
    fn hang_up(&mut self, file: EventFileId);

    /// Whether the program has all of a memory range mapped, writable if `write` is set. Called once, at registration;
    /// device accesses to memory that the program unmaps later fault.
    fn has_memory(&mut self, address: u64, length: u64, write: bool) -> bool;

    /// MAC address of the host with this GID, as found by neighbour discovery. Never waits: `Again` means that the request is
    /// under way. [`Uverbs::ioctl`](crate::Uverbs::ioctl) then returns `Again` too, has changed nothing, and the same request
    /// will say more a moment later. `TimedOut`: nobody answers. Never called for multicast groups.
    fn resolve(&mut self, gid: Gid) -> Result<MacAddress, Errno>;

    /// Whether a host with this GID is present: one of its processes has a device.
    fn is_reachable(&mut self, gid: Gid) -> bool;

    /// Whether the owner of this GID is outside the network, behind a wire whose MTU is unknown.
    fn is_outside(&mut self, gid: Gid) -> bool;

    /// InfiniBand port of the host with this GID or IP address (as a GID), if one of its processes has a device: the
    /// combination of ARP over IPoIB and a path record query. Never called for multicast groups.
    fn find_subnet_port(&mut self, address: Gid) -> Option<SubnetPort>;

    /// GID of the InfiniBand port with this LID; `None` if there is none.
    fn gid_of_lid(&mut self, lid: u16) -> Option<Gid>;

    /// Claims a connection port of the host; `AddressInUse` if another process of the host has it. Released with
    /// [`Self::release_port`] or when the process ends.
    fn claim_port(&mut self, port: Port) -> Result<(), Errno>;

    /// Releases a port.
    fn release_port(&mut self, port: Port);

    /// Whether a process of the host owns a port.
    fn has_owner(&mut self, port: Port) -> bool;

    /// Whether this process answers requests for unowned ports on behalf of its host: it is the first live process.
    fn is_first(&mut self) -> bool;

    /// The connection management file behind a descriptor; `None` if it is something else.
    fn connection_file(&mut self, descriptor: i32) -> Option<ConnectionFileId>;

    /// A number unique to the process, from which connection numbers are derived.
    fn seed(&mut self) -> u64;

    /// Nanoseconds since 1970, for interpreting device timestamps.
    fn wall_clock(&mut self) -> u64;

    /// Device and inode of the file behind a descriptor, which identify a shared XRC domain; `None` if there is no such
    /// descriptor.
    fn inode(&mut self, descriptor: i32) -> Option<(u64, u64)>;
}
