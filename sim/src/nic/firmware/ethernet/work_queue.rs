//! What the commands for Ethernet send and receive queues share.

use crate::nic::Nic;
use bareverbs_prm::command::srq::WorkQueueContext;
use bareverbs_prm::ids::Cqn;

/// `wq_type`: entries are used in the order of the ring.
const CYCLIC: u8 = 1;

/// Whether a work queue, for sends or receives, requests none of the features that the model lacks.
pub(super) fn is_plain(queue: &WorkQueueContext) -> bool {
    queue.wq_type() == CYCLIC && !queue.wq_signature() && !queue.cd_slave() && !queue.shampo_enable()
}

/// Counts the users of a completion queue, which cannot be destroyed before them.
pub(super) fn count_user(nic: &mut Nic, cqn: Cqn, change: i32) {
    if let Some(queue) = nic.shared.completions.queues.get_mut(cqn.value()) {
        queue.users = queue.users.saturating_add_signed(change);
    }
}
