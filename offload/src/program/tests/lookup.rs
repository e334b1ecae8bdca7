//! The hash table lookup, compiled by clang from C and by rustc from Rust, against the native kernel: all must take the
//! same steps for the same bytes.

use super::*;
use crate::grant::Grant;
use crate::kernel::{Kernel, Status, Step};
use crate::kernels::checksum::crc32c;
use crate::kernels::kv_layout::{Line, LineSlot, ObjectFrame, ObjectRef, chain_of, object_size};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS, Parameters};
use proptest::prelude::*;

const LOOKUPS: [&[u8]; 2] =
    [include_bytes!("../../../objects/kv_lookup.o"), include_bytes!("../../../objects/kv_lookup_rs.o")];
/// Enough for the checksum of the largest object.
const FUEL: Fuel = Fuel { step: 8192, invocation: u32::MAX };

/// Runs all over `memory` for up to 64 steps, and returns the last one.
fn compare(memory: &[u8], parameters: &[u8]) -> Result<Step, TestCaseError> {
    let [last, of_rust] = LOOKUPS.map(|object| compare_with(object, memory, parameters));
    prop_assert_eq!(last.as_ref().ok(), of_rust.as_ref().ok());
    of_rust.and(last)
}

fn compare_with(object: &[u8], memory: &[u8], parameters: &[u8]) -> Result<Step, TestCaseError> {
    let grant = Grant::new(0x10_0000, memory.len() as u64).expect("no wrap");
    let program = compiled(object);
    let ours = ProgramInvocation::start(&program, FUEL, parameters, &grant);
    let (mut ours, mut step) = ours.expect("the parameters fit");
    let mut native = match KvLookup::start(parameters, &grant) {
        Ok((kernel, first)) => {
            prop_assert_eq!(step, first);
            kernel
        }
        Err(status) => {
            prop_assert_eq!(step, Step::Done(status));
            return Ok(step);
        }
    };
    for _ in 0..64 {
        let (Step::Fetch(range) | Step::Refetch { range, .. }) = step else { break };
        let bytes = &memory[range.offset() as usize..][..range.length() as usize];
        step = ours.dma_done(&program, bytes, &grant);
        prop_assert_eq!(step, native.dma_done(bytes, &grant), "{:?}", ours.fault());
    }
    Ok(step)
}

/// A line at 64 with references to objects at 256 and 512, and a second line at 128. The tests then change
/// bytes.
fn memory(keys: [&[u8]; 2], hashes: [u64; 2], value: &[u8]) -> Vec<u8> {
    let mut memory = vec![0; 1024];
    let mut reference = |at: usize, key: &[u8], hash| {
        let frame = ObjectFrame::new(hash, key, value, 17).expect("fits");
        let object = [frame.header(), key, value, frame.end()].concat();
        memory[at..at + object.len()].copy_from_slice(&object);
        let size = object_size(key.len(), value.len());
        LineSlot { fingerprint: hash, object: ObjectRef::new(at as u64, size).expect("aligned") }
    };
    let slots = [reference(256, keys[0], hashes[0]), reference(512, keys[1], hashes[1])];
    let first = Line { slots: [slots[0], LineSlot::default(), LineSlot::default()], next: 128, sequence: 4 };
    let second = Line { slots: [LineSlot::default(), slots[1], LineSlot::default()], next: 0, sequence: 2 };
    memory[64..128].copy_from_slice(&first.encode(chain_of(0, 1)));
    memory[128..192].copy_from_slice(&second.encode(chain_of(0, 1)));
    memory
}

fn parameters(hash: u64, key: &[u8]) -> Vec<u8> {
    let mut buffer = [0; MAX_PARAMETERS];
    Parameters { hash, lines: 64, buckets: 1, key }.encode(&mut buffer).expect("fits").to_vec()
}

