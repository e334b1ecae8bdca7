//! A rate that never changes.

use super::Controller;
use bareverbs_prm::time::{Duration, Time};

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;

/// Paces frames at a fixed rate: after each frame the controller holds the next one back for as long as the
/// frame takes at that rate. Unused time is not saved up, so there are no bursts.
///
/// ```
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_sim::transport::congestion::{Controller, Fixed};
///
/// let mut pace = Fixed::new(10_000_000_000);
/// pace.on_sent(Time::ZERO, 1_250);
/// assert_eq!(pace.may_send(Time::ZERO), Time::ZERO + Duration::from_micros(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    bits_per_second: u64,
    next: Time,
}

impl Fixed {
    /// A controller of this rate; zero counts as one bit per second.
    pub const fn new(bits_per_second: u64) -> Self {
        let bits_per_second = if bits_per_second == 0 { 1 } else { bits_per_second };
        Self { bits_per_second, next: Time::ZERO }
    }

    /// How long `bytes` bytes take, rounded up to a picosecond.
    pub fn duration_of(&self, bytes: usize) -> Duration {
        let picos = (bytes as u128 * 8 * PICOS_PER_SECOND).div_ceil(self.bits_per_second.into());
        Duration::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }
}

impl Controller for Fixed {
    fn may_send(&self, _: Time) -> Time {
        self.next
    }

    fn on_sent(&mut self, now: Time, bytes: usize) {
        self.next = self.next.max(now) + self.duration_of(bytes);
    }
}
