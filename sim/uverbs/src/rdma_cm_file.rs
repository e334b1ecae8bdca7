//! A process's `/dev/infiniband/rdma_cm`: files, commands and events of connection management, and its messages through
//! the general services queue pairs, one per device.
//!
//! **What this is.** The counterpart of the kernel's `rdma_cm`: one instance for all devices, which it distinguishes by
//! address. The driving loop calls [`Connections::settle`] after the devices.
//!
//! **What it may not do.** It never waits: a message for a host whose MAC address is unknown is held for a moment.

use crate::address_path::link_local_mac;
use crate::connection_names::ConnectionFileId;
use crate::device::Device;
use crate::device_index::DeviceIndex;
use crate::general_services::{Outgoing, Receiver};
use crate::netlink::{ListedObject, ObjectOwner};
use crate::process::Process;
use crate::rdma_cm::{Heard, HostFacts, PortFacts, RdmaCm};
use crate::{Errno, Uverbs, device_methods};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bareverbs_cm::{Message, Path};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::QueuePairNumbers;

/// Most consecutive rounds of messages: devices that talk to themselves answer at once.
const MOST_ROUNDS: usize = 64;
/// How long a message waits for its receiver's MAC address, and how often the address is looked up. Peers
/// retransmit after seconds in any case.
const TIMEOUT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(2);
/// Most messages that wait like this. Beyond that the oldest is dropped, as from the queue of an unresolved
/// neighbour (RFC 4861 §7.2.2).
const MOST_HELD: usize = 64;

/// A message whose receiver's MAC address is not known yet.
#[derive(Debug)]
struct Postponed {
    path: Path,
    message: Message,
    until: Time,
}

/// Connection management of a process; see the module.
#[derive(Debug)]
pub struct Connections {
    rdma_cm: RdmaCm,
    held: VecDeque<Postponed>,
    /// When neighbours are looked up again.
    look_at: Time,
}

/// What connection management has to know about a device's port.
fn facts(device: &Uverbs) -> PortFacts {
    let attributes = device.attributes();
    PortFacts {
        guid: attributes.node_guid,
        gids: attributes.gids.clone(),
        addresses: device.ip_addresses.clone(),
        lid: attributes.infiniband.map(|port| port.lid),
        mtu: device_methods::path_mtu(device.nic().config().mtu).raw(),
    }
}

impl Connections {
    /// For a process with these devices, in index order. Pass the same devices to every call.
    pub fn new<P: Process>(devices: &[Uverbs], process: &mut P) -> Self {
        let number = match devices.first().map(|device| device.nic().config().queue_pair_numbers) {
            Some(QueuePairNumbers::Block(number)) => number,
            Some(QueuePairNumbers::All) | None => 0,
        };
        let host = HostFacts(devices.iter().map(facts).collect());
        Self {
            rdma_cm: RdmaCm::new(host, number, process.seed()),
            held: VecDeque::new(),
            look_at: Time::ZERO,
        }
    }

    /// Connection identifiers at a device.
    pub fn list(&self, device: DeviceIndex, owner: ObjectOwner) -> Vec<ListedObject> {
        self.rdma_cm.list(device.number().into(), owner)
    }

    /// Number of connection identifiers at a device.
    pub fn count(&self, device: DeviceIndex) -> u64 {
        self.rdma_cm.count(device.number().into())
    }

    /// Opens a file.
    pub fn open(&mut self) -> ConnectionFileId {
        self.rdma_cm.open()
    }

    /// The last descriptor of a file was closed: its connections end, and their peers are told.
    pub fn close<P: Process>(&mut self, devices: &mut [Uverbs], process: &mut P, file: ConnectionFileId) {
        let now = process.now();
        self.rdma_cm.close(process, now, file);
        self.exchange(now, devices, process);
    }

    /// The program ends, and with it all connection management files.
    pub fn close_all<P: Process>(&mut self, devices: &mut [Uverbs], process: &mut P) {
        for file in self.rdma_cm.open_files() {
            self.close(devices, process, file);
        }
        let now = process.now();
        self.rdma_cm.refuse_requests(process, now);
        self.exchange(now, devices, process);
    }

    /// Executes a command that the program writes to the file. `Again`: GET_EVENT without a waiting event.
    pub fn write<P: Process>(
        &mut self,
        devices: &mut [Uverbs],
        process: &mut P,
        file: ConnectionFileId,
        command: &[u8],
    ) -> Result<(), Errno> {
        let now = process.now();
        let done = self.rdma_cm.write(process, now, file, command);
        self.exchange(now, devices, process);
        done
    }

    /// A process of the host with these GIDs has ended, possibly without disconnecting: connections to it end, as when
    /// the kernel closes a killed process's files.
    pub fn handle_ended_peer<P: Process>(
        &mut self,
        devices: &mut [Uverbs],
        process: &mut P,
        host: &[Gid],
        number: u8,
    ) {
        let now = process.now();
        self.rdma_cm.handle_ended_peer(process, now, host, number);
        self.exchange(now, devices, process);
    }

