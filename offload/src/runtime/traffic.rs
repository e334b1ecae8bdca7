//! What a runtime asks of its owner: reads and replies, and the tag that comes back with them.

use super::connection::ConnectionId;
use crate::budget::MAX_READ;
use crate::grant::HostRegion;
use crate::kernel::MAX_PARTS;
use crate::wire::{TRAILER_SIZE, Trailer};

/// Bytes of a staging buffer: the most that may be read at once, in so many parts, each with room for a trailer behind it.
pub const STAGING: u32 = (MAX_READ + MAX_PARTS as u32 * (TRAILER_SIZE as u32 + 64)).next_multiple_of(64);

/// Names an invocation, and one of its reads or writes: the number of its slot, which is also that of its staging buffer; a generation, so that
/// what comes late for an invocation that ended is not taken for its successor's; and the number of the read or write.
///
/// ```
/// use bareverbs_offload::runtime::Tag;
///
/// let tag = Tag::from_bits(0x0705);
/// assert_eq!((tag.buffer(), tag.to_bits()), (5, 0x0705));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    buffer: u8,
    generation: u32,
    transfer: u8,
}

impl Tag {
    /// The tag of the slot with this number.
    pub(super) const fn new(index: usize, generation: u32) -> Self {
        Self { buffer: index as u8, generation, transfer: 0 }
    }
    pub(super) const fn of_transfer(self, index: usize) -> Self {
        Self { transfer: index as u8, ..self }
    }
    pub(super) const fn transfer(self) -> usize {
        self.transfer as usize
    }
    pub(super) const fn generation(self) -> u32 {
        self.generation
    }
    /// The number of the staging buffer.
    pub const fn buffer(self) -> usize {
        self.buffer as usize
    }
    /// The tag as a number, for a work request id.
    pub const fn to_bits(self) -> u64 {
        (self.transfer as u64) << 40 | (self.generation as u64) << 8 | self.buffer as u64
    }
    /// The tag from its number; bits above the tag are ignored.
    pub const fn from_bits(bits: u64) -> Self {
        Self { buffer: bits as u8, generation: (bits >> 8) as u32, transfer: (bits >> 40) as u8 }
    }
}

/// What is to be done with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaAction {
    /// Read it into the staging buffer.
    Read,
    /// Write it out of the staging buffer, into which [`Runtime::to_be_written`](super::Runtime::to_be_written) is put before.
    Write {
        /// The first byte of what the kernel computed.
        from: u32,
    },
    /// Read its big-endian word, and put `desired` in its place if it is `expected`, in one act.
    CompareAndSwap {
        /// What it has to be.
        expected: u64,
        /// What it becomes.
        desired: u64,
    },
}

/// A range to be read or written, by way of the staging buffer with the number [`Tag::buffer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaRequest {
    /// To be returned with the bytes.
    pub tag: Tag,
    /// What is to be done.
    pub action: DmaAction,
    /// First byte of the staging buffer that it has for itself.
    pub offset: u32,
    /// The region of the door.
    pub region: HostRegion,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// Where the bytes of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// They were read: they lie in the staging buffer.
    Fetched,
    /// The kernel computed them: [`Runtime::computed`](super::Runtime::computed) has them.
    Computed,
}

/// The bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    /// The number of the staging buffer. Nothing is being read into the part from `place` on that body and trailer need.
    pub buffer: usize,
    /// Whether the bytes are in the staging buffer.
    pub source: Source,
    /// First byte, in the staging buffer or of what was computed.
    pub offset: u32,
    /// First byte in the staging buffer: where fetched bytes are, and computed ones may be put.
    pub place: u32,
    /// Bytes.
    pub length: u32,
}

/// A reply: one WRITE of body and trailer to `address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// To be returned with [`Runtime::reply_done`](super::Runtime::reply_done); `None` if nothing waits for it.
    pub ticket: Option<Tag>,
    /// Whom it goes to.
    pub connection: ConnectionId,
    /// Where body and trailer are written, in this order and without a gap.
    pub address: u64,
    /// The key that allows it.
    pub rkey: u32,
    /// The response slot, for the immediate.
    pub slot: u16,
    /// The answer, if there is one.
    pub body: Option<Body>,
    /// How it went.
    pub trailer: Trailer,
}
