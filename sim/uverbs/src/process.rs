//! What is asked of whoever runs the program.

use crate::Errno;
use crate::connection_names::{ConnectionFileId, Port, SubnetPort};
use crate::event_record::{EventFileId, EventFileKind};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;

/// What an operating system does for the program that asks: its memory, the time, files for events, neighbours.
///
/// # Files of events
///
/// The program reads [`EventRecord`](crate::EventRecord)s from descriptors: one record a read, in the order in which
/// [`Uverbs::poll_event`](crate::Uverbs::poll_event) gave them. A file is made by [`Self::open_event_file`] and named by its
/// [`EventFileId`] ever after, since a program may duplicate, pass on and close descriptors. When its last descriptor is
/// closed, [`Uverbs::close_event_file`](crate::Uverbs::close_event_file) is told.
///
/// **Records are counted.** A record that `poll_event` gave counts as read by the program, unless
/// [`Self::discard_events`] says that it took it back. So a record that could not be put into its file has to be counted
/// there as well: libibverbs waits until the program has acknowledged everything that was read, and would wait for ever.
pub trait Process: HostMemory {
    /// Time since the device was made.
    fn now(&mut self) -> Time;

    /// Opens a file from which the program reads events, and gives the number of its descriptor, which is closed by `exec`.
    fn open_event_file(&mut self, file: EventFileId, kind: EventFileKind) -> Result<i32, Errno>;

    /// The file of events behind a descriptor; `None` if the descriptor is something else.
    fn event_file(&mut self, descriptor: i32) -> Option<EventFileId>;

    /// Takes away what the program has not read of an element: the first 8 bytes of the record. Gives how many records
    /// there were. Afterwards the program reads nothing of it.
    fn discard_events(&mut self, file: EventFileId, element: u64) -> u32;

    /// The device file behind a file of events is gone. What is in it can be read; then a read fails with `EIO`, and
    /// `poll` says `POLLERR`.
    fn hang_up(&mut self, file: EventFileId);

    /// Whether the program has all of a range of memory, and may write to it if `write` is set. It is asked once, when the
    /// range is registered: what the program unmaps later faults when the device accesses it.
    fn has_memory(&mut self, address: u64, length: u64, write: bool) -> bool;

    /// The MAC address of the host that has a GID, as neighbour discovery finds it, which may take a moment; `None` if nobody
    /// answers. It is not asked for multicast groups.
    fn resolve(&mut self, gid: Gid) -> Option<MacAddress>;

    /// The same if it is known by now: this never waits. Asking again a moment later may say more.
    fn look_up(&mut self, gid: Gid) -> Option<MacAddress>;

    /// Whether a host that has a GID is there: a process of it has a device.
    fn is_reachable(&mut self, gid: Gid) -> bool;

    /// Whether whoever has a GID is at the other end of a wire that leads out of the network: how long its packets may be is not known.
    fn is_outside(&mut self, gid: Gid) -> bool;

    /// The InfiniBand port of the host that has an address, a GID or one of IP as a GID, if a process of it has a device: what ARP over
    /// IPoIB and a path record of the subnet's administration say together. It is not asked for multicast groups.
    fn find_subnet_port(&mut self, address: Gid) -> Option<SubnetPort>;

    /// The GID of the InfiniBand port that has a LID; `None` if the subnet has no such LID.
    fn gid_of_lid(&mut self, lid: u16) -> Option<Gid>;

    /// Takes a port of the host for connections; `AddressInUse` if another process of the host has it. It is given back with
    /// [`Self::release_port`], or with the end of the process.
    fn claim_port(&mut self, port: Port) -> Result<(), Errno>;

    /// Gives a port back.
    fn release_port(&mut self, port: Port);

    /// Whether a process of the host has a port.
    fn has_owner(&mut self, port: Port) -> bool;

    /// Whether this process is the one of its host that refuses requests for what nobody has: none that lives comes before it.
    fn is_first(&mut self) -> bool;

    /// The file of connection management behind a descriptor of the program; `None` if it is something else.
    fn connection_file(&mut self, descriptor: i32) -> Option<ConnectionFileId>;

    /// A number that differs from process to process, from which the numbers of its connections follow.
    fn seed(&mut self) -> u64;

    /// Nanoseconds since 1970, by which programs understand the device's time stamps.
    fn wall_clock(&mut self) -> u64;

    /// Device and inode of the file behind a descriptor of the program, by which XRC domains are shared; `None` if there
    /// is no such descriptor.
    fn inode(&mut self, descriptor: i32) -> Option<(u64, u64)>;
}
