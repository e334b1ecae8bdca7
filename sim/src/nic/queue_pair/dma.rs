//! DMA work requests of a queue pair: they are asked of the card when they are fetched, and end when the card says so. They never
//! reach the wire.

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::mkey::DmaRefused;
use crate::nic::wqe;
use bareverbs_prm::numbering::QpState;

impl QueuePair {
    /// Takes DMA work requests at once: they wait for nothing that the port does.
    pub(super) fn fetch_dma<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if self.mmo && self.state() == QpState::Rts {
            self.fetch(bus);
        }
    }

    /// A copy ended. One whose work request is gone, because the queue pair was reset or failed meanwhile, ends for nobody.
    pub(crate) fn on_dma_end<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        tag: u64,
        result: Result<(), DmaRefused>,
    ) -> Effects {
        if !self.send.end_dma(tag, result.map_err(|_| wqe::DMA_ACCESS)) {
            bus.counters.dma_forgotten += 1;
        }
        // What ended makes room for what waits, also behind a fence.
        self.end_requests(bus);
        self.fetch_dma(bus);
        self.settle(bus)
    }
}
