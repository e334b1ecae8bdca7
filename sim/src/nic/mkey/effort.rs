//! What one turn of the device costs, in pieces of memory behind keys that are made of other keys: a count, by which whoever drives the device
//! knows when others are to have their turn. Keys that lead straight to memory are not counted: their pages have 4 KiB at least. So nothing
//! is counted on the way that most data takes.

use core::cell::Cell;

/// Pieces that one access may consist of, all segments of a work request taken together: the longest message, 1 GiB, in pages of 4 KiB, of
/// which the first and the last may be cut. A list that repeats single bytes would keep the device busy for a minute.
const LONGEST: u32 = (1 << 18) + 1;

/// Pieces after which a turn is over. What was begun is ended, so a turn has at most [`LONGEST`] more.
const TURN: u32 = 1 << 16;

/// Frames that come back inside the device, after which a turn is over, too. A queue pair that sends to itself, or a port to its own
/// address, would otherwise keep whoever drives the device for as long as its work requests are long.
const FRAMES: u32 = 16;

/// Pieces that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    /// Since the device was made.
    total: Cell<u64>,
    /// In this turn; a frame that came back counts as many as make [`FRAMES`] a turn.
    turn: Cell<u32>,
    /// Of the access that is being checked. Only what is behind a list of keys counts, so it may still be that of an earlier one.
    access: Cell<u32>,
}

impl Effort {
    pub(crate) const fn total(&self) -> u64 {
        self.total.get()
    }

    #[inline]
    pub(crate) fn begin_turn(&self) {
        self.turn.set(0);
    }

    #[inline]
    pub(crate) const fn is_spent(&self) -> bool {
        self.turn.get() >= TURN
    }

    /// The pieces of an access begin to count.
    #[inline]
    pub(crate) fn begin_access(&self) {
        self.access.set(0);
    }

    /// A frame came back inside the device.
    pub(crate) fn add_frame(&self) {
        self.turn.set(self.turn.get().saturating_add(TURN / FRAMES));
    }

    /// Some pieces of an access; whether it has no more than it may.
    pub(super) fn take(&self, pieces: u64) -> bool {
        let access = u64::from(self.access.get()).saturating_add(pieces);
        // What an access has too many is not looked at.
        let looked_at = pieces.min(LONGEST.into()) as u32;
        self.access.set(u32::try_from(access).unwrap_or(u32::MAX));
        self.add(looked_at);
        access <= LONGEST.into()
    }

    /// Work of another kind that costs as much as so many pieces.
    pub(crate) fn add(&self, pieces: u32) {
        self.total.set(self.total.get() + u64::from(pieces));
        self.turn.set(self.turn.get().saturating_add(pieces));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_so_many_pieces_or_frames() {
        let effort = Effort::default();
        effort.add(65_535);
        assert!(!effort.is_spent());
        effort.add(1);
        assert!(effort.is_spent());
        effort.begin_turn();
        for frame in 0..16 {
            assert!(!effort.is_spent(), "frame {frame}");
            effort.add_frame();
        }
        assert!(effort.is_spent());
        assert_eq!(effort.total(), 65_536, "pieces only");
    }

    #[test]
    fn an_access_has_so_many_pieces_and_no_more() {
        let effort = Effort::default();
        assert!(effort.take(262_145));
        assert!(!effort.take(1), "of the same access");
        effort.begin_access();
        assert!(effort.take(1));
        assert!(!effort.take(u64::MAX));
        assert_eq!(effort.total(), 2 * 262_145 + 2, "what is too many is not looked at");
    }
}
