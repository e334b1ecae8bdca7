//! The send queue: checks, ledger, encoding into the ring, doorbell.

use super::PostError;
use crate::dma::{BLOCK, Rings, Run};
use crate::doorbell::{Publication, SendDoorbell, publish};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Pairs, Poster, Words};
use crate::memory_slice::MemorySlice;
use crate::work_completion::WorkCompletionOpcode;
use crate::work_request::{ATOMIC, WorkRequest};
use crate::wqe::send::{EncodePath, SendEncoder, SendPlace};
use crate::wqe::{BLOCK_SEGMENTS, MAX_SLICE, segment};

/// The send half of a queue pair.
pub(crate) struct SendQueue {
    pub(crate) poster: Poster,
    /// First 8 bytes of the last entry, for the doorbell.
    pub(crate) last_control: u64,
    pub(crate) doorbell: SendDoorbell,
    pub(crate) mask: u32,
    /// Block of the doorbell record.
    pub(crate) record: u32,
    pub(crate) encoder: SendEncoder,
    pub(crate) max_inline: u32,
    pub(crate) max_slices: u32,
    pub(crate) max_message: u64,
    /// The encoder to restore. Set while the fast paths are closed because the next request follows a
    /// memory-key update.
    pub(crate) behind_key_update: Option<SendEncoder>,
    /// Whether requests name a shared receive queue of the peer.
    pub(crate) names_shared_queue: bool,
}

/// What posting writes to: the ring and the ledger.
pub(crate) struct SendMemory<'a, P, W> {
    pub(crate) ring: Run<'a, BLOCK>,
    /// The queue's own slots in the ledger.
    pub(crate) slots: P,
    pub(crate) words: &'a W,
}

/// The fast paths of a queue, for the request at `head`.
pub(crate) struct FastPaths<'a> {
    pub(crate) encoder: &'a SendEncoder,
    /// The ledger, which a batch tells its progress only when it ends.
    pub(crate) poster: &'a mut Poster,
    pub(crate) head: u32,
}

/// A request in the ring.
pub(crate) struct Written<'a> {
    /// The counter of the next request.
    pub(crate) next: u32,
    /// First 8 bytes of the entry.
    pub(crate) control: u64,
    /// The entry, if it may be written to the doorbell register.
    pub(crate) block: Option<&'a [u64; BLOCK / 8]>,
}

impl FastPaths<'_> {
    /// Writes and records a request that has a fast path, and passes it to `then`. If it is the `ONLY` one before the
    /// doorbell, it may be written to the doorbell register. Does nothing and returns false if there is no room or if
    /// the request needs closer checks.
    #[inline(always)]
    pub(crate) fn write<const ONLY: bool>(
        self,
        memory: &SendMemory<'_, impl Pairs, impl Words>,
        request: &WorkRequest<'_>,
        then: impl FnOnce(&mut Poster, Written<'_>),
    ) -> bool {
        let Self { encoder, poster, head } = self;
        let entry = &request.entry;
        if !encoder.admits(entry) {
            return false;
        }
        let slots = &memory.slots;
        let place = SendPlace { ring: memory.ring, counter: head };
        match entry.path() {
            EncodePath::ShortInline => {
                if !poster.has_room_at(memory.words, head) {
                    return false;
                }
                let next = head.wrapping_add(1);
                Poster::record(slots, head..next, request.id, request.posted);
                encoder.write_short_inline::<ONLY>(place, entry, |control, block| {
                    then(poster, Written { next, control, block: Some(block) });
                });
            }
            EncodePath::LongInline => {
                let next = head.wrapping_add(request.blocks);
                if !poster.has_room_up_to(memory.words, next) {
                    return false;
                }
                Poster::record(slots, head..next, request.id, request.posted);
                let control = encoder.write_long_inline(place, entry);
                then(poster, Written { next, control, block: None });
            }
            // The encoder never admits entries of the general path.
            EncodePath::Block | EncodePath::General => {
                if !poster.has_room_at(memory.words, head) {
                    return false;
                }
                let next = head.wrapping_add(1);
                Poster::record(slots, head..next, request.id, request.posted);
                encoder.write_block::<ONLY>(place, entry, |control, block| {
                    then(poster, Written { next, control, block: Some(block) });
                });
            }
        }
        true
    }
}

