//! What a runtime asks of its owner: DMA requests and replies, and the tag that is returned with their completion.

use super::connection::ConnectionId;
use crate::budget::MAX_READ;
use crate::grant::HostRegion;
use crate::kernel::MAX_PARTS;
use crate::wire::{TRAILER_SIZE, Trailer};

/// Bytes of a staging buffer: the most that may be read at once, in up to [`MAX_PARTS`] parts, each followed by room
/// for a trailer.
pub const STAGING: u32 = (MAX_READ + MAX_PARTS as u32 * (TRAILER_SIZE as u32 + 64)).next_multiple_of(64);

/// Names an invocation and one of its reads or writes. It holds the slot number, which is also that of the staging
/// buffer; a generation, so that a late completion of an ended invocation is not taken for its successor's; and the
/// number of the read or write.
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
    /// The tag as a number, for use as a work request id.
    pub const fn to_bits(self) -> u64 {
        (self.transfer as u64) << 40 | (self.generation as u64) << 8 | self.buffer as u64
    }
    /// Decodes the tag; bits above it are ignored.
    pub const fn from_bits(bits: u64) -> Self {
        Self { buffer: bits as u8, generation: (bits >> 8) as u32, transfer: (bits >> 40) as u8 }
    }
}

/// What to do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaAction {
    /// Read it into the staging buffer.
    Read,
    /// Write it from the staging buffer, after [`Runtime::to_be_written`](super::Runtime::to_be_written) was put there.
    Write {
        /// Offset of the first byte within what the kernel computed.
        from: u32,
    },
    /// Atomically read its big-endian word and replace it by `desired` if it equals `expected`.
    CompareAndSwap {
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
    },
}

/// A range to read or write through the staging buffer with the number [`Tag::buffer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaRequest {
    /// To be returned with the completion.
    pub tag: Tag,
    /// What to do.
    pub action: DmaAction,
    /// Offset in the staging buffer of the part reserved for this request.
    pub offset: u32,
    /// The region.
    pub region: HostRegion,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Where the bytes of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// They were read and lie in the staging buffer.
    Fetched,
    /// The kernel computed them; see [`Runtime::computed`](super::Runtime::computed).
    Computed,
}

/// The bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    /// The number of the staging buffer. No read is in flight into the part from `place` on that body and trailer need.
    pub buffer: usize,
    /// Where the bytes are.
    pub source: Source,
    /// Offset of the first byte, in the staging buffer or in what was computed.
    pub offset: u32,
    /// Offset in the staging buffer: where fetched bytes are, and where computed ones may be put.
    pub place: u32,
    /// Length in bytes.
    pub length: u32,
}

/// A reply: one WRITE of body and trailer to `address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// To be returned with [`Runtime::reply_done`](super::Runtime::reply_done); `None` if nothing waits for it.
    pub ticket: Option<Tag>,
    /// The connection that it goes to.
    pub connection: ConnectionId,
    /// Where body and trailer are written, in this order and without a gap.
    pub address: u64,
    /// The remote key.
    pub rkey: u32,
    /// The response slot, for the immediate data.
    pub slot: u16,
    /// The answer, if there is one.
    pub body: Option<Body>,
    /// The trailer.
    pub trailer: Trailer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_byte_for_the_buffer_then_the_generation_then_the_transfer() {
        let tag = Tag::new(5, 0x0102_0304).of_transfer(7);
        assert_eq!(tag.to_bits(), 0x0701_0203_0405);
        let read = Tag::from_bits(0xffff_0701_0203_0405);
        assert_eq!((read, read.buffer(), read.generation(), read.transfer()), (tag, 5, 0x0102_0304, 7));
    }
}
