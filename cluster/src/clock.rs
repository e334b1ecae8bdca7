//! The clock of a host, which may be wrong.

use bareverbs_prm::time::{Duration, Time};

/// A clock that began early or late, and runs fast or slow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostClock {
    /// Picoseconds that it is ahead of the world.
    ahead: i128,
    /// Parts in a million by which it is fast; negative for slow.
    ppm: i64,
    /// When the rate was set.
    since: Time,
}

/// A clock cannot stand still: it is slow by less than the whole.
const SLOWEST: i64 = -999_999;

impl HostClock {
    /// What it shows when the world has `now`.
    pub(crate) fn show(&self, now: Time) -> Time {
        let elapsed = i128::from(now.since(self.since).as_picos());
        let shown = i128::from(now.as_picos()) + self.ahead + elapsed * i128::from(self.ppm) / 1_000_000;
        Time::from_picos(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }

    /// When the world will have the time that this clock calls `shown`, if nothing changes; a picosecond or two later, never
    /// earlier.
    pub(crate) fn world_time(&self, shown: Time, now: Time) -> Time {
        let left = i128::from(shown.since(self.show(now)).as_picos());
        let wait = left * 1_000_000 / i128::from(1_000_000 + self.ppm) + 2;
        now + Duration::from_picos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// From `now` on it is fast by `ppm` parts in a million. It does not jump.
    pub(crate) fn set_rate(&mut self, now: Time, ppm: i64) {
        let shown = i128::from(self.show(now).as_picos());
        let ppm = ppm.max(SLOWEST);
        *self = Self { ahead: shown - i128::from(now.as_picos()), ppm, since: now };
    }

    /// Jumps ahead.
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
