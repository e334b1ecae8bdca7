//! The addresses on each side: interfaces of the subnet, which have made-up MAC addresses for the machine,
//! and hosts on the machine's side, by IP address.

use super::link::HardwareAddress;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Most interfaces. Beyond that, the least recently heard one is forgotten, and ARP finds it again.
const MOST_NEIGHBOURS: usize = 4096;
/// Packets that may wait for the path to an interface.
const MOST_WAITING: usize = 16;
/// How long a path is used before it is queried again: managers reassign LIDs.
const PATH_LASTS: Duration = Duration::from_secs(60);
/// How long to wait after a failed path query.
const NO_PATH_LASTS: Duration = Duration::from_secs(2);
/// Most hosts on the machine's side.
const MOST_HOSTS: usize = 4096;
/// First two bytes of a made-up MAC address: locally administered.
const MADE_UP: [u8; 2] = [0x02, 0x49];

/// The path to an interface within the subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubnetLane {
    pub(super) lid: u16,
    pub(super) service_level: u8,
    /// Code of the largest payload: 128 · 2^code bytes.
    pub(super) mtu: u8,
}

/// What is known about the path to an interface.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PathState {
    #[default]
    Unknown,
    Known(SubnetLane, Time),
    /// There was none at this time.
    None(Time),
}

/// An interface of the subnet.
#[derive(Debug)]
struct Neighbour {
    address: HardwareAddress,
    /// The LID from which it was last heard. Together with the queue pair number it identifies the sender of
    /// packets without a GID.
    heard_from: u16,
    heard: Time,
    path: PathState,
    waiting: VecDeque<Vec<u8>>,
}

/// What to do with a packet for an interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// It is sent.
    Now(Qpn, SubnetLane, Vec<u8>),
    /// It waits; the path has to be queried.
    Ask(HardwareAddress),
    /// It is lost: nobody has the address, there is no path, or too many packets wait.
    Lost,
}

/// Interfaces of the subnet; see the module's comment.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    by_mac: BTreeMap<MacAddress, Neighbour>,
    macs: BTreeMap<HardwareAddress, MacAddress>,
    /// By LID and queue pair.
    sources: BTreeMap<(u16, Qpn), MacAddress>,
    made: u32,
}

impl Neighbours {
    /// Learns the address of an interface that was heard from a LID; 0 if another interface sent the address.
    /// Returns its MAC address.
    pub(super) fn hear(&mut self, now: Time, address: HardwareAddress, lid: u16) -> MacAddress {
        let mac = match self.macs.get(&address) {
            Some(mac) => *mac,
            None => self.add(now, address),
        };
        if let Some(neighbour) = self.by_mac.get_mut(&mac).filter(|_| lid != 0) {
            if neighbour.heard_from != lid {
                // It has moved to another LID.
                self.sources.remove(&(neighbour.heard_from, address.qpn));
                (neighbour.heard_from, neighbour.path) = (lid, PathState::Unknown);
            }
            neighbour.heard = now;
            self.sources.insert((lid, address.qpn), mac);
        }
        mac
    }

    /// Adds an interface. A MAC address is never reused, so that nobody receives packets for an earlier
    /// owner.
    fn add(&mut self, now: Time, address: HardwareAddress) -> MacAddress {
        if self.by_mac.len() >= MOST_NEIGHBOURS
            && let Some(oldest) = self.by_mac.iter().min_by_key(|(_, one)| one.heard).map(|(mac, _)| *mac)
        {
            self.forget(oldest);
        }
        self.made = self.made.wrapping_add(1);
        let [a, b, c, d] = self.made.to_be_bytes();
        let mac = MacAddress([MADE_UP[0], MADE_UP[1], a, b, c, d]);
        let neighbour = Neighbour {
            address,
            heard_from: 0,
            heard: now,
            path: PathState::Unknown,
            waiting: VecDeque::new(),
        };
        self.by_mac.insert(mac, neighbour);
        self.macs.insert(address, mac);
        mac
    }

    fn forget(&mut self, mac: MacAddress) {
        if let Some(neighbour) = self.by_mac.remove(&mac) {
            self.macs.remove(&neighbour.address);
            self.sources.remove(&(neighbour.heard_from, neighbour.address.qpn));
        }
    }

    /// The interface behind a MAC address.
    pub(super) fn address(&self, mac: MacAddress) -> Option<HardwareAddress> {
        self.by_mac.get(&mac).map(|neighbour| neighbour.address)
    }

    /// The MAC address of the interface with a queue pair at a LID.
    pub(super) fn source(&self, lid: u16, qpn: Qpn) -> Option<MacAddress> {
        self.sources.get(&(lid, qpn)).copied()
    }

    /// The interface behind a MAC address, and the path to it. `None` if there is no such interface; without
    /// a path, the administration has to be asked.
    pub(super) fn lane(&self, now: Time, mac: MacAddress) -> Option<(HardwareAddress, Option<SubnetLane>)> {
        let neighbour = self.by_mac.get(&mac)?;
        match neighbour.path {
            PathState::Known(lane, since) if now.since(since) < PATH_LASTS => {
                Some((neighbour.address, Some(lane)))
            }
            PathState::None(since) if now.since(since) < NO_PATH_LASTS => None,
            _ => Some((neighbour.address, None)),
        }
    }