impl SendQueue {
    /// Checks and writes one request, and rings the doorbell. Nothing is written if it is refused.
    #[inline(always)]
    pub(crate) fn post<H: Hal, W: Words>(
        &mut self,
        hal: &H,
        rings: &Rings<H::Dma>,
        words: &W,
        request: &WorkRequest<'_>,
    ) -> Result<(), PostError> {
        // The ring has as many blocks as the ledger has slots, so that one masked number is that of both.
        let ring = rings.blocks();
        let slots = self.poster.pairs_up_to(words, ring.last());
        let memory = SendMemory { ring, slots, words };
        let Self { poster, encoder, doorbell, .. } = self;
        let head = poster.head();
        let ring = |poster: &mut Poster, Written { next, control, block }: Written<'_>| {
            poster.advance(next);
            Bell { hal, rings, poster, control, doorbell }.ring(words, block)
        };
        if !(FastPaths { encoder, poster, head }.write::<true>(&memory, request, ring)) {
            // Copy it, so that a request that is built and posted at once never has to be stored in memory.
            let request = request.on_general_path();
            self.write(rings.blocks(), words, &request, &[])?;
            self.ring(hal, rings, words);
        }
        Ok(())
    }

    /// Checks and writes any request segment by segment. `address` holds what the service adds after the
    /// control segment, in memory order.
    #[cold]
    #[inline(never)]
    pub(crate) fn write(
        &mut self,
        ring: Run<'_, BLOCK>,
        words: &impl Words,
        request: &WorkRequest<'_>,
        address: &[u64],
    ) -> Result<(), PostError> {
        self.check_shared_queue(request)?;
        self.check_data(request)?;
        let named = request.shared_queue.map(segment::shared_queue);
        let address = named.as_ref().map_or(address, |segment| segment);
        let blocks = (request.entry.segments() + address.len() as u32 / 2).div_ceil(BLOCK_SEGMENTS);
        if !self.poster.has_room(words, blocks) {
            return Err(PostError::QueueFull { needed: blocks, size: self.mask + 1 });
        }
        let mut entry = request.entry;
        if self.open_fast_paths() {
            entry.head = entry.head.behind_key_update();
        }
        let place = SendPlace { ring, counter: self.poster.head() };
        self.last_control = self.encoder.write_segments(place, &entry, address);
        if !entry.data.segments().is_empty() {
            self.close_fast_paths();
        }
        self.poster.post(words, request.id, blocks, request.kind as u8);
        Ok(())
    }

    /// Makes the next request take [`Self::write`], which knows that it follows a memory-key update, so that
    /// the fast paths need not check for this.
    fn close_fast_paths(&mut self) {
        self.behind_key_update = Some(self.encoder);
        self.encoder = self.encoder.without_fast_paths();
    }

    /// Opens the fast paths again and returns whether they were closed.
    pub(crate) fn open_fast_paths(&mut self) -> bool {
        let closed = self.behind_key_update.take();
        self.encoder = closed.unwrap_or(self.encoder);
        closed.is_some()
    }

    /// Checks that the request names a shared receive queue if and only if the service requires one.
    fn check_shared_queue(&self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let is_local = request.kind == WorkCompletionOpcode::Nop || !request.entry.data.segments().is_empty();
        match request.shared_queue.is_some() {
            named if named == (self.names_shared_queue && !is_local) => Ok(()),
            named => Err(PostError::SharedReceiveQueue { named }),
        }
    }

    fn check_data(&self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let (slices, length) = (request.entry.data.slices(), request.entry.data.inline().bytes().len());
        if length > self.max_inline as usize {
            return Err(PostError::InlineTooLong { length, limit: self.max_inline });
        }
        if request.kind.is_atomic() {
            return check_atomic(slices);
        }
        if slices.len() > self.max_slices as usize {
            return Err(PostError::TooManySlices { count: slices.len(), limit: self.max_slices });
        }
        check_slices(slices, self.max_message)
    }

    /// Makes everything written visible to the device.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(&mut self, hal: &H, rings: &Rings<H::Dma>, words: &impl Words) {
        let Self { poster, last_control, doorbell, .. } = self;
        Bell { hal, rings, poster, control: *last_control, doorbell }.ring(words, None);
    }
}

fn check_slices(slices: &[MemorySlice], limit: u64) -> Result<(), PostError> {
    let mut length = 0;
    for (index, slice) in slices.iter().enumerate() {
        if slice.length.wrapping_sub(1) >= MAX_SLICE {
            return Err(PostError::SliceLength { index, length: slice.length });
        }
        length += slice.length as u64;
    }
    if length > limit { Err(PostError::MessageTooLong { length, limit }) } else { Ok(()) }
}

fn check_atomic(slices: &[MemorySlice]) -> Result<(), PostError> {
    match slices {
        [MemorySlice { length: ATOMIC, .. }] => Ok(()),
        _ => Err(PostError::SliceLength { index: 0, length: slices.first().map_or(0, |slice| slice.length) }),
    }
}

/// What ringing the doorbell of a send queue needs.
struct Bell<'a, H: Hal> {
    hal: &'a H,
    rings: &'a Rings<H::Dma>,
    poster: &'a Poster,
    /// First 8 bytes of the last entry.
    control: u64,
    doorbell: &'a mut SendDoorbell,
}

impl<H: Hal> Bell<'_, H> {
    /// Makes everything written visible to the device. `block` holds the only request, if there is just one.
    #[inline(always)]
    fn ring(self, words: &impl Words, block: Option<&[u64; BLOCK / 8]>) {
        self.poster.publish(words);
        let burst = if self.doorbell.is_blue_flame() { block } else { None };
        publish(&SendPublication { bell: &self, burst });
        if burst.is_some() {
            self.doorbell.alternate();
        }
    }
}

struct SendPublication<'a, 'b, H: Hal> {
    bell: &'a Bell<'b, H>,
    burst: Option<&'a [u64; BLOCK / 8]>,
}

impl<H: Hal> Publication for SendPublication<'_, '_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.bell.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        self.bell.rings.record().store_be32::<4>(self.bell.poster.head() & 0xffff);
    }
    #[inline(always)]
    fn ring(&self) {
        match self.burst {
            Some(block) => self.bell.doorbell.burst(self.bell.hal, block),
            None => self.bell.doorbell.ring(self.bell.hal, self.bell.control),
        }
    }
}
