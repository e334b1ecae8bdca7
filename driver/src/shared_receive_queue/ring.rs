//! The ring of a shared receive queue. Each entry begins with the number of the next one.

use crate::dma::{Rings, Run};
use crate::doorbell::Publication;
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::{Entries, LinkedEntry, SharedPoster, SharedWords};
use crate::post_error::PostError;
use crate::work_request::ReceiveRequest;
use crate::wqe::receive::{ReceivePath, store_next_entry, store_shared_slice};
use bareverbs_prm::wqe::SEGMENT;

/// The entries in memory, and who owns which of them.
pub(super) struct SharedRing<M> {
    pub(super) rings: Rings<M>,
    pub(super) poster: SharedPoster,
    /// log2 of the segments per entry: one names the next entry, the others hold the slices.
    pub(super) log_segments: u32,
    pub(super) max_slices: u32,
    /// The path for requests that need no further checks.
    pub(super) path: ReceivePath,
}

impl<M> SharedRing<M> {
    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if request.list.path != self.path {
            return self.write_any(words, request);
        }
        let place = self.take(words, request.id)?;
        write_slice(self.rings.segment_pairs(), place, request);
        Ok(())
    }

    /// [`Self::write`] for entries with several slices or none.
    #[cold]
    #[inline(never)]
    pub(super) fn write_any(
        &mut self,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        request.list.check(self.max_slices)?;
        let place = self.take(words, request.id)?;
        let segments = self.rings.segments();
        let first = place.entry << self.log_segments;
        store_next_entry(segments, first, place.next);
        request.list.write(segments, first + 1, (1 << self.log_segments) - 1);
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, words: &impl SharedWords, id: u64) -> Result<LinkedEntry, PostError> {
        match self.poster.entries(words) {
            Some(entries) if self.poster.has_room(words) => Ok(self.poster.post(&entries, id)),
            _ => Err(PostError::QueueFull { needed: 1, size: self.poster.capacity() }),
        }
    }
}

/// [`SharedRing::write`] on the one-slice path, for a batch. `entries` are the slots of the ledger, checked
/// once.
#[inline(always)]
pub(super) fn write_one_slice(
    poster: &mut SharedPoster,
    pairs: Run<'_, { 2 * SEGMENT }>,
    entries: &impl Entries,
    words: &impl SharedWords,
    request: &ReceiveRequest<'_>,
) -> Result<(), PostError> {
    if !poster.has_room(words) {
        return Err(PostError::QueueFull { needed: 1, size: poster.capacity() });
    }
    write_slice(pairs, poster.post(entries, request.id), request);
    Ok(())
}

/// Writes an entry of one slice.
#[inline(always)]
fn write_slice(pairs: Run<'_, { 2 * SEGMENT }>, place: LinkedEntry, request: &ReceiveRequest<'_>) {
    store_shared_slice(pairs.slot(place.entry), place.next, request.list.first);
}

/// What notifying the device needs.
pub(super) struct SharedPublication<'a, H: Hal> {
    pub(super) hal: &'a H,
    pub(super) ring: &'a SharedRing<H::Dma>,
}

impl<H: Hal> Publication for SharedPublication<'_, H> {
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
