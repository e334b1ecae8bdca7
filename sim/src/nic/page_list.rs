//! Lists of host pages, and a device's budget for them.
//!
//! A list costs the device eight bytes per page and the host nothing, since it may name the same page a million times.
//! So the total length of a device's lists is limited. A list takes its length from the budget and returns it when it
//! is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that all lists of a device may have together: 2^25 bytes, enough for 16 GiB in pages of 4 KiB.
pub(crate) const ENTRY_BUDGET: usize = 1 << 22;

/// Entries that the lists of one device have taken from its budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageBudget {
    taken: Arc<AtomicUsize>,
}

/// Entries of a page list, counted once in the budget of their device no matter how many hold them.
#[derive(Debug, Clone)]
pub(crate) struct PageList(Arc<CountedEntries>);

#[derive(Debug)]
struct CountedEntries {
    entries: Box<[u64]>,
    budget: PageBudget,
}

/// The budget has no room for another list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetUsedUp;

impl PageBudget {
    /// Stores a list if the budget has room for it.
    pub(crate) fn hold(&self, entries: Vec<u64>) -> Result<PageList, BudgetUsedUp> {
        // Only one thread drives a device. The counter is atomic only so that the device can move to another
        // thread.
        let taken = self.taken.load(Ordering::Relaxed) + entries.len();
        if taken > ENTRY_BUDGET {
            return Err(BudgetUsedUp);
        }
        self.taken.store(taken, Ordering::Relaxed);
        Ok(PageList(Arc::new(CountedEntries { entries: entries.into_boxed_slice(), budget: self.clone() })))
    }
}

impl PageList {
    /// The budget that the list counts against.
    pub(crate) fn budget(&self) -> &PageBudget {
        &self.0.budget
    }
}

impl Deref for PageList {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0.entries
    }
}

impl Drop for CountedEntries {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_page_list_returns_its_budget() {
        let budget = PageBudget::default();
        let half = || budget.hold(vec![0; ENTRY_BUDGET / 2]);
        let (first, _second) = (half().unwrap(), half().unwrap());
        assert_eq!(budget.hold(vec![0]).err(), Some(BudgetUsedUp));
        assert!(budget.hold(Vec::new()).is_ok(), "an empty list takes nothing");
        let again = first.clone();
        drop(first);
        assert_eq!(budget.hold(vec![0]).err(), Some(BudgetUsedUp), "another holder still has it");
        drop(again);
        let _third = half().unwrap();
        assert_eq!(budget.hold(vec![0]).err(), Some(BudgetUsedUp));
    }
}
