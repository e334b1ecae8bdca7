//! The cable of this process's device: frames to and from the other processes of its network.
//!
//! **What this is.** A ring for each process that there were frames for, made when the first one came, and one from each
//! process that had frames for us. The destination's MAC address names the host, the upper 8 bits of the queue pair its process.
//!
//! A frame for an address that no host of the network has goes to the bridge to the outside, if there is one; [`Wire::plug_bridge`] is the
//! bridge's own cable, which passes nothing back to it.
//!
//! **What it may not do.** It never blocks. It loses no frame in silence: one for a process that lives waits until there is
//! room, unless that process does not come for its frames for seconds; what is lost is counted.

use crate::neighbours::Neighbours;
use crate::ring::{Consumer, Producer};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::{
    Greeting, Membership, NeighbourQuestion, NetworkDirectory, NetworkError, ObjectQuestion, answer_status,
    has_hung_up,
};
use bareverbs_sim::net::fault::destination_qpn;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband;
use bareverbs_uverbs::VirtualHost;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// How often sockets are looked at: who came, who has gone.
const LOOK: Duration = Duration::from_millis(2);
/// How long a process that was not there is not looked for again.
const ABSENCE: Duration = Duration::from_millis(20);
/// How long an address that no host had goes to the bridge before hosts are looked through again.
const ABROAD: Duration = Duration::from_millis(500);
/// How long a process may leave its ring full before frames for it are dropped, as the watchdog of priority flow control
/// does it in a switch.
const WATCHDOG: Duration = Duration::from_secs(2);
/// How long a process may take to say why it connected.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// How long after its socket the last ring of a process that ended is closed at most, two looks later.
const LAST_FRAMES: Duration = Duration::from_millis(5);
/// Connections that may be open from others.
const MOST_INCOMING: usize = 1024;
/// Questions that were not taken up yet: of the bridge for neighbours, of others for objects.
const MOST_QUESTIONS: usize = 256;
/// The bridge to the outside, among processes: no host has this address.
const BRIDGE: Address = (MacAddress([0; 6]), 0);
/// Queue pairs below this belong to the port and not to a process. IBTA v1.4 §3.5.3.
const FIRST_OF_PROCESS: u32 = 2;

/// What went over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// Frames put into a ring, each copy of those to groups.
    pub sent: u64,
    /// Frames that others sent.
    pub received: u64,
    /// Frames lost because nobody has the address, or no process of it is there.
    pub unreachable: u64,
    /// Frames lost because their receiver did not come for them.
    pub overrun: u64,
}

/// A process of the network.
type Address = (MacAddress, u8);

/// The way to another process.
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
    /// No host has the address: its frames go to the bridge.
    Abroad {
        until: Time,
    },
}

impl Outgoing {
    /// Whether it has to be found out again where this leads.
    fn is_stale(&self, now: Time) -> bool {
        matches!(self, Self::Absent { until } | Self::Abroad { until } if now >= *until)
    }
}

/// The way from another process.
#[derive(Debug)]
struct Incoming {
    connection: OwnedFd,
    ring: Consumer,
    /// The other process has gone; what is in the ring came before.
    ended: bool,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Process(Address),
    Host(MacAddress),
    Everybody,
}

impl Destination {
    /// Of a frame of Ethernet, which names a MAC address.
    fn of_ethernet(frame: &[u8]) -> Option<Self> {
        let mac = MacAddress(*frame.first_chunk()?);
        if mac.0[0] & 1 != 0 {
            return Some(Self::Everybody);
        }
        Some(Self::part_of(mac, destination_qpn(frame)))
    }

    /// Of a packet of InfiniBand for the host with this address. IBTA v1.4 §7.7.
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

/// A process that frames went to has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedProcess {
    /// MAC address of its host.
    pub mac: MacAddress,
    /// Its number within the host.
    pub number: u8,
}

/// The cable; see the module.
#[derive(Debug)]
pub struct Wire {
    network: NetworkDirectory,
    membership: Membership,
    /// The own address; that of the bridge for its cable.
    own: Address,
    /// What frames are like. Hosts of the other kind never meet ours.
    link: LinkLayer,
    neighbours: Neighbours,
    outgoing: BTreeMap<Address, Outgoing>,
    incoming: Vec<Incoming>,
    /// Processes that connected and said nothing yet, and when they did.
    strangers: Vec<(OwnedFd, Time)>,
    /// Who asked the bridge for a neighbour.
    questions: Vec<(OwnedFd, NeighbourQuestion)>,
    /// Who asked this process for its objects.
    object_questions: Vec<(OwnedFd, ObjectQuestion)>,
    /// Processes that have ended, and of whose last frames some may not have been read; when that was seen.
    ended: Vec<(Address, Time)>,
    /// Whose ring is looked at next.
    turn: usize,
    look_at: Time,
    /// Name of the own host; none of the bridge.
    host: Option<String>,
    has_cable: bool,
    /// Names of hosts that this one does not reach.
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

    /// Plugs all devices of a host into a network, a cable each. The process has the same number at all of them.
    pub fn plug_all(network: &NetworkDirectory, ports: &[VirtualHost]) -> Result<Vec<Self>, NetworkError> {
        let names: Vec<&str> = ports.iter().map(VirtualHost::name).collect();
        let joined = network.join_all(&names)?.into_iter().zip(ports);
        Ok(joined.map(|(membership, port)| Self::of_host(network.clone(), membership, port)).collect())
    }

