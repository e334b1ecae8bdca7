//! The SM's requests to one port or switch: one outstanding request, a few retries, and a recheck at every sweep.

use crate::wire::management::SubnetPacket;
use bareverbs_prm::time::{Duration, Time};

/// Time limit for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Attempts per request before the SM gives up until the next sweep.
const ATTEMPTS: u8 = 4;
/// Sweep interval: how often each port and switch is rechecked.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// State of the exchange with one port or switch; see the module.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Transaction ID of the outstanding request; 0 if there is none.
    transaction: u64,
    /// Attribute and modifier that it is about.
    asked: (u16, u32),
    /// Attempts so far.
    attempts: u8,
    /// Time of the next retry or sweep.
    due: Time,
    /// When the target was last found in order or given up.
    checked: Option<Time>,
}

impl Exchange {
    pub(super) const fn new(now: Time) -> Self {
        Self { transaction: 0, asked: (0, 0), attempts: 0, due: now, checked: None }
    }

    /// Starts a request.
    pub(super) fn begin(&mut self, now: Time, request: &SubnetPacket) {
        (self.transaction, self.asked) = (request.transaction(), request.attribute());
        self.attempts += 1;
        self.due = now + RESPONSE_TIMEOUT;
    }

    /// The response arrived: the next request may follow at once.
    pub(super) const fn end(&mut self, now: Time) {
        (self.transaction, self.attempts, self.due) = (0, 0, now);
    }

    /// Forgets the request, which is not repeated. Its response is no longer expected.
    pub(super) const fn forget(&mut self) {
        self.transaction = 0;
    }

    /// The target is in order: wait for the next sweep.
    pub(super) fn settle(&mut self, now: Time) {
        self.due = now + SWEEP_INTERVAL;
        self.checked = Some(now);
    }

    /// The target claims to have done what it did not. Wait for the timeout before asking again, or both sides would
    /// stay busy.
    pub(super) fn pause(&mut self, now: Time) {
        self.due = now + RESPONSE_TIMEOUT;
    }

    /// Stops asking.
    pub(super) const fn stop(&mut self) {
        (self.transaction, self.attempts, self.due, self.checked) = (0, 0, Time::MAX, Some(Time::MAX));
    }

    /// Whether there is nothing to send now. After the last attempt that holds until the next sweep.
    pub(super) fn rests(&mut self, now: Time) -> bool {
        if self.attempts >= ATTEMPTS {
            self.attempts = 0;
            self.settle(now);
        }
        self.due > now
    }

    /// Whether the last attempt timed out.
    pub(super) const fn is_spent(&self) -> bool {
        self.attempts >= ATTEMPTS
    }

    /// Transaction ID of the outstanding request.
    pub(super) fn transaction(&self) -> Option<u64> {
        Some(self.transaction).filter(|transaction| *transaction != 0)
    }

    /// Whether a packet responds to the outstanding request: it has the request's transaction ID and attribute.
    pub(super) fn is_answered_by(&self, response: &SubnetPacket) -> bool {
        self.transaction() == Some(response.transaction()) && self.asked == response.attribute()
    }

    /// Whether a request is outstanding.
    pub(super) const fn is_open(&self) -> bool {
        self.attempts != 0
    }

    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// Whether the target was found in order or given up after `time`.
    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        self.checked.is_some_and(|checked| checked > time)
    }
}
