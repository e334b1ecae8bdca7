//! A link: its rate and its length. IEEE 802.3 clause 4.4.2 defines the bytes around a frame.

use crate::wire::MIN_FRAME;
use bareverbs_prm::time::Duration;

/// Configuration of a link. Both directions are the same.
///
/// ```
/// use bareverbs_prm::time::Duration;
/// use bareverbs_sim::net::LinkConfig;
///
/// // 100 Gb/s over 2 km of fibre.
/// let link = LinkConfig::gigabits(100).with_propagation(Duration::from_micros(10));
/// assert_eq!((link.bits_per_second, link.propagation.as_nanos()), (100_000_000_000, 10_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkConfig {
    /// Line rate in bits per second. Zero counts as one.
    pub bits_per_second: u64,
    /// Propagation delay from one end to the other.
    pub propagation: Duration,
}

impl LinkConfig {
    /// A link of `gigabits` Gb/s and two metres of cable.
    pub const fn gigabits(gigabits: u64) -> Self {
        Self {
            bits_per_second: gigabits.saturating_mul(1_000_000_000),
            propagation: Duration::from_nanos(10),
        }
    }

    /// The same link with another propagation delay.
    pub const fn with_propagation(self, propagation: Duration) -> Self {
        Self { propagation, ..self }
    }
}

/// Overhead per frame in bytes: preamble and start delimiter (8), frame check sequence (4), interframe gap (12).
pub const BYTES_AROUND_FRAME: u64 = 24;

const FRACTION_BITS: u32 = 16;

/// Time per byte as a fixed-point number, which avoids a division per frame.
///
/// ```
/// use bareverbs_prm::time::Duration;
/// use bareverbs_sim::net::link::Rate;
///
/// let rate = Rate::new(100_000_000_000);
/// // 1,500 bytes and the 24 around them, at 80 ps each.
/// assert_eq!(rate.serialisation(1_500), Duration::from_picos(121_920));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    picos_per_byte: u64,
}

impl Rate {
    /// A rate of `bits_per_second`; zero counts as one.
    pub const fn new(bits_per_second: u64) -> Self {
        let bits = if bits_per_second == 0 { 1 } else { bits_per_second };
        let fixed = (8_000_000_000_000u128 << FRACTION_BITS) / bits as u128;
        Self { picos_per_byte: fixed as u64 }
    }

    /// How long a frame of `length` bytes occupies the wire.
    #[inline]
    pub const fn serialisation(self, length: usize) -> Duration {
        let frame = if length < MIN_FRAME { MIN_FRAME as u64 } else { length as u64 };
        let picos = (self.picos_per_byte as u128 * (frame + BYTES_AROUND_FRAME) as u128) >> FRACTION_BITS;
        Duration::from_picos(picos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_take_the_time_of_their_bits() {
        let hundred = Rate::new(100_000_000_000);
        assert_eq!(hundred.serialisation(126), Duration::from_picos(150 * 80));
        assert_eq!(Rate::new(10_000_000_000).serialisation(126), Duration::from_picos(150 * 800));
        assert_eq!(hundred.serialisation(10), hundred.serialisation(60), "short frames are padded");
    }

    #[test]
    fn odd_rates_err_by_less_than_a_picosecond_a_frame() {
        let rate = Rate::new(56_000_000_000);
        let exact = 9_024 * 8_000 / 56;
        assert!(rate.serialisation(9_000).as_picos().abs_diff(exact) <= 1);
    }

    #[test]
    fn a_link_without_rate_is_slow_and_not_a_division_by_zero() {
        assert_eq!(Rate::new(0).serialisation(60), Duration::from_secs(84 * 8));
    }
}
