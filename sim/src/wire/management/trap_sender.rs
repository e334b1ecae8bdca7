//! The pending traps of an agent to the SM (IBTA v1.4 §13.4.9).
//!
//! A trap is repeated until the SM represses it or the attempts run out. At most one trap of each cause is pending, and
//! [`TrapSender::raise`] starts at most one per interval, so a sender of many bad packets causes few traps.

use super::attributes::Notice;
use super::{Method, SubnetPacket, attribute};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;

/// How often an unanswered trap is sent.
const ATTEMPTS: u8 = 5;

#[derive(Debug)]
struct PendingTrap {
    notice: Notice,
    transaction: u64,
    sent: u8,
    is_repressed: bool,
    due: Time,
}

/// See the module. `Cause` is what a trap is about.
#[derive(Debug)]
pub(crate) struct TrapSender<Cause> {
    pending: BTreeMap<Cause, PendingTrap>,
    transactions: u64,
}

impl<Cause> Default for TrapSender<Cause> {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), transactions: 0 }
    }
}

impl<Cause: Ord> TrapSender<Cause> {
    /// Raises a trap. Returns false, and does nothing, if one of the same cause was raised recently.
    pub(crate) fn raise(&mut self, now: Time, cause: Cause, notice: Notice) -> bool {
        let is_early = self.pending.get(&cause).is_some_and(|trap| trap.due > now || trap.is_unanswered());
        if !is_early {
            self.replace(now, cause, notice);
        }
        !is_early
    }

    /// Raises a trap in place of a pending one of the same cause.
    pub(crate) fn replace(&mut self, now: Time, cause: Cause, notice: Notice) {
        self.transactions += 1;
        let transaction = self.transactions;
        self.pending
            .insert(cause, PendingTrap { notice, transaction, sent: 0, is_repressed: false, due: now });
    }

    /// The next trap that is due, sent from LID `lid`. It is due again after `interval`.
    pub(crate) fn poll(&mut self, now: Time, lid: u16, interval: Duration) -> Option<SubnetPacket> {
        let trap = self.pending.values_mut().find(|trap| trap.due <= now && trap.is_unanswered())?;
        trap.sent += 1;
        trap.due = now + interval;
        let mut packet = SubnetPacket::lid_routed(Method::Trap, attribute::NOTICE, trap.transaction);
        packet.write(trap.notice.set_issuer_lid(lid));
        Some(packet)
    }

    /// Handles TrapRepress: the SM has received the trap.
    pub(crate) fn repress(&mut self, transaction: u64) {
        let trap = self.pending.values_mut().find(|trap| trap.transaction == transaction);
        if let Some(trap) = trap {
            trap.is_repressed = true;
        }
    }

    /// Sends no trap of this cause for `interval`, because the SM on this node learned of it directly.
    pub(crate) fn suppress(&mut self, now: Time, cause: &Cause, interval: Duration) {
        if let Some(trap) = self.pending.get_mut(cause).filter(|trap| trap.is_unanswered()) {
            (trap.is_repressed, trap.due) = (true, now + interval);
        }
    }

    /// When the next trap is due. A port calls this for each packet, and it is usually `None`.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if self.pending.is_empty() { None } else { self.earliest() }
    }

    #[cold]
    #[inline(never)]
    fn earliest(&self) -> Option<Time> {
        self.pending.values().filter(|trap| trap.is_unanswered()).map(|trap| trap.due).min()
    }

    /// Drops all traps, because no SM could receive them.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }
}

impl PendingTrap {
    const fn is_unanswered(&self) -> bool {
        !self.is_repressed && self.sent < ATTEMPTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Cause {
        Links,
        PartitionKey,
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Requirement: IBTA v1.4 §13.4.9: a trap is repeated until it is repressed, no faster than its interval.
    #[test]
    fn a_trap_is_repeated_until_it_is_repressed() {
        let mut traps = TrapSender::default();
        assert!(traps.raise(at(0), Cause::PartitionKey, Notice::new()));
        let first = traps.poll(at(0), 7, INTERVAL).expect("a trap");
        assert_eq!((traps.poll(at(0), 7, INTERVAL), traps.poll_timeout()), (None, Some(at(1))));
        assert_eq!(traps.poll(at(1), 7, INTERVAL), Some(first.clone()));
        traps.repress(first.transaction() + 1);
        assert_eq!(traps.poll_timeout(), Some(at(2)));
        traps.repress(first.transaction());
        assert_eq!(traps.poll_timeout(), None);
        assert!(!traps.raise(at(1), Cause::PartitionKey, Notice::new()), "too early for another one");
        assert_eq!(traps.poll(at(1), 7, INTERVAL), None);
        assert!(traps.raise(at(2), Cause::PartitionKey, Notice::new()));
        assert!(traps.poll(at(2), 7, INTERVAL).is_some_and(|next| next.transaction() != first.transaction()));
    }

    /// Requirement: IBTA v1.4 §13.4.9: many bad packets cause few traps, even after the SM has repressed one.
    #[test]
    fn many_bad_packets_cause_one_trap_per_interval() {
        let mut traps = TrapSender::default();
        assert!(traps.raise(at(0), Cause::PartitionKey, Notice::new()));
        assert!(!traps.raise(at(0), Cause::PartitionKey, Notice::new()));
        let first = traps.poll(at(0), 7, INTERVAL).expect("a trap");
        assert_eq!((traps.poll(at(0), 7, INTERVAL), traps.poll_timeout()), (None, Some(at(1))));
        traps.repress(first.transaction());
        assert_eq!(traps.poll_timeout(), None);
        assert!(!traps.raise(at(0), Cause::PartitionKey, Notice::new()), "too early");
        assert!(traps.raise(at(1), Cause::PartitionKey, Notice::new()));
    }

    #[test]
    fn unanswered_traps_of_every_cause_end_after_their_attempts() {
        let mut traps = TrapSender::default();
        assert!(traps.raise(at(0), Cause::PartitionKey, Notice::new()));
        traps.replace(at(0), Cause::Links, Notice::new());
        traps.replace(at(0), Cause::Links, Notice::new());
        let seconds = (0..20).flat_map(|second| [second; 2]);
        let sent = seconds.filter(|second| traps.poll(at(*second), 7, INTERVAL).is_some()).count();
        assert_eq!((sent, traps.poll_timeout()), (2 * 5, None));
    }

    #[test]
    fn a_suppressed_trap_is_not_sent_and_delays_the_next_one() {
        let mut traps = TrapSender::default();
        assert!(traps.raise(at(0), Cause::PartitionKey, Notice::new()));
        traps.suppress(at(0), &Cause::PartitionKey, INTERVAL);
        assert_eq!((traps.poll(at(0), 7, INTERVAL), traps.poll_timeout()), (None, None));
        assert!(!traps.raise(at(0), Cause::PartitionKey, Notice::new()), "too early");
        assert!(traps.raise(at(1), Cause::PartitionKey, Notice::new()));
    }
}
