//! Sets of slots: find the next slot that has work without visiting the others.

/// A bit for each of at most 64 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SlotSet(u64);

impl SlotSet {
    /// Puts a slot into the set, or takes it out.
    #[inline]
    pub(super) const fn set(&mut self, index: usize, inside: bool) {
        if inside {
            self.0 |= 1 << index;
        } else {
            self.0 &= !(1 << index);
        }
    }

    /// Whether no slot is in the set.
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many slots are in the set.
    pub(super) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first slot that is not in the set; 64 if there is none.
    pub(super) const fn first_outside(self) -> usize {
        self.0.trailing_ones() as usize
    }

    /// The slots of the set, beginning with `first` and going round.
    #[inline]
    pub(super) const fn from(self, first: usize) -> InTurn {
        InTurn { first, left: self.0.rotate_right(first as u32) }
    }
}

/// The slots of a set, in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct InTurn {
    first: usize,
    /// The slots that are left; bit zero is the first one's.
    left: u64,
}

impl Iterator for InTurn {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let turns = self.left.trailing_zeros() as usize;
        self.left &= self.left.checked_sub(1)?;
        Some((self.first + turns) % 64)
    }
}

/// The slot that comes after this one.
pub(super) const fn after<const SLOTS: usize>(index: usize) -> usize {
    if index + 1 >= SLOTS { 0 } else { index + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contains(set: SlotSet, index: usize) -> bool {
        set.0 >> index & 1 == 1
    }

    proptest! {
        #[test]
        fn slots_come_in_turn_once_each(bits in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], first in 0_usize..64) {
            let set = SlotSet(bits);
            let all = (first..64).chain(0..first);
            let expected: Vec<usize> = all.filter(|index| contains(set, *index)).collect();
            prop_assert_eq!(set.from(first).collect::<Vec<_>>(), expected);
            prop_assert_eq!(set.len(), set.from(first).count());
            prop_assert_eq!(set.is_empty(), bits == 0);
            prop_assert_eq!(set.first_outside(), (0..64).find(|index| !contains(set, *index)).unwrap_or(64));
        }

        #[test]
        fn only_the_slot_that_is_set_changes(bits: u64, index in 0_usize..64, inside: bool) {
            let mut set = SlotSet(bits);
            set.set(index, inside);
            let expected = |other| if other == index { inside } else { contains(SlotSet(bits), other) };
            prop_assert!((0..64).all(|other| contains(set, other) == expected(other)));
        }
    }

    #[test]
    fn the_slot_after_the_last_is_the_first() {
        assert_eq!([0, 2, 3].map(after::<4>), [1, 3, 0]);
        assert_eq!(after::<64>(63), 0);
    }
}
