//! Counts recurring problems without flooding the log.

/// A count that reports the first occurrence, and then exponentially fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally(u64);

impl Tally {
    /// Counts one more. Returns the count if it is a power of two.
    pub(crate) fn add(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }

    /// The count.
    pub(crate) const fn count(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn a_line_for_powers_of_two() {
        let mut tally = Tally::default();
        let said: Vec<u64> = (0..20).filter_map(|_| tally.add()).collect();
        assert_eq!((said, tally.count()), (vec![1, 2, 4, 8, 16], 20));
    }
}
