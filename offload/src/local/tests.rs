use super::*;
use crate::kernel::{CompiledIn, Kernel, Ranges};
use crate::kernels::BuiltInKernels;
use crate::kernels::aggregate::{Aggregate, Totals};
use crate::kernels::field::{ByteOrder, Field, Predicate};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::kernels::publish::{FIXED, Publish, PublishParameters};
use crate::kernels::scan::ScanQuery;
use crate::program::{Fuel, Program, WithPrograms};
use crate::streams::open_stream::{PARTITIONS, SHUFFLE, ShuffleParameters};
use crate::table::{TableConfig, TablePolicy, TableWriter};
use object::{Object as _, ObjectSection as _};
use zerocopy::IntoBytes as _;

const LENGTH: u64 = 1 << 20;

fn value(n: u8) -> Vec<u8> {
    vec![n; usize::from(n) * 37]
}

fn local<'a>(opcode: Opcode, parameters: &'a [u8], grant: Grant) -> LocalCall<'a> {
    LocalCall { opcode, parameters, payload: &[], grant, limits: Limits::default() }
}

fn compiled_in() -> CompiledIn<BuiltInKernels> {
    CompiledIn::default()
}

fn program() -> Program {
    let object = include_bytes!("../../objects/kv_lookup.o");
    let file = object::File::parse(&object[..]).expect("an ELF file");
    let text = file.section_by_name(".text").expect("code");
    Program::verify(text.data().expect("bytes")).expect("the verifier lets it pass")
}

#[test]
fn every_row_of_a_table_is_found_by_kernel_and_by_program() {
    let mut memory = vec![0; LENGTH as usize];
    // Two buckets for 40 rows: chains of several elements.
    let config =
        TableConfig { buckets: 2, overflow_lines: 16, seed: [9; 16], policy: TablePolicy::default() };
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
    for n in 0..40 {
        writer.insert(Time::ZERO, &[n, 1, 2], &value(n)).expect("room");
    }
    let table = *writer.descriptor();
    let grant = Grant::new(0, LENGTH).expect("no wrap");
    let mut programs: WithPrograms<BuiltInKernels, 4> = WithPrograms::new(Fuel::default());
    programs.deploy(Opcode(7), program()).expect("room");
    let mut buffer = vec![0; 4096];
    for n in 0..50 {
        let mut parameters = [0; MAX_PARAMETERS];
        let parameters = table.lookup(&[n, 1, 2]).encode(&mut parameters).expect("fits");
        for opcode in [KvLookup::OPCODE, Opcode(7)] {
            let lookup = local(opcode, parameters, grant);
            let found = call(&mut programs, &mut memory.as_mut_slice(), &lookup, &mut buffer);
            let found = found.map(|found| buffer[..found.length].to_vec());
            let expected = if n < 40 { Ok(value(n)) } else { Err(Status::NotFound) };
            assert_eq!(found, expected, "row {n}, {opcode}");
        }
    }
    assert_eq!(programs.store().list().map(|program| program.running).sum::<u32>(), 0);
    let mut parameters = [0; MAX_PARAMETERS];
    let parameters = table.lookup(&[39, 1, 2]).encode(&mut parameters).expect("fits");
    let mut lookup = local(KvLookup::OPCODE, parameters, grant);
    let mut call = |lookup: &LocalCall<'_>, buffer: &mut [u8]| {
        super::call(&mut compiled_in(), &mut memory.as_mut_slice(), lookup, buffer).map(|found| found.hops)
    };
    assert!(call(&lookup, &mut buffer).is_ok_and(|hops| hops > 1));
    assert_eq!(call(&lookup, &mut [0; 32]), Err(Status::Truncated), "a line has 64 bytes");
    lookup.limits.hops = 1;
    assert_eq!(call(&lookup, &mut buffer), Err(Status::HopLimit));
    lookup.opcode = Opcode(7);
    assert_eq!(call(&lookup, &mut buffer), Err(Status::NoKernel));
    (lookup.opcode, lookup.payload) = (KvLookup::OPCODE, &[1]);
    assert_eq!(call(&lookup, &mut buffer), Err(Status::BadParameters), "it takes no payload");
}

#[test]
fn a_value_is_written_and_swapped_in_within_the_grant() {
    let mut memory = vec![0; 256];
    let parameters = |value: u64, expected: u64| {
        let fixed = PublishParameters {
            value: value.into(),
            word: 0.into(),
            expected: expected.into(),
            desired: value.into(),
        };
        let mut buffer = [0; FIXED + 8];
        fixed.encode(&[5; 8], &mut buffer).expect("fits").to_vec()
    };
    // The grant begins at byte 64 of the memory.
    let grant = Grant::new(64, 128).expect("no wrap");
    let mut publish = |value, expected, grant: Grant| {
        let parameters = parameters(value, expected);
        let mut buffer = [0; 64];
        let call = local(Publish::OPCODE, &parameters, grant);
        let ended = super::call(&mut compiled_in(), &mut memory.as_mut_slice(), &call, &mut buffer);
        (ended.map(|answer| buffer[..answer.length].to_vec()), memory.clone())
    };
    assert_eq!(publish(16, 0, grant).0, Err(Status::ReadOnly));
    let (previous, written) = publish(16, 0, grant.writable());
    assert_eq!(previous, Ok(vec![0; 8]));
    assert_eq!((&written[64..72], &written[80..88]), (&16_u64.to_be_bytes()[..], &[5; 8][..]));
    let (previous, written) = publish(32, 0, grant.writable());
    assert_eq!(previous, Ok(16_u64.to_be_bytes().to_vec()), "somebody came before");
    assert_eq!(written[64..72], 16_u64.to_be_bytes());
    assert_eq!(publish(121, 16, grant.writable()).0, Err(Status::OutOfBounds), "one byte too far");
}

