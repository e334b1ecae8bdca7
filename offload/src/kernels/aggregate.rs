//! Counts, adds up and finds extremes of a column, over the records that satisfy a predicate.
//!
//! The answer has 40 bytes however many records there are; a READ would carry all of them. AggregateQuery, 32 bytes, numbers
//! big-endian:
//!
//! ```text
//!  0  start 8                                   20  stride 2 | predicate 1 | flags 1 (bit 0 = big-endian records)
//!  8  operand 8                                 24  compared field 4
//! 16  records 4                                 28  column 4
//! ```
//!
//! Answer: matching records 8, sum 16, least 8, greatest 8; unsigned and big-endian. Without a match the least is `u64::MAX`
//! and the greatest zero.

use super::field::{ByteOrder, Field, FieldBytes, Predicate};
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes that are read at a time: one step computes over so many.
pub const CHUNK: u32 = 4096;
/// Most bytes of a record.
pub const MAX_STRIDE: u16 = 1024;
/// Bytes of the parameters.
pub const PARAMETERS: usize = size_of::<QueryBytes>();
/// Bytes of the answer.
pub const ANSWER: usize = size_of::<AnswerBytes>();

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateQuery {
    /// Offset of the first record in the region.
    pub start: u64,
    /// Number of records.
    pub records: u32,
    /// Bytes from one record to the next: a multiple of 4, at most [`MAX_STRIDE`].
    pub stride: u16,
    /// The order of bytes in the words of records.
    pub order: ByteOrder,
    /// What is compared; not relative.
    pub compared: Field,
    /// How it has to compare with the operand.
    pub predicate: Predicate,
    /// What it is compared with.
    pub operand: u64,
    /// What is added up; not relative.
    pub column: Field,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Records that satisfy the predicate.
    pub count: u64,
    /// The sum of their columns; cannot overflow.
    pub sum: u128,
    /// The least column, or `u64::MAX`.
    pub least: u64,
    /// The greatest column, or zero.
    pub greatest: u64,
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

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AnswerBytes {
    count: U64,
    sum: U128,
    least: U64,
    greatest: U64,
}

impl AggregateQuery {
    /// Decodes parameters; fields that are not in a record are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let raw = QueryBytes::ref_from_bytes(bytes).map_err(|_| Status::BadParameters)?;
        let order = match raw.flags {
            0 => ByteOrder::LittleEndian,
            1 => ByteOrder::BigEndian,
            _ => return Err(Status::BadParameters),
        };
        let parameters = Self {
            start: raw.start.get(),
            records: raw.records.get(),
            stride: raw.stride.get(),
            order,
            compared: Field::parse(raw.compared)?,
            predicate: Predicate::from_number(raw.predicate).ok_or(Status::BadParameters)?,
            operand: raw.operand.get(),
            column: Field::parse(raw.column)?,
        };
        if parameters.fits() { Ok(parameters) } else { Err(Status::BadParameters) }
    }

    fn fits(&self) -> bool {
        let inside = |field: Field| !field.relative && field.fits(self.stride, 0);
        (4..=MAX_STRIDE).contains(&self.stride)
            && self.stride.is_multiple_of(4)
            && inside(self.compared)
            && inside(self.column)
    }

    /// The bytes of the parameters.
    pub fn encode(&self) -> [u8; PARAMETERS] {
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

impl Totals {
    const NONE: Self = Self { count: 0, sum: 0, least: u64::MAX, greatest: 0 };

    /// Decodes an answer; `None` if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = AnswerBytes::ref_from_bytes(bytes).ok()?;
        let AnswerBytes { count, sum, least, greatest } = *raw;
        Some(Self { count: count.get(), sum: sum.get(), least: least.get(), greatest: greatest.get() })
    }

    fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }

    fn encode(&self) -> AnswerBytes {
        let Self { count, sum, least, greatest } = *self;
        AnswerBytes { count: count.into(), sum: sum.into(), least: least.into(), greatest: greatest.into() }
    }
}

/// An aggregation under way.
#[derive(Debug, Clone)]
pub struct Aggregate {
    query: AggregateQuery,
    /// Records that have not been read.
    left: u32,
    totals: Totals,
    answer: AnswerBytes,
}

impl Kernel for Aggregate {
    /// "AGGREGAT" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"AGGREGAT"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let query = AggregateQuery::parse(parameters)?;
        let totals = Totals::NONE;
        let left = query.records;
        let mut aggregate = Self { query, left, totals, answer: totals.encode() };
        let step = aggregate.next(grant);
        Ok((aggregate, step))
    }

    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        let AggregateQuery { stride, order, compared, column, predicate, operand, .. } = self.query;
        for record in bytes.chunks_exact(stride.into()) {
            let (Some(found), Some(value)) = (compared.load(record, 0, order), column.load(record, 0, order))
            else {
                return Step::Done(Status::BadParameters);
            };
            if predicate.holds(found, operand) {
                self.totals.add(value);
            }
        }
        self.next(grant)
    }

    fn computed(&self) -> &[u8] {
        self.answer.as_bytes()
    }
}

