//! The clock of a host, with offset and drift.

use bareverbs_prm::time::{Duration, Time};

/// A clock with an offset and a rate error.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostClock {
    /// Offset to virtual time in picoseconds; positive when the clock is ahead.
    ahead: i128,
    /// Rate error in parts per million; negative when the clock is slow.
    ppm: i64,
    /// Virtual time at which the rate was set.
    since: Time,
}

/// Lowest rate error: a clock may not stand still.
const SLOWEST: i64 = -999_999;

impl HostClock {
    /// What the clock shows at virtual time `now`.
    pub(crate) fn show(&self, now: Time) -> Time {
        let elapsed = i128::from(now.since(self.since).as_picos());
        let shown = i128::from(now.as_picos()) + self.ahead + elapsed * i128::from(self.ppm) / 1_000_000;
        Time::from_picos(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }

    /// The virtual time at which this clock will show `shown`, unless it is adjusted before. Rounded up by a picosecond
    /// or two, never down.
    pub(crate) fn world_time(&self, shown: Time, now: Time) -> Time {
        let left = i128::from(shown.since(self.show(now)).as_picos());
        let wait = left * 1_000_000 / i128::from(1_000_000 + self.ppm) + 2;
        now + Duration::from_picos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Sets the rate error to `ppm` parts per million, without a jump.
    pub(crate) fn set_rate(&mut self, now: Time, ppm: i64) {
        let shown = i128::from(self.show(now).as_picos());
        let ppm = ppm.max(SLOWEST);
        *self = Self { ahead: shown - i128::from(now.as_picos()), ppm, since: now };
    }

    /// Moves the clock forward.
    pub(crate) fn jump(&mut self, by: Duration) {
        self.ahead += i128::from(by.as_picos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_gains_and_a_sleep_on_it_ends_no_earlier_than_it_says() {
        let second = Time::ZERO + Duration::from_secs(1);
        let mut clock = HostClock::default();
        clock.set_rate(Time::ZERO, 100);
        assert_eq!(clock.show(second).since(second), Duration::from_micros(100));
        for ppm in [-500_000, -300, 0, 77, 1_000_000] {
            clock.set_rate(second, ppm);
            let wanted = clock.show(second) + Duration::from_millis(3);
            let woken = clock.world_time(wanted, second);
            assert!(clock.show(woken) >= wanted, "{ppm}");
            assert!(clock.show(woken).since(wanted) < Duration::from_picos(10), "{ppm}");
        }
        clock.jump(Duration::from_secs(5));
        assert!(clock.show(second).since(second) >= Duration::from_secs(5));
    }
}
