//! The address table of an Ethernet switch. IEEE 802.1D §7.8 (learning), §7.9 (filtering database).

use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;

/// Maps addresses to ports. Learned entries age; static ones stay.
#[derive(Debug)]
pub(super) struct AddressTable {
    entries: BTreeMap<MacAddress, Location>,
    /// Limit up to which learning may fill the table.
    limit: usize,
    ageing: Duration,
    /// No learned entry is older than this, so a search for expired ones is pointless before `oldest + ageing`.
    oldest: Time,
}

#[derive(Debug, Clone, Copy)]
struct Location {
    port: usize,
    lifetime: Lifetime,
}

#[derive(Debug, Clone, Copy)]
enum Lifetime {
    Static,
    Learned { seen: Time },
}

impl AddressTable {
    pub(super) const fn new(limit: usize, ageing: Duration) -> Self {
        Self { entries: BTreeMap::new(), limit, ageing, oldest: Time::MAX }
    }

    /// The port that leads to `address`; `None` if it is unknown or has aged out.
    #[inline]
    pub(super) fn find(&self, now: Time, address: MacAddress) -> Option<usize> {
        let location = self.entries.get(&address)?;
        (!location.is_expired(now, self.ageing)).then_some(location.port)
    }

    /// Learns from a frame from `source` at `port`. False if the table is full; frames to `source` will then be
    /// flooded.
    #[inline]
    pub(super) fn learn(&mut self, now: Time, source: MacAddress, port: usize) -> bool {
        if let Some(Location { port: known, lifetime }) = self.entries.get_mut(&source) {
            if let Lifetime::Learned { seen } = lifetime {
                (*known, *seen) = (port, now);
            }
            return true;
        }
        // A group address never is a frame's source.
        source.0[0] & 1 != 0 || self.insert(now, source, port)
    }

    /// Enters a static address. Learning does not move it.
    pub(super) fn set_static(&mut self, address: MacAddress, port: usize) {
        self.entries.insert(address, Location { port, lifetime: Lifetime::Static });
    }

    /// Forgets addresses learned at `port`, whose link went down (IEEE 802.1D §7.9.2).
    pub(super) fn forget_learned(&mut self, port: usize) {
        self.entries
            .retain(|_, location| location.port != port || matches!(location.lifetime, Lifetime::Static));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cold]
    fn insert(&mut self, now: Time, address: MacAddress, port: usize) -> bool {
        if self.entries.len() >= self.limit {
            self.forget_expired(now);
        }
        let has_room = self.entries.len() < self.limit;
        if has_room {
            self.oldest = self.oldest.min(now);
            self.entries.insert(address, Location { port, lifetime: Lifetime::Learned { seen: now } });
        }
        has_room
    }

    fn forget_expired(&mut self, now: Time) {
        if now < self.oldest + self.ageing {
            return;
        }
        let ageing = self.ageing;
        self.entries.retain(|_, location| !location.is_expired(now, ageing));
        self.oldest = self.entries.values().filter_map(Location::seen).min().unwrap_or(Time::MAX);
    }
}

impl Location {
    #[inline]
    fn is_expired(&self, now: Time, ageing: Duration) -> bool {
        self.seen().is_some_and(|seen| now >= seen + ageing)
    }

    #[inline]
    const fn seen(&self) -> Option<Time> {
        match self.lifetime {
            Lifetime::Static => None,
            Lifetime::Learned { seen } => Some(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGEING: Duration = Duration::from_secs(300);

    fn address(number: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, number])
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// IEEE 802.1D §7.9.2: an address that has not been seen for the ageing time is forgotten.
    #[test]
    fn an_address_is_forgotten_when_it_is_not_seen() {
        let mut table = AddressTable::new(8, AGEING);
        assert!(table.learn(at(0), address(1), 4));
        assert_eq!(table.find(at(299), address(1)), Some(4));
        assert_eq!(table.find(at(300), address(1)), None);
        assert!(table.learn(at(200), address(1), 5));
        assert_eq!(table.find(at(499), address(1)), Some(5), "it moved, and was seen again");
    }

    #[test]
    fn a_full_table_learns_again_when_something_has_aged() {
        let mut table = AddressTable::new(2, AGEING);
        assert!(table.learn(at(0), address(1), 1) && table.learn(at(100), address(2), 2));
        assert!(!table.learn(at(299), address(3), 3));
        assert!(table.learn(at(300), address(3), 3));
        assert_eq!((table.find(at(300), address(1)), table.find(at(300), address(2))), (None, Some(2)));
        assert!(!table.learn(at(399), address(4), 4));
        assert!(table.learn(at(400), address(4), 4));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_static_address_neither_moves_nor_ages() {
        let mut table = AddressTable::new(1, AGEING);
        table.set_static(address(1), 1);
        assert!(table.learn(at(0), address(1), 2));
        table.forget_learned(1);
        assert_eq!(table.find(at(1_000_000), address(1)), Some(1));
        assert!(!table.learn(at(0), address(2), 2), "the limit counts static entries too");
    }

    #[test]
    fn a_pulled_cable_takes_its_addresses_along() {
        let mut table = AddressTable::new(8, AGEING);
        assert!(table.learn(at(0), address(1), 1) && table.learn(at(0), address(2), 2));
        table.forget_learned(1);
        assert_eq!((table.find(at(0), address(1)), table.find(at(0), address(2))), (None, Some(2)));
    }
}