#[test]
fn records_are_added_up_in_several_reads_at_once() {
    let mut memory: Vec<u8> = (0..10_000_u64).flat_map(u64::to_le_bytes).collect();
    let length = memory.len() as u64;
    let query = ScanQuery {
        start: 0,
        records: 10_000,
        stride: 8,
        order: ByteOrder::LittleEndian,
        compared: Field::word(0),
        predicate: Predicate::GreaterThan,
        operand: 99,
        column: Field::word(0),
    };
    let parameters = query.encode();
    let call = local(Aggregate::OPCODE, &parameters, Grant::new(0, length).expect("no wrap"));
    let mut buffer = vec![0; crate::budget::MAX_READ as usize];
    let ended =
        super::call(&mut compiled_in(), &mut memory.as_mut_slice(), &call, &mut buffer).expect("ends");
    let totals = Totals::parse(&buffer[..ended.length]).expect("totals");
    let expected = Totals { count: 9_900, sum: (100..10_000).sum(), least: 100, greatest: 9_999 };
    assert_eq!(totals, expected);
    assert!(ended.hops > 10, "in pieces: {}", ended.hops);
}

/// Reads two ranges at once, and another one when the first has come. Then it waits for what it has discarded.
struct Fickle(Grant);

impl Kernel for Fickle {
    const OPCODE: Opcode = Opcode(1);

    fn start(_: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let ranges = Ranges::of(&[grant.check(0, 8)?, grant.check(8, 8)?]).ok_or(Status::BadParameters)?;
        Ok((Self(*grant), Step::FetchEach(ranges)))
    }

    fn resumed(&mut self, event: Event<'_>, _: &Grant) -> Step {
        match event {
            Event::Part { part: 0, bytes: [1, ..] } => Step::Fetch(self.0.check(16, 8).expect("inside")),
            _ => Step::Done(Status::Inconsistent),
        }
    }

    fn dma_done(&mut self, bytes: &[u8], _: &Grant) -> Step {
        if bytes[0] == 3 { Step::AwaitPart } else { Step::Done(Status::Inconsistent) }
    }
}

#[test]
fn ranges_that_a_kernel_has_discarded_are_not_awaited() {
    let mut memory = [[1; 8], [2; 8], [3; 8]].concat();
    let call = local(Fickle::OPCODE, &[], Grant::new(0, 24).expect("no wrap"));
    let ended =
        super::call(&mut CompiledIn::<Fickle>::default(), &mut memory.as_mut_slice(), &call, &mut [0; 8]);
    assert_eq!(ended, Err(Status::BadParameters), "there is nothing to wait for");
}

#[test]
fn a_stream_is_partitioned_into_memory_of_this_machine() {
    let values: Vec<u64> = (0..999).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).collect();
    let of =
        |partition| values.iter().copied().filter(move |value| *value as usize % PARTITIONS == partition);
    let lengths = core::array::from_fn(|partition| 8 * of(partition).count() as u64);
    let parameters = ShuffleParameters::without_gaps(lengths);
    let grant = Grant::new(64, 8 * 999).expect("no wrap").writable();
    let mut stream = OpenStream::open(SHUFFLE, parameters.as_bytes(), grant).expect("opens");
    let mut memory = vec![0; 64 + 8 * 999];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for piece in bytes.chunks(1001) {
        assert_eq!(pass(&mut stream, piece, &mut memory.as_mut_slice()), Ok(()));
    }
    let expected: Vec<u8> = (0..PARTITIONS).flat_map(of).flat_map(u64::to_le_bytes).collect();
    assert!(stream.is_whole() && memory[64..] == expected && memory[..64] == [0; 64]);
    assert_eq!(pass(&mut stream, &[1], &mut memory.as_mut_slice()), Err(Status::BadParameters));
    // The grant reaches beyond the memory.
    let grant = Grant::new(0, 1 << 20).expect("no wrap").writable();
    let bytes = (1_u64 << 19).to_be_bytes();
    let mut stream = OpenStream::open(crate::streams::open_stream::COUNT, &bytes, grant).expect("opens");
    assert_eq!(pass(&mut stream, &vec![0; 1 << 19], &mut memory.as_mut_slice()), Err(Status::DmaFault));
}
