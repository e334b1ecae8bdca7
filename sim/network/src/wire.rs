//! The cable of this process's device: frames to and from the other processes of its network.
//!
//! **What this is.** One outgoing ring per process that we have had frames for, created on demand, and one incoming
//! ring per process that has had frames for us. The destination MAC address names the host, and the upper 8 bits of the
//! queue pair number its process.
//!
//! A frame for an address outside the network goes to the bridge, if there is one. [`Wire::plug_bridge`] is the
//! bridge's own cable, which returns nothing to the bridge.
//!
//! **What it may not do.** It never blocks, and drops no frame silently: a frame for a live process waits for room,
//! unless that process ignores its frames for seconds. Losses are counted.

use crate::neighbours::Neighbours;
use crate::ring::{Consumer, Producer};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::{
    Greeting, Membership, NeighbourRequest, NetworkDirectory, NetworkError, ObjectRequest, answer_status,
    has_hung_up,
};
use bareverbs_sim::net::fault::destination_qpn;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband;
use bareverbs_uverbs::VirtualHost;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// Polling interval of the sockets, for new and closed connections.
const LOOK: Duration = Duration::from_millis(2);
/// How long to remember that a process does not exist.
const ABSENCE: Duration = Duration::from_millis(20);
/// How long to send frames for an unknown address to the bridge before checking the hosts again.
const ABROAD: Duration = Duration::from_millis(500);
/// How long a process may leave its ring full before frames for it are dropped, like the priority flow control watchdog
/// of a switch.
const WATCHDOG: Duration = Duration::from_secs(2);
/// Time limit for a new connection's greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// A dead process's last ring is closed at most this long after its socket: two polling intervals.
const LAST_FRAMES: Duration = Duration::from_millis(5);
/// Most incoming connections.
const MOST_INCOMING: usize = 1024;
/// Most pending requests: to the bridge for neighbours, and to this process for objects.
const MOST_REQUESTS: usize = 256;
/// The bridge's address; no host has it.
const BRIDGE: Address = (MacAddress([0; 6]), 0);
/// Queue pairs below this number belong to the port, not to a process. IBTA v1.4 §3.5.3.
const FIRST_OF_PROCESS: u32 = 2;

/// Traffic on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// Frames put into a ring, counting each multicast copy.
    pub sent: u64,
    /// Frames received from others.
    pub received: u64,
    /// Frames lost because nobody has the address, or its process does not exist.
    pub unreachable: u64,
    /// Frames lost because their receiver did not take them.
    pub overrun: u64,
    /// Connections from others that were refused or closed: too many of them or of their requests, a greeting that is
    /// missing or has no meaning here, a ring that does not keep to its format. How many frames were in a ring that was
    /// closed is not known.
    pub refused: u64,
}

/// A process of the network: MAC address and number.
type Address = (MacAddress, u8);

/// The path to another process.
#[derive(Debug)]
enum Outgoing {
    Open {
        connection: OwnedFd,
        ring: Producer,
        full_since: Option<Time>,
    },
    Absent {
        until: Time,
    },
    /// Unknown address: frames go to the bridge.
    Abroad {
        until: Time,
    },
}

impl Outgoing {
    /// Whether the path must be determined anew.
    fn is_stale(&self, now: Time) -> bool {
        matches!(self, Self::Absent { until } | Self::Abroad { until } if now >= *until)
    }
}

/// The path from another process.
#[derive(Debug)]
struct Incoming {
    connection: OwnedFd,
    ring: Consumer,
    /// Whether the other process is gone; its ring may still contain frames.
    ended: bool,
}

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Process(Address),
    Host(MacAddress),
    Everybody,
}

impl Destination {
    /// Destination of an Ethernet frame, by its MAC address.
    fn of_ethernet(frame: &[u8]) -> Option<Self> {
        let mac = MacAddress(*frame.first_chunk()?);
        if mac.0[0] & 1 != 0 {
            return Some(Self::Everybody);
        }
        Some(Self::part_of(mac, destination_qpn(frame)))
    }

    /// Destination of an InfiniBand packet for the host with this address. IBTA v1.4 §7.7.
    fn of_infiniband(frame: &[u8], mac: MacAddress) -> Self {
        Self::part_of(mac, infiniband::destination_qpn(frame))
    }

    const fn part_of(mac: MacAddress, qpn: Option<u32>) -> Self {
        match qpn {
            Some(qpn) if qpn >= FIRST_OF_PROCESS => Self::Process((mac, (qpn >> 16) as u8)),
            _ => Self::Host(mac),
        }
    }
}

/// A process that died after we had sent it frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedProcess {
    /// MAC address of its host.
    pub mac: MacAddress,
    /// Process number within the host.
    pub number: u8,
}

