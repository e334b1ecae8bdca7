//! The send queue: checks, encoding into the ring, doorbell.

use super::{PostError, inline};
use crate::dma::{BLOCK, Rings, Run};
use crate::doorbell::{Publication, SendDoorbell, publish};
use crate::hal::{Barrier, Hal};
use crate::ledger::{Pairs, Poster, Words};
use crate::memory_region::MemorySlice;
use crate::work_completion::WorkCompletionOpcode;
use crate::work_request::{
    ATOMIC, BLOCK_SEGMENTS, Form, MAX_SEGMENTS, MAX_SLICE, Shape, WorkRequest, inline_segments, inline_words,
    short_inline, slice_words,
};

use bareverbs_prm::wqe::SEGMENT;

/// Words of a segment.
const SEGMENT_WORDS: usize = 2;
/// Words of a basic block.
const WORDS: usize = BLOCK / 8;

/// The send half of a queue pair.
pub(crate) struct SendQueue {
    pub(crate) progress: Progress,
    pub(crate) doorbell: SendDoorbell,
    pub(crate) mask: u32,
    /// Block of the doorbell record.
    pub(crate) record: u32,
    pub(crate) limits: Limits,
    pub(crate) max_inline: u32,
    pub(crate) max_slices: u32,
    pub(crate) max_message: u64,
    /// The limits of the short way while it is closed, because the next request follows a change of a memory key.
    pub(crate) closed: Option<Limits>,
    /// Requests name a shared receive queue of the peer.
    pub(crate) names_shared_queue: bool,
}

/// What the short way must know.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Queue pair number where the control segment has it.
    pub(crate) qpn_shifted: u32,
    /// Longest single slice; zero if the queue takes no slice.
    pub(crate) max_slice: u32,
    /// Longest inline data; zero while the short way is closed.
    pub(crate) max_inline: u32,
}

/// How far a send queue is.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) poster: Poster,
    /// First 8 bytes of the last entry, for the doorbell.
    pub(crate) last_control: u64,
}

impl Progress {
    /// Takes over how far `other`, a copy of this one, went.
    #[inline(always)]
    pub(crate) fn follow(&mut self, other: &Self) {
        self.poster.follow(&other.poster);
        self.last_control = other.last_control;
    }
}

/// What came of the short way.
pub(crate) enum Short {
    /// The request was written; this is its block.
    Written([u64; 8]),
    /// The request was written as several blocks.
    Blocks,
    /// There is no room.
    Full,
    /// There is none for this request.
    Other,
}

