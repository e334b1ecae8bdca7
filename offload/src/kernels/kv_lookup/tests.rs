use super::*;
use crate::budget::{Budget, Limits, Next};
use crate::kernels::kv_layout::{LineSlot, ObjectFrame, chain_of, object_size};
use bareverbs_prm::time::Time;
use proptest::prelude::*;

/// Runs a lookup over memory that does not change; every read must lie inside.
fn run(memory: &[u8], parameters: &[u8]) -> Result<(u32, u32), Status> {
    let grant = Grant::new(0x10_0000, memory.len() as u64)?;
    let mut budget = Budget::new(Limits::default(), Time::ZERO);
    let (mut kernel, mut step) = KvLookup::start(parameters, &grant)?;
    for _turn in 0..=Limits::default().hops {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                let bytes = &memory[range.offset() as usize..][..range.length() as usize];
                step = kernel.dma_done(bytes, &grant);
            }
            Next::Emit(emission) => return Ok((emission.offset, emission.length)),
            Next::End(status) => return Err(status),
            other => panic!("a lookup does not ask for {other:?}"),
        }
    }
    panic!("the lookup went on beyond its budget");
}

fn parameters(buckets: u32) -> Vec<u8> {
    let mut buffer = [0; MAX_PARAMETERS];
    let parameters = Parameters { hash: 9, lines: 64, buckets, key: b"key" };
    parameters.encode(&mut buffer).expect("fits").to_vec()
}

/// Memory of 1 KiB with `line` at offset 64.
fn memory_with(line: Line) -> Vec<u8> {
    let mut memory = vec![0; 1024];
    memory[64..128].copy_from_slice(&line.encode(chain_of(0, 1)));
    memory
}

fn line_with(object: ObjectRef) -> Line {
    Line {
        slots: [LineSlot { fingerprint: 9, object }, LineSlot::default(), LineSlot::default()],
        ..Line::default()
    }
}

#[test]
fn parameters_have_their_fields_at_the_stated_places() {
    let bytes = parameters(0x0102_0304);
    let expected: [&[u8]; 4] =
        [&[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 64], &[1, 2, 3, 4], &[0, 3, 0, 0], b"key"];
    assert_eq!(bytes, expected.concat());
    assert_eq!(Parameters::parse(&bytes).map(|p| p.key), Ok(&b"key"[..]));
}

#[test]
fn parameters_that_are_not_exactly_one_key_are_refused() {
    let good = parameters(1);
    for (at, bit) in [(21, 1), (20, 1), (22, 1), (23, 1), (19, 1)] {
        let mut bad = good.clone();
        bad[at] ^= bit;
        assert_eq!(Parameters::parse(&bad), Err(Status::BadParameters), "byte {at}");
    }
    for length in 0..good.len() {
        assert_eq!(Parameters::parse(&good[..length]), Err(Status::BadParameters));
    }
    assert!(Parameters { hash: 0, lines: 0, buckets: 1, key: &[0; 65] }.encode(&mut [0; 128]).is_none());
}