/// The cable; see the module.
#[derive(Debug)]
pub struct Wire {
    network: NetworkDirectory,
    membership: Membership,
    /// This process's address; on its own cable, the bridge's.
    own: Address,
    /// Link layer of the frames. Hosts of the other kind are never reached.
    link: LinkLayer,
    neighbours: Neighbours,
    outgoing: BTreeMap<Address, Outgoing>,
    incoming: Vec<Incoming>,
    /// New connections without a greeting yet, and when they were accepted.
    strangers: Vec<(OwnedFd, Time)>,
    /// Pending neighbour requests to the bridge.
    requests: Vec<(OwnedFd, NeighbourRequest)>,
    /// Pending requests for this process's objects.
    object_requests: Vec<(OwnedFd, ObjectRequest)>,
    /// Dead processes whose last frames may be unread, and when their death was noticed.
    ended: Vec<(Address, Time)>,
    /// The next ring to read.
    turn: usize,
    look_at: Time,
    /// Name of this process's host; `None` for the bridge.
    host: Option<String>,
    has_cable: bool,
    /// Names of hosts that this host is partitioned from.
    apart: Vec<String>,
    faults: String,
    counters: WireCounters,
}

impl Wire {
    /// Plugs a device into a network, as a process of a host.
    pub fn plug(network: NetworkDirectory, host: &VirtualHost) -> Result<Self, NetworkError> {
        let membership = network.join(host.name())?;
        Ok(Self::of_host(network, membership, host))
    }

    /// Plugs all devices of a host into a network, each with a cable of its own. The process has the same number at all
    /// of them.
    pub fn plug_all(network: &NetworkDirectory, ports: &[VirtualHost]) -> Result<Vec<Self>, NetworkError> {
        let names: Vec<&str> = ports.iter().map(VirtualHost::name).collect();
        let joined = network.join_all(&names)?.into_iter().zip(ports);
        Ok(joined.map(|(membership, port)| Self::of_host(network.clone(), membership, port)).collect())
    }

    fn of_host(network: NetworkDirectory, membership: Membership, host: &VirtualHost) -> Self {
        let own = (host.mac(), membership.number());
        let wire = Self::new(network, membership, own);
        let mut wire = Self { link: host.link(), host: Some(host.name().to_owned()), ..wire };
        wire.read_faults();
        wire
    }

    /// The bridge's cable: receives what hosts of this link layer send to unknown destinations.
    pub fn plug_bridge(network: NetworkDirectory, link: LinkLayer) -> Result<Self, NetworkError> {
        let membership = network.join_outside(link)?;
        Ok(Self { link, ..Self::new(network, membership, BRIDGE) })
    }

    /// Link layer of the frames.
    pub(crate) const fn link(&self) -> LinkLayer {
        self.link
    }

    fn new(network: NetworkDirectory, membership: Membership, own: Address) -> Self {
        Self {
            own,
            link: LinkLayer::Ethernet,
            membership,
            neighbours: Neighbours::new(network.clone()),
            network,
            outgoing: BTreeMap::new(),
            incoming: Vec::new(),
            strangers: Vec::new(),
            requests: Vec::new(),
            object_requests: Vec::new(),
            ended: Vec::new(),
            turn: 0,
            look_at: Time::ZERO,
            host: None,
            has_cable: true,
            apart: Vec::new(),
            faults: String::new(),
            counters: WireCounters::default(),
        }
    }

    /// Number of this process within its host.
    pub const fn number(&self) -> u8 {
        self.own.1
    }

    /// Whether the cable is plugged in, as of the last poll.
    pub const fn has_cable(&self) -> bool {
        self.has_cable
    }

    /// Injected faults on the host's frames, as of the last poll; empty if none are set.
    pub fn faults(&self) -> &str {
        &self.faults
    }

    /// In a child after `fork`: closes the parent's resources.
    pub fn abandon(self) {
        self.membership.abandon();
    }

    /// Sends a frame; false if it has to wait.
    pub fn send(&mut self, now: Time, frame: &[u8]) -> bool {
        match self.destination(now, frame) {
            Some(Destination::Process(address)) => return self.send_to(now, address, frame),
            Some(Destination::Host(mac)) => self.copy_to_host(now, mac, frame),
            Some(Destination::Everybody) => {
                let hosts = self.neighbours.all(now).iter().filter(|host| host.link() == self.link);
                let hosts: Vec<MacAddress> = hosts.map(VirtualHost::mac).collect();
                for mac in hosts {
                    self.copy_to_host(now, mac, frame);
                }
                self.copy_abroad(now, frame);
            }
            None => self.counters.unreachable += 1,
        }
        true
    }

