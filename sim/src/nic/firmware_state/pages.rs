//! Host pages lent to the device: which ones it holds, and how many it needs (PRM; Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/pagealloc.c`).

use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::numbering::QueryPagesStage;
use std::collections::BTreeSet;

/// The maximum number of pages that the device accepts beyond those that it needs: half a GiB. A driver may
/// name pages that it does not have, and the device needs memory to track each.
const BEYOND: usize = 1 << 17;

/// The pages that the device has requested and those that it holds.
#[derive(Debug)]
pub(crate) struct PageSupply {
    boot: u32,
    init: u32,
    /// Pages requested by events and not given yet.
    wanted: u32,
    held: Vec<u64>,
    known: BTreeSet<u64>,
    /// How often a driver reported that it cannot give pages.
    pub(crate) denied: u64,
}

impl PageSupply {
    pub(crate) const fn new(boot: u32, init: u32) -> Self {
        Self { boot, init, wanted: 0, held: Vec::new(), known: BTreeSet::new(), denied: 0 }
    }

    /// Raises the number of pages to request.
    pub(in crate::nic) const fn want(&mut self, count: u32) {
        self.wanted = self.wanted.saturating_add(count);
    }

    /// Pages held.
    pub(crate) const fn held(&self) -> usize {
        self.held.len()
    }

    pub(in crate::nic) fn needed(&self) -> usize {
        self.boot as usize + self.init as usize
    }

    /// Whether the boot and init pages are present.
    pub(crate) fn is_supplied(&self) -> bool {
        self.held.len() >= self.needed()
    }

    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.known.clear();
        self.wanted = 0;
    }

    pub(in crate::nic) fn missing(&self, stage: QueryPagesStage) -> Option<u32> {
        let held = self.held.len() as u32;
        match stage {
            QueryPagesStage::BootPages => Some(self.boot.saturating_sub(held)),
            QueryPagesStage::InitPages => Some((self.boot + self.init).saturating_sub(held)),
            QueryPagesStage::RegularPages => Some(self.wanted),
            _ => None,
        }
    }

    pub(in crate::nic) fn give(&mut self, pages: &[u64]) -> Result<(), Refusal> {
        if self.held.len().saturating_add(pages.len()) > self.needed().saturating_add(BEYOND) {
            return Err(syndrome::TOO_MANY_PAGES);
        }
        // Behind an IOMMU, 0 is an ordinary address, and rdma-core's VFIO driver gives it out first. Linux
        // avoids it only because it uses 0 for an address that was never set.
        if pages.iter().any(|page| page & 0xfff != 0) {
            return Err(syndrome::PAGE_MISALIGNED);
        }
        let fresh: BTreeSet<u64> = pages.iter().copied().collect();
        if fresh.len() != pages.len() || !fresh.is_disjoint(&self.known) {
            return Err(syndrome::PAGE_GIVEN_TWICE);
        }
        self.wanted = self.wanted.saturating_sub(pages.len() as u32);
        self.held.extend_from_slice(pages);
        self.known.extend(fresh);
        Ok(())
    }

    /// Returns up to `count` pages beyond those in use.
    pub(in crate::nic) fn take(&mut self, count: usize, in_use: usize) -> Vec<u64> {
        let keep = in_use.max(self.held.len().saturating_sub(count)).min(self.held.len());
        let back = self.held.split_off(keep);
        for page in &back {
            self.known.remove(page);
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_use_stay() {
        let mut supply = PageSupply::new(1, 2);
        supply.give(&[0x1000, 0x2000, 0x3000, 0x4000]).unwrap();
        assert_eq!(supply.give(&[0x5000, 0x5000]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.give(&[0x4000]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.give(&[0x6100]), Err(syndrome::PAGE_MISALIGNED));
        assert_eq!(supply.give(&[0x0800]), Err(syndrome::PAGE_MISALIGNED));
        supply.give(&[0]).unwrap();
        assert_eq!(supply.give(&[0]), Err(syndrome::PAGE_GIVEN_TWICE));
        assert_eq!(supply.take(10, 3), [0x4000, 0]);
        assert_eq!(supply.take(2, 0), [0x2000, 0x3000]);
        assert_eq!(supply.take(2, 0), [0x1000]);
        assert!(supply.take(2, 0).is_empty());
        assert_eq!(supply.missing(QueryPagesStage::InitPages), Some(3));
    }

    #[test]
    fn the_page_supply_is_limited() {
        let pages: Vec<u64> = (0..BEYOND as u64 + 4).map(|page| page << 12).collect();
        let mut supply = PageSupply::new(1, 2);
        assert_eq!(supply.give(&pages), Err(syndrome::TOO_MANY_PAGES));
        assert_eq!(supply.held(), 0);
        supply.give(&pages[1..]).unwrap();
        assert_eq!(supply.give(&pages[..1]), Err(syndrome::TOO_MANY_PAGES));
    }
}
