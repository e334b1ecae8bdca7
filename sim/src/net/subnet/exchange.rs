//! Requests of the manager to one port or switch: one at a time, each repeated a few times, and a look again at each sweep.

use bareverbs_prm::time::{Duration, Time};

/// How long an answer may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How often a request is sent before the manager gives up until the next sweep.
const ATTEMPTS: u8 = 4;
/// How often each port and switch is looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request that has no answer yet; 0 if there is none.
    transaction: u64,
    /// How often it was sent.
    attempts: u8,
    /// When it is sent again, or the next sweep.
    due: Time,
    /// When all was last found in order, or given up.
    checked: Option<Time>,
}

impl Exchange {
    pub(super) const fn new(now: Time) -> Self {
        Self { transaction: 0, attempts: 0, due: now, checked: None }
    }

    /// A request leaves.
    pub(super) fn begin(&mut self, now: Time, transaction: u64) {
        self.transaction = transaction;
        self.attempts += 1;
        self.due = now + RESPONSE_TIMEOUT;
    }

    /// The open request has its answer: the next may follow at once.
    pub(super) const fn end(&mut self, now: Time) {
        (self.transaction, self.attempts, self.due) = (0, 0, now);
    }

    /// All is in order: nothing until the next sweep.
    pub(super) fn settle(&mut self, now: Time) {
        self.due = now + SWEEP_INTERVAL;
        self.checked = Some(now);
    }

    /// Who says to have done what it did not do is not asked at once again: that would keep both busy.
    pub(super) fn pause(&mut self, now: Time) {
        self.due = now + RESPONSE_TIMEOUT;
    }

    /// Nothing is asked any more.
    pub(super) const fn stop(&mut self) {
        (self.transaction, self.attempts, self.due, self.checked) = (0, 0, Time::MAX, Some(Time::MAX));
    }

    /// Whether there is nothing to send now. After the last attempt there is not until the next sweep.
    pub(super) fn rests(&mut self, now: Time) -> bool {
        if self.attempts >= ATTEMPTS {
            self.attempts = 0;
            self.settle(now);
        }
        self.due > now
    }

    /// Whether the last attempt has had no answer.
    pub(super) const fn is_spent(&self) -> bool {
        self.attempts >= ATTEMPTS
    }

    /// The request that was sent last and has no answer; 0 if there is none.
    pub(super) const fn transaction(&self) -> u64 {
        self.transaction
    }

    /// Whether an answer is waited for.
    pub(super) const fn is_open(&self) -> bool {
        self.attempts != 0
    }

    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// Whether all was found in order, or given up, after `time`.
    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        self.checked.is_some_and(|checked| checked > time)
    }
}
