//! The bridge between a network and a wire to the outside.
//!
//! **What this is.** Frames from hosts of one link layer to unknown destinations go to the wire; frames from the wire
//! go to the host with the destination MAC address or LID. Ethernet hosts have no kernel for neighbour discovery, so
//! the bridge asks and answers on their behalf. On InfiniBand each side has its own SM, and management packets do not
//! pass.
//!
//! **What it may not do.** Nothing from the wire goes back to the wire, so two connected networks form no loop. A side
//! that does not take its frames loses them after a while; it stalls neither the other side nor the bridge.

use crate::discovery::{Discovery, LookupState};
use crate::neighbour_message::Neighbour;
use crate::outside::answer_line;
use crate::pace::Pace;
use crate::wire::{Wire, WireCounters};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::{NetworkDirectory, NetworkError, answer_status, has_hung_up};
use bareverbs_serve::real_time::OutsideIo;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Frames to forward in one direction before the other has its turn.
const BATCH: usize = 64;
/// How long the wire may accept nothing before frames for it are dropped.
const WATCHDOG: Duration = Duration::from_millis(500);
/// Processes that may wait for an answer.
const MOST_WAITING: usize = 256;

/// A frame that could not be forwarded yet.
#[derive(Debug, Default)]
struct Held {
    frame: Vec<u8>,
    since: Option<Time>,
}

/// The bridge; see the module.
#[derive(Debug)]
pub struct Bridge {
    wire: Wire,
    outside: Box<dyn OutsideIo>,
    /// Name of the wire, for status reports.
    name: String,
    discovery: Discovery,
    /// Processes that asked for a neighbour.
    waiting: Vec<(OwnedFd, Gid)>,
    leaving: Held,
    entering: Held,
    /// Frames that the wire did not accept.
    lost: u64,
    /// Whether the wire is stalled: then each frame is tried only once.
    is_wire_stopped: bool,
    start: Instant,
    pace: Pace,
}

impl Bridge {
    /// Bridges the hosts of a link layer and a wire with some known neighbours.
    pub fn new(
        network: NetworkDirectory,
        link: LinkLayer,
        outside: Box<dyn OutsideIo>,
        name: &str,
        neighbours: impl IntoIterator<Item = Neighbour>,
    ) -> Result<Self, NetworkError> {
        Ok(Self {
            wire: Wire::plug_bridge(network, link)?,
            outside,
            name: name.to_owned(),
            discovery: Discovery::new(neighbours),
            waiting: Vec::new(),
            leaving: Held::default(),
            entering: Held::default(),
            lost: 0,
            is_wire_stopped: false,
            start: Instant::now(),
            pace: Pace::new(),
        })
    }

    /// Forwards frames until the wire breaks. Returns the error.
    pub fn run(&mut self) -> io::Error {
        loop {
            let now = self.now();
            match self.step(now) {
                Ok(busy) => self.pace.rest(now, busy, None),
                Err(error) => return error,
            }
        }
    }

    fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// Forwards what is there. Returns whether there was anything.
    pub fn step(&mut self, now: Time) -> io::Result<bool> {
        let (name, lost) = (&self.name, self.lost);
        self.wire.look(now, |counters| status(name, lost, counters));
        self.answer(now);
        let found = self.discover(now)?;
        let left = self.carry_out(now)?;
        let entered = self.carry_in(now)?;
        Ok(found | left | entered)
    }

    /// Takes requests of processes and answers earlier ones.
    fn answer(&mut self, now: Time) {
        while let Some((connection, request)) = self.wire.poll_neighbour_request() {
            self.discovery.ask(now, request);
            if self.waiting.len() < MOST_WAITING {
                self.waiting.push((connection, request.wanted));
            }
        }
        self.discovery.handle_timeout(now);
        let discovery = &self.discovery;
        self.waiting.retain(|(connection, gid)| {
            let mac = match discovery.lookup(now, *gid) {
                LookupState::Asked => return !has_hung_up(connection),
                LookupState::Known(mac) => Some(mac),
                LookupState::Nobody => None,
            };
            // A requester that no longer waits gets no answer.
            drop(answer_status(connection, &answer_line(mac)));
            false
        });
    }

    /// Neighbour discovery frames go before others, unless one of those is already waiting.
    fn discover(&mut self, now: Time) -> io::Result<bool> {
        let mut busy = false;
        while self.leaving.since.is_none() {
            let Some(frame) = self.discovery.poll_frame() else { break };
            self.leaving.frame = frame;
            self.send_out(now)?;
            busy = true;
        }
        Ok(busy)
    }

    fn carry_out(&mut self, now: Time) -> io::Result<bool> {
        if self.leaving.since.is_some() && !self.send_out(now)? {
            return Ok(false);
        }
        for count in 0..BATCH {
            if !self.wire.receive(&mut self.leaving.frame) {
                return Ok(count > 0);
            }
            if !self.send_out(now)? {
                break;
            }
        }
        Ok(true)
    }

    /// Sends the outgoing frame; false if it has to wait. A stalled wire drops it.
    fn send_out(&mut self, now: Time) -> io::Result<bool> {
        let sent = match self.outside.send(&self.leaving.frame) {
            // There is no peer, as on an unconnected cable.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                self.lost += 1;
                true
            }
            sent => sent?,
        };
        if sent {
            (self.leaving.since, self.is_wire_stopped) = (None, false);
            return Ok(true);
        }
        let since = *self.leaving.since.get_or_insert(now);
        self.is_wire_stopped |= now - since > WATCHDOG;
        if self.is_wire_stopped {
            self.leaving.since = None;
            self.lost += 1;
        }
        Ok(self.is_wire_stopped)
    }

    fn carry_in(&mut self, now: Time) -> io::Result<bool> {
        // The cable decides how long a process may keep it waiting.
        if self.entering.since.is_some() && !self.send_in(now) {
            return Ok(false);
        }
        for count in 0..BATCH {
            if !self.outside.receive(&mut self.entering.frame)? {
                return Ok(count > 0);
            }
            if self.is_not_for_hosts(now) {
                continue;
            }
            if !self.send_in(now) {
                break;
            }
        }
        Ok(true)
    }

    /// Whether an incoming frame is neighbour discovery, which the bridge handles, or another subnet's management.
    fn is_not_for_hosts(&mut self, now: Time) -> bool {
        let frame = &self.entering.frame;
        match self.wire.link() {
            LinkLayer::Ethernet => self.discovery.handle(now, frame, self.wire.hosts(now)),
            LinkLayer::InfiniBand => infiniband::virtual_lane(frame) == Some(infiniband::MANAGEMENT_LANE),
        }
    }

    fn send_in(&mut self, now: Time) -> bool {
        let sent = self.wire.send(now, &self.entering.frame);
        self.entering.since = (!sent).then_some(now);
        sent
    }
}

/// The bridge's status for `bareverbs run --list`.
fn status(name: &str, lost: u64, wire: WireCounters) -> String {
    let WireCounters { sent, received, unreachable, overrun, refused } = wire;
    format!(
        "wire {name}\npid {}\nprogram bareverbs\nqueue-pairs -\ncompletion-queues -\nmemory-regions -\nsent {sent}\nreceived {received}\nlost {}\ndriven -\n",
        std::process::id(),
        unreachable + overrun + refused + lost
    )
}
