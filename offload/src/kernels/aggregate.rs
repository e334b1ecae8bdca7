//! Counts, sums and finds the extremes of a column, over the records that satisfy a predicate.
//!
//! The answer has 40 bytes however many records there are; a READ would transfer all of them. The parameters
//! are a [`ScanQuery`]. The order of records does not matter, so four pieces are read at once and added up as
//! they arrive. Answer: matching records 8, sum 16, minimum 8, maximum 8; unsigned and big-endian. Without a
//! match the minimum is `u64::MAX` and the maximum zero.

use super::scan::{QUERY, Scan, ScanQuery};
use crate::grant::Grant;
use crate::kernel::{Emission, Event, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::{U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the parameters.
pub const PARAMETERS: usize = QUERY;
/// Bytes of the answer.
pub const RESPONSE: usize = size_of::<ResponseBytes>();

/// The result of an aggregation.
///
/// ```
/// use bareverbs_offload::kernels::aggregate::{RESPONSE, Totals};
///
/// let mut answer = [0; RESPONSE];
/// (answer[7], answer[23], answer[31], answer[39]) = (2, 30, 10, 20);
/// assert_eq!(Totals::parse(&answer), Some(Totals { count: 2, sum: 30, least: 10, greatest: 20 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Records that satisfy the predicate.
    pub count: u64,
    /// The sum of their columns; cannot overflow.
    pub sum: u128,
    /// The minimum of the column, or `u64::MAX`.
    pub least: u64,
    /// The maximum of the column, or zero.
    pub greatest: u64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResponseBytes {
    count: U64,
    sum: U128,
    least: U64,
    greatest: U64,
}

impl Totals {
    const NONE: Self = Self { count: 0, sum: 0, least: u64::MAX, greatest: 0 };

    /// Decodes an answer; `None` if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = ResponseBytes::ref_from_bytes(bytes).ok()?;
        let ResponseBytes { count, sum, least, greatest } = *raw;
        Some(Self { count: count.get(), sum: sum.get(), least: least.get(), greatest: greatest.get() })
    }

    fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }

    fn encode(&self) -> ResponseBytes {
        let Self { count, sum, least, greatest } = *self;
        ResponseBytes { count: count.into(), sum: sum.into(), least: least.into(), greatest: greatest.into() }
    }
}

/// An aggregation in progress.
#[derive(Debug, Clone)]
pub struct Aggregate {
    scan: Scan,
    /// Pieces that are being read.
    coming: u8,
    totals: Totals,
    response: ResponseBytes,
}

impl Kernel for Aggregate {
    /// "AGGREGAT" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"AGGREGAT"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let scan = Scan::new(ScanQuery::parse(parameters)?);
        let totals = Totals::NONE;
        let mut aggregate = Self { scan, coming: 0, totals, response: totals.encode() };
        let step = aggregate.next(grant);
        Ok((aggregate, step))
    }

    fn dma_done(&mut self, _bytes: &[u8], _grant: &Grant) -> Step {
        // This kernel never asks for a single range.
        Step::Done(Status::BadParameters)
    }

    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        let Event::Part { bytes, .. } = event else { return Step::Done(Status::BadParameters) };
        self.scan.matches_from(0, bytes).for_each(|(_, value)| self.totals.add(value));
        self.coming = self.coming.saturating_sub(1);
        if self.coming > 0 { Step::AwaitPart } else { self.next(grant) }
    }

    fn computed(&self) -> &[u8] {
        self.response.as_bytes()
    }
}

impl Aggregate {
    /// Asks for the next records, or answers.
    fn next(&mut self, grant: &Grant) -> Step {
        match self.scan.next_ranges(grant) {
            Ok(Some(ahead)) => {
                self.coming = ahead.count;
                Step::FetchEach(ahead.ranges)
            }
            Ok(None) => {
                self.response = self.totals.encode();
                Step::Reply(Emission { offset: 0, length: RESPONSE as u32, version: 0 })
            }
            Err(status) => Step::Done(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::computing::computed_by;
    use super::super::field::{ByteOrder, Field, Predicate};
    use super::super::scan::CHUNK;
    use super::*;
    use proptest::prelude::*;

    fn run(memory: &[u8], parameters: &[u8]) -> Result<(Totals, u16), Status> {
        let (response, reads) = computed_by::<Aggregate>(memory, parameters)?;
        Ok((Totals::parse(&response).expect("an answer"), reads))
    }

    fn parameters(records: u32) -> ScanQuery {
        ScanQuery {
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
        fn aggregates_agree_with_an_iterator(
            records in proptest::collection::vec((any::<u32>(), any::<u64>()), 0..1200),
            operand in 0_u64..256,
        ) {
            let memory: Vec<u8> =
                records.iter().flat_map(|(a, b)| [&a.to_le_bytes()[..], &b.to_le_bytes()].concat()).collect();
            let wanted = ScanQuery { operand, ..parameters(records.len() as u32) };
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
            bytes in proptest::collection::vec(any::<u8>(), QUERY),
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
        let wraps = ScanQuery { start: u64::MAX - 4, ..parameters(1) };
        assert_eq!(run(&memory, &wraps.encode()), Err(Status::OutOfBounds));
    }
}
