//! LID assignments against a model that looks at all of them each time.

use super::*;
use crate::net::subnet::lids::Lids;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// LMC with which a subnet has 383 LIDs, so that a few hundred ports use them up.
const LMC: u8 = 7;
const STEP: u16 = 1 << LMC;
const LAST: u16 = MANAGER_LID - STEP;

#[derive(Debug, Clone)]
enum Operation {
    /// Ports with GUIDs from the first to the second come; those from the third on are present.
    Come(u64, u64, u64),
    Adopt(u64, u16),
}

struct Model(BTreeMap<u64, u16>);

impl Model {
    fn of(&mut self, guid: u64, present: &BTreeSet<u64>) -> Option<u16> {
        if let Some(lid) = self.0.get(&guid) {
            return Some(*lid);
        }
        let lid = self.free().or_else(|| {
            self.0.retain(|guid, _| present.contains(guid));
            self.free()
        })?;
        self.0.insert(guid, lid);
        Some(lid)
    }

    fn adopt(&mut self, guid: u64, lid: u16) {
        let is_right = lid.is_multiple_of(STEP) && (STEP..=LAST).contains(&lid);
        if is_right && self.0.iter().all(|(other, taken)| *taken != lid || *other == guid) {
            self.0.insert(guid, lid);
        }
    }

    fn free(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.0.values().copied().collect();
        let next = taken.last().map_or(STEP, |last| last + STEP);
        let mut lids = (STEP..=LAST).step_by(STEP.into());
        if next <= LAST { Some(next) } else { lids.find(|lid| !taken.contains(lid)) }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let lid = prop_oneof![4 => (0..400_u16).prop_map(|number| number * STEP), 1 => any::<u16>()];
    prop_oneof![
        2 => (0..600_u64, 1..200_u64, 0..700_u64)
            .prop_map(|(first, count, present)| Operation::Come(first, first + count, present)),
        3 => (0..600_u64, lid).prop_map(|(guid, lid)| Operation::Adopt(guid, lid)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Requirement: IBTA v1.4 §4.1.3: LIDs are aligned to the LMC and belong to one port each; those of ports that left
    /// are assigned again when there are no others.
    #[test]
    fn lids_are_assigned_as_by_a_search_of_all(
        known in prop::collection::btree_map(0..600_u64, (0..5_u16).prop_map(|number| number * STEP), 0..8),
        operations in prop::collection::vec(operation(), 1..30),
    ) {
        let right = known.iter().filter(|(_, lid)| **lid >= STEP).map(|(guid, lid)| (*guid, *lid));
        let (mut lids, mut model) = (Lids::new(LMC, known.clone()), Model(right.collect()));
        for operation in operations {
            match operation {
                Operation::Come(first, end, from) => {
                    let present: BTreeSet<u64> = (from..800).collect();
                    for guid in first..end {
                        let assigned = lids.of(guid, || present.clone());
                        prop_assert_eq!(assigned, model.of(guid, &present), "GUID {}", guid);
                    }
                }
                Operation::Adopt(guid, lid) => {
                    lids.adopt(guid, lid);
                    model.adopt(guid, lid);
                }
            }
        }
    }
}