    /// Number of unread events of a file.
    pub fn waiting_events(&self, file: ConnectionFileId) -> usize {
        self.rdma_cm.waiting(file)
    }

    /// Handles received messages and sends those that had no room before; call it after every input of the devices.
    /// Returns whether there was anything to do.
    pub fn settle<P: Process>(&mut self, now: Time, devices: &mut [Uverbs], process: &mut P) -> bool {
        let has_heard = devices.iter().any(|device| !device.device.inbox.is_empty());
        let is_busy = has_heard || self.rdma_cm.has_message() && has_room(devices);
        if is_busy {
            self.exchange(now, devices, process);
        }
        is_busy
    }

    /// Runs what is due at `now`: unanswered messages, resolutions, requests without a listener.
    pub fn advance<P: Process>(&mut self, now: Time, devices: &mut [Uverbs], process: &mut P) {
        if self.next_wakeup().is_none_or(|due| due > now) {
            return;
        }
        self.rdma_cm.advance(process, now);
        if self.look_at <= now {
            let mut way = Way { now, devices: &mut *devices, process: &mut *process };
            for held in core::mem::take(&mut self.held) {
                self.send_or_hold(&mut way, held);
            }
        }
        self.exchange(now, devices, process);
    }

    /// When to call [`Self::advance`] next; it may find nothing due.
    pub fn next_wakeup(&self) -> Option<Time> {
        let look = (!self.held.is_empty()).then_some(self.look_at);
        [self.rdma_cm.next_wakeup(), look].into_iter().flatten().min()
    }

    /// Moves messages between connection management and the queue pairs of general services.
    fn exchange<P: Process>(&mut self, now: Time, devices: &mut [Uverbs], process: &mut P) {
        for _ in 0..MOST_ROUNDS {
            for (number, device) in devices.iter_mut().enumerate() {
                for datagram in core::mem::take(&mut device.device.inbox) {
                    let heard = Heard { device: number, from: datagram.sender, payload: &datagram.payload };
                    self.rdma_cm.handle(process, now, &heard);
                }
            }
            while has_room(devices) {
                let Some((path, message)) = self.rdma_cm.poll_message() else { break };
                let mut way = Way { now, devices: &mut *devices, process: &mut *process };
                self.send_or_hold(&mut way, Postponed { path, message, until: now + TIMEOUT });
            }
            for device in &mut *devices {
                device.device.serve_interrupts(now, process);
            }
            if devices.iter().all(|device| device.device.inbox.is_empty()) {
                break;
            }
        }
    }

    /// Sends a message, or holds it until its receiver's MAC address is known or its time is over.
    fn send_or_hold<P: Process>(&mut self, way: &mut Way<'_, P>, held: Postponed) {
        let device = self.rdma_cm.device_of(held.path);
        if way.send(device, &held) || held.until <= way.now {
            return;
        }
        if self.held.len() >= MOST_HELD {
            self.held.pop_front();
        }
        self.look_at = way.now + LOOK;
        self.held.push_back(held);
    }
}

/// Whether every device accepts another message.
fn has_room(devices: &[Uverbs]) -> bool {
    devices.iter().all(|device| device.device.general_services.has_room())
}

/// What messages are sent through.
struct Way<'a, P> {
    now: Time,
    devices: &'a mut [Uverbs],
    process: &'a mut P,
}

impl<P: Process> Way<'_, P> {
    /// Sends a message from a device. Returns false if it has no room, or the receiver's MAC address is not
    /// known yet.
    fn send(&mut self, device: usize, held: &Postponed) -> bool {
        let Some(Uverbs { device, .. }) = self.devices.get_mut(device) else { return false };
        if !device.general_services.has_room() {
            return false;
        }
        let Some(receiver) = receiver(device, self.process, held.path) else { return false };
        let datagram = Outgoing { receiver, payload: held.message.bytes() };
        device.general_services.send(&mut device.commands, self.now, self.process, &datagram);
        true
    }
}

fn receiver<P: Process>(device: &Device, process: &mut P, path: Path) -> Option<Receiver> {
    if let Some(lids) = path.lids {
        return Some(Receiver::InfiniBand { lid: lids.remote });
    }
    let gids = &device.attributes.gids;
    let source_index = gids.iter().position(|gid| *gid == path.local).unwrap_or(0) as u8;
    Some(Receiver::Ethernet { mac: mac_of(device, process, path.remote)?, gid: path.remote, source_index })
}

fn mac_of<P: Process>(device: &Device, process: &mut P, gid: Gid) -> Option<MacAddress> {
    if device.attributes.gids.contains(&gid) {
        return Some(device.commands.nic.config().mac);
    }
    link_local_mac(gid).or_else(|| process.resolve(gid).ok())
}
