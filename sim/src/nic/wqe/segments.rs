//! Segments of a WQE: reading them one after the other, and the local buffer that data segments describe.

use super::fault::{DATA_KEY, INLINE, MESSAGE, RESERVED, SEGMENTS, WorkFault};
use super::pieces::{Piece, PieceList};
use crate::nic::mkey::{Access, Accessor, HostRange, MkeyTable};
use crate::nic::strict;
use bareverbs_prm::field::{BitRange, Layout};
use bareverbs_prm::wqe::{
    AddressVector, ControlSegment, DataSegment, InlineHeader, LONGEST_SEGMENT, SEGMENT,
};
use core::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Where a WQE is in its ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPlace {
    /// Bytes of the ring, a power of two.
    pub(crate) ring: u32,
    /// The offset in it where the WQE begins.
    pub(crate) at: u32,
}

/// A layout that a WQE is made of.
pub(crate) trait Segment:
    Layout + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned
{
}
impl<T: Layout + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> Segment for T {}

/// Reads the segments of a WQE one after the other, in place.
pub(crate) struct SegmentReader<'a> {
    bytes: &'a [u8],
    position: usize,
    place: RingPlace,
    /// Whether reserved bits must be zero.
    strict: bool,
}

impl<'a> SegmentReader<'a> {
    /// A reader of the bytes of a WQE, behind its control segment.
    #[inline(always)]
    pub(crate) const fn new(bytes: &'a [u8], place: RingPlace, strict: bool) -> Self {
        Self { bytes, position: ControlSegment::SIZE, place, strict }
    }

    /// Checks the reserved bits of a segment.
    #[inline(always)]
    pub(crate) fn check<T: Segment>(&self, segment: &T) -> Result<(), WorkFault> {
        self.check_but(segment, 0..0)
    }

    /// Checks the reserved bits of a segment, but not of the `open` bytes.
    #[inline(always)]
    fn check_but<T: Segment>(&self, segment: &T, open: Range<usize>) -> Result<(), WorkFault> {
        let accepts = !self.strict || strict::is_clear(&T::INFO, segment.as_bytes(), open);
        if accepts { Ok(()) } else { Err(RESERVED) }
    }

    /// Takes an address vector. The Ethernet address in it is no field of the layout, because it straddles two dwords.
    pub(crate) fn address_vector(&mut self) -> Result<&'a AddressVector, WorkFault> {
        let vector = self.peek::<AddressVector>()?;
        self.check_but(vector, AddressVector::REMOTE_MAC)?;
        self.position += AddressVector::SIZE;
        Ok(vector)
    }

    /// Takes the next segment.
    #[inline(always)]
    pub(crate) fn segment<T: Segment>(&mut self) -> Result<&'a T, WorkFault> {
        let segment = self.peek()?;
        self.accept(segment)?;
        Ok(segment)
    }

    /// Moves behind a segment that [`Self::peek`] has returned.
    #[inline(always)]
    fn accept<T: Segment>(&mut self, segment: &T) -> Result<(), WorkFault> {
        self.check(segment)?;
        self.position += T::SIZE;
        Ok(())
    }

    /// The next segment, which remains the next one.
    #[inline(always)]
    fn peek<T: Segment>(&self) -> Result<&'a T, WorkFault> {
        let rest = self.bytes.get(self.position..).ok_or(SEGMENTS)?;
        T::ref_from_prefix(rest).map(|(segment, _)| segment).map_err(|_| SEGMENTS)
    }

    /// Takes bytes of the message, which padding fills up to a whole segment. They stay in the ring.
    pub(crate) fn inline(&mut self, length: usize) -> Result<Piece, WorkFault> {
        let offset = (self.place.at + self.position as u32) & (self.place.ring - 1);
        self.inline_bytes(length)?;
        Ok(Piece::Inline { offset, length: length as u32 })
    }

    /// The same, as bytes.
    pub(crate) fn inline_bytes(&mut self, length: usize) -> Result<&'a [u8], WorkFault> {
        let end = (self.position + length).next_multiple_of(SEGMENT);
        let padded = self.bytes.get(self.position..end).ok_or(SEGMENTS)?;
        self.position = end;
        padded.get(..length).ok_or(SEGMENTS)
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// Ignores the rest.
    pub(super) const fn end(&mut self) {
        self.position = self.bytes.len();
    }
}

/// The bit of the first dword that tells an inline segment from one of memory.
const INLINE_FLAG: BitRange = InlineHeader::FIELDS.inline.in_dword(0);

/// Bytes of a data segment: bit 31 is not part of the count, and zero is the longest.
#[inline]
pub(crate) fn byte_count(segment: &DataSegment) -> u32 {
    match segment.byte_count() % LONGEST_SEGMENT {
        0 => LONGEST_SEGMENT,
        count => count,
    }
}

/// The local buffer that the data segments of a WQE describe.
pub(crate) struct LocalBuffer<'a> {
    pub(crate) pieces: &'a mut PieceList,
    /// Most bytes that it may have.
    pub(crate) longest: u64,
    /// Whether the device writes it.
    pub(crate) scatters: bool,
}

/// Takes all data segments to the end of the WQE, and checks that `accessor` may use their memory.
#[inline(always)] // One caller for RDMA, one for Ethernet.
pub(crate) fn parse_data(
    cursor: &mut SegmentReader<'_>,
    mkeys: &MkeyTable,
    accessor: &Accessor,
    buffer: LocalBuffer<'_>,
) -> Result<(), WorkFault> {
    let LocalBuffer { pieces, longest, scatters } = buffer;
    mkeys.budget().begin_access();
    // Sum up the lengths before checking the memory behind each segment: checking 2 GiB behind every segment
    // would take long.
    let mut left = longest;
    while !cursor.is_at_end() {
        let segment: &DataSegment = cursor.peek()?;
        if INLINE_FLAG.get(segment.byte_count().into()) == 0 {
            cursor.accept(segment)?;
            left = left.checked_sub(byte_count(segment).into()).ok_or(MESSAGE)?;
            let access = if scatters { Access::LocalWrite } else { Access::LocalRead };
            pieces.push(Piece::Memory(check_data(segment, mkeys, accessor, access)?));
        } else if scatters {
            return Err(INLINE);
        } else {
            pieces.push(parse_inline(cursor)?);
        }
    }
    Ok(())
}

/// Checks a data segment and returns its range. The pieces of all segments of a work request count together.
#[inline]
pub(crate) fn check_data(
    segment: &DataSegment,
    mkeys: &MkeyTable,
    accessor: &Accessor,
    access: Access,
) -> Result<HostRange, WorkFault> {
    let length = byte_count(segment);
    let range = mkeys.check_segment(accessor, segment.lkey(), access, segment.address(), length.into());
    range.map_err(|_| DATA_KEY)
}

/// An inline segment: a header, the data, padding.
fn parse_inline(cursor: &mut SegmentReader<'_>) -> Result<Piece, WorkFault> {
    let header: &InlineHeader = cursor.segment()?;
    cursor.inline(header.byte_count().into())
}
