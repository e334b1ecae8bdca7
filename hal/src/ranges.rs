//! A first-fit allocator of address ranges that merges neighbours on release.

use std::collections::BTreeMap;

/// The free ranges: half-open, keyed by their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FreeRanges(BTreeMap<u64, u64>);

impl FreeRanges {
    /// Ranges from `start` up to but excluding `end`. Empty ones are skipped.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut free = Self::default();
        for (start, end) in ranges {
            free.give_back(start, end.saturating_sub(start));
        }
        free
    }

    /// Allocates `length` addresses at a multiple of `alignment`, a power of two.
    pub(crate) fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        if length == 0 || !alignment.is_power_of_two() {
            return None;
        }
        let (start, end, at) = self.0.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at <= end && end - at >= length).then_some((start, end, at))
        })?;
        self.0.remove(&start);
        self.keep(start, at);
        self.keep(at + length, end);
        Some(at)
    }

    /// Releases a range that [`Self::take`] returned.
    pub(crate) fn give_back(&mut self, start: u64, length: u64) {
        let (mut start, mut end) = (start, start.saturating_add(length));
        if start == end {
            return;
        }
        if let Some((&before, &until)) =
            self.0.range(..start).next_back().filter(|(_, until)| **until == start)
        {
            debug_assert_eq!(until, start);
            self.0.remove(&before);
            start = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.keep(start, end);
    }

    /// Number of free addresses.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    fn keep(&mut self, start: u64, end: u64) {
        if start < end {
            self.0.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_aligned_and_can_be_returned() {
        let mut free = FreeRanges::new([(10, 100), (4096, 8192)]);
        let whole = free.clone();
        assert_eq!(free.take(64, 32), Some(32));
        assert_eq!(free.take(4096, 4096), Some(4096));
        assert_eq!(free.take(1 << 20, 1), None);
        assert_eq!(free.take(0, 1), None);
        free.give_back(4096, 4096);
        free.give_back(32, 64);
        assert_eq!(free, whole);
    }

    #[test]
    fn the_last_addresses_can_be_taken() {
        let mut free = FreeRanges::new([(u64::MAX - 4095, u64::MAX)]);
        assert_eq!(free.take(4095, 1), Some(u64::MAX - 4095));
        assert_eq!(free.total(), 0);
    }

    proptest! {
        /// Compares with a map of single addresses: nothing is allocated twice, nothing is lost.
        #[test]
        fn no_address_is_given_twice(steps in proptest::collection::vec((1u64..40, 0u32..5, any::<bool>()), 1..60)) {
            let mut free = FreeRanges::new([(7, 200), (256, 300)]);
            let total = free.total();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (length, log, give) in steps {
                if give && !taken.is_empty() {
                    let (start, length) = taken.swap_remove(length as usize % taken.len());
                    free.give_back(start, length);
                } else if let Some(start) = free.take(length, 1 << log) {
                    prop_assert!(start % (1 << log) == 0);
                    prop_assert!(taken.iter().all(|&(at, size)| at + size <= start || start + length <= at));
                    taken.push((start, length));
                }
                prop_assert_eq!(free.total() + taken.iter().map(|(_, length)| length).sum::<u64>(), total);
            }
        }
    }
}