impl SendQueue {
    /// Checks and writes one request into `blocks` and `slots`, the queue's own, then calls `then` with its block if it is
    /// only one. Nothing is written if it is refused.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        at: (Run<'_, BLOCK>, &impl Pairs),
        words: &impl Words,
        request: &WorkRequest<'_>,
        then: impl FnOnce(&mut Self, Option<&[u64; 8]>),
    ) -> Result<(), PostError> {
        let short = match self.limits.write_short(&mut self.progress, at, words, request) {
            Short::Other => self.limits.write_long(&mut self.progress, at, words, request),
            short => short,
        };
        match short {
            Short::Written(block) => then(self, Some(&block)),
            Short::Blocks => then(self, None),
            Short::Full => return Err(self.full(request)),
            Short::Other => {
                self.write_any(at.0, words, request, &[])?;
                then(self, None);
            }
        }
        Ok(())
    }

    /// There is no room for a request that has a form.
    #[cold]
    pub(crate) const fn full(&self, request: &WorkRequest<'_>) -> PostError {
        PostError::QueueFull { needed: request.posted().slots(), size: self.mask + 1 }
    }

    /// [`Self::write`] for every other request. `address` is what the service has behind the control segment, in memory
    /// order.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_any(
        &mut self,
        ring: Run<'_, BLOCK>,
        words: &impl Words,
        request: &WorkRequest<'_>,
        address: &[u64],
    ) -> Result<(), PostError> {
        let segments = 1
            + (address.len() / SEGMENT_WORDS) as u32
            + self.queue_segment(request)?
            + request.shape.segments()
            + self.data_segments(request)?;
        let blocks = segments.div_ceil(BLOCK_SEGMENTS);
        if !self.progress.poster.has_room(words, blocks) {
            return Err(PostError::QueueFull { needed: blocks, size: self.mask + 1 });
        }
        // A form of its own has its segments counted already.
        let control = request.control(self.progress.poster.head(), self.limits.qpn_shifted)
            & !(MAX_SEGMENTS as u64)
            | segments as u64;
        let behind_update = self.open_short_way();
        let flags = if behind_update { request.flags_behind_update() } else { request.flags() };
        self.write_blocks(ring, [control.to_be(), flags], address, request);
        if request.shape == Shape::Update {
            self.close_short_way();
        }
        self.progress.last_control = control;
        self.progress.poster.post(words, request.id, blocks, request.kind as u8);
        Ok(())
    }

    /// The next request comes by [`Self::write_any`], which knows that it follows a change of a memory key: so the short
    /// way need not ask.
    fn close_short_way(&mut self) {
        self.closed = Some(self.limits);
        (self.limits.max_slice, self.limits.max_inline) = (0, 0);
    }

    /// Whether it was closed.
    pub(crate) fn open_short_way(&mut self) -> bool {
        let open = self.closed.take();
        self.limits = open.unwrap_or(self.limits);
        open.is_some()
    }

    /// The segment that names a shared receive queue: one or none.
    fn queue_segment(&self, request: &WorkRequest<'_>) -> Result<u32, PostError> {
        let stays = request.kind == WorkCompletionOpcode::Nop || request.shape == Shape::Update;
        let needed = self.names_shared_queue && !stays;
        match request.shared_queue.is_some() {
            named if named == needed => Ok(named as u32),
            named => Err(PostError::SharedReceiveQueue { named }),
        }
    }

    /// Segments of the data, after checking them.
    fn data_segments(&self, request: &WorkRequest<'_>) -> Result<u32, PostError> {
        if request.shape.is_raw() {
            return self.raw_segments(request);
        }
        if request.bytes.len() > self.max_inline as usize {
            return Err(PostError::InlineTooLong { length: request.bytes.len(), limit: self.max_inline });
        }
        if request.slices.len() > self.max_slices as usize {
            return Err(PostError::TooManySlices { count: request.slices.len(), limit: self.max_slices });
        }
        check_slices(request.slices, self.max_message)?;
        if request.shape.is_atomic() {
            check_atomic(request.slices)?;
        }
        let inline = if request.bytes.is_empty() { 0 } else { inline_segments(request.bytes.len() as u32) };
        Ok(inline + request.slices.len() as u32)
    }

    /// Segments of a request that brings some of them as they are.
    fn raw_segments(&self, request: &WorkRequest<'_>) -> Result<u32, PostError> {
        if request.shape.is_atomic() {
            check_atomic(request.slices)?;
        }
        let segments = (request.bytes.len() / SEGMENT + request.slices.len()) as u32;
        match (1 + request.shape.segments() + segments).div_ceil(BLOCK_SEGMENTS) {
            needed if needed > self.mask + 1 => Err(PostError::QueueFull { needed, size: self.mask + 1 }),
            _ => Ok(segments),
        }
    }

    /// Writes an entry of several blocks word by word; it may wrap around the end of the ring.
    #[inline(never)]
    fn write_blocks(
        &self,
        ring: Run<'_, BLOCK>,
        start: [u64; 2],
        address: &[u64],
        request: &WorkRequest<'_>,
    ) {
        let (mut block, mut at) = (self.progress.poster.head(), 0);
        let mut put = |word: u64| {
            ring.slot(block).store_word_at(at, word);
            at = (at + 1) % WORDS;
            block = block.wrapping_add((at == 0) as u32);
        };
        start.into_iter().chain(address.iter().copied()).for_each(&mut put);
        if let Some(queue) = request.shared_queue {
            [((queue.value() as u64) << 32).to_be(), 0].into_iter().for_each(&mut put);
        }
        if request.shape.is_remote() {
            request.remote().into_iter().for_each(&mut put);
        }
        if request.shape == Shape::Atomic {
            request.atomic.into_iter().for_each(&mut put);
        }
        if request.shape.is_raw() {
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
            request.bytes.chunks_exact(8).for_each(|bytes| put(word(bytes)));
        } else if !request.bytes.is_empty() {
            inline_words(request.bytes, &mut put);
        }
        request.slices.iter().flat_map(slice_words).for_each(|word| put(word.to_be()));
    }

    /// Lets the device see everything written. `block` is that of the only request, if it has only one.
    #[inline(always)]
    pub(crate) fn ring<H: Hal>(
        &mut self,
        (hal, rings): (&H, &Rings<H::Dma>),
        words: &impl Words,
        block: Option<&[u64; 8]>,
    ) {
        self.progress.poster.publish(words);
        let burst = if self.doorbell.is_blue_flame() { block } else { None };
        publish(&Work { hal, rings, queue: self, burst });
        if burst.is_some() {
            self.doorbell.alternate();
        }
    }
}

