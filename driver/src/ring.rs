//! Counters and phases of rings that the device fills: completion and event queues. Pure.
//!
//! The device writes an entry with the low bit of its last byte equal to the parity of the pass over the
//! ring, and writes that byte last (PRM, completion queue entry ownership). Software owns an entry when the
//! bit equals the parity of its own pass, and may read the rest of the entry only after a barrier.

use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::CqeOpcode;

/// The owner bit in the last byte of an entry.
const OWNER: u8 = CompletionEntry::FIELDS.owner.in_byte().put(1) as u8;
/// The last byte of an entry that the device has not written is not below this.
const UNWRITTEN: u8 = CompletionEntry::FIELDS.opcode.in_byte().put(CqeOpcode::Invalid.raw() as u64) as u8;

/// An entry, as far as its ownership is concerned.
pub trait OwnedEntry {
    /// The last byte of the entry: owner in bit 0; in a completion queue the opcode in bits 7:4.
    fn last_byte(&self) -> u8;
    /// Makes later loads see everything that the device wrote before the byte just read.
    fn synchronize(&self);
}

/// The last byte of the entry if the device has written it in the pass with parity `phase`. The rest may then
/// be read.
#[inline(always)]
pub fn take_ownership(entry: &impl OwnedEntry, phase: u8) -> Option<u8> {
    let byte = entry.last_byte();
    if !is_written(byte, phase) {
        return None;
    }
    synchronize(entry);
    Some(byte)
}

/// Whether an entry with this last byte was written in the pass with parity `phase`.
#[inline(always)]
pub(crate) const fn is_written(byte: u8, phase: u8) -> bool {
    (byte ^ phase) & OWNER == 0 && byte < UNWRITTEN
}

/// The barrier between the byte and the rest of the entry.
#[inline(always)]
pub(crate) fn synchronize(entry: &impl OwnedEntry) {
    if !mutated("no_cqe_barrier") {
        entry.synchronize();
    }
}

/// Software's position in a ring that the device fills: a 24-bit counter, from which slot and phase follow.
///
/// ```
/// use bareverbs_core::testing::Consumer;
///
/// let mut consumer = Consumer::new(2);
/// assert_eq!((consumer.size(), consumer.slot(), consumer.phase()), (4, 0, 0));
/// (0..5).for_each(|_| consumer.advance());
/// assert_eq!((consumer.counter(), consumer.slot(), consumer.phase()), (5, 1, 1), "the second pass");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    index: u32,
    /// Number of entries, a power of two.
    size: u32,
}

impl Consumer {
    /// The start of a ring of 2^`log_size` entries; `log_size` is at most 23.
    pub const fn new(log_size: u8) -> Self {
        Self { index: 0, size: 1 << if log_size > 23 { 23 } else { log_size } }
    }

    /// Number of entries in the ring.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Slot of the next entry.
    #[inline(always)]
    pub const fn slot(&self) -> usize {
        (self.index & self.size.wrapping_sub(1)) as usize
    }

    /// Unmasked index of the next entry.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Entries up to the end of the ring; at least one.
    #[inline(always)]
    pub const fn left(&self) -> u32 {
        self.size - (self.index & self.size.wrapping_sub(1))
    }

    /// Parity of the current pass.
    #[inline(always)]
    pub const fn phase(&self) -> u8 {
        (self.index & self.size != 0) as u8
    }

    /// The 24-bit counter for doorbell records.
    #[inline(always)]
    pub const fn counter(&self) -> u32 {
        self.index & 0xff_ffff
    }

    /// The position in a new ring of 2^`log_size` entries, at most 2^23, from which software continues after
    /// a resize. It is one entry ahead, because the entry that ended the old ring counts, too.
    pub const fn moved_to(self, log_size: u8) -> Self {
        Self { index: self.index.wrapping_add(1), ..Self::new(log_size) }
    }

    /// The position `count` entries ahead.
    #[inline(always)]
    pub const fn ahead(self, count: u32) -> Self {
        Self { index: self.index.wrapping_add(count), ..self }
    }

    /// Advances to `count` entries after `at`, an earlier copy of this one.
    #[inline(always)]
    pub const fn follow(&mut self, at: Self, count: u32) {
        self.index = at.index.wrapping_add(count);
    }

    /// Advances to the next entry.
    #[inline(always)]
    pub const fn advance(&mut self) {
        self.index = self.index.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    struct Byte(u8, Cell<bool>);
    impl OwnedEntry for Byte {
        fn last_byte(&self) -> u8 {
            self.0
        }
        fn synchronize(&self) {
            self.1.set(true);
        }
    }

    #[test]
    fn phase_flips_with_every_pass() {
        let mut c = Consumer::new(2);
        let seen: [(usize, u8); 9] = core::array::from_fn(|_| {
            let at = (c.slot(), c.phase());
            c.advance();
            at
        });
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1), (0, 0)]);
    }

    #[test]
    fn counter_wraps_at_24_bits_without_losing_the_phase() {
        let mut c = Consumer { index: 0xff_ffff, size: 8 };
        assert_eq!((c.slot(), c.phase(), c.counter()), (7, 1, 0xff_ffff));
        c.advance();
        assert_eq!((c.slot(), c.phase(), c.counter()), (0, 0, 0));
    }

    #[test]
    fn a_place_survives_a_change_of_size() {
        let place = Consumer { index: 13, size: 8 }.moved_to(2);
        assert_eq!((place.size(), place.slot(), place.phase(), place.counter()), (4, 2, 1, 14));
        assert_eq!((place.ahead(2).slot(), place.ahead(2).phase()), (0, 0));
    }

    #[test]
    fn only_written_entries_of_this_pass_are_taken() {
        for (byte, phase, taken) in [
            (0x00, 0, true),
            (0x01, 0, false),
            (0x01, 1, true),
            (0xf0, 0, false),
            (0xf1, 1, false),
            (0x02, 0, true),
        ] {
            let entry = Byte(byte, Cell::new(false));
            assert_eq!(take_ownership(&entry, phase).is_some(), taken, "{byte:#x} in phase {phase}");
            assert_eq!(entry.1.get(), taken, "the barrier comes with the entry");
        }
    }
}
