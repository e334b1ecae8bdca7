//! The event digest: one number for everything that happened on every wire.

use crate::net::Fate;
use bareverbs_prm::time::Time;

/// The contribution of one frame on one link.
#[derive(Debug, Clone, Copy)]
pub struct WireEvent {
    /// Arrival time at the other end, or what it would have been.
    pub time: Time,
    /// Direction of the link.
    pub direction: u32,
    /// Frame length in bytes.
    pub length: u32,
    /// Invariant CRC as the sender wrote it; represents the payload.
    pub icrc: u32,
    /// [`headers`] of the frame on arrival; represents what the invariant CRC masks.
    pub headers: u64,
    /// What became of it.
    pub fate: Fate,
}

/// A running digest. Not cryptographic: it only compares runs.
///
/// ```
/// use bareverbs_prm::time::Time;
/// use bareverbs_sim::net::Fate;
/// use bareverbs_sim::run::digest::{Digest, WireEvent, headers};
///
/// let frame = [0x5a; 74];
/// let icrc = 0x1234_5678;
/// let time = Time::from_picos(12_000);
/// let event = WireEvent { time, direction: 0, length: 74, icrc, headers: headers(&frame), fate: Fate::Delivered };
/// let [mut one, mut other] = [Digest::new(1), Digest::new(1)];
/// one.add(event);
/// other.add(WireEvent { fate: Fate::Dropped, ..event });
/// assert_ne!(one.value(), other.value());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    state: u64,
    events: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Digest {
    /// The digest of a world with this seed before any event.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed ^ MULTIPLIER, events: 0 }
    }

    /// Adds an event.
    #[inline]
    pub fn add(&mut self, event: WireEvent) {
        let place = (u64::from(event.direction) << 40) | (u64::from(event.length) << 8) | event.fate as u64;
        self.mix(event.time.as_picos());
        self.mix((u64::from(event.icrc) << 32) ^ place);
        self.mix(event.headers);
        self.events += 1;
    }

    /// The digest so far.
    pub const fn value(&self) -> u64 {
        self.state ^ self.events
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        self.state = folded_product(self.state ^ word, MULTIPLIER).wrapping_add(word).rotate_left(23);
    }
}

/// Leading bytes that contain every field which the invariant CRC leaves out (RoCEv2 A17.3.3, IBTA v1.4 §7.8.1): MAC
/// addresses, two VLAN tags, ECN and traffic class, hop limit and TTL, flow label, virtual lane, FECN and BECN.
const HEADERS: usize = 80;
/// Bytes folded per step.
const BLOCK: usize = 16;
/// Trailing bytes: the ICRC, and on InfiniBand the VCRC.
const TRAILER: usize = 8;

/// Digests the headers and the trailer of a frame.
#[inline]
pub fn headers(frame: &[u8]) -> u64 {
    let trailer = frame.last_chunk::<TRAILER>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    match frame.first_chunk::<HEADERS>() {
        // The same steps for a known number of bytes, since this runs for every frame on every link.
        Some(head) => fold_blocks(head, trailer),
        None => fold_blocks(frame, trailer),
    }
}

#[inline(always)]
fn fold_blocks(head: &[u8], trailer: u64) -> u64 {
    let (mut folded, mut rest) = (MULTIPLIER, head);
    while let Some((block, next)) = rest.split_first_chunk() {
        (folded, rest) = (fold(folded, block), next);
    }
    fold(folded ^ trailer, &last_block(head, rest))
}

/// The last block, overlapping the one before so that no byte is left out; zero-padded for a short frame.
#[inline]
fn last_block(head: &[u8], rest: &[u8]) -> [u8; BLOCK] {
    head.last_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    })
}

#[inline]
fn fold(state: u64, block: &[u8; BLOCK]) -> u64 {
    let words = u128::from_le_bytes(*block);
    folded_product(state ^ words as u64, MULTIPLIER ^ (words >> 64) as u64)
}

#[inline]
const fn folded_product(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
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
            headers: 7,
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
            WireEvent { headers: 8, ..event() },
            WireEvent { fate: Fate::Dropped, ..event() },
        ] {
            assert_ne!(base, of(&[other]), "{other:?}");
            assert_ne!(of(&[event(), other]), of(&[other, event()]), "{other:?}");
        }
        assert_ne!(of(&[]), base);
        assert_ne!(Digest::new(1).value(), Digest::new(2).value());
    }

    #[test]
    fn every_bit_of_the_headers_and_of_the_trailer_counts() {
        for length in [1, 15, 16, 17, 60, 79, 80, 81, 138, 4_000] {
            let mut frame = vec![0x5a; length];
            let base = headers(&frame);
            let counts = (0..length).filter(|at| *at < HEADERS || at + TRAILER >= length);
            for (at, bit) in counts.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                frame[at] ^= 1 << bit;
                assert_ne!(headers(&frame), base, "bit {bit} of byte {at} of {length}");
                frame[at] ^= 1 << bit;
            }
        }
    }
}