impl Limits {
    /// Checks and writes a request that has a short way, and goes on in `progress`, which is that of the queue or ahead
    /// of it.
    #[inline(always)]
    pub(crate) fn write_short(
        &self,
        progress: &mut Progress,
        (blocks, slots): (Run<'_, BLOCK>, &impl Pairs),
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Short {
        let head = progress.poster.head();
        let block = blocks.slot(head);
        let one = |progress| self.begin_block(progress, slots, words, request);
        match request.form {
            Form::RemoteSlice if self.allows(request.length) => {
                let Some([control, flags]) = one(progress) else { return Short::Full };
                let ([a, b], [c, d]) = (request.remote(), request.first);
                block.store_first::<6>(&[control, flags, a, b, c, d, 0, 0]);
                Short::Written([control, flags, a, b, c, d, 0, 0])
            }
            Form::RemoteShort if self.takes(request.bytes) => {
                let Some([control, flags]) = one(progress) else { return Short::Full };
                let ([a, b], [c, d, e]) = (request.remote(), short_inline(request.bytes));
                block.store_first::<7>(&[control, flags, a, b, c, d, e, 0]);
                Short::Written([control, flags, a, b, c, d, e, 0])
            }
            Form::Slice if self.allows(request.length) => {
                let Some([control, flags]) = one(progress) else { return Short::Full };
                let [a, b] = request.first;
                block.store_first::<4>(&[control, flags, a, b, 0, 0, 0, 0]);
                Short::Written([control, flags, a, b, 0, 0, 0, 0])
            }
            Form::Short if self.takes(request.bytes) => {
                let Some([control, flags]) = one(progress) else { return Short::Full };
                let [a, b, c] = short_inline(request.bytes);
                block.store_first::<5>(&[control, flags, a, b, c, 0, 0, 0]);
                Short::Written([control, flags, a, b, c, 0, 0, 0])
            }
            Form::Atomic if self.allows(ATOMIC) => {
                let Some([control, flags]) = one(progress) else { return Short::Full };
                let ([a, b], [c, d], [e, f]) = (request.remote(), request.atomic, request.first);
                block.store_first::<8>(&[control, flags, a, b, c, d, e, f]);
                Short::Written([control, flags, a, b, c, d, e, f])
            }
            _ => Short::Other,
        }
    }

    /// [`Self::write_short`] of more bytes than a few.
    #[inline(always)]
    pub(crate) fn write_long(
        &self,
        progress: &mut Progress,
        (blocks, slots): (Run<'_, BLOCK>, &impl Pairs),
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Short {
        let remote = match request.form {
            Form::Long => false,
            Form::RemoteLong => true,
            _ => return Short::Other,
        };
        if !self.takes(request.bytes) {
            return Short::Other;
        }
        let head = progress.poster.head();
        let block = blocks.slot(head);
        let Some([control, flags]) = self.begin_blocks(progress, slots, words, request) else {
            return Short::Full;
        };
        if remote {
            let [a, b] = request.remote();
            block.store_first::<4>(&[control, flags, a, b, 0, 0, 0, 0]);
            inline::write::<4, 28>(blocks, head, request.bytes);
        } else {
            block.store_first::<2>(&[control, flags, 0, 0, 0, 0, 0, 0]);
            inline::write::<2, 44>(blocks, head, request.bytes);
        }
        Short::Blocks
    }

    /// Whether the queue takes a single slice of this length.
    #[inline(always)]
    fn allows(&self, length: u32) -> bool {
        length.wrapping_sub(1) < self.max_slice
    }

    /// Whether the queue takes these bytes inline.
    #[inline(always)]
    fn takes(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.max_inline as usize
    }

    /// Remembers a request of one block if there is room, and gives its control segment in memory order.
    #[inline(always)]
    fn begin_block(
        &self,
        progress: &mut Progress,
        slots: &impl Pairs,
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Option<[u64; 2]> {
        if !progress.poster.has_room_for_one(words) {
            return None;
        }
        let segment = self.control(progress, request);
        progress.poster.post_one(slots, request.id, request.posted());
        Some(segment)
    }

    /// The same of a request of as many blocks as it says.
    #[inline(always)]
    fn begin_blocks(
        &self,
        progress: &mut Progress,
        slots: &impl Pairs,
        words: &impl Words,
        request: &WorkRequest<'_>,
    ) -> Option<[u64; 2]> {
        let posted = request.posted();
        if !progress.poster.has_room(words, posted.slots()) {
            return None;
        }
        let segment = self.control(progress, request);
        progress.poster.post_some(slots, request.id, posted);
        Some(segment)
    }

    #[inline(always)]
    fn control(&self, progress: &mut Progress, request: &WorkRequest<'_>) -> [u64; 2] {
        let control = request.control(progress.poster.head(), self.qpn_shifted);
        progress.last_control = control;
        [control.to_be(), request.flags()]
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
        [MemorySlice { length: 8, .. }] => Ok(()),
        _ => Err(PostError::SliceLength { index: 0, length: slices.first().map_or(0, |slice| slice.length) }),
    }
}

struct Work<'a, H: Hal> {
    hal: &'a H,
    rings: &'a Rings<H::Dma>,
    queue: &'a SendQueue,
    burst: Option<&'a [u64; 8]>,
}

impl<H: Hal> Publication for Work<'_, H> {
    #[inline(always)]
    fn to_device(&self) {
        self.hal.barrier(Barrier::ToDevice);
    }
    #[inline(always)]
    fn store_record(&self) {
        self.rings.record().store_be32::<4>(self.queue.progress.poster.head() & 0xffff);
    }
    #[inline(always)]
    fn ring(&self) {
        match self.burst {
            Some(block) => self.queue.doorbell.burst(self.hal, block),
            None => self.queue.doorbell.ring(self.hal, self.queue.progress.last_control),
        }
    }
}
