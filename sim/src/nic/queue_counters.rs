//! Counter sets: sums over the queue pairs that use a set, under the PRM's names (QUERY_Q_COUNTER).
//!
//! Every queue pair counts for itself; a set is the sum of its queue pairs and of what former ones have left behind.
//! Features that the model lacks stay zero: dynamically connected targets (`rx_dct_connect`), adaptive retransmission
//! (`roce_adp_retrans`, `roce_adp_retrans_to`) and slow restart (`roce_slow_restart`, `_cnps`, `_trans`).

use super::contexts::Slab;
use super::queue_pair::{QueuePair, Tally};

/// First number of a counter set; queue pairs with number 0 count nowhere.
pub(crate) const FIRST_SET: u32 = 1;
/// Bits of such a number.
const SET_BITS: u32 = 8;

/// A counter set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CounterSet {
    /// Counts of queue pairs that are gone or use another set now.
    past: Tally,
    /// Values when the set was last cleared.
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
