//! Draining: messages that have begun end, and no others begin. IBTA v1.4 §10.3.1.5.

use super::{NO_HOLD, Requester};
use crate::transport::parameters::ConnectionParameters;
use crate::transport::request::RetransmissionCause;

impl Requester {
    /// Starts no further message.
    pub fn drain(&mut self) {
        self.hold = self.outstanding.number_from(self.sent);
        if self.unrequested > 0 && self.is_in_flight() && self.sendable().is_none() {
            // The packet that would have requested an acknowledgement will not be sent for now.
            self.rewind(RetransmissionCause::Drain);
        }
    }

    /// Whether it drains, and every message that had begun has ended and was returned.
    pub fn is_drained(&self) -> bool {
        self.outstanding.first() >= self.hold
    }

    /// Starts messages again.
    pub fn resume(&mut self) {
        self.hold = NO_HOLD;
    }

    /// Takes over the timeout, the retry counts and the limit of READs and atomics; everything else keeps its
    /// initial value. Call this only while [drained](Self::is_drained), when no timer runs.
    pub fn change(&mut self, parameters: &ConnectionParameters) {
        self.read_limit = u64::from(parameters.max_outstanding_reads.max(1));
        self.timers = super::RetryTimers::new(parameters);
    }
}
