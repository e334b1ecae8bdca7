//! Who has which address at which side: interfaces of the subnet, for which the machine has MAC addresses that are made up here, and hosts
//! at the machine's side, by their addresses of IP.

use super::link::HardwareAddress;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Interfaces that are known. Beyond, the one that was not heard of for longest is forgotten, and ARP finds it again.
const MOST_NEIGHBOURS: usize = 4096;
/// Packets that wait for the path to an interface.
const MOST_WAITING: usize = 16;
/// How long a path is used before it is asked for again: managers move LIDs.
const PATH_LASTS: Duration = Duration::from_secs(60);
/// How long nobody is asked for a path that there was none of.
const NO_PATH_LASTS: Duration = Duration::from_secs(2);
/// Hosts at the machine's side whose addresses are known.
const MOST_HOSTS: usize = 4096;
/// First two bytes of a made-up MAC address: administered locally.
const MADE_UP: [u8; 2] = [0x02, 0x49];

/// The way to an interface within the subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubnetLane {
    pub(super) lid: u16,
    pub(super) service_level: u8,
    /// Code of the largest payload: 128 · 2^code bytes.
    pub(super) mtu: u8,
}

/// What is known of the way to an interface.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PathState {
    #[default]
    Unknown,
    Known(SubnetLane, Time),
    /// There was none.
    None(Time),
}

/// An interface of the subnet.
#[derive(Debug)]
struct Neighbour {
    address: HardwareAddress,
    /// The LID from which it was heard last: by it and the queue pair packets are told apart that name no GID.
    heard_from: u16,
    heard: Time,
    path: PathState,
    waiting: VecDeque<Vec<u8>>,
}

/// What becomes of a packet for an interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// It leaves.
    Now(Qpn, SubnetLane, Vec<u8>),
    /// It waits, and the path has to be asked for.
    Ask(HardwareAddress),
    /// Nobody has the address, there is no path, or too many wait.
    Lost,
}

/// Interfaces of the subnet; see the module.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    by_mac: BTreeMap<MacAddress, Neighbour>,
    macs: BTreeMap<HardwareAddress, MacAddress>,
    /// By LID and queue pair.
    sources: BTreeMap<(u16, Qpn), MacAddress>,
    made: u32,
}

impl Neighbours {
    /// An interface said its address, from a LID; 0 if somebody else said it. Gives its MAC address.
    pub(super) fn hear(&mut self, now: Time, address: HardwareAddress, lid: u16) -> MacAddress {
        let mac = match self.macs.get(&address) {
            Some(mac) => *mac,
            None => self.add(now, address),
        };
        if let Some(neighbour) = self.by_mac.get_mut(&mac).filter(|_| lid != 0) {
            if neighbour.heard_from != lid {
                // It has moved.
                self.sources.remove(&(neighbour.heard_from, address.qpn));
                (neighbour.heard_from, neighbour.path) = (lid, PathState::Unknown);
            }
            neighbour.heard = now;
            self.sources.insert((lid, address.qpn), mac);
        }
        mac
    }

    /// A number is used once, so that nobody gets packets for who had it before.
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

    /// The interface that a MAC address stands for.
    pub(super) fn address(&self, mac: MacAddress) -> Option<HardwareAddress> {
        self.by_mac.get(&mac).map(|neighbour| neighbour.address)
    }

    /// The MAC address of the interface with a queue pair, from a LID.
    pub(super) fn source(&self, lid: u16, qpn: Qpn) -> Option<MacAddress> {
        self.sources.get(&(lid, qpn)).copied()
    }

    /// The interface that a MAC address stands for, and the way to it. `None` if there is none; without a way the administrator has to be asked.
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

    /// Sends to the interface that a MAC address stands for, if the way is known.
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

    /// The path to all interfaces at a port is known, or there is none. Gives what has waited for it.
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

    /// Paths are asked for again: the own port is another.
    pub(super) fn forget_paths(&mut self) {
        for neighbour in self.by_mac.values_mut() {
            neighbour.path = PathState::Unknown;
            neighbour.waiting.clear();
        }
    }
}

/// Hosts at the machine's side, by their addresses of IP.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    macs: BTreeMap<IpAddr, MacAddress>,
    /// Who spoke last: packets for an address that nobody has shown are for it, as it may be a router.
    last: Option<MacAddress>,
}

impl Hosts {
    /// Somebody at the machine's side has spoken, perhaps with an address.
    pub(super) fn hear(&mut self, mac: MacAddress, ip: Option<IpAddr>) {
        self.last = Some(mac);
        let Some(ip) = ip.filter(|ip| !ip.is_unspecified() && !ip.is_multicast()) else { return };
        if self.macs.len() >= MOST_HOSTS && !self.macs.contains_key(&ip) {
            self.macs.clear();
        }
        self.macs.insert(ip, mac);
    }

    /// The MAC address of the host with an address.
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
    fn who_was_not_heard_of_for_longest_is_forgotten() {
        let mut neighbours = Neighbours::default();
        let at = |number: u32| Time::ZERO + Duration::from_millis(number.into());
        let first = neighbours.hear(at(0), address(0), 1);
        for number in 1..=MOST_NEIGHBOURS as u32 {
            neighbours.hear(at(number), address(number), 1);
        }
        assert_eq!((neighbours.by_mac.len(), neighbours.address(first)), (MOST_NEIGHBOURS, None));
        assert_ne!(neighbours.hear(at(9999), address(0), 1), first, "its packets were for who had it");
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
