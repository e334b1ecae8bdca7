//! Finds the first record that satisfies a predicate.
//!
//! The kernel reads four pieces of the table at once, ahead of what it knows. It answers as soon as it has
//! found a record and has seen every piece before it; reads still in flight are discarded. The parameters are
//! a [`ScanQuery`]. Answer: the number of the record 8, its column 8; big-endian.

use super::scan::{QUERY, Scan, ScanQuery};
use crate::grant::Grant;
use crate::kernel::{Emission, Event, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the parameters.
pub const PARAMETERS: usize = QUERY;
/// Bytes of the answer.
pub const RESPONSE: usize = size_of::<FirstRecord>();

/// The record that was found.
///
/// ```
/// use bareverbs_offload::kernels::first::{RESPONSE, parse};
///
/// let mut answer = [0; RESPONSE];
/// (answer[7], answer[15]) = (3, 9);
/// let record = parse(&answer).unwrap();
/// assert_eq!((record.number.get(), record.value.get()), (3, 9));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirstRecord {
    /// Its number, from zero.
    pub number: U64,
    /// Its column.
    pub value: U64,
}

/// Decodes an answer; `None` if it has another length.
pub fn parse(response: &[u8]) -> Option<FirstRecord> {
    FirstRecord::read_from_bytes(response).ok()
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct First {
    scan: Scan,
    /// The number of the first record of the pieces that are being read.
    first: u64,
    /// A bit for each of those pieces that has not arrived.
    coming: u8,
    /// The first match so far, and the number of its piece.
    found: Option<(u8, FirstRecord)>,
    response: FirstRecord,
}

impl Kernel for First {
    /// "FIRSTREC" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"FIRSTREC"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let scan = Scan::new(ScanQuery::parse(parameters)?);
        let response = FirstRecord { number: U64::ZERO, value: U64::ZERO };
        let mut search = Self { scan, first: 0, coming: 0, found: None, response };
        let step = search.next(grant);
        Ok((search, step))
    }

    fn dma_done(&mut self, _bytes: &[u8], _grant: &Grant) -> Step {
        // This kernel never asks for a single range.
        Step::Done(Status::BadParameters)
    }

    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        let Event::Part { part, bytes } = event else { return Step::Done(Status::BadParameters) };
        let number = part as u8;
        self.coming &= !1_u8.checked_shl(number.into()).unwrap_or_default();
        if self.found.is_none_or(|(before, _)| number < before) {
            let first = self.scan.first_of(self.first, part);
            let record = self.scan.matches_from(first, bytes).next();
            let record =
                record.map(|(number, value)| FirstRecord { number: number.into(), value: value.into() });
            self.found = record.map(|record| (number, record)).or(self.found);
        }
        self.conclude(grant)
    }

    fn computed(&self) -> &[u8] {
        self.response.as_bytes()
    }
}

impl First {
    /// Answers, if no missing piece lies before the match.
    fn conclude(&mut self, grant: &Grant) -> Step {
        match self.found {
            Some((part, record)) if u32::from(part) <= self.coming.trailing_zeros() => {
                self.response = record;
                Step::Reply(Emission { offset: 0, length: RESPONSE as u32, version: 0 })
            }
            _ if self.coming != 0 => Step::AwaitPart,
            _ => self.next(grant),
        }
    }

    fn next(&mut self, grant: &Grant) -> Step {
        match self.scan.next_ranges(grant) {
            Ok(Some(ahead)) => {
                (self.first, self.coming) = (ahead.first, (1 << ahead.count) - 1);
                Step::FetchEach(ahead.ranges)
            }
            Ok(None) => Step::Done(Status::NotFound),
            Err(status) => Step::Done(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::computing::computed_in_order;
    use super::super::field::{ByteOrder, Field, Predicate};
    use super::*;
    use proptest::prelude::*;

    fn query(records: u32, operand: u64) -> ScanQuery {
        ScanQuery {
            start: 0,
            records,
            stride: 12,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0).bits(0, 32),
            predicate: Predicate::Equal,
            operand,
            column: Field::word(1),
        }
    }

    proptest! {
        #[test]
        fn the_first_match_agrees_with_an_iterator_for_any_order_of_pieces(
            keys in proptest::collection::vec(0_u32..3000, 0..3000),
            wanted in 0_u64..3000,
            order in any::<u64>(),
        ) {
            let memory: Vec<u8> = keys
                .iter()
                .enumerate()
                .flat_map(|(number, key)| [&key.to_le_bytes()[..], &(number as u64 * 7).to_le_bytes()].concat())
                .collect();
            let mut order = order;
            let mut asked = 0;
            let found = computed_in_order::<First>(&memory, &query(keys.len() as u32, wanted).encode(), |parts| {
                asked += 1;
                order = order.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let at = order as usize % parts.len();
                parts.remove(at)
            });
            let expected = keys.iter().position(|key| u64::from(*key) == wanted);
            let number = found.as_ref().ok().map(|(response, _)| parse(response).expect("an answer"));
            prop_assert_eq!(number.map(|record| record.number.get() as usize), expected);
            prop_assert_eq!(number.map(|record| record.value.get() as usize), expected.map(|at| at * 7));
            match found {
                Ok((_, reads)) => prop_assert!(asked <= reads),
                Err(status) => prop_assert_eq!(status, Status::NotFound),
            }
        }

        #[test]
        fn arbitrary_parameters_end_and_read_nothing_outside(
            bytes in proptest::collection::vec(any::<u8>(), QUERY),
            length in 1_usize..9000,
        ) {
            let in_order = |memory: &[u8], bytes: &[u8]| {
                computed_in_order::<First>(memory, bytes, |parts| parts.remove(0)).map(|(response, _)| response.len())
            };
            let _ended = in_order(&vec![7; length], &bytes);
            let mut plausible = bytes;
            plausible[..7].fill(0);
            plausible[16..18].fill(0);
            plausible[20..32].copy_from_slice(&[0, 16, 4, 0, 0, 0, 0, 32, 2, 0, 3, 61]);
            let _ended = in_order(&vec![7; length], &plausible);
        }
    }

    #[test]
    fn a_match_in_the_first_piece_waits_for_no_other() {
        let mut memory = vec![0; 12 * 1000];
        memory[..4].copy_from_slice(&9_u32.to_le_bytes());
        let mut came = 0;
        let found = computed_in_order::<First>(&memory, &query(1000, 9).encode(), |parts| {
            came += 1;
            parts.remove(0)
        });
        assert_eq!(found.map(|(_, reads)| reads), Ok(3), "three pieces were asked for");
        assert_eq!(came, 1, "and one was needed");
    }
}
