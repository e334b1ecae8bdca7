//! Segments of a WQE, and the rules they are checked against.

use super::fault::{RESERVED, SEGMENTS, WorkFault};
use crate::nic::mkey::{Accessor, MkeyTable};
use crate::nic::strict;
use bareverbs_prm::field::Layout;
use bareverbs_prm::wqe::DataSegment;
use zerocopy::{FromBytes, IntoBytes};

/// A byte count of zero stands for this many bytes.
pub(super) const ZERO_COUNT: u32 = 1 << 31;

/// The layout of the WQEs of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// All messages go to one peer.
    Connected,
    /// Every message has an address of its own.
    Datagram,
    /// There are no messages, only memory-key updates.
    KeyUpdate,
}

/// What fetching needs from the device.
pub(crate) struct FetchContext<'a> {
    pub(crate) mkeys: &'a MkeyTable,
    pub(crate) accessor: Accessor,
    pub(crate) log_max_message: u8,
    pub(crate) max_wqe: u16,
    pub(crate) strom: bool,
    pub(crate) strict: bool,
    pub(crate) format: Format,
    /// Whether memory-to-memory operations are enabled.
    pub(crate) mmo: bool,
    /// Whether every message names a shared receive queue of the peer.
    pub(crate) names_queue: bool,
}

/// The rules that a WQE is checked against.
pub(crate) struct WqeRules<'a> {
    /// What applies to every WQE of the fetch.
    pub(crate) context: &'a FetchContext<'a>,
    /// Bytes of the ring, a power of two, and the offset in it where the WQE begins.
    pub(crate) ring: u32,
    pub(crate) at: u32,
}

pub(super) struct SegmentReader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) position: usize,
}

impl SegmentReader<'_> {
    #[inline(always)]
    pub(super) fn segment<T: Layout + FromBytes + IntoBytes + zerocopy::Immutable>(
        &mut self,
        rules: &WqeRules<'_>,
    ) -> Result<T, WorkFault> {
        let rest = self.bytes.get(self.position..).ok_or(SEGMENTS)?;
        let (segment, _) = T::read_from_prefix(rest).map_err(|_| SEGMENTS)?;
        if rules.context.strict && !strict::is_clear(&T::INFO, segment.as_bytes(), 0..0) {
            return Err(RESERVED);
        }
        self.position += T::SIZE;
        Ok(segment)
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }
}

/// Bytes of a data segment: bit 31 is not part of the count, and zero is 2^31.
#[inline]
pub(crate) fn byte_count(segment: &DataSegment) -> u32 {
    match segment.byte_count() & (ZERO_COUNT - 1) {
        0 => ZERO_COUNT,
        count => count,
    }
}
