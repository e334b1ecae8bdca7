//! When a measurement begins, counts and ends.

use super::plan::Amount;
use bareverbs_prm::time::{Duration, Time};

/// Phases of a measurement by time, as with perftest: a margin, the part that counts, a margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    amount: Amount,
    start: Option<Time>,
}

impl Clock {
    /// A clock that has not started.
    pub(crate) const fn new(amount: Amount) -> Self {
        Self { amount, start: None }
    }

    /// Starts the clock, unless it is running.
    pub(crate) fn begin(&mut self, now: Time) {
        self.start.get_or_insert(now);
    }

    /// Whether a queue pair that has sent `sent` messages is to send another.
    pub(crate) fn wants_more(&self, now: Time, sent: u64) -> bool {
        match self.amount {
            Amount::Iterations(count) => sent < count,
            Amount::Time { .. } => !self.is_over(now),
        }
    }

    /// How many messages a queue pair sends, if that is known.
    pub(crate) const fn count(&self) -> Option<u64> {
        match self.amount {
            Amount::Iterations(count) => Some(count),
            Amount::Time { .. } => None,
        }
    }

    /// Whether a measurement by time has ended.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        match (self.amount, self.start) {
            (Amount::Time { total, .. }, Some(start)) => now >= start + total,
            _ => false,
        }
    }

    /// Whether events count now.
    pub(crate) fn counts(&self, now: Time) -> bool {
        match (self.amount, self.start) {
            (Amount::Iterations(_), _) => true,
            (Amount::Time { total, margin }, Some(start)) => {
                now >= start + margin && now < start + total.saturating_sub(margin)
            }
            (Amount::Time { .. }, None) => false,
        }
    }

    /// Duration of the part that counts, for a measurement by time.
    pub(crate) fn sample(&self) -> Option<Duration> {
        match self.amount {
            Amount::Iterations(_) => None,
            Amount::Time { total, margin } => Some(total.saturating_sub(margin.saturating_mul(2))),
        }
    }
}
