//! Instants and durations in picoseconds since an unnamed epoch.
//!
//! Pure code never reads a clock; time is an argument. The same types count virtual time in the simulator and real
//! time in a driver on silicon. A `u64` of picoseconds lasts 213 days.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A span of time in picoseconds.
///
/// ```
/// use bareverbs_prm::time::Duration;
///
/// let packet = Duration::from_nanos(84) + Duration::from_picos(500);
/// assert_eq!(packet.to_string(), "84.500 ns");
/// assert_eq!(packet.saturating_mul(1_000).as_nanos(), 84_500);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `n` picoseconds.
    pub const fn from_picos(n: u64) -> Self {
        Self(n)
    }
    /// `n` nanoseconds, saturating.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// `n` microseconds, saturating.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// `n` milliseconds, saturating.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// `n` seconds, saturating.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000_000))
    }
    /// The span in picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }
    /// The span in whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }
    /// `self + other`, saturating.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// `self - other`, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self * n`, saturating.
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_picos(f, self.0)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_picos(f, self.0)
    }
}

/// An instant: picoseconds since an unnamed epoch.
///
/// ```
/// use bareverbs_prm::time::{Duration, Time};
///
/// let posted = Time::from_picos(2_000_000);
/// let completed = posted + Duration::from_nanos(1_850);
/// assert_eq!(completed.since(posted), Duration::from_nanos(1_850));
/// assert_eq!(posted.since(completed), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// Later than everything; used as "no deadline".
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `n` picoseconds after the epoch.
    pub const fn from_picos(n: u64) -> Self {
        Self(n)
    }
    /// Picoseconds since the epoch.
    pub const fn as_picos(self) -> u64 {
        self.0
    }
    /// Nanoseconds since the epoch, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }
    /// The span from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("t+")?;
        write_picos(f, self.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_picos(f, self.0)
    }
}

fn write_picos(f: &mut fmt::Formatter<'_>, picos: u64) -> fmt::Result {
    write!(f, "{}.{:03} ns", picos / 1_000, picos % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::MAX), Duration::ZERO);
        assert_eq!(Duration::from_micros(4).as_nanos(), 4_000);
    }
}