#[test]
fn a_table_outside_of_the_grant() {
    let mut far = parameters(1);
    far[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
    assert_eq!(run(&[0; 256], &far), Err(Status::OutOfBounds));
    far[8..16].copy_from_slice(&(u64::MAX - 63).to_be_bytes());
    assert_eq!(run(&[0; 256], &far), Err(Status::OutOfBounds), "aligned, but the table wraps around");
    far[8..16].copy_from_slice(&65_u64.to_be_bytes());
    assert_eq!(run(&[0; 256], &far), Err(Status::OutOfBounds), "not aligned");
}

#[test]
fn pointers_out_of_the_grant_or_off_their_alignment() {
    for bits in [u64::MAX, 1 << 16 | 1, 0x400_u64 << 16 | 1, 0x3f0_u64 << 16 | 2, 64 << 16] {
        let memory = memory_with(line_with(ObjectRef::from_bits(bits)));
        let expected = if bits == 1 << 16 | 1 { Status::Inconsistent } else { Status::OutOfBounds };
        assert_eq!(run(&memory, &parameters(1)), Err(expected), "ref {bits:#x}");
    }
    for next in [u64::MAX, 16, 66, 1024, 1 << 40, 1024 + 1] {
        let memory = memory_with(Line { next, ..Line::default() });
        assert_eq!(run(&memory, &parameters(1)), Err(Status::OutOfBounds), "next {next:#x}");
    }
}

#[test]
fn a_chain_that_bites_its_tail_ends_at_the_hop_limit() {
    let memory = memory_with(Line { next: 64, ..Line::default() });
    assert_eq!(run(&memory, &parameters(1)), Err(Status::HopLimit));
}

#[test]
fn a_line_of_another_chain_is_not_believed() {
    let mut memory = memory_with(Line { next: 128, ..Line::default() });
    memory[128..192].copy_from_slice(&Line::default().encode(chain_of(0, 2)));
    assert_eq!(run(&memory, &parameters(1)), Err(Status::Inconsistent));
    memory[128..192].copy_from_slice(&Line::default().encode(chain_of(0, 1)));
    assert_eq!(run(&memory, &parameters(1)), Err(Status::NotFound));
}

#[test]
fn a_table_cannot_double_beyond_32_bit_chain_numbers() {
    let mut memory = vec![0; 1024];
    memory[64..128].copy_from_slice(&Line::default().with_move(64).encode(chain_of(0, 1 << 31)));
    assert_eq!(run(&memory, &parameters(1 << 31)), Err(Status::OutOfBounds));
}

#[test]
fn a_permanently_torn_read_is_given_up() {
    let memory = memory_with(Line { sequence: 1, ..Line::default() });
    assert_eq!(run(&memory, &parameters(1)), Err(Status::Busy));
    let mut memory = memory_with(Line::default());
    memory[70] ^= 1;
    assert_eq!(run(&memory, &parameters(1)), Err(Status::Inconsistent));
}

/// Looks up hash 9; its line names an object at 0x100 that has this hash and key.
fn with_object(hash: u64, key: &[u8]) -> Result<(u32, u32), Status> {
    let object = ObjectRef::new(0x100, object_size(key.len(), 5)).expect("aligned");
    let mut memory = memory_with(line_with(object));
    let frame = ObjectFrame::new(hash, key, b"value", 1).expect("fits");
    let bytes = [frame.header(), key, b"value", frame.end()].concat();
    memory[0x100..0x100 + bytes.len()].copy_from_slice(&bytes);
    run(&memory, &parameters(1))
}

#[test]
fn an_object_that_was_replaced_is_no_other_key_of_the_same_hash() {
    assert_eq!(with_object(9, b"key").map(|(_, length)| length), Ok(5));
    assert_eq!(with_object(9, b"kez"), Err(Status::NotFound), "another key with this hash");
    assert_eq!(with_object(8, b"key"), Err(Status::Inconsistent), "the line was outdated");
    assert_eq!(with_object(8, b"kez"), Err(Status::Inconsistent), "the line was outdated");
}

/// Lines after 64 bytes of noise. Each is sealed for the hash's chain, or for its chain after the table has
/// doubled.
fn sealed(noise: &[u8], lines: &[(Line, bool)], hash: u64, buckets: u32) -> Vec<u8> {
    let mut memory = noise.to_vec();
    for (line, doubled) in lines {
        let buckets = buckets << u32::from(*doubled);
        memory.extend_from_slice(&line.encode(chain_of(bucket_of(hash, buckets), buckets)));
    }
    memory
}

/// A line with a valid checksum, whatever else it says, so that lookups follow its pointers.
fn hostile_line() -> impl Strategy<Value = Line> {
    let word = prop_oneof![
        any::<u64>(),
        (0..64_u64).prop_map(|n| n * 16),
        (0..16_u64).prop_map(|n| n * 64),
        (0..16_u64).prop_map(|n| n * 64 + 1)
    ];
    let object = prop_oneof![any::<u64>(), (0..64_u64, 0..64_u64).prop_map(|(at, n)| at << 20 | n)];
    let slot = (prop_oneof![Just(9_u64), any::<u64>()], object)
        .prop_map(|(fingerprint, bits)| LineSlot { fingerprint, object: ObjectRef::from_bits(bits) });
    (proptest::array::uniform3(slot), word, any::<u32>()).prop_map(|(slots, next, sequence)| Line {
        slots,
        next,
        sequence,
    })
}

proptest! {
    #[test]
    fn arbitrary_memory_ends_within_the_budget(
        lines in proptest::collection::vec((hostile_line(), any::<bool>()), 15),
        noise in proptest::collection::vec(any::<u8>(), 64),
        buckets in 1..20_u32, hash: u64,
    ) {
        let mut parameters = parameters(buckets);
        let _ = run(&sealed(&noise, &lines, 9, buckets), &parameters);
        parameters[..8].copy_from_slice(&hash.to_be_bytes());
        let _ = run(&sealed(&noise, &lines, hash, buckets), &parameters);
    }

    #[test]
    fn arbitrary_parameters(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = run(&[0; 512], &bytes);
    }
}
