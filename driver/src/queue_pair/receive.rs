//! The receive queue: entries with a fixed number of segments, and a doorbell record without a register.

use super::PostError;
use crate::dma::{Rings, Run};
use crate::doorbell::{Publication, publish_record};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Poster, Singles, Words};
use crate::work_request::ReceiveRequest;
use crate::wqe::receive::{ReceivePath, store_segment};
use bareverbs_prm::wqe::SEGMENT;

/// The receive half of a queue pair. Its ring is the ring of segments.
pub(crate) struct ReceiveQueue {
    pub(crate) poster: Poster,
    /// log2 of the segments per entry.
    pub(crate) log_segments: u32,
    pub(crate) max_slices: u32,
    /// The path for requests that need no further checks.
    pub(crate) path: ReceivePath,
}

impl ReceiveQueue {
    /// Checks and writes one request. Nothing is written if it is refused.
    #[inline(always)]
    pub(crate) fn write<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl Words,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if request.list.path != self.path {
            return self.write_any(rings, words, request);
        }
        check_room_for_one(&mut self.poster, words)?;
        // The ring has as many segments as the ledger has slots, so that one masked number is that of both.
        let segments = rings.segments();
        let slots = self.poster.singles_up_to(words, segments.last());
        write_one_slice(&mut self.poster, segments, &slots, request);
        Ok(())
    }

    /// [`Self::write`] out of line, for where it is rarely needed.
    #[cold]
    #[inline(never)]
    pub(super) fn write_rarely<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl Words,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        self.write(rings, words, request)
    }

    /// [`Self::write`] for entries with several segments or none.
    #[cold]
    #[inline(never)]
    pub(super) fn write_any<M>(
        &mut self,
        rings: &Rings<M>,
        words: &impl Words,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        if self.poster.size() == 0 {
            return Err(PostError::NoReceiveQueue);
        }
        request.list.check(self.max_slices)?;
        if !self.poster.has_room(words, 1) {
            return Err(PostError::QueueFull { needed: 1, size: self.poster.size() });
        }
        let first = self.poster.head() << self.log_segments;
        request.list.write(rings.segments(), first, 1 << self.log_segments);
        self.poster.post_receive(&self.poster.singles(words), request.id);
        Ok(())
    }

    /// Makes everything written visible to the device.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(&self, hal: &H, rings: &Rings<H::Dma>, words: &impl Words) {
        self.poster.publish(words);
        publish_record(&ReceivePublication { hal, rings, queue: self });
    }
}

/// Checks that another receive can be posted.
#[inline(always)]
pub(super) fn check_room_for_one(poster: &mut Poster, words: &impl Words) -> Result<(), PostError> {
    match poster.has_room_for_one(words) {
        true => Ok(()),
        false => Err(PostError::QueueFull { needed: 1, size: poster.size() }),
    }
}

/// [`ReceiveQueue::write`] on the one-slice path, after [`check_room_for_one`].
#[inline(always)]
pub(super) fn write_one_slice(
    poster: &mut Poster,
    segments: Run<'_, SEGMENT>,
    slots: &impl Singles,
    request: &ReceiveRequest<'_>,
) {
    store_segment(segments, poster.head(), request.list.first);
    poster.post_receive(slots, request.id);
}

struct ReceivePublication<'a, H: Hal> {
    hal: &'a H,
    rings: &'a Rings<H::Dma>,
    queue: &'a ReceiveQueue,
}

impl<H: Hal> Publication for ReceivePublication<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        self.rings.record().store_be32::<0>(self.queue.poster.head() & 0xffff);
    }
    fn ring(&self) {}
}
