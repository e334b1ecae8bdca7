//! Counting what goes wrong again and again without filling the log.

/// A count that says when it is worth a line: the first time, and then ever more seldom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally(u64);

impl Tally {
    /// Counts once more; the count, whenever it is a power of two.
    pub(crate) fn add(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }

    /// How often it was.
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
