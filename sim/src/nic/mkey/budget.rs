//! The cost of one turn of the device, counted in pieces of memory behind indirect keys, so that the caller
//! of the device knows when to serve others. Direct keys are not counted, since their pages have at least 4
//! KiB. So the path of most data counts nothing.

use core::cell::Cell;

/// The maximum number of pieces in one access, over all segments of a work request: the longest message, 1
/// GiB, in pages of 4 KiB that need not be aligned. Without it, a list that repeats single bytes would keep
/// the device busy for a minute.
const LONGEST: u32 = (1 << 18) + 1;

/// Pieces after which a turn ends. Work in progress is finished, so a turn may take up to [`LONGEST`] more.
const TURN: u32 = 1 << 16;

/// Looped-back frames after which a turn ends, too. A queue pair that sends to itself, or a port that sends
/// to its own address, could otherwise keep the caller busy for as long as its work requests last.
const FRAMES: u32 = 16;

/// Counts the pieces processed.
#[derive(Debug, Default)]
pub(crate) struct WorkBudget {
    /// Since the device was created.
    total: Cell<u64>,
    /// In this turn. A looped-back frame counts so much that [`FRAMES`] of them end a turn.
    turn: Cell<u32>,
    /// In the access that is being checked. Only memory behind indirect keys counts, so this may still belong
    /// to an earlier access.
    access: Cell<u32>,
}

impl WorkBudget {
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

    /// Starts counting the pieces of an access.
    #[inline]
    pub(crate) fn begin_access(&self) {
        self.access.set(0);
    }

    /// Counts a frame that was looped back inside the device.
    pub(crate) fn add_frame(&self) {
        self.turn.set(self.turn.get().saturating_add(TURN / FRAMES));
    }

    /// Counts pieces of an access and returns whether it is still within its limit.
    pub(super) fn take(&self, pieces: u64) -> bool {
        let access = u64::from(self.access.get()).saturating_add(pieces);
        // Pieces beyond the limit of an access are never processed.
        let looked_at = pieces.min(LONGEST.into()) as u32;
        self.access.set(u32::try_from(access).unwrap_or(u32::MAX));
        self.add(looked_at);
        access <= LONGEST.into()
    }

    /// Counts other work that costs as much as this many pieces.
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
        let budget = WorkBudget::default();
        budget.add(65_535);
        assert!(!budget.is_spent());
        budget.add(1);
        assert!(budget.is_spent());
        budget.begin_turn();
        for frame in 0..16 {
            assert!(!budget.is_spent(), "frame {frame}");
            budget.add_frame();
        }
        assert!(budget.is_spent());
        assert_eq!(budget.total(), 65_536, "pieces only");
    }

    #[test]
    fn an_access_has_so_many_pieces_and_no_more() {
        let budget = WorkBudget::default();
        assert!(budget.take(262_145));
        assert!(!budget.take(1), "another piece of the same access");
        budget.begin_access();
        assert!(budget.take(1));
        assert!(!budget.take(u64::MAX));
        assert_eq!(budget.total(), 2 * 262_145 + 2, "excess pieces are not processed");
    }
}
