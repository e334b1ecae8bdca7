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
/// assert_eq!(packet.to_string(), "84.5 ns");
/// assert_eq!(Duration::from_secs(2).to_string(), "2 s");
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

/// In the largest unit of which there is at least one, with at most three decimals.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, _, _) = unit_of(self.0);
        write_in_unit(f, self.0 - self.0 % (unit / 1_000))
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

/// In the largest unit of which there is at least one, and exactly, because two instants may differ by less than a thousandth of it.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_unit(f, self.0)
    }
}

/// The largest unit of which `picos` has at least one, or nanoseconds: its picoseconds, its decimals and its name.
const fn unit_of(picos: u64) -> (u64, usize, &'static str) {
    match picos {
        1_000_000_000_000.. => (1_000_000_000_000, 12, "s"),
        1_000_000_000.. => (1_000_000_000, 9, "ms"),
        1_000_000.. => (1_000_000, 6, "µs"),
        _ => (1_000, 3, "ns"),
    }
}

/// Without zeros at the end.
fn write_in_unit(f: &mut fmt::Formatter<'_>, picos: u64) -> fmt::Result {
    let (unit, mut decimals, name) = unit_of(picos);
    let (whole, mut rest) = (picos / unit, picos % unit);
    if rest == 0 {
        return write!(f, "{whole} {name}");
    }
    while rest.is_multiple_of(10) {
        (rest, decimals) = (rest / 10, decimals - 1);
    }
    write!(f, "{whole}.{rest:0decimals$} {name}")
}

fn write_picos(f: &mut fmt::Formatter<'_>, picos: u64) -> fmt::Result {
    write!(f, "{}.{:03} ns", picos / 1_000, picos % 1_000)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::MAX), Duration::ZERO);
        assert_eq!(Duration::from_micros(4).as_nanos(), 4_000);
    }

    #[test]
    fn times_are_shown_in_the_unit_of_their_magnitude() {
        for (picos, duration, time) in [
            (0, "0 ns", "0 ns"),
            (500, "0.5 ns", "0.5 ns"),
            (84_050, "84.05 ns", "84.05 ns"),
            (999_999, "999.999 ns", "999.999 ns"),
            (1_850_000, "1.85 µs", "1.85 µs"),
            (1_000_596_320, "1 ms", "1.00059632 ms"),
            (120_000_000, "120 µs", "120 µs"),
            (2_000_000_000_000, "2 s", "2 s"),
            (12_345_678_901_234, "12.345 s", "12.345678901234 s"),
        ] {
            assert_eq!(std::format!("{}", Duration::from_picos(picos)), duration);
            assert_eq!(std::format!("{}", Time::from_picos(picos)), time);
        }
        assert_eq!(std::format!("{:?}", Time::from_picos(2_000_000_500)), "t+2000000.500 ns");
        assert_eq!(
            std::format!("{} and {}", Duration::from_picos(u64::MAX), Time::MAX),
            "18446744.073 s and 18446744.073709551615 s"
        );
    }
}
