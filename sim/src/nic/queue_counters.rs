//! Counter sets: sums over the queue pairs that use a set, under the PRM's names (QUERY_Q_COUNTER).
//!
//! Every queue pair keeps its own counters. A set is the sum over its queue pairs plus what former ones
//! counted. Counters of features that the model lacks stay zero: dynamically connected targets
//! (`rx_dct_connect`), adaptive retransmission (`roce_adp_retrans`, `roce_adp_retrans_to`) and slow restart
//! (`roce_slow_restart`, `_cnps`, `_trans`).

use super::contexts::Slab;
use super::queue_pair::{QueuePair, Tally};

/// First number of a counter set; number 0 means that a queue pair counts for no set.
pub(crate) const FIRST_SET: u32 = 1;
/// Bits of a set's number.
const SET_BITS: u32 = 8;

/// A counter set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CounterSet {
    /// Counts of queue pairs that were destroyed or now use another set.
    past: Tally,
    /// Values when the set was last cleared.
    cleared: Tally,
}

impl CounterSet {
    /// Counts a packet that found no receive in an Ethernet queue of this set.
    pub(crate) fn count_lost_packet(&mut self) {
        self.past.out_of_buffer = self.past.out_of_buffer.wrapping_add(1);
    }
}

impl CounterSet {
    /// Keeps the counts of a queue pair that is destroyed or moves to another set.
    fn keep(&mut self, tally: Tally) {
        self.past = self.past.plus(tally);
    }

    /// The counts since the set was last cleared, where `live` is the sum over its queue pairs. Clears the
    /// set on request.
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

/// Moves the counts of a queue pair, which is destroyed or moves to another set, into the set that it names.
pub(crate) fn leave_counter_set(sets: &mut CounterSets, qp: &mut QueuePair) {
    let tally = qp.leave_tally();
    // A queue pair without a set names set 0, which does not exist.
    if let Some(set) = sets.get_mut(qp.context.counter_set_id().into()) {
        set.keep(tally);
    }
}
