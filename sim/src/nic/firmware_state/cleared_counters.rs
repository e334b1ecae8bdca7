//! Counters of the port at the time when a group of them was last cleared.

use bareverbs_prm::numbering::PortCounterGroup;
use std::collections::BTreeMap;

/// Bytes of a counter set.
pub(in crate::nic) const COUNTER_SET: usize = 248;
/// 64-bit counters in a set.
pub(in crate::nic) const COUNTERS: usize = COUNTER_SET / 8;

/// Counters by their index in the set.
pub(in crate::nic) type CounterValues = [u64; COUNTERS];

/// The values when a group was last cleared, by group and priority.
#[derive(Debug, Default)]
pub(in crate::nic) struct ClearedCounters(BTreeMap<(u8, u8), CounterValues>);

impl ClearedCounters {
    /// The counts since the group was last cleared.
    pub(in crate::nic) fn since(
        &self,
        group: PortCounterGroup,
        priority: u8,
        counted: &CounterValues,
    ) -> CounterValues {
        match self.0.get(&(group.raw(), priority)) {
            Some(before) => core::array::from_fn(|index| counted[index].wrapping_sub(before[index])),
            None => *counted,
        }
    }

    /// Clears the group at these values.
    pub(in crate::nic) fn clear(&mut self, group: PortCounterGroup, priority: u8, counted: CounterValues) {
        self.0.insert((group.raw(), priority), counted);
    }
}
