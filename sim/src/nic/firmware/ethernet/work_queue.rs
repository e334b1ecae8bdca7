//! What commands for send and receive queues of packets have in common.

use crate::nic::Nic;
use bareverbs_prm::command::srq::WorkQueueContext;
use bareverbs_prm::ids::Cqn;

/// `wq_type`: entries are used in the order of the ring.
const CYCLIC: u8 = 1;

/// What work queues of both kinds have in common and may not ask for.
pub(super) fn is_plain(queue: &WorkQueueContext) -> bool {
    queue.wq_type() == CYCLIC && !queue.wq_signature() && !queue.cd_slave() && !queue.shampo_enable()
}

/// A completion queue may not go before the queues that complete into it.
pub(super) fn count_user(nic: &mut Nic, cqn: Cqn, change: i32) {
    if let Some(queue) = nic.completions.queues.get_mut(cqn.value()) {
        queue.users = queue.users.saturating_add_signed(change);
    }
}