impl Aggregate {
    /// Asks for the next records, or answers.
    fn next(&mut self, grant: &Grant) -> Step {
        if self.left == 0 {
            self.answer = self.totals.encode();
            return Step::Reply(Emission { offset: 0, length: ANSWER as u32, version: 0 });
        }
        match self.chunk(grant) {
            Ok((records, range)) => {
                self.left -= records;
                Step::Fetch(range)
            }
            Err(status) => Step::Done(status),
        }
    }

    fn chunk(&self, grant: &Grant) -> Result<(u32, Checked), Status> {
        let stride = u32::from(self.query.stride);
        let records = self.left.min(CHUNK / stride);
        let done = u64::from(self.query.records - self.left) * u64::from(stride);
        let offset = self.query.start.checked_add(done).ok_or(Status::OutOfBounds)?;
        Ok((records, grant.check(offset, records * stride)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits, Next};
    use bareverbs_prm::time::Time;
    use proptest::prelude::*;

    fn run(memory: &[u8], parameters: &[u8]) -> Result<(Totals, u16), Status> {
        let grant = Grant::new(0x10_0000, memory.len() as u64)?;
        let mut budget = Budget::new(Limits::default(), Time::ZERO);
        let (mut kernel, mut step) = Aggregate::start(parameters, &grant)?;
        loop {
            match budget.charge(step, Time::ZERO) {
                Next::Read(range) => {
                    let bytes = &memory[range.offset() as usize..][..range.length() as usize];
                    step = kernel.dma_done(bytes, &grant);
                }
                Next::Reply(Emission { offset: 0, length, .. }) => {
                    assert_eq!(length as usize, kernel.computed().len());
                    return Ok((Totals::parse(kernel.computed()).expect("an answer"), budget.hops()));
                }
                Next::End(status) => return Err(status),
                other => panic!("{other:?}"),
            }
        }
    }

    fn parameters(records: u32) -> AggregateQuery {
        AggregateQuery {
            start: 0,
            records,
            stride: 12,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0).bits(0, 8),
            predicate: Predicate::LessThan,
            operand: 128,
            column: Field::word(1),
        }
    }

    proptest! {
        #[test]
        fn it_adds_up_what_an_iterator_adds_up(
            records in proptest::collection::vec((any::<u32>(), any::<u64>()), 0..1200),
            operand in 0_u64..256,
        ) {
            let memory: Vec<u8> =
                records.iter().flat_map(|(a, b)| [&a.to_le_bytes()[..], &b.to_le_bytes()].concat()).collect();
            let wanted = AggregateQuery { operand, ..parameters(records.len() as u32) };
            let (totals, hops) = run(&memory, &wanted.encode()).expect("all records are there");
            let values: Vec<u64> = records
                .iter()
                .filter(|(compared, _)| u64::from(compared & 0xff) < operand)
                .map(|(_, value)| *value)
                .collect();
            prop_assert_eq!(totals.count, values.len() as u64);
            prop_assert_eq!(totals.sum, values.iter().map(|value| u128::from(*value)).sum::<u128>());
            prop_assert_eq!(totals.least, values.iter().min().copied().unwrap_or(u64::MAX));
            prop_assert_eq!(totals.greatest, values.iter().max().copied().unwrap_or(0));
            prop_assert_eq!(usize::from(hops), records.len().div_ceil(CHUNK as usize / 12));
        }

        #[test]
        fn arbitrary_parameters_end_and_read_nothing_outside(
            bytes in proptest::collection::vec(any::<u8>(), PARAMETERS),
            length in 1_usize..9000,
        ) {
            let _ended = run(&vec![7; length], &bytes);
            let mut plausible = bytes;
            plausible[..7].fill(0);
            plausible[16..18].fill(0);
            plausible[20..32].copy_from_slice(&[0, 16, 4, 0, 0, 0, 0, 32, 2, 0, 3, 61]);
            let _ended = run(&vec![7; length], &plausible);
        }
    }

    #[test]
    fn records_that_are_not_there_are_not_added_up() {
        let memory = vec![0; 120];
        assert_eq!(run(&memory, &parameters(10).encode()).map(|(totals, _)| totals.count), Ok(10));
        assert_eq!(run(&memory, &parameters(11).encode()), Err(Status::OutOfBounds));
        assert_eq!(run(&memory, &parameters(u32::MAX).encode()), Err(Status::OutOfBounds));
        let wraps = AggregateQuery { start: u64::MAX - 4, ..parameters(1) };
        assert_eq!(run(&memory, &wraps.encode()), Err(Status::OutOfBounds));
    }

    #[test]
    fn what_no_record_can_hold_is_refused() {
        let good = parameters(1);
        assert_eq!(AggregateQuery::parse(&good.encode()), Ok(good));
        for bad in [
            AggregateQuery { stride: 0, ..good },
            AggregateQuery { stride: 14, ..good },
            AggregateQuery { stride: MAX_STRIDE + 4, ..good },
            AggregateQuery { column: Field::word(2), ..good },
            AggregateQuery { compared: Field::word(0).bits(0, 0), ..good },
            AggregateQuery { compared: Field::after_key(0), ..good },
        ] {
            assert_eq!(AggregateQuery::parse(&bad.encode()), Err(Status::BadParameters), "{bad:?}");
        }
        assert_eq!(AggregateQuery::parse(&good.encode()[1..]), Err(Status::BadParameters));
    }
}
