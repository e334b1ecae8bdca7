//! The local ACK timer and the RNR timer of a requester, and its retry counters. IBTA v1.4 §9.7.6.1.3 and
//! §9.7.5.2.8.

use super::parameters::{ConnectionParameters, ack_timeout};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::time::{Duration, Time};

/// The RNR retry count that means no limit.
const WITHOUT_END: u8 = 7;

/// Timers and retry counters of a requester.
#[derive(Debug)]
pub struct RetryTimers {
    ack_timeout: Option<Duration>,
    ack: Option<Time>,
    rnr: Option<Time>,
    retry_count: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_retries_left: u8,
    /// A retransmission is in progress, and nothing new was acknowledged since. Until then further NAKs
    /// concern the first transmission and report nothing new.
    recovering: bool,
}

/// The timer that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The local ACK timer: nothing new was acknowledged in time.
    Acknowledge,
    /// The RNR timer: the requester may send again.
    ReceiverReady,
}

/// All retries are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl RetryTimers {
    pub fn new(parameters: &ConnectionParameters) -> Self {
        Self {
            ack_timeout: ack_timeout(parameters.ack_timeout)
                .map(|time| time.saturating_mul(parameters.ack_timeout_factor.clamp(1, 4).into())),
            ack: None,
            rnr: None,
            retry_count: parameters.retry_count,
            rnr_retry: parameters.rnr_retry,
            retries_left: parameters.retry_count,
            rnr_retries_left: parameters.rnr_retry,
            recovering: false,
        }
    }

    /// A packet was sent: starts the timer unless it already runs.
    #[inline]
    pub fn packet_sent(&mut self, now: Time) {
        if self.ack.is_none() || mutated("ack_timer_restarts") {
            self.ack = self.ack_timeout.map(|timeout| now + timeout);
        }
    }

    /// Something new was acknowledged. `in_flight` says whether more acknowledgements are outstanding.
    pub fn progress(&mut self, now: Time, in_flight: bool) {
        self.retries_left = self.retry_count;
        if !mutated("rnr_retries_stay_used") {
            self.rnr_retries_left = self.rnr_retry;
        }
        self.recovering = false;
        self.ack = None;
        if in_flight && self.rnr.is_none() {
            self.packet_sent(now);
        }
    }

    /// Starts a retransmission after a NAK.
    pub fn retry(&mut self) -> Result<(), Exhausted> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(Exhausted)?;
        self.recovering = true;
        self.ack = None;
        Ok(())
    }

    /// Starts a retransmission after a timeout; later NAKs count again.
    pub fn retry_after_timeout(&mut self) -> Result<(), Exhausted> {
        self.retry()?;
        self.recovering = mutated("naks_ignored_after_timeout");
        Ok(())
    }

    /// The receiver is not ready: the requester waits for `wait`.
    pub fn wait_for_receiver(&mut self, now: Time, wait: Duration) -> Result<(), Exhausted> {
        if self.rnr_retry != WITHOUT_END {
            self.rnr_retries_left = self.rnr_retries_left.checked_sub(1).ok_or(Exhausted)?;
        }
        self.ack = None;
        self.rnr = Some(now + wait);
        Ok(())
    }

    pub fn is_recovering(&self) -> bool {
        self.recovering
    }

    pub fn is_waiting_for_receiver(&self) -> bool {
        self.rnr.is_some()
    }

    /// Stops all timers.
    pub fn stop(&mut self) {
        self.ack = None;
        self.rnr = None;
    }

    /// When the next timer is due.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.rnr.or(self.ack)
    }

    /// The timer that is due at `now`; that timer stops.
    pub fn take_due(&mut self, now: Time) -> Due {
        if self.rnr.is_some_and(|at| at <= now) {
            self.rnr = None;
            return Due::ReceiverReady;
        }
        if self.ack.is_some_and(|at| at <= now) {
            self.ack = None;
            return Due::Acknowledge;
        }
        Due::Nothing
    }
}
