//! Reads an object until it is consistent: the consistency kernel of StRoM (EuroSys 2020, section 6.3).
//!
//! A writer ends each object with the CRC-64 ([`super::checksum::crc64`]) of all bytes before it,
//! little-endian. A reader that races with a writer sees a wrong checksum and reads again. Over the network
//! that costs a round trip; here it costs a DMA. Parameters, 16 bytes, big-endian: offset 8, length 4
//! (including the checksum), reserved 4. The answer is the object with its checksum.

use super::checksum::crc64;
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the sum at the end of an object.
pub const SUM: u32 = 8;
/// Most bytes of an object.
pub const MAX_OBJECT: u32 = 65_536;
/// Bytes of the parameters.
pub const PARAMETERS: usize = size_of::<PlaceBytes>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PlaceBytes {
    offset: U64,
    length: U32,
    reserved: U32,
}

/// The bytes of the parameters for an object of `length` bytes, its sum included.
pub fn encode(offset: u64, length: u32) -> [u8; PARAMETERS] {
    zerocopy::transmute!(PlaceBytes { offset: offset.into(), length: length.into(), reserved: U32::ZERO })
}

/// Writes the checksum of `object` into its last 8 bytes. An object that has no more than its checksum is
/// left unchanged.
pub fn seal(object: &mut [u8]) {
    if let Some((bytes, sum)) = object.split_last_chunk_mut().filter(|(bytes, _)| !bytes.is_empty()) {
        *sum = crc64(bytes).to_le_bytes();
    }
}

/// Whether an object ends with its checksum.
pub fn is_whole(object: &[u8]) -> bool {
    object
        .split_last_chunk()
        .is_some_and(|(bytes, sum)| !bytes.is_empty() && u64::from_le_bytes(*sum) == crc64(bytes))
}

/// An object that is being read.
#[derive(Debug, Clone)]
pub struct Consistency {
    range: Checked,
}

impl Kernel for Consistency {
    /// "CONSISTN" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"CONSISTN"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let parameters = PlaceBytes::ref_from_bytes(parameters).map_err(|_| Status::BadParameters)?;
        let length = parameters.length.get();
        if parameters.reserved != U32::ZERO || !(SUM + 1..=MAX_OBJECT).contains(&length) {
            return Err(Status::BadParameters);
        }
        let range = grant.check(parameters.offset.get(), length)?;
        Ok((Self { range }, Step::Fetch(range)))
    }

    fn dma_done(&mut self, bytes: &[u8], _grant: &Grant) -> Step {
        if is_whole(bytes) {
            return Step::Emit(Emission { offset: 0, length: self.range.length(), version: 0 });
        }
        Step::Refetch { range: self.range, otherwise: Status::Inconsistent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits, Next};
    use bareverbs_prm::time::Time;
    use proptest::prelude::*;

    /// Runs the kernel on an object whose first `torn` reads coincide with a change. Returns the result and
    /// the number of reads.
    fn run(memory: &[u8], parameters: &[u8], torn: usize) -> (Result<Vec<u8>, Status>, usize) {
        let mut reads = 0;
        let ended = (|| {
            let grant = Grant::new(0x10_0000, memory.len() as u64)?;
            let mut budget = Budget::new(Limits::default(), Time::ZERO);
            let (mut kernel, mut step) = Consistency::start(parameters, &grant)?;
            loop {
                let range = match budget.charge(step, Time::ZERO) {
                    Next::Read(range) => range,
                    Next::End(status) => return Err(status),
                    other => panic!("{other:?}"),
                };
                let mut bytes = memory[range.offset() as usize..][..range.length() as usize].to_vec();
                if reads < torn {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1 << (reads % 8);
                }
                reads += 1;
                step = kernel.dma_done(&bytes, &grant);
                if let Step::Emit(Emission { offset: 0, length, .. }) = step {
                    assert_eq!(length as usize, bytes.len());
                    return Ok(bytes);
                }
            }
        })();
        (ended, reads)
    }

    fn object(bytes: &[u8]) -> Vec<u8> {
        let mut object = [bytes, &[0; SUM as usize]].concat();
        seal(&mut object);
        object
    }

    proptest! {
        #[test]
        fn a_torn_object_is_read_again(
            bytes in proptest::collection::vec(any::<u8>(), 1..5000),
            before in 0_usize..64,
            torn in 0..=usize::from(Limits::default().retries),
        ) {
            let object = object(&bytes);
            let memory = [&vec![0xa5; before], &object[..]].concat();
            let (ended, reads) = run(&memory, &encode(before as u64, object.len() as u32), torn);
            prop_assert_eq!(ended, Ok(object));
            prop_assert_eq!(reads, torn + 1);
        }

        #[test]
        fn no_change_of_a_bit_goes_unnoticed(bytes in proptest::collection::vec(any::<u8>(), 1..300), at in any::<usize>()) {
            let mut object = object(&bytes);
            prop_assert!(is_whole(&object));
            let bit = at % (object.len() * 8);
            object[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_whole(&object));
        }
    }

    #[test]
    fn an_object_that_never_becomes_whole_ends() {
        let (ended, reads) = run(&object(b"never"), &encode(0, 13), usize::MAX);
        assert_eq!(ended, Err(Status::Inconsistent));
        assert_eq!(reads, usize::from(Limits::default().retries) + 1);
    }

    #[test]
    fn objects_without_bytes_or_outside_are_refused() {
        let memory = object(b"here");
        for (offset, length, status) in [
            (0, 0, Status::BadParameters),
            (0, SUM, Status::BadParameters),
            (0, MAX_OBJECT + 1, Status::BadParameters),
            (1, 12, Status::OutOfBounds),
            (u64::MAX, 12, Status::OutOfBounds),
        ] {
            assert_eq!(run(&memory, &encode(offset, length), 0), (Err(status), 0), "{offset} {length}");
        }
        let mut reserved = encode(0, 12);
        reserved[15] = 1;
        assert_eq!(run(&memory, &reserved, 0).0, Err(Status::BadParameters));
        assert_eq!(run(&memory, &reserved[1..], 0).0, Err(Status::BadParameters));
    }

    #[test]
    fn a_checksum_over_no_bytes_is_not_a_whole_object() {
        let mut sum = [0; SUM as usize];
        seal(&mut sum);
        assert_eq!(sum, [0; SUM as usize]);
        assert!(!is_whole(&sum), "the sum of nothing is zero");
    }
}
