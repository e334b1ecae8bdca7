//! A device as a function of its card: what it tells the others, what it is told, and what it does for the card's DMA engine.
//!
//! Whoever drives the functions of a card carries [`Nic::poll_card_notice`] of each to [`Nic::handle_card_notice`] of the others at once,
//! and carries out each [`Nic::poll_dma`]: it reads at the owner of the source, writes at the owner of the destination, and tells the
//! function that asked how it ended.

use super::Nic;
use crate::nic::HostMemory;
use crate::nic::card::{CardNotice, DmaRequest};
use crate::nic::mkey::{DmaEnd, DmaRefused};
use bareverbs_prm::ids::VhcaId;
use bareverbs_prm::time::Time;

impl Nic {
    /// Its number among the functions of its card.
    pub fn vhca_id(&self) -> Option<VhcaId> {
        self.attached.card.as_ref().map(|card| card.function.vhca_id)
    }

    /// Whether [`Self::poll_card_notice`] or [`Self::poll_dma`] has something.
    #[inline]
    pub fn has_card_output(&self) -> bool {
        self.attached.card.as_ref().is_some_and(|card| card.has_output())
    }

    /// The next thing that the other functions have to hear.
    pub fn poll_card_notice(&mut self) -> Option<CardNotice> {
        self.attached.card.as_mut()?.poll_notice()
    }

    /// Another function of the card shares a key, or does not any more.
    pub fn handle_card_notice(&mut self, notice: &CardNotice) {
        if let Some(card) = &mut self.attached.card {
            card.handle_notice(notice);
        }
    }

    /// The next copy to carry out. It may take as long as it takes, and copies may end in any order.
    pub fn poll_dma(&mut self) -> Option<DmaRequest> {
        self.attached.card.as_mut()?.poll_request()
    }

    /// Reads an end of a copy that lies in the memory of this function.
    ///
    /// # Errors
    /// The key does not give it any more, or memory could not be reached.
    pub fn read_dma<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &mut [u8],
    ) -> Result<(), DmaRefused> {
        self.mkeys.read_end(memory, end, bytes)
    }

    /// Writes an end of a copy that lies in the memory of this function.
    ///
    /// # Errors
    /// As [`Self::read_dma`].
    pub fn write_dma<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &[u8],
    ) -> Result<(), DmaRefused> {
        self.mkeys.write_end(memory, end, bytes)
    }

    /// A copy that this function asked for has ended.
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
            self.counters.dma_forgotten += 1;
        }
        self.settle(now, memory);
    }
}