    /// Resolves a LID: to the host that has it, for multicast to all hosts, otherwise to the bridge.
    fn destination(&mut self, now: Time, frame: &[u8]) -> Option<Destination> {
        if self.link == LinkLayer::Ethernet {
            return Destination::of_ethernet(frame);
        }
        let lid = infiniband::destination_lid(frame)?;
        if lid >= infiniband::FIRST_MULTICAST_LID {
            return Some(Destination::Everybody);
        }
        match self.neighbours.with_lid(now, lid) {
            Some(mac) => Some(Destination::of_infiniband(frame, mac)),
            None => self.leads_abroad().then_some(Destination::Process(BRIDGE)),
        }
    }

    /// Copies a frame to every other process of a host. Copies do not wait: a retry would duplicate them elsewhere.
    fn copy_to_host(&mut self, now: Time, mac: MacAddress, frame: &[u8]) {
        let Some(host) = self.neighbours.name(now, mac) else {
            if !self.copy_abroad(now, frame) {
                self.counters.unreachable += 1;
            }
            return;
        };
        for number in self.network.processes(&host) {
            if (mac, number) != self.own && !self.send_to(now, (mac, number), frame) {
                self.counters.overrun += 1;
            }
        }
    }

    /// Copies a frame to the bridge, if there may be one.
    fn copy_abroad(&mut self, now: Time, frame: &[u8]) -> bool {
        let leads_abroad = self.leads_abroad();
        if leads_abroad && !self.send_to(now, BRIDGE, frame) {
            self.counters.overrun += 1;
        }
        leads_abroad
    }

    /// Whether frames for unknown destinations go to the bridge. The bridge itself has none.
    fn leads_abroad(&self) -> bool {
        self.own != BRIDGE
    }

    fn send_to(&mut self, now: Time, address: Address, frame: &[u8]) -> bool {
        if self.is_apart(now, address.0) {
            self.counters.unreachable += 1;
            return true;
        }
        if self.outgoing.get(&address).is_some_and(|way| way.is_stale(now)) {
            self.outgoing.remove(&address);
        }
        if !self.outgoing.contains_key(&address) {
            match self.connect(now, address) {
                Ok(outgoing) => self.outgoing.insert(address, outgoing),
                // Too many processes are connecting to it at the moment.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => self.outgoing.insert(address, Outgoing::Absent { until: now + ABSENCE }),
            };
        }
        match self.outgoing.get(&address) {
            Some(Outgoing::Abroad { .. }) => self.send_to(now, BRIDGE, frame),
            _ => self.push(now, address, frame),
        }
    }

    /// Whether the host with this address is partitioned from ours.
    fn is_apart(&mut self, now: Time, mac: MacAddress) -> bool {
        let other = if self.apart.is_empty() { None } else { self.neighbours.name(now, mac) };
        other.is_some_and(|other| self.apart.contains(&other))
    }

    /// Puts a frame into a process's ring, if there is a path to it; false if it has to wait.
    fn push(&mut self, now: Time, address: Address, frame: &[u8]) -> bool {
        let Some(Outgoing::Open { ring, full_since, .. }) = self.outgoing.get_mut(&address) else {
            self.counters.unreachable += 1;
            return true;
        };
        match ring.push(frame) {
            Ok(true) => {
                *full_since = None;
                self.counters.sent += 1;
                true
            }
            Ok(false) => {
                let stuck = now - *full_since.get_or_insert(now) > WATCHDOG;
                self.counters.overrun += u64::from(stuck);
                stuck
            }
            Err(_) => {
                self.outgoing.insert(address, Outgoing::Absent { until: now + ABSENCE });
                self.counters.unreachable += 1;
                true
            }
        }
    }

    fn connect(&mut self, now: Time, address: Address) -> io::Result<Outgoing> {
        let (mac, number) = address;
        let connection = if address == BRIDGE {
            self.network.connect_outside(self.link)?
        } else {
            let Some(host) = self.neighbours.name(now, mac) else {
                let way = self.leads_abroad().then_some(Outgoing::Abroad { until: now + ABROAD });
                return way.ok_or_else(|| ErrorKind::NotFound.into());
            };
            self.network.connect(&host, number)?
        };
        let (ring, file) = Producer::create()?;
        Greeting::Frames.send(&connection, Some(&file))?;
        Ok(Outgoing::Open { connection, ring, full_since: None })
    }

