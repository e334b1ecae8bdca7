//! Records of a table, read in pieces: what the kernels that scan share.
//!
//! A query, 32 bytes, numbers big-endian:
//!
//! ```text
//!  0  start 8                                   20  stride 2 | predicate 1 | flags 1 (bit 0 = big-endian records)
//!  8  operand 8                                 24  compared field 4
//! 16  records 4                                 28  column 4
//! ```

use super::field::{ByteOrder, Field, FieldBytes, Load, Outcomes, Predicate};
use crate::grant::{Checked, Grant};
use crate::kernel::{MAX_PARTS, Ranges, Status};
use heapless::Vec;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes that are read at a time, which bounds the work of one step.
pub const CHUNK: u32 = 4096;
/// Most bytes of a record.
pub const MAX_STRIDE: u16 = 1024;
/// Bytes of a query.
pub const QUERY: usize = size_of::<QueryBytes>();

/// Which records are looked at, which of them count, and which column of those is taken.
///
/// ```
/// use bareverbs_offload::kernel::Status;
/// use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
/// use bareverbs_offload::kernels::scan::ScanQuery;
///
/// // The second word of those records of 32 bytes whose first word is greater than 100.
/// let query = ScanQuery {
///     start: 4096,
///     records: 1_000,
///     stride: 32,
///     order: ByteOrder::LittleEndian,
///     compared: Field::word(0),
///     predicate: Predicate::GreaterThan,
///     operand: 100,
///     column: Field::word(2),
/// };
/// assert_eq!(ScanQuery::parse(&query.encode()), Ok(query));
/// let outside = ScanQuery { column: Field::word(8), ..query };
/// assert_eq!(ScanQuery::parse(&outside.encode()), Err(Status::BadParameters));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanQuery {
    /// Offset of the first record in the region.
    pub start: u64,
    /// Number of records.
    pub records: u32,
    /// Bytes from one record to the next: a multiple of 4, at most [`MAX_STRIDE`].
    pub stride: u16,
    /// The order of bytes in the words of records.
    pub order: ByteOrder,
    /// The field to compare; not relative.
    pub compared: Field,
    /// How it must compare with the operand.
    pub predicate: Predicate,
    /// The value to compare it with.
    pub operand: u64,
    /// The field to take; not relative.
    pub column: Field,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct QueryBytes {
    start: U64,
    operand: U64,
    records: U32,
    stride: U16,
    predicate: u8,
    flags: u8,
    compared: FieldBytes,
    column: FieldBytes,
}

impl ScanQuery {
    /// Decodes a query; refuses fields that leave the record.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let raw = QueryBytes::ref_from_bytes(bytes).map_err(|_| Status::BadParameters)?;
        let order = match raw.flags {
            0 => ByteOrder::LittleEndian,
            1 => ByteOrder::BigEndian,
            _ => return Err(Status::BadParameters),
        };
        let query = Self {
            start: raw.start.get(),
            records: raw.records.get(),
            stride: raw.stride.get(),
            order,
            compared: Field::parse(raw.compared)?,
            predicate: Predicate::from_number(raw.predicate).ok_or(Status::BadParameters)?,
            operand: raw.operand.get(),
            column: Field::parse(raw.column)?,
        };
        if query.fits() { Ok(query) } else { Err(Status::BadParameters) }
    }

    fn fits(&self) -> bool {
        let inside = |field: Field| !field.relative && field.fits(self.stride, 0);
        (4..=MAX_STRIDE).contains(&self.stride)
            && self.stride.is_multiple_of(4)
            && inside(self.compared)
            && inside(self.column)
    }

    /// The bytes of the query.
    pub fn encode(&self) -> [u8; QUERY] {
        zerocopy::transmute!(QueryBytes {
            start: self.start.into(),
            operand: self.operand.into(),
            records: self.records.into(),
            stride: self.stride.into(),
            predicate: self.predicate as u8,
            flags: (self.order == ByteOrder::BigEndian).into(),
            compared: self.compared.into(),
            column: self.column.into(),
        })
    }
}

/// Ranges that are read at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// The number of the first record.
    pub(super) first: u64,
    pub(super) ranges: Ranges,
    /// How many ranges there are.
    pub(super) count: u8,
}

/// A scan in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan {
    query: ScanQuery,
    /// Records that have not been read.
    left: u32,
}

impl Scan {
    pub(super) fn new(query: ScanQuery) -> Self {
        Self { query, left: query.records }
    }

    /// The range of the next records; `None` after the last.
    pub(super) fn next(&mut self, grant: &Grant) -> Result<Option<Checked>, Status> {
        let stride = u32::from(self.query.stride);
        let records = self.left.min(CHUNK / stride);
        if records == 0 {
            return Ok(None);
        }
        let offset = self.query.start.checked_add(self.done() * u64::from(stride));
        let range = grant.check(offset.ok_or(Status::OutOfBounds)?, records * stride)?;
        self.left -= records;
        Ok(Some(range))
    }

    /// The ranges of the next records to read at once, and the number of the first record; `None` after the
    /// last.
    pub(super) fn next_ranges(&mut self, grant: &Grant) -> Result<Option<Ahead>, Status> {
        let first = self.done();
        let mut ranges: Vec<Checked, MAX_PARTS> = Vec::new();
        while !ranges.is_full()
            && let Some(range) = self.next(grant)?
        {
            // The loop ends before it is full.
            let _ = ranges.push(range);
        }
        Ok(Ranges::of(&ranges).map(|all| Ahead { first, ranges: all, count: ranges.len() as u8 }))
    }

    /// The number of the first record in part `part` of the ranges that start at record `first`.
    pub(super) const fn first_of(&self, first: u64, part: usize) -> u64 {
        first + part as u64 * (CHUNK / self.query.stride as u32) as u64
    }

    /// The number and column of each matching record in the range that was requested last.
    pub(super) fn matches<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let records = bytes.len() as u64 / u64::from(self.query.stride);
        self.matches_from(self.done() - records, bytes)
    }

    /// The same for bytes that begin with record `first`.
    pub(super) fn matches_from<'a>(
        &self,
        first: u64,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let ScanQuery { stride, order, compared, column, predicate, operand, .. } = self.query;
        let records = bytes.chunks_exact(stride.into());
        let (compared, column) = (Load::new(compared, order), Load::new(column, order));
        let wanted = Outcomes::of(predicate);
        // The query was checked: both fields lie in each record.
        (first..).zip(records).filter_map(move |(number, record)| {
            let found = compared.value(record, 0)?;
            wanted.have(found, operand).then_some((number, column.value(record, 0)?))
        })
    }

    /// Records that have been requested.
    fn done(&self) -> u64 {
        u64::from(self.query.records - self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_scan_queries_are_refused() {
        let good = ScanQuery {
            start: 0,
            records: 1,
            stride: 12,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0).bits(0, 8),
            predicate: Predicate::LessThan,
            operand: 128,
            column: Field::word(1),
        };
        assert_eq!(ScanQuery::parse(&good.encode()), Ok(good));
        for bad in [
            ScanQuery { stride: 0, ..good },
            ScanQuery { stride: 14, ..good },
            ScanQuery { stride: MAX_STRIDE + 4, ..good },
            ScanQuery { column: Field::word(2), ..good },
            ScanQuery { compared: Field::word(0).bits(0, 0), ..good },
            ScanQuery { compared: Field::after_key(0), ..good },
        ] {
            assert_eq!(ScanQuery::parse(&bad.encode()), Err(Status::BadParameters), "{bad:?}");
        }
        assert_eq!(ScanQuery::parse(&good.encode()[1..]), Err(Status::BadParameters));
    }
}
