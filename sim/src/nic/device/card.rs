//! A device as a function of its card: messages to and from the other functions, and requests to the card's
//! DMA engine.
//!
//! The runner of a card delivers each function's [`Nic::poll_card_notice`] to the others' [`Nic::handle_card_notice`]
//! at once, and executes every [`Nic::poll_dma`]: it reads from the owner of the source, writes to the owner of the
//! destination, and reports the result to the requester.

use super::Nic;
use crate::nic::HostMemory;
use crate::nic::card::{CardNotice, DmaRequest};
use crate::nic::mkey::{DmaEnd, DmaRefused};
use bareverbs_prm::ids::VhcaId;
use bareverbs_prm::time::Time;

impl Nic {
    /// VHCA ID of this function.
    pub fn vhca_id(&self) -> Option<VhcaId> {
        self.shared.optional.card.as_ref().map(|card| card.function.vhca_id)
    }

    /// Whether [`Self::poll_card_notice`] or [`Self::poll_dma`] has output.
    #[inline]
    pub fn has_card_output(&self) -> bool {
        self.shared.optional.card.as_ref().is_some_and(|card| card.has_output())
    }

    /// The next message for the other functions.
    pub fn poll_card_notice(&mut self) -> Option<CardNotice> {
        self.shared.optional.card.as_mut()?.poll_notice()
    }

    /// Handles the message that another function shares a key or stopped sharing it.
    pub fn handle_card_notice(&mut self, notice: &CardNotice) {
        if let Some(card) = &mut self.shared.optional.card {
            card.handle_notice(notice);
        }
    }

    /// The next copy to execute. It may take any time, and copies may end in any order.
    pub fn poll_dma(&mut self) -> Option<DmaRequest> {
        self.shared.optional.card.as_mut()?.poll_request()
    }

    /// Reads the source of a copy in this function's memory.
    ///
    /// # Errors
    /// The key no longer permits it, or memory faulted.
    pub fn read_dma<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &mut [u8],
    ) -> Result<(), DmaRefused> {
        self.shared.mkeys.read_end(memory, end, bytes)
    }

    /// Writes the destination of a copy in this function's memory.
    ///
    /// # Errors
    /// Those of [`Self::read_dma`].
    pub fn write_dma<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &[u8],
    ) -> Result<(), DmaRefused> {
        self.shared.mkeys.write_end(memory, end, bytes)
    }

    /// Handles the end of a copy that this function requested.
    pub fn handle_dma_end<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        request: &DmaRequest,
        result: Result<(), DmaRefused>,
    ) {
        let known =
            self.with_queue_pair(now, memory, request.qpn, |qp, bus| qp.on_dma_end(bus, request.tag, result));
        if known.is_none() {
            self.shared.counters.dma_forgotten += 1;
        }
        self.settle(now, memory);
    }
}
