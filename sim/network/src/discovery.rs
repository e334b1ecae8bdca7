//! Neighbour discovery on a wire: finds owners of addresses outside, and answers for the network's hosts.
//!
//! Pure: frames and requests in, frames out. Like a kernel it trusts its neighbours, and it keeps as many as its table
//! holds.

use crate::neighbour_message::{Neighbour, NeighbourMessage};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::NeighbourRequest;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_uverbs::VirtualHost;
use std::collections::{BTreeMap, VecDeque};

/// Lifetime of a neighbour's answer.
const GOOD_FOR: Duration = Duration::from_secs(30);
/// Interval between two requests for an address, and number of requests (RFC 4861 §10 says one second; our wires are
/// shorter).
const RETRY: Duration = Duration::from_millis(250);
const TRIES: u32 = 3;
/// Most known neighbours, concurrent lookups, and waiting frames.
const MOST_KNOWN: usize = 4096;
const MOST_WANTED: usize = 256;
const MOST_FRAMES: usize = 1024;

/// State of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupState {
    /// Its owner.
    Known(MacAddress),
    /// A lookup is in progress.
    Asked,
    /// No answer.
    Nobody,
}

#[derive(Debug)]
struct Wanted {
    request: NeighbourRequest,
    tries: u32,
    next: Time,
}

/// Neighbour discovery; see the module.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Configured neighbours, which are never looked up.
    fixed: BTreeMap<Gid, MacAddress>,
    /// Discovered neighbours, with the time of their answer.
    known: BTreeMap<Gid, (MacAddress, Time)>,
    wanted: BTreeMap<Gid, Wanted>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Discovery {
    /// Starts with these configured neighbours.
    pub fn new(fixed: impl IntoIterator<Item = Neighbour>) -> Self {
        let fixed = fixed.into_iter().map(|Neighbour { gid, mac }| (gid, mac)).collect();
        Self { fixed, ..Self::default() }
    }

    /// Starts a lookup, unless the address is known.
    pub fn ask(&mut self, now: Time, request: NeighbourRequest) {
        let is_new = self.known(now, request.wanted).is_none() && !self.wanted.contains_key(&request.wanted);
        if is_new && self.wanted.len() < MOST_WANTED {
            self.wanted.insert(request.wanted, Wanted { request, tries: 0, next: now });
        }
    }

    /// Current state of a lookup.
    pub fn lookup(&self, now: Time, gid: Gid) -> LookupState {
        match self.known(now, gid) {
            Some(mac) => LookupState::Known(mac),
            None if self.wanted.contains_key(&gid) => LookupState::Asked,
            None => LookupState::Nobody,
        }
    }

    fn known(&self, now: Time, gid: Gid) -> Option<MacAddress> {
        let learned = self.known.get(&gid).filter(|(_, since)| now - *since < GOOD_FOR);
        self.fixed.get(&gid).copied().or(learned.map(|(mac, _)| *mac))
    }

    /// Handles a frame from outside; false if it is not neighbour discovery.
    pub fn handle(&mut self, now: Time, frame: &[u8], hosts: &[VirtualHost]) -> bool {
        let Some(message) = NeighbourMessage::parse(frame) else { return false };
        match message {
            NeighbourMessage::Solicitation { sender, target } => {
                self.learn(now, sender, hosts);
                if let Some(host) = hosts.iter().find(|host| is_beside(host, target)) {
                    let own = Neighbour { gid: target, mac: host.mac() };
                    self.send(NeighbourMessage::Advertisement { sender: own, receiver: sender });
                }
            }
            NeighbourMessage::Advertisement { sender, .. } => self.learn(now, sender, hosts),
        }
        true
    }

    /// Nobody outside may claim an address of the network's own hosts.
    fn learn(&mut self, now: Time, neighbour: Neighbour, hosts: &[VirtualHost]) {
        let Neighbour { gid, mac } = neighbour;
        let is_one = !gid.is_zero() && gid.to_ipv4() != Some([0; 4]) && !gid.is_multicast();
        if !is_one || hosts.iter().any(|host| is_beside(host, gid)) {
            return;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.retain(|_, (_, since)| now - *since < GOOD_FOR);
        }
        if self.known.len() < MOST_KNOWN || self.known.contains_key(&gid) {
            self.known.insert(gid, (mac, now));
            self.wanted.remove(&gid);
        }
    }

    /// Repeats unanswered requests and eventually gives up.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<Gid> =
            self.wanted.iter().filter(|(_, wanted)| wanted.next <= now).map(|(gid, _)| *gid).collect();
        for gid in due {
            let Some(wanted) = self.wanted.get_mut(&gid).filter(|wanted| wanted.tries < TRIES) else {
                self.wanted.remove(&gid);
                continue;
            };
            (wanted.tries, wanted.next) = (wanted.tries + 1, now + RETRY);
            let NeighbourRequest { wanted: target, asker, asker_mac } = wanted.request;
            let sender = Neighbour { gid: asker, mac: asker_mac };
            self.send(NeighbourMessage::Solicitation { sender, target });
        }
    }

    fn send(&mut self, message: NeighbourMessage) {
        // A requester that is faster than the wire will ask again.
        if self.outgoing.len() < MOST_FRAMES {
            self.outgoing.push_back(message.compose());
        }
    }

    /// The next frame for the wire.
    pub fn poll_frame(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }
}

