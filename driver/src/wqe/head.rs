//! The head of a send: the control segment and the segments before the data.

use super::segment::Segment;
use super::{BLOCK_SEGMENTS, BLOCK_WORDS, SEGMENT_WORDS};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{ControlSegment, completion_mode, fence_mode};

const OPMOD: BitRange = ControlSegment::FIELDS.opmod.in_word(0);
const WQE_INDEX: BitRange = ControlSegment::FIELDS.wqe_index.in_word(0);
const OPCODE: BitRange = ControlSegment::FIELDS.opcode.in_word(0);
const QPN: BitRange = ControlSegment::FIELDS.qpn.in_word(0);
const SEGMENTS: BitRange = ControlSegment::FIELDS.ds.in_word(0);
const FENCE_MODE: BitRange = ControlSegment::FIELDS.fence_mode.in_word(1);
const COMPLETION_MODE: BitRange = ControlSegment::FIELDS.completion_mode.in_word(1);
const SOLICITED: BitRange = ControlSegment::FIELDS.solicited.in_word(1);
const IMMEDIATE: BitRange = ControlSegment::FIELDS.immediate.in_word(1);

/// The first basic block of a send, as far as it is known when the request is built: everything but the
/// position in the ring and the queue pair, which are in the first word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// The first word as a number.
    control: u64,
    /// The following words, in memory order; zero where nothing was pushed.
    rest: [u64; BLOCK_WORDS - 1],
    segments: u32,
}

impl Head {
    /// A control segment alone, with a completion on success.
    #[inline(always)]
    pub(crate) const fn new(opcode: WqeOpcode) -> Self {
        let mut rest = [0; BLOCK_WORDS - 1];
        rest[0] = COMPLETION_MODE.put(completion_mode::ALWAYS as u64).to_be();
        Self { control: OPCODE.put(opcode.raw() as u64), rest, segments: 1 }
    }

    /// Adds a segment, if the block has room for it.
    #[inline(always)]
    pub(crate) const fn with(mut self, [a, b]: Segment) -> Self {
        if self.segments < BLOCK_SEGMENTS {
            let at = self.segments as usize * SEGMENT_WORDS - 1;
            (self.rest[at], self.rest[at + 1]) = (a, b);
            self.segments += 1;
        }
        self
    }

    /// Segments pushed so far.
    #[inline(always)]
    pub(crate) const fn segments(&self) -> u32 {
        self.segments
    }

    /// Sets the number of segments of the entry.
    #[inline(always)]
    pub(crate) const fn set_entry_segments(&mut self, segments: u32) {
        self.control = SEGMENTS.set(self.control, segments as u64);
    }

    /// The number of segments of the entry, if it was set.
    pub(crate) const fn entry_segments(&self) -> u32 {
        SEGMENTS.get(self.control) as u32
    }

    #[inline(always)]
    pub(crate) const fn set_opcode(&mut self, opcode: WqeOpcode) {
        self.control = OPCODE.set(self.control, opcode.raw() as u64);
    }

    #[inline(always)]
    pub(crate) const fn set_opmod(&mut self, opmod: u8) {
        self.control = OPMOD.set(self.control, opmod as u64);
    }

    #[inline(always)]
    pub(crate) const fn set_immediate(&mut self, immediate: u32) {
        self.set_flag(IMMEDIATE, immediate as u64);
    }

    #[inline(always)]
    pub(crate) const fn set_signalled(&mut self, signalled: bool) {
        let mode = if signalled { completion_mode::ALWAYS } else { completion_mode::ON_ERROR };
        self.set_flag(COMPLETION_MODE, mode as u64);
    }

    #[inline(always)]
    pub(crate) const fn set_solicited(&mut self) {
        self.set_flag(SOLICITED, 1);
    }

    #[inline(always)]
    pub(crate) const fn set_fence(&mut self, mode: u8) {
        self.set_flag(FENCE_MODE, mode as u64);
    }

    /// The same head after a memory-key update: the request waits for the update.
    pub(crate) const fn behind_key_update(mut self) -> Self {
        let mode = FENCE_MODE.get(u64::from_be(self.rest[0])) as u8;
        self.set_fence(match mode {
            fence_mode::NONE => fence_mode::INITIATOR_SMALL,
            fence_mode::FENCE => fence_mode::SMALL_AND_FENCE,
            stronger => stronger,
        });
        self
    }

    #[inline(always)]
    const fn set_flag(&mut self, field: BitRange, value: u64) {
        self.rest[0] = field.set(u64::from_be(self.rest[0]), value).to_be();
    }

    /// The first word as a number, for the entry at `counter` of the queue pair that `owner` names.
    #[inline(always)]
    pub(crate) const fn control(&self, counter: u32, owner: QueuePairBits) -> u64 {
        self.control | WQE_INDEX.put(counter as u64) | owner.0
    }

    /// The block in memory order, with this first word.
    #[inline(always)]
    pub(crate) const fn block(&self, control: u64) -> [u64; BLOCK_WORDS] {
        let [a, b, c, d, e, f, g] = self.rest;
        [control.to_be(), a, b, c, d, e, f, g]
    }

    /// The words of the block after the first one, in memory order.
    #[inline(always)]
    pub(crate) const fn rest(&self) -> &[u64; BLOCK_WORDS - 1] {
        &self.rest
    }
}

/// The queue pair number in the position that it has in a control segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePairBits(u64);

impl QueuePairBits {
    pub(crate) const fn new(qpn: Qpn) -> Self {
        Self(QPN.put(qpn.value() as u64))
    }
}
