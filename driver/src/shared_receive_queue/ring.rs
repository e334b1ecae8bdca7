//! The ring of a shared receive queue. Each entry begins with the number of the next one.

use crate::dma::{Rings, Run, Twin, Twins};
use crate::doorbell::Publication;
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::{Entries, Front, LinkedEntry, SharedPoster, SharedWords};
use crate::post_error::PostError;
use crate::work_request::ReceiveRequest;
use crate::wqe::receive::{ReceivePath, store_next_entry, store_shared_slice};
use bareverbs_prm::wqe::SEGMENT;

/// The entries in memory, and who owns which of them.
pub(super) struct SharedRing<M> {
    pub(super) rings: Rings<M>,
    pub(super) queue: SharedQueue,
}

/// Who owns which entries, and how they are written.
pub(super) struct SharedQueue {
    pub(super) poster: SharedPoster,
    /// log2 of the segments per entry: one names the next entry, the others hold the slices.
    pub(super) log_segments: u32,
    pub(super) max_slices: u32,
    /// The path for requests that need no further checks.
    pub(super) path: ReceivePath,
}

/// The slots of the ledger, and the entries of the ring that have one slice, of which there are as many.
pub(super) type SharedSlots<'a> = Twins<'a, 16, { 2 * SEGMENT }>;
/// The slot and the entry of one number.
pub(super) type SharedSlot<'a> = Twin<'a, 16, { 2 * SEGMENT }>;

impl SharedQueue {
    /// What a batch takes next. A queue whose entries have room for another number of slices than one has nothing for it.
    #[inline(always)]
    pub(super) fn front<'a>(&self, slots: &SharedSlots<'a>) -> Front<SharedSlot<'a>> {
        if self.path != ReceivePath::OneSlice {
            return Front::exhausted(slots.slot(0));
        }
        debug_assert!(slots.last() == self.poster.slots().mask, "as many entries as slots");
        self.poster.front(|entry| slots.slot(entry))
    }

    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(super) fn write<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if request.list.path != self.path {
            return self.write_any(rings, words, request);
        }
        // The ring has as many pairs as the ledger has slots, so that one masked number is that of both.
        let pairs = rings.segment_pairs();
        match self.poster.entries_up_to(words, pairs.last()) {
            Some(entries) => write_one_slice(&mut self.poster, pairs, &entries, words, request),
            None => Err(full(&self.poster)),
        }
    }

    /// [`Self::write`], out of line.
    #[cold]
    #[inline(never)]
    pub(super) fn write_rarely<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        self.write(rings, words, request)
    }

    /// [`Self::write`] for entries with several slices or none.
    #[cold]
    #[inline(never)]
    pub(super) fn write_any<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl SharedWords,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        request.list.check(self.max_slices)?;
        let place = match self.poster.entries(words) {
            Some(entries) if self.poster.has_room(words) => self.poster.post(&entries, request.id),
            _ => return Err(full(&self.poster)),
        };
        let segments = rings.segments();
        let first = place.entry << self.log_segments;
        store_next_entry(segments, first, place.next);
        request.list.write(segments, first + 1, (1 << self.log_segments) - 1);
        Ok(())
    }
}

/// [`SharedQueue::write`] on the one-slice path. `entries` are the slots of the ledger, checked once.
#[inline(always)]
pub(super) fn write_one_slice(
    poster: &mut SharedPoster,
    pairs: Run<'_, { 2 * SEGMENT }>,
    entries: &impl Entries,
    words: &impl SharedWords,
    request: &ReceiveRequest<'_>,
) -> Result<(), PostError> {
    if !poster.has_room(words) {
        return Err(full(poster));
    }
    let LinkedEntry { entry, next } = poster.post(entries, request.id);
    store_shared_slice(pairs.slot(entry), next, request.list.first);
    Ok(())
}

fn full(poster: &SharedPoster) -> PostError {
    PostError::QueueFull { needed: 1, size: poster.capacity() }
}

/// What notifying the device needs.
pub(super) struct SharedPublication<'a, H: Hal> {
    pub(super) hal: &'a H,
    pub(super) rings: &'a Rings<H::Dma>,
    pub(super) poster: &'a SharedPoster,
}

impl<H: Hal> Publication for SharedPublication<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        self.rings.record().store_be32::<0>(self.poster.posted().into());
    }
    fn ring(&self) {}
}