/// Whether a host has this address on the wire. InfiniBand ports are not on it, and nobody looks up their GIDs by these
/// protocols.
fn is_beside(host: &VirtualHost, gid: Gid) -> bool {
    host.link() == LinkLayer::Ethernet && host.gids().contains(&gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Neighbour =
        Neighbour { gid: Gid::from_ipv4([10, 0, 0, 9]), mac: MacAddress([2, 0, 0, 0, 0, 9]) };

    fn host() -> VirtualHost {
        VirtualHost::new("a").unwrap()
    }

    fn own() -> Neighbour {
        Neighbour { gid: host().gids()[0], mac: host().mac() }
    }

    fn request(wanted: Gid) -> NeighbourRequest {
        NeighbourRequest { wanted, asker_mac: own().mac, asker: own().gid }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_neighbour_is_asked_for_until_it_answers() {
        let mut discovery = Discovery::default();
        discovery.ask(at(0), request(PEER.gid));
        discovery.ask(at(0), request(PEER.gid));
        discovery.handle_timeout(at(0));
        let asked = NeighbourMessage::parse(&discovery.poll_frame().unwrap()).unwrap();
        assert_eq!(asked, NeighbourMessage::Solicitation { sender: own(), target: PEER.gid });
        assert!(discovery.poll_frame().is_none(), "one request for both");
        discovery.handle_timeout(at(300));
        assert!(discovery.poll_frame().is_some());
        assert_eq!(discovery.lookup(at(300), PEER.gid), LookupState::Asked);
        let answer = NeighbourMessage::Advertisement { sender: PEER, receiver: own() }.compose();
        assert!(discovery.handle(at(301), &answer, &[host()]));
        assert_eq!(discovery.lookup(at(302), PEER.gid), LookupState::Known(PEER.mac));
        discovery.handle_timeout(at(600));
        assert!(discovery.poll_frame().is_none());
        assert_eq!(discovery.lookup(at(60_000), PEER.gid), LookupState::Nobody, "too long ago");
    }

    #[test]
    fn an_unanswered_address_is_unknown_after_three_requests() {
        let mut discovery = Discovery::default();
        discovery.ask(at(0), request(PEER.gid));
        let mut frames = 0;
        for millis in 0..2000 {
            discovery.handle_timeout(at(millis));
            frames += usize::from(discovery.poll_frame().is_some());
        }
        assert_eq!((frames, discovery.lookup(at(2000), PEER.gid)), (3, LookupState::Nobody));
    }

    #[test]
    fn hosts_of_the_network_get_replies_and_cannot_be_spoofed() {
        let mut discovery = Discovery::default();
        let asked = NeighbourMessage::Solicitation { sender: PEER, target: own().gid };
        assert!(discovery.handle(at(0), &asked.compose(), &[host()]));
        let answer = discovery.poll_frame().and_then(|frame| NeighbourMessage::parse(&frame));
        assert_eq!(answer, Some(NeighbourMessage::Advertisement { sender: own(), receiver: PEER }));
        assert_eq!(discovery.lookup(at(1), PEER.gid), LookupState::Known(PEER.mac), "who asks is known");
        let thief = Neighbour { mac: PEER.mac, ..own() };
        let claim = NeighbourMessage::Advertisement { sender: thief, receiver: PEER }.compose();
        assert!(discovery.handle(at(2), &claim, &[host()]));
        assert_eq!(discovery.lookup(at(3), own().gid), LookupState::Nobody);
        assert!(!discovery.handle(at(4), &[0; 60], &[host()]), "not of discovery");
    }

    #[test]
    fn infiniband_ports_get_no_replies() {
        let mut discovery = Discovery::default();
        let port = host().with("lid 5".parse().unwrap());
        let link_local = port.gids()[0];
        let asker = Neighbour { gid: Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]), ..PEER };
        let asked = NeighbourMessage::Solicitation { sender: asker, target: link_local };
        assert!(discovery.handle(at(0), &asked.compose(), &[port]));
        assert!(discovery.poll_frame().is_none());
        assert!(discovery.handle(at(1), &asked.compose(), &[host()]), "the same address on Ethernet");
        assert!(discovery.poll_frame().is_some());
    }

    #[test]
    fn given_neighbours_are_never_asked_for_and_tables_have_a_limit() {
        let mut discovery = Discovery::new([PEER]);
        discovery.ask(at(0), request(PEER.gid));
        assert_eq!(discovery.lookup(at(100_000), PEER.gid), LookupState::Known(PEER.mac));
        for number in 0..MOST_WANTED as u32 * 2 {
            discovery.ask(at(0), request(Gid::from_ipv4((0x0b00_0000 + number).to_be_bytes())));
        }
        assert_eq!(discovery.wanted.len(), MOST_WANTED);
        for number in 0..MOST_KNOWN as u32 * 2 {
            let gid = Gid::from_ipv4((0x0b00_0000 + number).to_be_bytes());
            discovery.learn(at(0), Neighbour { gid, ..PEER }, &[]);
        }
        assert_eq!(discovery.known.len(), MOST_KNOWN);
    }
}
