//! The reads and writes of one invocation: those it waits for, those it discarded while they were in flight,
//! and where in the staging buffer each lies.
//!
//! A discarded read may still complete, so it keeps its place until then, and new transfers are placed after
//! it. There is room for a trailer between two places, because an answer is sent with its trailer directly
//! after it.

use super::traffic::{DmaAction, STAGING};
use crate::grant::Checked;
use crate::kernel::{MAX_PARTS, Ranges};
use crate::wire::TRAILER_SIZE;

/// Reads and writes of an invocation at a time, including discarded ones.
const ENTRIES: usize = 2 * MAX_PARTS;

/// What a step asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// One range: read and handed over alone, or written, or compared and swapped.
    One { action: DmaAction, range: Checked },
    /// Several ranges to be read.
    Each(Ranges),
}

/// A read or write that has a place in the staging buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) action: DmaAction,
    pub(super) range: Checked,
    /// Its number among those that were requested together; `None` for a single one.
    pub(super) part: Option<u8>,
    /// First byte in the staging buffer.
    pub(super) place: u32,
}

impl Transfer {
    /// The first byte after it that another transfer may use.
    const fn end(&self) -> u32 {
        (self.place + self.range.length() + TRAILER_SIZE as u32).next_multiple_of(64)
    }

    /// Bytes that come back from the memory.
    pub(super) const fn returned(&self) -> u32 {
        match self.action {
            DmaAction::Read | DmaAction::CompareAndSwap { .. } => self.range.length(),
            DmaAction::Write { .. } => 0,
        }
    }
}

/// A bit for each entry.
type Entries = u8;

/// All reads and writes of an invocation.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    entries: [Option<Transfer>; ENTRIES],
    /// Waiting for their turn.
    due: Entries,
    /// Being carried out.
    in_flight: Entries,
    /// Awaited; the others were discarded.
    wanted: Entries,
}

impl Transfers {
    /// Whether any transfer is awaited.
    pub(super) const fn is_waited_for(&self) -> bool {
        self.wanted != 0
    }

    /// Whether any transfer is in flight, awaited or not.
    pub(super) const fn is_flying(&self) -> bool {
        self.in_flight != 0
    }

    /// Whether any transfer waits for its turn.
    pub(super) const fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Discards all transfers: none is awaited any more.
    pub(super) const fn throw_away(&mut self) {
        (self.due, self.wanted) = (0, 0);
    }

    /// Gives the requested transfers their places. Returns `false` and does nothing if discarded ones have to
    /// complete first.
    pub(super) fn begin(&mut self, asked: &Asked) -> bool {
        let before = (self.due, self.wanted);
        let all_placed = match *asked {
            Asked::One { action, range } => self.place(action, range, None),
            Asked::Each(ranges) => ranges
                .iter()
                .enumerate()
                .all(|(part, range)| self.place(DmaAction::Read, range, Some(part as u8))),
        };
        if !all_placed {
            (self.due, self.wanted) = before;
        }
        all_placed
    }

    fn place(&mut self, action: DmaAction, range: Checked, part: Option<u8>) -> bool {
        let used = self.due | self.in_flight;
        let index = used.trailing_ones() as usize;
        let transfer = Transfer { action, range, part, place: self.unused_from() };
        let Some(entry) = self.entries.get_mut(index).filter(|_| transfer.end() <= STAGING) else {
            return false;
        };
        *entry = Some(transfer);
        self.due |= 1 << index;
        self.wanted |= 1 << index;
        true
    }

    /// The first byte of the staging buffer after everything that may be read or written there.
    pub(super) fn unused_from(&self) -> u32 {
        let used = self.due | self.in_flight;
        if used == 0 {
            return 0;
        }
        let ends = self.entries.iter().enumerate().filter(|(index, _)| used & 1 << index != 0);
        ends.filter_map(|(_, entry)| entry.as_ref()).map(Transfer::end).max().unwrap_or(0)
    }

    /// The next transfer that waits for its turn, and its number.
    pub(super) fn next_due(&self) -> Option<(usize, Transfer)> {
        let index = self.due.trailing_zeros() as usize;
        Some((index, (*self.entries.get(index)?)?))
    }

    /// Records that the transfer was started.
    pub(super) const fn started(&mut self, index: usize) {
        self.due &= !(1 << index);
        self.in_flight |= 1 << index;
    }

    /// The transfer with this number, if it is in flight, and whether it is awaited.
    pub(super) fn in_flight(&self, index: usize) -> Option<(Transfer, bool)> {
        let bit = 1_u8.checked_shl(index as u32)?;
        let transfer = (*self.entries.get(index)?)?;
        (self.in_flight & bit != 0).then_some((transfer, self.wanted & bit != 0))
    }

