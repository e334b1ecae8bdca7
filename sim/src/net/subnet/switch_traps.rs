//! Traps of a switch to the SM, repeated until the SM represses them or the attempts run out (IBTA v1.4 §13.4.9).

use crate::wire::management::attributes::Notice;
use crate::wire::management::{Method, SubnetPacket, attribute};
use bareverbs_prm::time::{Duration, Time};

/// Attempts per trap.
const ATTEMPTS: u8 = 5;

/// The kinds of traps. At most one of each kind is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwitchTrap {
    /// Links have changed; the latest change counts.
    Links,
    /// A packet was dropped for its P_Key. At most one per interval.
    PartitionKey,
}

#[derive(Debug)]
struct UnheardTrap {
    notice: Notice,
    transaction: u64,
    sent: u8,
    is_heard: bool,
    due: Time,
}

/// Pending traps; see the module.
#[derive(Debug)]
pub(super) struct SwitchTraps {
    open: [Option<UnheardTrap>; 2],
    transactions: u64,
    interval: Duration,
}

impl SwitchTraps {
    /// No traps yet. A trap is repeated after `interval`.
    pub(super) const fn new(interval: Duration) -> Self {
        Self { open: [None, None], transactions: 0, interval }
    }

    /// Raises a trap; false if it is too early for another of this kind.
    pub(super) fn raise(&mut self, now: Time, about: SwitchTrap, notice: Notice) -> bool {
        let place = &mut self.open[about as usize];
        if about == SwitchTrap::PartitionKey
            && place.as_ref().is_some_and(|open| open.due > now || open.has_turn())
        {
            return false;
        }
        self.transactions += 1;
        *place =
            Some(UnheardTrap { notice, transaction: self.transactions, sent: 0, is_heard: false, due: now });
        true
    }

    /// The next due trap, sent from the switch's LID.
    pub(super) fn poll(&mut self, now: Time, lid: u16) -> Option<SubnetPacket> {
        let mut open = self.open.iter_mut().flatten();
        let trap = open.find(|trap| trap.due <= now && trap.has_turn())?;
        trap.sent += 1;
        trap.due = now + self.interval;
        let mut packet = SubnetPacket::lid_routed(Method::Trap, attribute::NOTICE, trap.transaction);
        packet.write(trap.notice.set_issuer_lid(lid));
        Some(packet)
    }

    /// The SM on this node learned of the event directly, without a trap.
    pub(super) fn hear(&mut self, now: Time, about: SwitchTrap) {
        if let Some(trap) = self.open[about as usize].as_mut().filter(|trap| trap.has_turn()) {
            (trap.is_heard, trap.due) = (true, now + self.interval);
        }
    }

    /// Handles TrapRepress.
    pub(super) fn repress(&mut self, transaction: u64) {
        let heard = self.open.iter_mut().flatten().find(|trap| trap.transaction == transaction);
        if let Some(trap) = heard {
            trap.is_heard = true;
        }
    }

    /// Drops all traps, because no SM could receive them.
    pub(super) const fn clear(&mut self) {
        self.open = [None, None];
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let waiting = self.open.iter().flatten().filter(|trap| trap.has_turn());
        waiting.map(|trap| trap.due).min()
    }
}

impl UnheardTrap {
    const fn has_turn(&self) -> bool {
        !self.is_heard && self.sent < ATTEMPTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Requirement: IBTA v1.4 §13.4.9: a trap is sent again until it is heard, and no faster than its interval.
    #[test]
    fn who_sends_many_bad_packets_makes_a_switch_send_few_traps() {
        let mut traps = SwitchTraps::new(INTERVAL);
        assert!(traps.raise(at(0), SwitchTrap::PartitionKey, Notice::new()));
        assert!(!traps.raise(at(0), SwitchTrap::PartitionKey, Notice::new()));
        let first = traps.poll(at(0), 7).expect("a trap");
        assert_eq!((traps.poll(at(0), 7), traps.poll_timeout()), (None, Some(at(1))));
        traps.repress(first.transaction());
        assert_eq!(traps.poll_timeout(), None);
        assert!(!traps.raise(at(0), SwitchTrap::PartitionKey, Notice::new()), "too early");
        assert!(traps.raise(at(1), SwitchTrap::PartitionKey, Notice::new()));
    }

    #[test]
    fn both_kinds_are_sent_and_given_up() {
        let mut traps = SwitchTraps::new(INTERVAL);
        assert!(traps.raise(at(0), SwitchTrap::PartitionKey, Notice::new()));
        assert!(traps.raise(at(0), SwitchTrap::Links, Notice::new()));
        assert!(traps.raise(at(0), SwitchTrap::Links, Notice::new()), "a newer change");
        let sent =
            (0..20).flat_map(|second| [second; 2]).filter(|second| traps.poll(at(*second), 7).is_some());
        assert_eq!(sent.count(), 2 * usize::from(ATTEMPTS));
        assert_eq!(traps.poll_timeout(), None);
    }
}
