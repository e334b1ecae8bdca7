//! Traps of an InfiniBand port to the SM (IBTA v1.4 §13.4.9, §14.2.5.1).
//!
//! Raised by a packet with a bad P_Key or Q_Key, by a changed capability mask and by a changed NodeDescription. A trap
//! is repeated until the SM represses it or the attempts run out. At most one trap of each number starts per
//! `SubnetTimeOut`, so a sender of many bad packets causes few traps.

use crate::wire::management::attributes::{CapabilityDetails, KeyDetails, Notice};
use crate::wire::management::{Method, SubnetPacket, attribute};
use crate::wire::{LocalRoute, Network};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// How often an unanswered trap is sent.
const ATTEMPTS: u8 = 5;
/// `ProducerType` of a channel adapter.
const ADAPTER: u32 = 1;
/// `Type` of a notice (IBTA v1.4 §13.4.8.2).
const SECURITY: u8 = 2;
const INFORMATIONAL: u8 = 4;

/// The subject of a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TrapNumber {
    Capability,
    /// Shares its trap number with the capability mask but is sent separately.
    Description,
    PartitionKey,
    QueueKey,
}

impl TrapNumber {
    const fn raw(self) -> u16 {
        match self {
            Self::Capability | Self::Description => 144,
            Self::PartitionKey => 257,
            Self::QueueKey => 258,
        }
    }
}

/// A packet whose key does not match its receiver's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyViolation {
    pub(crate) number: TrapNumber,
    pub(crate) key: u32,
    pub(crate) local: LocalRoute,
    pub(crate) source: Qpn,
    pub(crate) destination: Qpn,
}

#[derive(Debug)]
struct OpenTrap {
    notice: Notice,
    transaction: u64,
    sent: u8,
    is_heard: bool,
    due: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PortTraps {
    open: BTreeMap<TrapNumber, OpenTrap>,
    transactions: u64,
}

impl PortTraps {
    /// Raises a trap unless a recent one of the same number is still open.
    pub(crate) fn raise(&mut self, now: Time, number: TrapNumber, notice: Notice) {
        if self.open.get(&number).is_some_and(|open| open.due > now || open.has_turn()) {
            return;
        }
        self.transactions += 1;
        let trap = OpenTrap { notice, transaction: self.transactions, sent: 0, is_heard: false, due: now };
        self.open.insert(number, trap);
    }

    /// The next trap that is due, sent from LID `lid`. It is due again after `interval`.
    pub(crate) fn poll(&mut self, now: Time, lid: u16, interval: Duration) -> Option<SubnetPacket> {
        let trap = self.open.values_mut().find(|trap| trap.due <= now && trap.has_turn())?;
        trap.sent += 1;
        trap.due = now + interval;
        let mut packet = SubnetPacket::lid_routed(Method::Trap, attribute::NOTICE, trap.transaction);
        packet.write(trap.notice.set_issuer_lid(lid));
        Some(packet)
    }

    /// Stops repeating a trap that the SM has repressed.
    pub(crate) fn repress(&mut self, transaction: u64) {
        let heard = self.open.values_mut().find(|trap| trap.transaction == transaction);
        if let Some(trap) = heard {
            trap.is_heard = true;
        }
    }

    /// When the next trap is due. This is called for each packet and is usually `None`.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if self.open.is_empty() { None } else { self.earliest() }
    }

    #[cold]
    #[inline(never)]
    fn earliest(&self) -> Option<Time> {
        self.open.values().filter(|trap| trap.has_turn()).map(|trap| trap.due).min()
    }

    /// Drops all traps, because nobody is left to receive them.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}

impl OpenTrap {
    const fn has_turn(&self) -> bool {
        !self.is_heard && self.sent < ATTEMPTS
    }
}

impl KeyViolation {
    /// `None` outside InfiniBand, whose ports alone have an SM.
    pub(crate) fn new(
        number: TrapNumber,
        key: u32,
        network: &Network,
        [source, destination]: [Qpn; 2],
    ) -> Option<Self> {
        let Network::InfiniBand(local) = *network else { return None };
        Some(Self { number, key, local, source, destination })
    }

    /// The notice of traps 257 and 258.
    pub(crate) fn notice(&self) -> Notice {
        let mut rest = KeyDetails::new();
        rest.set_source_lid(self.local.source).set_destination_lid(self.local.destination);
        rest.set_key(self.key).set_service_level(self.local.service_level);
        rest.set_source_qp(self.source.value()).set_destination_qp(self.destination.value());
        if let Some(global) = self.local.global {
            rest.set_source_gid(global.source.octets()).set_destination_gid(global.destination.octets());
        }
        notice(self.number, SECURITY, rest.as_bytes())
    }
}

/// Trap 144.
pub(crate) fn capability_notice(lid: u16, capability_mask: u32) -> Notice {
    let mut rest = CapabilityDetails::new();
    rest.set_lid(lid).set_capability_mask(capability_mask);
    notice(TrapNumber::Capability, INFORMATIONAL, rest.as_bytes())
}

/// The notice of trap 144 for a changed NodeDescription.
pub(crate) fn description_notice(lid: u16, capability_mask: u32) -> Notice {
    let mut rest = CapabilityDetails::new();
    rest.set_lid(lid).set_capability_mask(capability_mask);
    rest.set_other_local_changes(true).set_node_description_change(true);
    notice(TrapNumber::Description, INFORMATIONAL, rest.as_bytes())
}

fn notice(number: TrapNumber, kind: u8, rest: &[u8]) -> Notice {
    let (mut notice, mut details) = (Notice::new(), [0; 52]);
    details[..rest.len()].copy_from_slice(rest);
    notice.set_generic(true).set_kind(kind).set_producer(ADAPTER).set_trap(number.raw());
    *notice.set_details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Requirement: IBTA v1.4 §13.4.9: a port sends a trap again until it is repressed, and no faster than its interval.
    #[test]
    fn a_trap_is_sent_until_it_is_heard() {
        let mut traps = PortTraps::default();
        traps.raise(at(0), TrapNumber::Capability, capability_notice(7, 2));
        let first = traps.poll(at(0), 7, INTERVAL).expect("a trap");
        assert_eq!((traps.poll(at(0), 7, INTERVAL), traps.poll_timeout()), (None, Some(at(1))));
        assert_eq!(traps.poll(at(1), 7, INTERVAL), Some(first.clone()));
        traps.repress(first.transaction() + 1);
        assert_eq!(traps.poll_timeout(), Some(at(2)));
        traps.repress(first.transaction());
        assert_eq!(traps.poll_timeout(), None);
        traps.raise(at(1), TrapNumber::Capability, capability_notice(7, 0));
        assert_eq!(traps.poll(at(1), 7, INTERVAL), None, "too early for another one");
        traps.raise(at(2), TrapNumber::Capability, capability_notice(7, 0));
        assert!(traps.poll(at(2), 7, INTERVAL).is_some_and(|next| next.transaction() != first.transaction()));
    }

    #[test]
    fn a_trap_that_nobody_hears_is_given_up() {
        let mut traps = PortTraps::default();
        traps.raise(at(0), TrapNumber::Capability, capability_notice(7, 2));
        let sent = (0..20).filter(|second| traps.poll(at(*second), 7, INTERVAL).is_some()).count();
        assert_eq!((sent, traps.poll_timeout()), (5, None));
    }
}
