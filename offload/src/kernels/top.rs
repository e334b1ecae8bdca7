//! The records with the greatest values in a column, of those that satisfy a predicate: top-k.
//!
//! The parameters are a [`ScanQuery`] and the number of records wanted, 4 bytes, big-endian. Answer: for each record found
//! its value 8 and its number 4, counted from the first record, big-endian; the greatest first, and of equal values the
//! record that stands first. Fewer matches give a shorter answer.

use super::scan::{QUERY, Scan, ScanQuery};
use crate::grant::Grant;
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most records of an answer.
pub const MOST: usize = 14;
/// Bytes of the parameters.
pub const PARAMETERS: usize = size_of::<TopQueryBytes>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TopQueryBytes {
    query: [u8; QUERY],
    wanted: U32,
}

/// A record of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TopRecord {
    /// The value of its column.
    pub value: U64,
    /// Its number, counted from the first record of the query.
    pub number: U32,
}

/// The bytes of the parameters; `None` if nothing or more than [`MOST`] records are wanted.
pub fn encode(query: &ScanQuery, wanted: u32) -> Option<[u8; PARAMETERS]> {
    let query = query.encode();
    is_possible(wanted).then(|| zerocopy::transmute!(TopQueryBytes { query, wanted: wanted.into() }))
}

/// Decodes an answer; `None` if it does not consist of whole records.
pub fn parse(response: &[u8]) -> Option<&[TopRecord]> {
    <[TopRecord]>::ref_from_bytes(response).ok()
}

fn is_possible(wanted: u32) -> bool {
    (1..=MOST as u32).contains(&wanted)
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct Top {
    scan: Scan,
    wanted: u8,
    found: u8,
    /// The first `found` of these are the greatest so far, in order.
    records: [TopRecord; MOST],
}

impl Kernel for Top {
    /// "TOPRECRD" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"TOPRECRD"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let parameters = TopQueryBytes::ref_from_bytes(parameters).map_err(|_| Status::BadParameters)?;
        let wanted = parameters.wanted.get();
        if !is_possible(wanted) {
            return Err(Status::BadParameters);
        }
        let scan = Scan::new(ScanQuery::parse(&parameters.query)?);
        let mut top = Self { scan, wanted: wanted as u8, found: 0, records: FromZeros::new_zeroed() };
        let step = top.next(grant);
        Ok((top, step))
    }

    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        for (number, value) in self.scan.matches(bytes) {
            self.insert(value, number as u32);
        }
        self.next(grant)
    }

    fn computed(&self) -> &[u8] {
        self.records[..usize::from(self.found)].as_bytes()
    }
}

impl Top {
    /// Asks for the next records, or answers.
    fn next(&mut self, grant: &Grant) -> Step {
        match self.scan.next(grant) {
            Ok(Some(range)) => Step::Fetch(range),
            Ok(None) => Step::Reply(Emission { offset: 0, length: self.computed().len() as u32, version: 0 }),
            Err(status) => Step::Done(status),
        }
    }

    /// Inserts a record after those that are not less. If there are more than wanted, the last one drops out.
    fn insert(&mut self, value: u64, number: u32) {
        let (found, wanted) = (usize::from(self.found), usize::from(self.wanted));
        let at = self.records[..found].partition_point(|record| record.value.get() >= value);
        if at == wanted {
            return;
        }
        let end = wanted.min(found + 1);
        self.records.copy_within(at..end - 1, at + 1);
        self.records[at] = TopRecord { value: value.into(), number: number.into() };
        self.found = end as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::super::computing::computed_by;
    use super::super::field::{ByteOrder, Field, Predicate};
    use super::*;
    use proptest::prelude::*;

    fn run(memory: &[u8], parameters: &[u8]) -> Result<Vec<(u64, u32)>, Status> {
        let (response, _) = computed_by::<Top>(memory, parameters)?;
        let records = parse(&response).expect("an answer");
        Ok(records.iter().map(|record| (record.value.get(), record.number.get())).collect())
    }

    /// Records of a flag and a value; the query matches those with the flag set.
    fn query(records: u32) -> ScanQuery {
        ScanQuery {
            start: 0,
            records,
            stride: 12,
            order: ByteOrder::LittleEndian,
            compared: Field::word(0).bits(0, 1),
            predicate: Predicate::Equal,
            operand: 1,
            column: Field::word(1),
        }
    }

    fn memory(records: &[(bool, u64)]) -> Vec<u8> {
        records
            .iter()
            .flat_map(|(flag, value)| [&u32::from(*flag).to_le_bytes()[..], &value.to_le_bytes()].concat())
            .collect()
    }

    proptest! {
        #[test]
        fn the_top_values_agree_with_sorting(
            records in proptest::collection::vec((any::<bool>(), 0_u64..200), 0..1200),
            wanted in 1..=MOST as u32,
        ) {
            let parameters = encode(&query(records.len() as u32), wanted).expect("few enough");
            let mut sorted: Vec<(u64, u32)> =
                (0..).zip(&records).filter(|(_, (flag, _))| *flag).map(|(at, (_, value))| (*value, at)).collect();
            sorted.sort_by_key(|(value, number)| (core::cmp::Reverse(*value), *number));
            sorted.truncate(wanted as usize);
            prop_assert_eq!(run(&memory(&records), &parameters), Ok(sorted));
        }

        #[test]
        fn arbitrary_parameters_end_and_read_nothing_outside(
            mut bytes in proptest::collection::vec(any::<u8>(), PARAMETERS),
            length in 1_usize..9000,
        ) {
            let _ended = run(&vec![7; length], &bytes);
            bytes[..7].fill(0);
            bytes[16..18].fill(0);
            bytes[20..36].copy_from_slice(&[0, 16, 4, 0, 0, 0, 0, 32, 2, 0, 3, 61, 0, 0, 0, 3]);
            let _ended = run(&vec![7; length], &bytes);
        }
    }

    #[test]
    fn a_count_beyond_the_response_is_refused() {
        for wanted in [0, MOST as u32 + 1, u32::MAX] {
            assert_eq!(encode(&query(1), wanted), None);
            let bytes = [&query(1).encode()[..], &wanted.to_be_bytes()].concat();
            assert_eq!(run(&[0; 12], &bytes), Err(Status::BadParameters));
        }
        let good = encode(&query(1), 1).expect("one");
        assert_eq!(run(&[0; 12], &good), Ok(vec![]), "no record has the flag");
        assert_eq!(run(&[0; 12], &good[..PARAMETERS - 1]), Err(Status::BadParameters));
        assert_eq!(run(&[0; 12], &good[..QUERY - 1]), Err(Status::BadParameters));
    }
}
