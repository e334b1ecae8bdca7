//! DMA work requests of a queue pair. Fetching one starts the copy on the card, and the work request ends
//! when the card reports its end. These work requests never reach the wire.

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::mkey::DmaRefused;
use crate::nic::wqe;
use bareverbs_prm::numbering::QpState;

impl QueuePair {
    /// Starts DMA work requests at once: they do not depend on the port.
    pub(super) fn fetch_dma<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if self.mmo && self.state() == QpState::Rts {
            self.fetch(bus);
        }
    }

    /// Handles the end of a copy. If the queue pair was reset or failed meanwhile, the work request is gone
    /// and nothing happens.
    pub(crate) fn on_dma_end<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        tag: u64,
        result: Result<(), DmaRefused>,
    ) -> Effects {
        if !self.send.end_dma(tag, result.map_err(|_| wqe::DMA_ACCESS)) {
            bus.shared.counters.dma_forgotten += 1;
        }
        // The ended copy may free room for waiting requests, including those behind a fence.
        self.end_requests(bus);
        self.fetch_dma(bus);
        self.settle(bus)
    }
}
