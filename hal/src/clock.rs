//! The clock of a place in real time.

use bareverbs_prm::time::{Duration, Time};
use std::time::Instant;

/// Clock of a real-time HAL. It starts when the device is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// Time left until `deadline`.
    pub(crate) fn left(&self, deadline: Time) -> Duration {
        let now = self.now();
        if deadline > now { deadline.since(now) } else { Duration::ZERO }
    }
}
