//! Counter sets: what the queue pairs counted that name one, under the names of the PRM (QUERY_Q_COUNTER).
//!
//! Queue pairs count for themselves; a set is the sum of its queue pairs and of what those left behind that are gone. What the
//! model has not, it counts not: dynamically connected targets (`rx_dct_connect`), adaptive retransmission
//! (`roce_adp_retrans`, `roce_adp_retrans_to`) and slow restart (`roce_slow_restart`, `_cnps`, `_trans`) stay zero.

use super::contexts::Slab;
use super::queue_pair::{QueuePair, Tally};

/// First number of a counter set; queue pairs with number 0 count nowhere.
pub(crate) const FIRST_SET: u32 = 1;
/// Bits of such a number.
const SET_BITS: u32 = 8;

/// A counter set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CounterSet {
    /// What queue pairs counted that are gone or count elsewhere now.
    past: Tally,
    /// What was there when it was last cleared.
    cleared: Tally,
}

impl CounterSet {
    /// A packet found no receive in an Ethernet queue that counts here.
    pub(crate) fn count_lost_packet(&mut self) {
        self.past.out_of_buffer = self.past.out_of_buffer.wrapping_add(1);
    }
}

impl CounterSet {
    /// Keeps what a queue pair counted that goes away, or counts elsewhere from now on.
    fn keep(&mut self, tally: Tally) {
        self.past = self.past.plus(tally);
    }

    /// What came since it was last cleared, with `live` of its queue pairs; clears it if asked to.
    pub(super) fn show(&mut self, live: Tally, clear: bool) -> Tally {
        let total = self.past.plus(live);
        let shown = total.minus(self.cleared);
        if clear {
            self.cleared = total;
        }
        shown
    }
}

/// All counter sets of a device.
pub(crate) type CounterSets = Slab<CounterSet>;

/// No sets.
pub(crate) const fn counter_sets() -> CounterSets {
    Slab::new(FIRST_SET, SET_BITS)
}

/// A queue pair goes away, or counts elsewhere from now on: what it counted stays with the set that it names.
pub(crate) fn leave_counter_set(sets: &mut CounterSets, qp: &mut QueuePair) {
    let tally = qp.leave_tally();
    // A queue pair that counts nowhere names set 0, which does not exist.
    if let Some(set) = sets.get_mut(qp.context.counter_set_id().into()) {
        set.keep(tally);
    }
}
