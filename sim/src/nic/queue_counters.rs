//! Counter sets: what the queue pairs counted that name one, under the names of the PRM (QUERY_Q_COUNTER).
//!
//! Queue pairs count for themselves; a set is the sum of its queue pairs and of what those left behind that are gone. What the
//! model has not, it counts not: dynamically connected targets (`rx_dct_connect`), adaptive retransmission
//! (`roce_adp_retrans`, `roce_adp_retrans_to`) and slow restart (`roce_slow_restart`, `_cnps`, `_trans`) stay zero.

use super::Nic;
use super::contexts::Slab;
use super::queue_pair::Tally;
use bareverbs_prm::ids::Qpn;

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

/// All counter sets of a device.
pub(crate) type CounterSets = Slab<CounterSet>;

/// No sets.
pub(crate) const fn counter_sets() -> CounterSets {
    Slab::new(FIRST_SET, SET_BITS)
}

impl Nic {
    /// The queue pair goes away, or counts elsewhere from now on: what it counted stays with its set.
    pub(crate) fn leave_counter_set(&mut self, qpn: Qpn) {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return };
        let tally = qp.leave_tally();
        // A queue pair that counts nowhere names set 0, which does not exist.
        if let Some(set) = self.counter_sets.get_mut(qp.context.counter_set_id().into()) {
            set.past = set.past.plus(tally);
        }
    }

    /// What a set has counted since it was made or cleared; `None` if there is no such set.
    pub(crate) fn counter_set(&mut self, number: u8, clear: bool) -> Option<Tally> {
        let members = self.queue_pairs.iter().filter(|(_, qp)| qp.context.counter_set_id() == number);
        let live = members.fold(Tally::default(), |sum, (_, qp)| sum.plus(qp.tally()));
        let set = self.counter_sets.get_mut(number.into())?;
        let total = set.past.plus(live);
        let shown = total.minus(set.cleared);
        if clear {
            set.cleared = total;
        }
        Some(shown)
    }

    /// Whether queue pairs or Ethernet receive queues name the set.
    pub(crate) fn uses_counter_set(&self, number: u8) -> bool {
        self.queue_pairs.iter().any(|(_, qp)| qp.context.counter_set_id() == number)
            || self.ethernet.receive_queues.iter().any(|(_, rq)| rq.context.counter_set_id() == number)
    }

    /// Counts the completions with error that were written since the last call. Those of Ethernet queues count in no set.
    pub(crate) fn count_failures(&mut self) {
        while let Some((qpn, opcode, syndrome)) = self.completions.failures.pop() {
            if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
                qp.count_failure(opcode, syndrome);
            }
        }
    }
}
