//! Changes of memory keys by work requests: when in the order of a send queue they are done, and what becomes of them.
//!
//! A change is done when everything before it has left the queue pair, at the latest moment that the order of a queue
//! leaves, and nothing behind it is fetched before. It never leaves the device.

use super::mkey::{UpdateRules, words};
use super::queue_pair::is_clear;
use super::send_queue::PendingUpdate;
use super::wqe::{self, Format, WorkFault};
use super::{HostMemory, Nic};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;
use bareverbs_prm::wqe::{SEGMENT, mkey_mask};

impl Nic {
    /// Does a change on a connected queue pair, if what was posted before it allows. Whether the queue goes on.
    pub(super) fn update_in_order<M: HostMemory>(
        &mut self,
        memory: &mut M,
        qpn: Qpn,
        pending: &PendingUpdate,
    ) -> bool {
        let Some(qp) = self.queue_pairs.get_mut(qpn.value()) else { return false };
        let fence = pending.control.fence_mode();
        if !qp.requester.as_ref().is_some_and(|requester| is_clear(requester, fence)) {
            qp.send.hold_update(pending);
            return false;
        }
        self.end_update(memory, qpn, pending)
    }

    /// Does a change; whether it was not refused.
    pub(super) fn end_update<M: HostMemory>(
        &mut self,
        memory: &mut M,
        qpn: Qpn,
        pending: &PendingUpdate,
    ) -> bool {
        self.counters.wqes += 1;
        let result = self.update_key(memory, qpn, pending);
        if let Some(qp) = self.queue_pairs.get_mut(qpn.value()) {
            qp.send.end_update(pending, result);
        }
        result.is_ok()
    }

    fn update_key<M: HostMemory>(
        &mut self,
        memory: &mut M,
        qpn: Qpn,
        PendingUpdate { token, update, .. }: &PendingUpdate,
    ) -> Result<(), WorkFault> {
        let qp = self.queue_pairs.get(qpn.value()).ok_or(wqe::KEY_UPDATE)?;
        let mut bytes = vec![0; usize::from(update.octowords) * SEGMENT];
        qp.send.gather(memory, &self.mkeys, *token, 0, &mut bytes).map_err(|_| wqe::DATA_ACCESS)?;
        let entries: Vec<u64> = words(&bytes).collect();
        let general = &self.firmware.capabilities.general;
        let rules = UpdateRules {
            who: qp.accessor,
            privileged: qp.format() == Format::KeyUpdate,
            fixed_page_size: general.umr_modify_entity_size_disabled(),
            fixed_atomic: general.umr_modify_atomic_disabled(),
            fixed_indirect: general.umr_indirect_mkey_disabled(),
        };
        let moves = update.mask & mkey_mask::PD != 0;
        if moves && self.domains.get(update.context.pd().value()).is_none() {
            return Err(wqe::KEY_UPDATE);
        }
        self.mkeys.update(update, &entries, &rules).map_err(|_| wqe::KEY_UPDATE)
    }

    /// A queue pair that only changes keys ends each WQE at once.
    pub(super) fn refresh_ended<M: HostMemory>(&mut self, now: Time, memory: &mut M, qpn: Qpn) {
        let stopped = self.queue_pairs.get(qpn.value()).is_some_and(|qp| qp.send.stopped.is_some());
        if !stopped {
            self.end_wqe(now, memory, qpn, Ok(()));
        }
    }
}