#[test]
fn the_lookup_program_compares_whole_keys() {
    let memory = memory([b"other", b"wanted"], [9, 9], b"the value");
    let step = compare(&memory, &parameters(9, b"wanted")).expect("equal");
    assert!(matches!(step, Step::Emit(emission) if emission.length == 9 && emission.version == 17));
    let miss = compare(&memory, &parameters(9, b"nobody")).expect("equal");
    assert_eq!(miss, Step::Done(Status::NotFound));
}

/// A table's only first line, which has moved to `lines`.
fn moved_to(memory: &mut [u8], lines: u64) {
    memory[64..128].copy_from_slice(&Line::default().with_move(lines).encode(chain_of(0, 1)));
}

#[test]
fn lines_that_moved_are_found_where_they_went() {
    for hash in [9, u64::MAX] {
        let mut memory = memory([b"other", b"wanted"], [hash, hash], b"the value");
        let bucket = u64::from(hash == u64::MAX);
        let line = Line { next: 0, sequence: 2, ..Line::parse(&memory[128..192], 1).expect("whole") };
        moved_to(&mut memory, 768);
        memory[768 + 64 * bucket as usize..][..64].copy_from_slice(&line.encode(chain_of(bucket as u32, 2)));
        let step = compare(&memory, &parameters(hash, b"wanted")).expect("equal");
        assert!(matches!(step, Step::Emit(emission) if emission.length == 9));
    }
    for (lines, status) in
        [(1 << 40, Status::OutOfBounds), (776, Status::OutOfBounds), (64, Status::OutOfBounds)]
    {
        let mut memory = memory([b"other", b"wanted"], [9, 9], b"the value");
        moved_to(&mut memory, lines);
        let step = compare(&memory, &parameters(9, b"wanted")).expect("equal");
        let torn = lines == 64 && matches!(step, Step::Refetch { otherwise: Status::Inconsistent, .. });
        assert!(step == Step::Done(status) || torn, "{lines}: {step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_table_with_changed_bytes_is_walked_alike(
        hashes in proptest::array::uniform2(0_u64..3),
        key in proptest::sample::select(vec![&b"k"[..], b"key", b"wanted"]),
        value in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((0_usize..1024, any::<u8>()), 0..4),
        references in proptest::collection::vec((0_usize..3, any::<u16>(), 0_u16..9), 0..3),
        sequence in 0_u8..4,
        moved in proptest::option::weighted(0.2, 0_u8..16),
    ) {
        let mut memory = memory([b"key", b"wanted"], hashes, &value);
        changes.into_iter().for_each(|(at, value)| memory[at] = value);
        for (slot, offset, units) in references {
            memory[64 + slot * 16 + 8..][..8].copy_from_slice(&[0, 0, 0, 0, (offset >> 8) as u8, offset as u8, 0, units as u8]);
            memory[64 + slot * 16..][..8].copy_from_slice(&hashes[0].to_be_bytes());
        }
        // A line that was changed and is consistent, or one that is being changed.
        memory[123] = sequence;
        if let Some(lines) = moved {
            memory[112..120].copy_from_slice(&(u64::from(lines) * 64 + 1).to_be_bytes());
        }
        let crc = crc32c(&memory[64..124]) ^ chain_of(0, 1);
        memory[124..128].copy_from_slice(&crc.to_be_bytes());
        let _last = compare(&memory, &parameters(hashes[0], key))?;
    }

    #[test]
    fn arbitrary_parameters_begin_alike(
        fixed in proptest::array::uniform24(any::<u8>()),
        key in proptest::collection::vec(any::<u8>(), 0..80),
        cut in 0_usize..30,
        coherent: bool,
    ) {
        let memory = memory([b"key", b"wanted"], [1, 2], b"value");
        let mut bytes = [&fixed[..], &key].concat();
        if coherent {
            bytes[8..16].copy_from_slice(&(u64::from(fixed[15] % 16) * 32).to_be_bytes());
            bytes[16..19].fill(0);
            bytes[20..24].copy_from_slice(&[0, key.len() as u8, 0, 0]);
        } else {
            bytes.truncate(bytes.len().saturating_sub(cut));
        }
        let _last = compare(&memory, &bytes)?;
    }
}
