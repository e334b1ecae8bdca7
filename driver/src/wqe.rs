//! Work queue entries: the only module that encodes them, for send queues, receive queues and shared receive
//! queues.
//!
//! The descriptors of `bareverbs_prm::wqe` define the positions of all fields; no offset is written here. An
//! entry is built from 64-bit words in memory order, because that is what [`dma`](crate::dma) stores. Nothing
//! here knows a doorbell, a ledger record or the state of a queue pair: [`queue_pair`](crate::queue_pair)
//! checks, records and rings.
//!
//! * [`segment`]: each segment as two words · [`head`]: the segments before the data, encoded when a request
//!   is created
//! * [`send`]: writes head and data of a send into the ring · [`inline`]: data that is copied into the entry
//! * [`receive`]: scatter lists of receives

pub(crate) mod head;
mod inline;
pub(crate) mod receive;
pub(crate) mod segment;
pub(crate) mod send;

#[cfg(test)]
mod tests;

use bareverbs_prm::wqe::{BASIC_BLOCK, ControlSegment, LONGEST_SEGMENT, SEGMENT};

pub(crate) use inline::inline_segments;

/// Longest scatter/gather element.
pub(crate) const MAX_SLICE: u32 = LONGEST_SEGMENT;
/// Maximum number of segments in a work queue entry.
pub(crate) const MAX_SEGMENTS: u32 = ControlSegment::FIELDS.ds.mask() as u32;
/// Segments of a basic block.
pub(crate) const BLOCK_SEGMENTS: u32 = (BASIC_BLOCK / SEGMENT) as u32;
/// Words of a basic block.
const BLOCK_WORDS: usize = BASIC_BLOCK / 8;
/// Words of a segment.
const SEGMENT_WORDS: usize = SEGMENT / 8;