    /// Records that the transfer has ended.
    pub(super) const fn dma_completed(&mut self, index: usize) {
        self.in_flight &= !(1 << index);
        self.wanted &= !(1 << index);
    }

    /// Records that the transfer was flushed. It waits for its turn again if it is awaited.
    pub(super) const fn flushed(&mut self, index: usize) {
        self.in_flight &= !(1 << index);
        self.due |= self.wanted & (1 << index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MAX_READ;
    use crate::grant::Grant;
    use proptest::prelude::*;

    fn range(length: u32) -> Checked {
        Grant::new(0x1000, 1 << 40).and_then(|grant| grant.check(0, length)).expect("inside")
    }

    fn one(length: u32) -> Asked {
        Asked::One { action: DmaAction::Read, range: range(length) }
    }

    /// Starts all that are due.
    fn start_all(transfers: &mut Transfers) -> Vec<(usize, Transfer)> {
        std::iter::from_fn(|| {
            let next = transfers.next_due()?;
            transfers.started(next.0);
            Some(next)
        })
        .collect()
    }

    #[test]
    fn the_largest_transfer_fits_when_none_is_in_flight() {
        let mut transfers = Transfers::default();
        assert!(transfers.begin(&one(MAX_READ)));
        let ranges = [MAX_READ - 3, 1, 1, 1].map(range);
        let mut transfers = Transfers::default();
        assert!(transfers.begin(&Asked::Each(Ranges::of(&ranges).expect("four"))));
    }

    #[test]
    fn a_transfer_waits_until_discarded_ones_free_enough_staging_space() {
        let mut transfers = Transfers::default();
        assert!(transfers.begin(&one(MAX_READ)));
        start_all(&mut transfers);
        transfers.throw_away();
        assert!(!transfers.begin(&one(MAX_READ)) && !transfers.is_due());
        assert_eq!(transfers.in_flight(0).map(|(_, wanted)| wanted), Some(false));
        transfers.dma_completed(0);
        assert!(transfers.begin(&one(MAX_READ)));
    }

    #[test]
    fn the_transfers_of_a_step_fit_beside_as_many_discarded_ones() {
        let mut transfers = Transfers::default();
        let four = Asked::Each(Ranges::of(&[range(64); MAX_PARTS]).expect("four"));
        for numbers in [[0, 1, 2, 3], [4, 5, 6, 7]] {
            assert!(transfers.begin(&four));
            assert_eq!(
                start_all(&mut transfers).iter().map(|(number, _)| *number).collect::<Vec<_>>(),
                numbers
            );
            transfers.throw_away();
        }
        assert!(!transfers.begin(&one(64)));
    }

    #[test]
    fn a_flushed_transfer_is_due_again_only_if_it_is_awaited() {
        let mut transfers = Transfers::default();
        assert!(transfers.begin(&one(64)));
        start_all(&mut transfers);
        transfers.flushed(0);
        assert!(transfers.is_due() && !transfers.is_flying());
        start_all(&mut transfers);
        transfers.throw_away();
        transfers.flushed(0);
        assert!(!transfers.is_due() && !transfers.is_flying());
    }

    proptest! {
        #[test]
        fn transfers_in_flight_never_overlap_each_other_or_a_trailer(
            acts in proptest::collection::vec((0_u8..4, 0_usize..8, 1_u32..30_000), 1..60),
        ) {
            let mut transfers = Transfers::default();
            let mut under_way: Vec<(usize, Transfer)> = vec![];
            for (act, index, length) in acts {
                match act {
                    0 if !transfers.is_waited_for() => { let _ = transfers.begin(&one(length)); }
                    1 if !transfers.is_waited_for() => {
                        let ranges = [length, 1, length / 7 + 1].map(range);
                        let _ = transfers.begin(&Asked::Each(Ranges::of(&ranges).expect("three")));
                    }
                    2 => transfers.throw_away(),
                    _ => {
                        transfers.dma_completed(index);
                        under_way.retain(|(at, _)| *at != index);
                    }
                }
                under_way.extend(start_all(&mut transfers));
                for (nth, (index, one)) in under_way.iter().enumerate() {
                    prop_assert!(transfers.in_flight(*index).is_some_and(|(found, _)| found == *one));
                    prop_assert!(one.place + one.range.length() + TRAILER_SIZE as u32 <= STAGING);
                    for (_, other) in &under_way[nth + 1..] {
                        prop_assert!(one.end() <= other.place || other.end() <= one.place);
                    }
                }
            }
        }
    }
}
