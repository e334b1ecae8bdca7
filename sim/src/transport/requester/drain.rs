//! Draining: messages that have begun end, no other begins. IBTA v1.4 §10.3.1.5.

use super::Requester;
use crate::transport::parameters::ConnectionParameters;
use crate::transport::request::RetransmissionCause;

impl Requester {
    /// Lets no further message begin.
    pub fn drain(&mut self) {
        self.hold = Some(self.outstanding.number_from(self.sent));
        if self.unrequested > 0 && self.is_in_flight() && self.sendable().is_none() {
            // An acknowledgement was to be asked for by a packet that will not be sent for now.
            self.rewind(RetransmissionCause::Drain);
        }
    }

    /// Whether it drains, and every message that had begun has ended and was given back.
    pub fn is_drained(&self) -> bool {
        self.hold.is_some_and(|hold| self.outstanding.first() >= hold)
    }

    /// Messages may begin again.
    pub fn resume(&mut self) {
        self.hold = None;
    }

    /// Takes over timeout, retries and the limit of READs and atomics; everything else stays as it was made. Only while
    /// [drained](Self::is_drained): nothing waits for a timer then.
    pub fn change(&mut self, parameters: &ConnectionParameters) {
        self.read_limit = u64::from(parameters.max_outstanding_reads.max(1));
        self.timers = super::RetryTimers::new(parameters);
    }
}
