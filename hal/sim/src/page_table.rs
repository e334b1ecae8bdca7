//! Maps pages of I/O virtual addresses to regions, with two lookups for any number of regions.
//!
//! No page belongs to two regions: the arena leaves a free page after each.

/// Log2 of the page size in bytes.
const PAGE_BITS: u32 = 12;
/// Log2 of the pages per leaf.
const LEAF_BITS: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_BITS;
/// Slot value of an unmapped page.
const NOBODY: u32 = u32::MAX;

/// The page table of one host. Addresses are relative to its base.
#[derive(Debug)]
pub(super) struct PageTable {
    base: u64,
    leaves: Vec<Option<Box<Leaf>>>,
}

/// A run of consecutive pages.
#[derive(Debug)]
struct Leaf {
    slots: [u32; LEAF_PAGES],
    /// Number of mapped pages. A leaf without any is freed.
    used: usize,
}

impl PageTable {
    /// An empty table for addresses from `base`.
    pub(super) const fn new(base: u64) -> Self {
        Self { base, leaves: Vec::new() }
    }

    /// The slot of the region that covers part of the page at `address`.
    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<u32> {
        let page = address.wrapping_sub(self.base) >> PAGE_BITS;
        let leaf = self.leaves.get(usize::try_from(page >> LEAF_BITS).ok()?)?.as_ref()?;
        Some(leaf.slots[page as usize % LEAF_PAGES]).filter(|&slot| slot != NOBODY)
    }

    /// Maps `length` bytes (at least one) at `start` to `slot`.
    pub(super) fn insert(&mut self, start: u64, length: u64, slot: u32) {
        for page in self.pages(start, length) {
            let number = (page >> LEAF_BITS) as usize;
            if number >= self.leaves.len() {
                self.leaves.resize_with(number + 1, || None);
            }
            let leaf = self.leaves[number]
                .get_or_insert_with(|| Box::new(Leaf { slots: [NOBODY; LEAF_PAGES], used: 0 }));
            leaf.slots[page as usize % LEAF_PAGES] = slot;
            leaf.used += 1;
        }
    }

    /// Unmaps the region that was inserted with the same `start` and `length`.
    pub(super) fn remove(&mut self, start: u64, length: u64) {
        for page in self.pages(start, length) {
            let Some(place) = self.leaves.get_mut((page >> LEAF_BITS) as usize) else { return };
            let Some(leaf) = place else { continue };
            leaf.slots[page as usize % LEAF_PAGES] = NOBODY;
            leaf.used -= 1;
            if leaf.used == 0 {
                *place = None;
            }
        }
    }

    fn pages(&self, start: u64, length: u64) -> core::ops::RangeInclusive<u64> {
        let first = start.wrapping_sub(self.base);
        first >> PAGE_BITS..=(first + (length - 1)) >> PAGE_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BASE: u64 = 0x10_0000_0000;

    proptest! {
        /// Compares with a map of single pages while regions come and go.
        #[test]
        fn every_page_finds_its_region(steps in prop::collection::vec((0u64..3000, 1u64..40_000, any::<bool>()), 1..60)) {
            let (mut table, mut model) = (PageTable::new(BASE), BTreeMap::new());
            let (mut regions, mut next) = (Vec::new(), BASE);
            for (number, (gap, length, remove)) in steps.into_iter().enumerate() {
                if let Some((start, length, pages)) = regions.pop().filter(|_| remove) {
                    table.remove(start, length);
                    model.retain(|page, _| !core::ops::RangeInclusive::contains(&pages, page));
                } else {
                    let start = next + gap * 1024;
                    let pages = start >> PAGE_BITS..=(start + length - 1) >> PAGE_BITS;
                    table.insert(start, length, number as u32);
                    model.extend(pages.clone().map(|page| (page, number as u32)));
                    next = start + length + (1 << PAGE_BITS);
                    regions.push((start, length, pages));
                }
                for page in ((BASE - 8192) >> PAGE_BITS)..(next >> PAGE_BITS) + 3 {
                    prop_assert_eq!(table.get(page << PAGE_BITS), model.get(&page).copied());
                    prop_assert_eq!(table.get((page << PAGE_BITS) + 4095), model.get(&page).copied());
                }
            }
        }
    }

    #[test]
    fn addresses_outside_the_table_have_no_owner() {
        let mut table = PageTable::new(BASE);
        table.insert(BASE, 1, 7);
        assert_eq!(
            (table.get(BASE), table.get(BASE - 1), table.get(0), table.get(u64::MAX)),
            (Some(7), None, None, None)
        );
        table.remove(BASE, 1);
        assert!(table.leaves.iter().all(Option::is_none), "an empty leaf is kept");
    }
}
