//! The ring of a shared receive queue: entries that begin with the number of the one behind them.

use crate::dma::{Rings, Run};
use crate::doorbell::Publication;
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::{Place, SharedPoster, SharedWords};
use crate::queue_pair::PostError;
use crate::queue_pair::receive::{check_slices, store};
use crate::work_request::{ReceiveForm, ReceiveRequest, slice_words};
use bareverbs_prm::wqe::INVALID_LKEY;

/// Entries in memory and who has which of them.
pub(super) struct SharedRing<M> {
    pub(super) rings: Rings<M>,
    pub(super) poster: SharedPoster,
    /// Logarithm of the segments of an entry: one that names the next entry, and the slices.
    pub(super) log_segments: u32,
    pub(super) max_slices: u32,
    /// What goes the short way.
    pub(super) form: ReceiveForm,
}

impl<M> SharedRing<M> {
    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if request.form != self.form {
            return self.write_any(words, request);
        }
        let place = self.take(words, request.id)?;
        let segments = self.rings.segments();
        let first = place.entry << 1;
        name_next(segments, first, place);
        store(segments, first + 1, request.first);
        Ok(())
    }

    /// [`Self::write`] for entries of several slices, or of none.
    #[cold]
    #[inline(never)]
    fn write_any(&mut self, words: &impl SharedWords, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        check_slices(request.slices, self.max_slices)?;
        let place = self.take(words, request.id)?;
        let segments = self.rings.segments();
        let first = place.entry << self.log_segments;
        name_next(segments, first, place);
        for (at, slice) in (first + 1..).zip(request.slices) {
            store(segments, at, slice_words(slice).map(u64::to_be));
        }
        let used = 1 + request.slices.len() as u32;
        if used < 1 << self.log_segments {
            store(segments, first + used, [INVALID_LKEY.value() as u64, 0].map(u64::to_be));
        }
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, words: &impl SharedWords, id: u64) -> Result<Place, PostError> {
        if !self.poster.has_room(words) {
            return Err(PostError::QueueFull { needed: 1, size: self.poster.capacity() });
        }
        Ok(self.poster.post(words, id))
    }
}

/// Writes the half of the first segment that is not always zero.
#[inline(always)]
fn name_next(segments: Run<'_, 16>, first: u32, place: Place) {
    segments.slot(first).store_be64::<0>((place.next as u64) << 32);
}

/// Telling the device.
pub(super) struct Work<'a, H: Hal> {
    pub(super) hal: &'a H,
    pub(super) ring: &'a SharedRing<H::Dma>,
}

impl<H: Hal> Publication for Work<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        self.ring.rings.record().store_be32::<0>(self.ring.poster.posted().into());
    }
    fn ring(&self) {}
}