    /// Sends to the interface behind a MAC address, if the path is known.
    pub(super) fn send(&mut self, now: Time, mac: MacAddress, packet: Vec<u8>) -> Sending {
        match self.lane(now, mac) {
            Some((address, Some(lane))) => return Sending::Now(address.qpn, lane, packet),
            Some((_, None)) => {}
            None => return Sending::Lost,
        }
        let Some(neighbour) = self.by_mac.get_mut(&mac) else { return Sending::Lost };
        if neighbour.waiting.len() >= MOST_WAITING {
            return Sending::Lost;
        }
        neighbour.waiting.push_back(packet);
        Sending::Ask(neighbour.address)
    }

    /// Sets the path to all interfaces at a port, or that there is none. Returns the packets that have waited
    /// for it.
    pub(super) fn set_path(
        &mut self,
        now: Time,
        gid: Gid,
        lane: Option<SubnetLane>,
    ) -> Vec<(Qpn, SubnetLane, Vec<u8>)> {
        let mut leaving = Vec::new();
        for neighbour in self.by_mac.values_mut().filter(|neighbour| neighbour.address.gid == gid) {
            neighbour.path = lane.map_or(PathState::None(now), |lane| PathState::Known(lane, now));
            let waiting = std::mem::take(&mut neighbour.waiting);
            let Some(lane) = lane else { continue };
            leaving.extend(waiting.into_iter().map(|packet| (neighbour.address.qpn, lane, packet)));
        }
        leaving
    }

    /// Forgets all paths, because the own port has changed.
    pub(super) fn forget_paths(&mut self) {
        for neighbour in self.by_mac.values_mut() {
            neighbour.path = PathState::Unknown;
            neighbour.waiting.clear();
        }
    }
}

/// Hosts on the machine's side, by IP address.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    macs: BTreeMap<IpAddr, MacAddress>,
    /// The last sender. It gets packets for unknown addresses, because it may be a router.
    last: Option<MacAddress>,
}

impl Hosts {
    /// Learns the MAC address of a sender on the machine's side, and its IP address if it showed one.
    pub(super) fn hear(&mut self, mac: MacAddress, ip: Option<IpAddr>) {
        self.last = Some(mac);
        let Some(ip) = ip.filter(|ip| !ip.is_unspecified() && !ip.is_multicast()) else { return };
        if self.macs.len() >= MOST_HOSTS && !self.macs.contains_key(&ip) {
            self.macs.clear();
        }
        self.macs.insert(ip, mac);
    }

    /// The MAC address of the host with an IP address.
    pub(super) fn mac(&self, ip: IpAddr) -> Option<MacAddress> {
        self.macs.get(&ip).copied().or(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> HardwareAddress {
        HardwareAddress { qpn: Qpn::from_low_bits(number), gid: Gid([7; 16]) }
    }

    const LANE: SubnetLane = SubnetLane { lid: 5, service_level: 1, mtu: 4 };

    #[test]
    fn packets_wait_for_the_path() {
        let (mut neighbours, now) = (Neighbours::default(), Time::ZERO);
        let mac = neighbours.hear(now, address(1), 5);
        assert_eq!(neighbours.hear(now, address(1), 5), mac, "the same");
        assert_eq!(neighbours.source(5, Qpn::from_low_bits(1)), Some(mac));
        for number in 0..MOST_WAITING as u8 {
            assert_eq!(neighbours.send(now, mac, vec![number]), Sending::Ask(address(1)));
        }
        assert_eq!(neighbours.send(now, mac, vec![99]), Sending::Lost, "a limit");
        let left = neighbours.set_path(now, Gid([7; 16]), Some(LANE));
        assert_eq!((left.len(), &left[0]), (MOST_WAITING, &(Qpn::from_low_bits(1), LANE, vec![0])));
        let at_once = neighbours.send(now, mac, vec![1]);
        assert_eq!(at_once, Sending::Now(Qpn::from_low_bits(1), LANE, vec![1]));
        assert_eq!(neighbours.send(now + PATH_LASTS, mac, vec![1]), Sending::Ask(address(1)), "asked again");
        neighbours.hear(now, address(1), 6);
        assert_eq!(neighbours.source(5, Qpn::from_low_bits(1)), None, "it has moved");
        assert_eq!(neighbours.set_path(now, Gid([7; 16]), None), []);
        assert_eq!(neighbours.send(now, mac, vec![1]), Sending::Lost, "no path");
    }

    #[test]
    fn the_least_recently_heard_neighbour_is_forgotten() {
        let mut neighbours = Neighbours::default();
        let at = |number: u32| Time::ZERO + Duration::from_millis(number.into());
        let first = neighbours.hear(at(0), address(0), 1);
        for number in 1..=MOST_NEIGHBOURS as u32 {
            neighbours.hear(at(number), address(number), 1);
        }
        assert_eq!((neighbours.by_mac.len(), neighbours.address(first)), (MOST_NEIGHBOURS, None));
        assert_ne!(neighbours.hear(at(9999), address(0), 1), first, "the old address is not reused");
        assert_eq!(neighbours.sources.len(), MOST_NEIGHBOURS);
    }

    #[test]
    fn hosts_are_found_by_their_addresses() {
        let (mut hosts, ip) = (Hosts::default(), |last: u8| IpAddr::from([10, 0, 0, last]));
        assert_eq!(hosts.mac(ip(1)), None);
        let [a, b] = [1, 2].map(|last| MacAddress([2, 0, 0, 0, 0, last]));
        hosts.hear(a, Some(ip(1)));
        hosts.hear(b, None);
        assert_eq!((hosts.mac(ip(1)), hosts.mac(ip(9))), (Some(a), Some(b)));
        for number in 0..=MOST_HOSTS as u32 {
            hosts.hear(b, Some(IpAddr::from((0x0a00_0000 | number).to_be_bytes())));
        }
        assert!(hosts.macs.len() <= MOST_HOSTS);
    }
}
