//! Segments as pairs of 64-bit words in memory order.

use super::SEGMENT_WORDS;
use crate::memory_region::{MemorySlice, RemoteSlice};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::ids::Srqn;
use bareverbs_prm::wqe::{
    AtomicSegment, DataSegment, INVALID_LKEY, MaskedAtomicSegment, MmoMetadataSegment, RemoteAddressSegment,
    SharedReceiveSegment, XrcSegment,
};

/// A segment in memory order.
pub(crate) type Segment = [u64; SEGMENT_WORDS];

const BYTE_COUNT: BitRange = DataSegment::FIELDS.byte_count.in_word(0);
const LKEY: BitRange = DataSegment::FIELDS.lkey.in_word(0);
const ADDRESS: BitRange = DataSegment::FIELDS.address.in_word(1);
const REMOTE_ADDRESS: BitRange = RemoteAddressSegment::FIELDS.address.in_word(0);
const RKEY: BitRange = RemoteAddressSegment::FIELDS.rkey.in_word(1);
const SWAP_ADD: BitRange = AtomicSegment::FIELDS.swap_add.in_word(0);
const COMPARE: BitRange = AtomicSegment::FIELDS.compare.in_word(1);
const MASKED_SWAP_ADD: BitRange = MaskedAtomicSegment::FIELDS.swap_add.in_word(0);
const MASKED_COMPARE: BitRange = MaskedAtomicSegment::FIELDS.compare.in_word(1);
const SWAP_ADD_MASK: BitRange = MaskedAtomicSegment::FIELDS.swap_add_mask.in_word(2);
const COMPARE_MASK: BitRange = MaskedAtomicSegment::FIELDS.compare_mask.in_word(3);
const OPAQUE_KEY: BitRange = MmoMetadataSegment::FIELDS.local_key.in_word(0);
const OPAQUE_ADDRESS: BitRange = MmoMetadataSegment::FIELDS.local_address.in_word(1);
const SRQN: BitRange = XrcSegment::FIELDS.srqn.in_word(0);
const NEXT_ENTRY: BitRange = SharedReceiveSegment::FIELDS.next_wqe_index.in_word(0);

const fn memory_order([a, b]: [u64; 2]) -> Segment {
    [a.to_be(), b.to_be()]
}

/// The segment of local memory.
#[inline(always)]
pub(crate) const fn data(slice: &MemorySlice) -> Segment {
    let first = BYTE_COUNT.put(slice.length as u64) | LKEY.put(slice.lkey.value() as u64);
    memory_order([first, ADDRESS.put(slice.address)])
}

/// The metadata segment of a memory-to-memory operation: no control bits, and the memory that the device may
/// use for it.
#[inline(always)]
pub(crate) const fn mmo_metadata(opaque: &MemorySlice) -> Segment {
    let first = OPAQUE_KEY.put(opaque.lkey.value() as u64);
    memory_order([first, OPAQUE_ADDRESS.put(opaque.address)])
}

/// The segment that terminates a scatter list early.
pub(crate) const END_OF_LIST: Segment = memory_order([LKEY.put(INVALID_LKEY.value() as u64), 0]);

/// The segment of the peer's memory.
#[inline(always)]
pub(crate) const fn remote(slice: RemoteSlice) -> Segment {
    memory_order([REMOTE_ADDRESS.put(slice.address), RKEY.put(slice.rkey.value() as u64)])
}

/// The operands of an atomic on a whole word: the value to swap in or add, and the value to compare.
#[inline(always)]
pub(crate) const fn atomic(swap_add: u64, compare: u64) -> Segment {
    memory_order([SWAP_ADD.put(swap_add), COMPARE.put(compare)])
}

/// The first operands of a masked atomic. For fetch-and-add, the second one holds the field boundaries.
pub(crate) const fn masked_atomic(swap_add: u64, compare: u64) -> Segment {
    memory_order([MASKED_SWAP_ADD.put(swap_add), MASKED_COMPARE.put(compare)])
}

/// The masks of a masked compare-and-swap.
pub(crate) const fn atomic_masks(swap_add: u64, compare: u64) -> Segment {
    memory_order([SWAP_ADD_MASK.put(swap_add), COMPARE_MASK.put(compare)])
}

/// The segment that names a shared receive queue of the peer.
pub(crate) const fn shared_queue(queue: Srqn) -> Segment {
    memory_order([SRQN.put(queue.value() as u64), 0])
}

/// The first word of an entry of a shared receive queue, which names the entry that the device takes next.
#[inline(always)]
pub(crate) const fn next_entry(index: u32) -> u64 {
    NEXT_ENTRY.put(index as u64).to_be()
}