    fn of_host(network: NetworkDirectory, membership: Membership, host: &VirtualHost) -> Self {
        let own = (host.mac(), membership.number());
        let wire = Self::new(network, membership, own);
        Self { link: host.link(), host: Some(host.name().to_owned()), ..wire }
    }

    /// The cable of the bridge to the outside: what the hosts of this link layer send to nobody among them.
    pub fn plug_bridge(network: NetworkDirectory, link: LinkLayer) -> Result<Self, NetworkError> {
        let membership = network.join_outside(link)?;
        Ok(Self { link, ..Self::new(network, membership, BRIDGE) })
    }

    /// What its frames are like.
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
            questions: Vec::new(),
            object_questions: Vec::new(),
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

    /// Whether the cable is plugged in, as it was when this looked last.
    pub const fn has_cable(&self) -> bool {
        self.has_cable
    }

    /// What goes wrong with the host's frames by somebody's wish, as it was when this looked last; empty if nothing is set.
    pub fn faults(&self) -> &str {
        &self.faults
    }

    /// In a child after `fork`: closes what belongs to the parent.
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

    /// A LID leads to the host that has it, one of a group to all, and one that no host has to the bridge.
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

    /// A copy for every other process of a host. Copies do not wait: the others would get the frame twice.
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

    /// A copy for the bridge, if there may be one.
    fn copy_abroad(&mut self, now: Time, frame: &[u8]) -> bool {
        let leads_abroad = self.leads_abroad();
        if leads_abroad && !self.send_to(now, BRIDGE, frame) {
            self.counters.overrun += 1;
        }
        leads_abroad
    }

    /// Whether frames for nobody go to the bridge: the bridge itself has no other one.
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
                // Too many connect to it at this moment.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => self.outgoing.insert(address, Outgoing::Absent { until: now + ABSENCE }),
            };
        }
        match self.outgoing.get(&address) {
            Some(Outgoing::Abroad { .. }) => self.send_to(now, BRIDGE, frame),
            _ => self.push(now, address, frame),
        }
    }

    /// Whether somebody keeps the host with this address and the own one from each other.
    fn is_apart(&mut self, now: Time, mac: MacAddress) -> bool {
        let other = if self.apart.is_empty() { None } else { self.neighbours.name(now, mac) };
        other.is_some_and(|other| self.apart.contains(&other))
    }

    /// Puts a frame into the ring of a process, if there is a way to it; false if it has to wait.
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

    /// Receives a frame; false if there is none. The others take turns.
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
                Err(_) => drop(self.incoming.swap_remove(self.turn)),
            }
        }
        false
    }

    /// Looks who came and who has gone, now and then. `status` says how this process is, for those who ask.
    pub fn look(&mut self, now: Time, status: impl Fn(WireCounters) -> String) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        if let Some(host) = &self.host {
            self.has_cable = self.network.has_cable(host);
            self.apart = self.network.apart_from(host);
            self.faults = self.network.faults(host);
        }
        // What they sent before they went is read to its end.
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
        while let Ok(Some(stranger)) = self.membership.accept() {
            if self.strangers.len() + self.incoming.len() < MOST_INCOMING {
                self.strangers.push((stranger, now));
            }
        }
        for (stranger, since) in core::mem::take(&mut self.strangers) {
            let counters = self.counters;
            self.greet(now, stranger, since, &|| status(counters));
        }
    }

    /// The next process that has ended, and whose frames have been received. Processes that no frame was sent to are not watched.
    pub fn poll_ended(&mut self, now: Time) -> Option<EndedProcess> {
        let due = self.ended.iter().position(|(_, seen)| now - *seen > LAST_FRAMES)?;
        if self.incoming.iter().any(|incoming| incoming.ended && !incoming.ring.is_empty()) {
            return None;
        }
        let ((mac, number), _) = self.ended.swap_remove(due);
        Some(EndedProcess { mac, number })
    }

    /// The next process that asked the bridge for a neighbour, and its question.
    pub(crate) fn poll_question(&mut self) -> Option<(OwnedFd, NeighbourQuestion)> {
        self.questions.pop()
    }

    /// The next one who asked for objects of this process, and the question. Whoever gets no answer by the time that the connection is closed
    /// knows that there are none.
    pub fn poll_object_question(&mut self) -> Option<(OwnedFd, ObjectQuestion)> {
        self.object_questions.pop()
    }

    /// The hosts of the network.
    pub(crate) fn hosts(&mut self, now: Time) -> &[VirtualHost] {
        self.neighbours.all(now)
    }

    fn greet(&mut self, now: Time, stranger: OwnedFd, since: Time, status: &impl Fn() -> String) {
        match Greeting::receive(&stranger) {
            Ok((Greeting::Frames, Some(file))) => {
                if let Ok(ring) = Consumer::open(&file) {
                    self.incoming.push(Incoming { connection: stranger, ring, ended: false });
                }
            }
            Ok((Greeting::Neighbour(question), _)) => {
                if self.own == BRIDGE && self.questions.len() < MOST_QUESTIONS {
                    self.questions.push((stranger, question));
                }
            }
            Ok((Greeting::Objects(question), _)) => {
                if self.own != BRIDGE && self.object_questions.len() < MOST_QUESTIONS {
                    self.object_questions.push((stranger, question));
                }
            }
            // Whoever asked and does not wait for the answer gets none.
            Ok((Greeting::Status, _)) => drop(answer_status(&stranger, &status())),
            Err(error) if error.kind() == ErrorKind::WouldBlock && now - since < GREETING_LIMIT => {
                self.strangers.push((stranger, since));
            }
            Ok((Greeting::Frames, None)) | Err(_) => {}
        }
    }
}