    /// Receives a frame; false if there is none. Senders take turns.
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        for _ in 0..self.incoming.len() {
            self.turn = (self.turn + 1) % self.incoming.len().max(1);
            let Some(incoming) = self.incoming.get_mut(self.turn) else { break };
            match incoming.ring.pop(frame) {
                Ok(true) => {
                    self.counters.received += 1;
                    return true;
                }
                Ok(false) => {}
                Err(_) => {
                    self.counters.refused += 1;
                    drop(self.incoming.swap_remove(self.turn));
                }
            }
        }
        false
    }

    /// Reads the settings of the network for this host: its cable, its partitions and its faults.
    fn read_faults(&mut self) {
        if let Some(host) = &self.host {
            self.has_cable = self.network.has_cable(host);
            self.apart = self.network.apart_from(host);
            self.faults = self.network.faults(host);
        }
    }

    /// Polls for new and closed connections once per interval. `status` renders this process's status for requesters.
    pub fn look(&mut self, now: Time, status: impl Fn(WireCounters) -> String) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        self.read_faults();
        // Read frames that were sent before the sender died.
        self.incoming.retain(|incoming| !incoming.ended || !incoming.ring.is_empty());
        for incoming in &mut self.incoming {
            incoming.ended = has_hung_up(&incoming.connection);
        }
        let ended = &mut self.ended;
        self.outgoing.retain(|address, way| {
            let is_gone = matches!(way, Outgoing::Open { connection, .. } if has_hung_up(&*connection));
            if is_gone && *address != BRIDGE {
                ended.push((*address, now));
            }
            !is_gone
        });
        // A connection that cannot be accepted now, for lack of descriptors, waits for the next look.
        while let Ok(Some(stranger)) = self.membership.accept() {
            if self.strangers.len() + self.incoming.len() < MOST_INCOMING {
                self.strangers.push((stranger, now));
            } else {
                self.counters.refused += 1;
            }
        }
        for (stranger, since) in core::mem::take(&mut self.strangers) {
            let counters = self.counters;
            self.greet(now, stranger, since, &|| status(counters));
        }
    }

    /// The next dead process whose frames have all been received. Only processes that were sent frames are watched.
    pub fn poll_ended(&mut self, now: Time) -> Option<EndedProcess> {
        let due = self.ended.iter().position(|(_, seen)| now - *seen > LAST_FRAMES)?;
        if self.incoming.iter().any(|incoming| incoming.ended && !incoming.ring.is_empty()) {
            return None;
        }
        let ((mac, number), _) = self.ended.swap_remove(due);
        Some(EndedProcess { mac, number })
    }

    /// The next neighbour request to the bridge, and the connection to answer on.
    pub(crate) fn poll_neighbour_request(&mut self) -> Option<(OwnedFd, NeighbourRequest)> {
        self.requests.pop()
    }

    /// The next request for this process's objects, and the connection to answer on. Closing the connection without an
    /// answer means that there are none.
    pub fn poll_object_request(&mut self) -> Option<(OwnedFd, ObjectRequest)> {
        self.object_requests.pop()
    }

    /// The hosts of the network.
    pub(crate) fn hosts(&mut self, now: Time) -> &[VirtualHost] {
        self.neighbours.all(now)
    }

    fn greet(&mut self, now: Time, stranger: OwnedFd, since: Time, status: &impl Fn() -> String) {
        match Greeting::receive(&stranger) {
            Ok((Greeting::Frames, Some(file))) => match Consumer::open(&file) {
                Ok(ring) => self.incoming.push(Incoming { connection: stranger, ring, ended: false }),
                Err(_) => self.counters.refused += 1,
            },
            Ok((Greeting::Neighbour(request), _))
                if self.own == BRIDGE && self.requests.len() < MOST_REQUESTS =>
            {
                self.requests.push((stranger, request));
            }
            Ok((Greeting::Objects(request), _))
                if self.own != BRIDGE && self.object_requests.len() < MOST_REQUESTS =>
            {
                self.object_requests.push((stranger, request));
            }
            // A requester that no longer waits gets no answer.
            Ok((Greeting::Status, _)) => drop(answer_status(&stranger, &status())),
            Err(error) if error.kind() == ErrorKind::WouldBlock && now - since < GREETING_LIMIT => {
                self.strangers.push((stranger, since));
            }
            Ok(_) | Err(_) => self.counters.refused += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose greeting has no ring, one that asks a program for what only the bridge knows, and one that
    /// hangs up without a word.
    #[test]
    fn connections_that_are_refused_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(directory.path()).unwrap();
        let host = VirtualHost::new("a").unwrap();
        let mut wire = Wire::plug(network.clone(), &host).unwrap();
        let [without_ring, to_bridge, silent] =
            [(); 3].map(|()| network.connect("a", wire.number()).unwrap());
        Greeting::Frames.send(&without_ring, None).unwrap();
        let gid = host.gids()[0];
        let request = NeighbourRequest { wanted: gid, asker_mac: host.mac(), asker: gid };
        Greeting::Neighbour(request).send(&to_bridge, None).unwrap();
        drop(silent);
        wire.look(Time::ZERO, |_| String::new());
        assert_eq!(wire.counters, WireCounters { refused: 3, ..WireCounters::default() });
    }
}
