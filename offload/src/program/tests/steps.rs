use super::*;
use crate::grant::Grant;
use crate::kernel::{Emission, Status, Step};

/// Where things are in the context.
const PARAMETERS_AT: i16 = 0;
const STATE_AT: i16 = 8;
const WINDOW_AT: i16 = 16;
const OFFSET: i16 = 48;
const LENGTH: i16 = 64;
const STATUS: i16 = 68;

fn grant() -> Grant {
    Grant::new(0x10_0000, 4096).expect("no wrap")
}

fn start(code: &[Instruction]) -> (ProgramInvocation, Step) {
    ProgramInvocation::start(&verified(code), Fuel::default(), &[1, 2, 3, 4], &grant()).expect("it begins")
}

#[test]
fn a_loop_without_end_ends_with_its_fuel() {
    let (invocation, step) = start(&[jump(-1)]);
    assert_eq!(step, Step::Done(Status::OutOfFuel));
    assert_eq!(invocation.fault(), Some(Fault::OutOfFuel { instruction: 0 }));
    assert_eq!(invocation.fuel_used(), 512);
}

#[test]
fn an_invocation_has_fuel_for_32_full_steps() {
    // Counts down from 250 in each step, and asks for the same line again.
    let program = verified(&[
        put(n::W, 1, LENGTH, 64),
        mov(2, 250),
        Instruction::new(n::ALU64 | n::ADD, 2, 0, 0, -1),
        Instruction::new(n::JMP | n::JNE, 2, 0, -2, 0),
        mov(0, Verb::Fetch as i32),
        exit(),
    ]);
    let started = ProgramInvocation::start(&program, Fuel::default(), &[], &grant());
    let (mut invocation, mut step) = started.expect("it begins");
    let mut steps = 0;
    while let Step::Fetch(_) = step {
        steps += 1;
        step = invocation.dma_done(&program, &[0; 64], &grant());
    }
    assert_eq!(step, Step::Done(Status::OutOfFuel));
    assert_eq!(steps, 16 * 1024 / 504, "504 a step");
    assert_eq!(invocation.fuel_used(), 16 * 1024);
}

#[test]
fn helpers_are_paid_for_by_their_bytes() {
    let program =
        |length| [load(n::DW, 1, 1, STATE_AT), mov(2, length), call(Helper::Crc64), mov(0, 0), exit()];
    assert_eq!(start(&program(160)).0.fuel_used(), 5 + 10);
    let (invocation, step) = start(&program(161));
    assert_eq!(step, Step::Done(Status::ProgramFault));
    let fault = Fault::Outside { instruction: 2, address: 4 << 32, bytes: 161, write: false };
    assert_eq!(invocation.fault(), Some(fault));
    assert_eq!(start(&program(-1)).1, Step::Done(Status::ProgramFault));
}

#[test]
fn every_segment_has_its_bounds_and_its_rights() {
    // Reads or writes `size` at an address made of a segment and an offset.
    let access = |segment: i32, offset: i32, write: bool| {
        let mut code = vec![
            mov(2, segment),
            Instruction::new(n::ALU64 | n::LSH, 2, 0, 0, 32),
            Instruction::new(n::ALU64 | n::ADD, 2, 0, 0, offset),
        ];
        code.push(if write { put(n::W, 2, 0, 7) } else { load(n::W, 3, 2, 0) });
        code.extend([mov(0, 0), exit()]);
        start(&code).1 == Step::Done(Status::Ok)
    };
    for (segment, size, writable) in [(1, 72, true), (2, 4, false), (4, 160, true), (5, 256, true)] {
        assert!(access(segment, size - 4, false), "segment {segment}");
        assert!(!access(segment, size - 3, false), "segment {segment}");
        assert!(!access(segment, size, false), "segment {segment}");
        assert_eq!(access(segment, 0, true), writable, "segment {segment}");
        assert!(!access(segment, size - 3, true), "segment {segment}");
    }
    for (segment, offset) in [(0, 0), (3, 0), (6, 0), (1, -1), (-1, 0), (5, i32::MAX)] {
        assert!(!access(segment, offset, false), "segment {segment}, offset {offset}");
    }
}

#[test]
fn verbs_and_statuses_that_do_not_exist_are_faults() {
    for value in [6, -1, 255] {
        let (invocation, step) = start(&[mov(0, value), exit()]);
        assert_eq!(step, Step::Done(Status::ProgramFault));
        assert!(matches!(invocation.fault(), Some(Fault::Verb { .. })));
    }
    for (status, expected) in
        [(1, Status::NotFound), (9, Status::Busy), (200, Status::ProgramFault), (256, Status::ProgramFault)]
    {
        let (_, step) = start(&[put(n::W, 1, STATUS, status), mov(0, 0), exit()]);
        assert_eq!(step, Step::Done(expected));
    }
}

