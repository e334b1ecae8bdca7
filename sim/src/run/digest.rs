//! The event digest: one number that stands for everything that happened on every wire.

use crate::net::Fate;
use bareverbs_prm::time::Time;

/// What one frame on one link adds to the digest.
#[derive(Debug, Clone, Copy)]
pub struct WireEvent {
    /// When it reached the other end, or would have.
    pub time: Time,
    /// Which way of which link.
    pub direction: u32,
    /// Bytes of the frame.
    pub length: u32,
    /// Its invariant CRC, which stands for its contents.
    pub icrc: u32,
    /// What became of it.
    pub fate: Fate,
}

/// A running digest. Not cryptographic: it compares runs, it does not guard against anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    state: u64,
    events: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Digest {
    /// The digest of a world of this seed in which nothing happened.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed ^ MULTIPLIER, events: 0 }
    }

    /// Adds an event.
    #[inline]
    pub fn add(&mut self, event: WireEvent) {
        let place = (u64::from(event.direction) << 40) | (u64::from(event.length) << 8) | event.fate as u64;
        self.mix(event.time.as_picos());
        self.mix((u64::from(event.icrc) << 32) ^ place);
        self.events += 1;
    }

    /// The number.
    pub const fn value(&self) -> u64 {
        self.state ^ self.events
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(MULTIPLIER);
        self.state = ((product >> 64) as u64 ^ product as u64).wrapping_add(word).rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> WireEvent {
        WireEvent {
            time: Time::from_picos(5),
            direction: 1,
            length: 66,
            icrc: 0xdead_beef,
            fate: Fate::Delivered,
        }
    }

    fn of(events: &[WireEvent]) -> u64 {
        let mut digest = Digest::new(1);
        events.iter().for_each(|&event| digest.add(event));
        digest.value()
    }

    #[test]
    fn every_part_and_the_order_count() {
        let base = of(&[event()]);
        assert_eq!(base, of(&[event()]));
        for other in [
            WireEvent { time: Time::from_picos(6), ..event() },
            WireEvent { direction: 0, ..event() },
            WireEvent { length: 67, ..event() },
            WireEvent { icrc: 0, ..event() },
            WireEvent { fate: Fate::Dropped, ..event() },
        ] {
            assert_ne!(base, of(&[other]), "{other:?}");
            assert_ne!(of(&[event(), other]), of(&[other, event()]), "{other:?}");
        }
        assert_ne!(of(&[]), base);
        assert_ne!(Digest::new(1).value(), Digest::new(2).value());
    }
}
