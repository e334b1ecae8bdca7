//! Memory-key updates by work request: when a send queue executes them, and how they end.
//!
//! The queue executes an update once all earlier requests have left the queue pair, the latest moment that
//! the order of the queue allows. It fetches nothing behind an update before that. An update never leaves the
//! device.

use super::observed::observe_fetch;
use super::settle::is_clear;
use super::{Bus, HostMemory, QueuePair};
use crate::nic::mkey::{UpdateRules, words};
use crate::nic::send_queue::PendingUpdate;
use crate::nic::wqe::{self, WorkFault};
use bareverbs_prm::wqe::{SEGMENT, mkey_mask};

impl QueuePair {
    /// Executes an update on a connected queue pair if the requests before it allow that. Returns whether the
    /// queue continues.
    pub(super) fn update_in_order<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        pending: PendingUpdate,
    ) -> bool {
        let fence = pending.control.fence_mode();
        if !self.requester.as_ref().is_some_and(|requester| is_clear(requester, fence)) {
            self.send.hold_update(&pending);
            return false;
        }
        self.end_update(bus, pending)
    }

    /// Executes an update and returns whether it succeeded.
    pub(super) fn end_update<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>, pending: PendingUpdate) -> bool {
        bus.shared.counters.wqes += 1;
        let result = self.update_key(bus, &pending);
        self.send.end_update(pending, result);
        if result.is_ok() {
            observe_fetch(&mut bus.shared.optional, bus.now, self.accessor.qpn, &self.send);
        }
        result.is_ok()
    }

    fn update_key<M: HostMemory>(
        &self,
        bus: &mut Bus<'_, M>,
        pending: &PendingUpdate,
    ) -> Result<(), WorkFault> {
        let update = &pending.update;
        let mut bytes = vec![0; usize::from(update.octowords) * SEGMENT];
        let gathered =
            self.send.gather_pieces(bus.memory, &bus.shared.mkeys, pending.pieces(), 0, &mut bytes);
        gathered.map_err(|_| wqe::DATA_ACCESS)?;
        let entries: Vec<u64> = words(&bytes).collect();
        let rules = UpdateRules {
            who: self.accessor,
            fixed_page_size: bus.features.fixed_page_size,
            fixed_atomic: bus.features.fixed_atomic,
            fixed_indirect: bus.features.fixed_indirect,
        };
        let moves = update.mask & mkey_mask::PD != 0;
        if moves && bus.shared.domains.get(update.context.pd().value()).is_none() {
            return Err(wqe::KEY_UPDATE);
        }
        bus.shared.mkeys.update(update, &entries, &rules).map_err(|_| wqe::KEY_UPDATE)
    }
}
