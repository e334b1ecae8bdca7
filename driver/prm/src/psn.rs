//! Packet sequence numbers: 24-bit circular, IBTA v1.4 §9.7.2.

use crate::field::FieldValue;
use core::fmt;

/// A packet sequence number, 24 bits, circular.
///
/// ```
/// use bareverbs_prm::psn::Psn;
///
/// let last = Psn::new(0xff_ffff);
/// let next = last.add(1);
/// assert_eq!(next.value(), 0);
/// assert_eq!(next.distance_from(last), 1);
/// assert!(last.is_before(next));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

/// The number modulo 2^24, as packets carry it.
impl From<u32> for Psn {
    fn from(value: u32) -> Self {
        Self::new(value)
    }
}

impl Psn {
    const MASK: u32 = 0xff_ffff;

    /// The number modulo 2^24.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }
    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
    /// The number `n` packets later.
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }
    /// The number `n` packets earlier.
    #[must_use]
    pub const fn sub(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }
    /// Signed distance from `other` to `self`, in −2^23 .. 2^23.
    pub const fn distance_from(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
    /// Whether `self` comes before `other` in the half window of 2^23 numbers.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }
}

impl FieldValue for Psn {
    const WIDTH: u32 = 24;
    fn to_field(self) -> u32 {
        self.0
    }
    fn from_field(raw: u32) -> Self {
        Self::new(raw)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.add(1), Psn::new(0));
        assert_eq!(Psn::new(0).distance_from(last), 1);
        assert!(last.is_before(Psn::new(5)));
        assert!(!Psn::new(5).is_before(last));
        assert_eq!(Psn::new(3).sub(5), Psn::new(0xff_fffe));
    }
}
