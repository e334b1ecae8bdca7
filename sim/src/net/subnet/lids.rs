//! LID assignments by port GUID. A port that left gets the same LID when it returns.

use super::agent::MANAGER_LID;
use std::collections::{BTreeMap, BTreeSet};

/// The assignments; see the module.
#[derive(Debug, Clone)]
pub(super) struct Lids {
    by_guid: BTreeMap<u64, u16>,
    /// The same assignments in the order of LIDs. Known assignments may give one LID to several ports.
    by_lid: BTreeSet<(u16, u64)>,
    /// LIDs per port.
    step: u16,
}

impl Lids {
    /// Starts with known assignments. A LID that is not aligned to the LMC (IBTA v1.4 §4.1.3), is a multicast LID, or
    /// is the SM's is ignored.
    pub(super) fn new(lmc: u8, mut known: BTreeMap<u64, u16>) -> Self {
        let step = 1 << lmc;
        known.retain(|_, lid| *lid >= step && lid.is_multiple_of(step) && is_below_manager(*lid, step));
        let by_lid = known.iter().map(|(guid, lid)| (*lid, *guid)).collect();
        Self { by_guid: known, by_lid, step }
    }

    /// The base LID of a port: its earlier one or a free one. `None` if all LIDs belong to ports that are `present`.
    pub(super) fn of(&mut self, guid: u64, present: impl FnOnce() -> BTreeSet<u64>) -> Option<u16> {
        if let Some(lid) = self.by_guid.get(&guid) {
            return Some(*lid);
        }
        let lid = self.free().or_else(|| {
            let present = present();
            self.by_guid.retain(|guid, _| present.contains(guid));
            self.by_lid.retain(|(_, guid)| present.contains(guid));
            self.free()
        })?;
        self.assign(guid, lid);
        Some(lid)
    }

    /// Keeps the LID that another SM gave to a port, unless it belongs to another port.
    pub(super) fn adopt(&mut self, guid: u64, lid: u16) {
        let is_one = lid >= self.step && lid.is_multiple_of(self.step) && is_below_manager(lid, self.step);
        if is_one && self.owners(lid).all(|owner| owner == guid) {
            self.assign(guid, lid);
        }
    }

    fn assign(&mut self, guid: u64, lid: u16) {
        if let Some(before) = self.by_guid.insert(guid, lid) {
            self.by_lid.remove(&(before, guid));
        }
        self.by_lid.insert((lid, guid));
    }

    /// GUIDs of the ports with this base LID.
    fn owners(&self, lid: u16) -> impl Iterator<Item = u64> + '_ {
        self.by_lid.range((lid, 0)..=(lid, u64::MAX)).map(|(_, guid)| *guid)
    }

    /// The lowest aligned LID above all others (IBTA v1.4 §4.1.3), or one that was returned.
    fn free(&self) -> Option<u16> {
        let next = self.by_lid.last().map_or(self.step, |(last, _)| last + self.step);
        if is_below_manager(next, self.step) {
            return Some(next);
        }
        let mut lids = (self.step..MANAGER_LID).step_by(usize::from(self.step));
        lids.find(|lid| is_below_manager(*lid, self.step) && self.owners(*lid).next().is_none())
    }
}

/// Whether all LIDs of a port are below that of the SM.
const fn is_below_manager(lid: u16, lids: u16) -> bool {
    lid <= MANAGER_LID - lids
}
