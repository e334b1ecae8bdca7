//! Counter sets and the queue pairs that count for them.

use super::Nic;
use crate::nic::completion::FailedCompletion;
use crate::nic::queue_pair::Tally;

impl Nic {
    /// The counts of a set since it was created or cleared; `None` if there is no such set.
    pub(crate) fn counter_set(&mut self, number: u8, clear: bool) -> Option<Tally> {
        let members = self.queue_pairs.iter().filter(|(_, qp)| qp.context.counter_set_id() == number);
        let live = members.fold(Tally::default(), |sum, (_, qp)| sum.plus(qp.tally()));
        Some(self.counter_sets.get_mut(number.into())?.show(live, clear))
    }

    /// Whether any queue pair or Ethernet receive queue names the set.
    pub(crate) fn uses_counter_set(&self, number: u8) -> bool {
        self.queue_pairs.iter().any(|(_, qp)| qp.context.counter_set_id() == number)
            || self.ethernet.receive_queues.iter().any(|(_, rq)| rq.context.counter_set_id() == number)
    }

    /// Counts the completions with error that were written since the last call. Ethernet queues do not count
    /// them in a set.
    pub(crate) fn count_failures(&mut self) {
        while let Some(FailedCompletion { qpn, opcode, syndrome }) =
            self.shared.completions.log.failures.pop()
        {
            if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
                qp.count_failure(opcode, syndrome);
            }
        }
    }
}
