//! LID assignments by port GUID. A port that left gets the same LID when it returns.

use super::agent::MANAGER_LID;
use std::collections::{BTreeMap, BTreeSet};

/// The assignments; see the module.
#[derive(Debug, Clone)]
pub(super) struct Lids {
    by_guid: BTreeMap<u64, u16>,
    /// LIDs per port.
    step: u16,
}

impl Lids {
    /// Starts with known assignments. A LID that is not aligned to the LMC (IBTA v1.4 §4.1.3), is a multicast LID, or
    /// is the SM's is ignored.
    pub(super) fn new(lmc: u8, mut known: BTreeMap<u64, u16>) -> Self {
        let step = 1 << lmc;
        known.retain(|_, lid| *lid >= step && lid.is_multiple_of(step) && is_below_manager(*lid, step));
        Self { by_guid: known, step }
    }

    /// The base LID of a port: its earlier one or a free one. `None` if all LIDs belong to ports that are `present`.
    pub(super) fn of(&mut self, guid: u64, present: impl FnOnce() -> BTreeSet<u64>) -> Option<u16> {
        if let Some(lid) = self.by_guid.get(&guid) {
            return Some(*lid);
        }
        let lid = self.free().or_else(|| {
            let present = present();
            self.by_guid.retain(|guid, _| present.contains(guid));
            self.free()
        })?;
        self.by_guid.insert(guid, lid);
        Some(lid)
    }

    /// Keeps the LID that another SM gave to a port, unless it belongs to another port.
    pub(super) fn adopt(&mut self, guid: u64, lid: u16) {
        let is_one = lid >= self.step && lid.is_multiple_of(self.step) && is_below_manager(lid, self.step);
        let is_free = self.by_guid.iter().all(|(other, taken)| *taken != lid || *other == guid);
        if is_one && is_free {
            self.by_guid.insert(guid, lid);
        }
    }

    /// The lowest aligned LID above all others (IBTA v1.4 §4.1.3), or one that was returned.
    fn free(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.by_guid.values().copied().collect();
        let next = taken.last().map_or(self.step, |last| last + self.step);
        let free = (self.step..MANAGER_LID)
            .step_by(usize::from(self.step))
            .find(|lid| is_below_manager(*lid, self.step) && !taken.contains(lid));
        if is_below_manager(next, self.step) { Some(next) } else { free }
    }
}

/// Whether all LIDs of a port are below that of the SM.
const fn is_below_manager(lid: u16, lids: u16) -> bool {
    lid <= MANAGER_LID - lids
}