#[test]
fn the_state_stays_and_the_stack_does_not() {
    // Counts its steps in the state and on the stack, and replies with the first byte of both after the third.
    let program = verified(&[
        load(n::DW, 6, 1, STATE_AT),
        load(n::B, 2, 6, 0),
        Instruction::new(n::ALU64 | n::ADD, 2, 0, 0, 1),
        store(n::B, 6, 0, 2),
        load(n::B, 3, 10, -1),
        Instruction::new(n::ALU64 | n::ADD, 3, 0, 0, 1),
        store(n::B, 10, -1, 3),
        store(n::B, 6, 1, 3),
        put(n::W, 1, LENGTH, 2),
        mov(0, Verb::Fetch as i32),
        Instruction::new(n::JMP | n::JNE, 2, 0, 1, 3),
        mov(0, Verb::Reply as i32),
        exit(),
    ]);
    let (mut invocation, mut step) =
        ProgramInvocation::start(&program, Fuel::default(), &[], &grant()).expect("it begins");
    for _ in 0..2 {
        assert!(matches!(step, Step::Fetch(_)));
        step = invocation.dma_done(&program, &[0, 0], &grant());
    }
    assert_eq!(step, Step::Reply(Emission { offset: 0, length: 2, version: 0 }));
    assert_eq!(invocation.state()[..2], [3, 1]);
}

#[test]
fn offsets_are_checked_outside_of_the_program() {
    let fetch = |offset: i32, length: i32| {
        let code =
            [put(n::DW, 1, OFFSET, offset), put(n::W, 1, LENGTH, length), mov(0, Verb::Fetch as i32), exit()];
        start(&code).1
    };
    assert!(matches!(fetch(4032, 64), Step::Fetch(range) if range.address() == 0x10_0000 + 4032));
    for (offset, length) in [(4033, 64), (-8, 8), (0, 0), (0, -1)] {
        assert_eq!(fetch(offset, length), Step::Done(Status::OutOfBounds), "{length} at {offset}");
    }
}

#[test]
fn parameters_and_payload_arrive_in_their_segments() {
    // Replies with the first parameter and the first byte of the payload.
    let program = verified(&[
        load(n::DW, 6, 1, STATE_AT),
        load(n::DW, 2, 1, PARAMETERS_AT),
        load(n::B, 2, 2, 0),
        store(n::B, 6, 0, 2),
        mov(0, Verb::AwaitPayload as i32),
        load(n::W, 3, 1, 40),
        Instruction::new(n::JMP | n::JEQ, 3, 0, 5, 0),
        load(n::DW, 2, 1, WINDOW_AT),
        load(n::B, 2, 2, 0),
        store(n::B, 6, 1, 2),
        put(n::W, 1, LENGTH, 2),
        mov(0, Verb::Reply as i32),
        exit(),
    ]);
    let started = ProgramInvocation::start(&program, Fuel::default(), &[7], &grant());
    let (mut invocation, step) = started.expect("it begins");
    assert_eq!(step, Step::AwaitPayload);
    assert!(matches!(invocation.payload(&program, &[9], &grant()), Step::Reply(_)));
    assert_eq!(invocation.state()[..2], [7, 9]);
    let long = ProgramInvocation::start(&program, Fuel::default(), &[0; 449], &grant());
    assert_eq!(long.err(), Some(Status::BadParameters));
}

#[test]
fn a_program_of_clang_answers_with_a_sum() {
    let program = compiled(include_bytes!("../../../programs/sum_list.o"));
    let mut memory = vec![0_u8; 4096];
    let mut element = |at: usize, value: u64, next: u64| {
        memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        memory[at + 8..at + 16].copy_from_slice(&next.to_le_bytes());
    };
    element(64, 5, 1024);
    element(1024, 70, 512);
    element(512, 600, 0);
    let started = ProgramInvocation::start(&program, Fuel::default(), &64_u64.to_le_bytes(), &grant());
    let (mut invocation, mut step) = started.expect("it begins");
    while let Step::Fetch(range) = step {
        let bytes = &memory[range.offset() as usize..][..range.length() as usize];
        step = invocation.dma_done(&program, bytes, &grant());
    }
    assert_eq!(step, Step::Reply(Emission { offset: 0, length: 16, version: 0 }));
    assert_eq!(invocation.state()[..16], [675_u64.to_le_bytes(), 3_u64.to_le_bytes()].concat());
}

/// RFC 9669, sections 4.1 and 4.3: where the oracle departs from it.
#[test]
fn what_the_oracle_has_otherwise() {
    let constant = |register, value: u64| {
        let low = Instruction::new(n::LDDW, register, 0, 0, value as i32);
        [low, Instruction::new(0, 0, 0, 0, (value >> 32) as i32)]
    };
    let result = |begin: u64, code: &[Instruction]| {
        let end = [load(n::DW, 6, 1, STATE_AT), store(n::DW, 6, 0, 2), mov(0, 0), exit()];
        let (invocation, _) = start(&[&constant(2, begin)[..], code, &end].concat());
        u64::from_le_bytes(*invocation.state().first_chunk().expect("eight bytes"))
    };
    let remainder = |class| [Instruction::new(class | n::MOD | n::REGISTER, 2, 3, 0, 0)];
    assert_eq!(result(1 << 32 | 9, &remainder(n::ALU64)), 1 << 32 | 9);
    assert_eq!(result(1 << 32 | 9, &remainder(n::ALU)), 9);
    assert_eq!(result(1 << 63, &[Instruction::new(n::ALU64 | n::NEG, 2, 0, 0, 0)]), 1 << 63);
    assert_eq!(result(5, &[Instruction::new(n::ALU64 | n::NEG, 2, 0, 0, 0)]), 5_u64.wrapping_neg());
    let equal = [Instruction::new(n::JMP | n::JEQ, 2, 0, 1, -1), mov(2, 7)];
    assert_eq!(result(u64::MAX, &equal), u64::MAX, "the constant is all ones");
    assert_eq!(result(u32::MAX.into(), &equal), 7);
}
