//! Which pages of the arena are taken: a bit a page, first fit.

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// `64 * WORDS` pages.
#[derive(Debug)]
pub struct PageMap<const WORDS: usize> {
    taken: [u64; WORDS],
}

impl<const WORDS: usize> PageMap<WORDS> {
    /// Pages.
    pub const PAGES: usize = 64 * WORDS;

    /// All pages are free.
    pub const fn new() -> Self {
        Self { taken: [0; WORDS] }
    }

    /// Takes `count` pages in a row whose first number is `first` modulo `stride`; returns the first.
    pub fn take(&mut self, count: usize, first: usize, stride: usize) -> Option<usize> {
        let last = Self::PAGES.checked_sub(count)?;
        let start = (first..=last).step_by(stride.max(1)).find(|start| self.is_free(*start, count))?;
        (start..start + count).for_each(|page| self.taken[page / 64] |= 1 << (page % 64));
        Some(start)
    }

    /// Gives pages back.
    pub fn give(&mut self, start: usize, count: usize) {
        let end = start.saturating_add(count).min(Self::PAGES);
        (start..end).for_each(|page| self.taken[page / 64] &= !(1 << (page % 64)));
    }

    /// Pages that are taken.
    pub fn used(&self) -> usize {
        self.taken.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn is_free(&self, start: usize, count: usize) -> bool {
        (start..start + count).all(|page| self.taken[page / 64] >> (page % 64) & 1 == 0)
    }
}

impl<const WORDS: usize> Default for PageMap<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_once_and_come_back() {
        let mut map = PageMap::<2>::new();
        assert_eq!(map.take(3, 0, 1), Some(0));
        assert_eq!(map.take(1, 0, 8), Some(8));
        assert_eq!(map.take(6, 0, 1), Some(9));
        assert_eq!(map.used(), 10);
        map.give(8, 1);
        assert_eq!(map.take(5, 1, 2), Some(3));
        assert_eq!(map.take(1, 0, 8), Some(8));
    }

    #[test]
    fn page_runs_that_do_not_fit_are_refused() {
        let mut map = PageMap::<1>::new();
        assert_eq!(map.take(65, 0, 1), None);
        assert_eq!(map.take(64, 1, 1), None);
        assert_eq!(map.take(64, 0, 1), Some(0));
        assert_eq!(map.take(1, 0, 1), None);
        map.give(63, 9);
        assert_eq!(map.take(1, 0, 1), Some(63));
    }
}
