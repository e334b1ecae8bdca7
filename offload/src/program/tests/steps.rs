use super::*;
use crate::grant::Grant;
use crate::kernel::{Emission, Event, Status, Step};

/// Offsets in the context.
const PARAMETERS_AT: i16 = 0;
const STATE_AT: i16 = 8;
const WINDOW_AT: i16 = 16;
const OFFSET: i16 = 48;
const LENGTH: i16 = 64;
const STATUS: i16 = 68;
const FROM: i16 = 96;

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
    for (segment, size, writable) in [(1, 104, true), (2, 4, false), (4, 160, true), (5, 256, true)] {
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
fn unknown_verbs_and_statuses_are_faults() {
    for value in [8, -1, 255] {
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
    // Counts its steps in the state and on the stack, and after the third replies with the first byte of
    // both.
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
    let program = compiled(include_bytes!("../../../objects/sum_list.o"));
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

/// The memory of a region that programs read, write, and compare and swap, as a kernel in the NIC would.
struct Region(Vec<u8>);

impl Region {
    fn bytes(&mut self, range: crate::grant::Checked) -> &mut [u8] {
        &mut self.0[range.offset() as usize..][..range.length() as usize]
    }

    /// Runs one request and returns the last step and the state; `between` runs before each swap.
    fn run(
        &mut self,
        program: &Program,
        parameters: &[u8],
        mut between: impl FnMut(&mut Self),
    ) -> (Step, [u8; STATE]) {
        let grant = Grant::new(0x10_0000, 4096).expect("no wrap").writable();
        let started = ProgramInvocation::start(program, Fuel::default(), parameters, &grant);
        let (mut invocation, mut step) = started.expect("it begins");
        loop {
            step = match step {
                Step::Fetch(range) => invocation.dma_done(program, self.bytes(range), &grant),
                Step::Write { to, from } => {
                    let from = from as usize;
                    let length = to.range().length() as usize;
                    self.bytes(to.range()).copy_from_slice(&invocation.state()[from..from + length]);
                    invocation.resumed(program, Event::Written, &grant)
                }
                Step::CompareAndSwap { word, expected, desired } => {
                    between(self);
                    let place = self.bytes(word.range());
                    let found = u64::from_be_bytes(*place.first_chunk().expect("a word"));
                    if found == expected {
                        place.copy_from_slice(&desired.to_be_bytes());
                    }
                    invocation.resumed(program, Event::Compared { found }, &grant)
                }
                ended => return (ended, *invocation.state()),
            }
        }
    }
}

#[test]
fn a_sequencer_hands_out_numbers_though_another_counts_too() {
    let program = compiled(include_bytes!("../../../objects/sequencer.o"));
    let mut region = Region(vec![0; 4096]);
    region.0[64..72].copy_from_slice(&1000_u64.to_be_bytes());
    let parameters = [64_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    let mut others = 3;
    let (step, state) = region.run(&program, &parameters, |region| {
        // Another client takes ten, three times, before this one succeeds.
        if others > 0 {
            others -= 1;
            let now = u64::from_be_bytes(*region.0[64..].first_chunk().expect("a word"));
            region.0[64..72].copy_from_slice(&(now + 10).to_be_bytes());
        }
    });
    assert_eq!(step, Step::Reply(Emission { offset: 0, length: 8, version: 0 }));
    assert_eq!(state[..8], 1030_u64.to_be_bytes());
    assert_eq!(region.0[64..72], 1035_u64.to_be_bytes());
}

#[test]
fn a_record_is_written_behind_its_version() {
    let program = compiled(include_bytes!("../../../objects/put.o"));
    let mut region = Region(vec![0xee; 4096]);
    region.0[128..136].copy_from_slice(&7_u64.to_le_bytes());
    for length in [1, 8, 13, 152] {
        let before = region.0[128..136].to_vec();
        let record: Vec<u8> = (0..length).collect();
        let parameters = [&128_u64.to_le_bytes()[..], &record].concat();
        let (step, state) = region.run(&program, &parameters, |_| {});
        assert_eq!(step, Step::Reply(Emission { offset: 0, length: 8, version: 0 }), "{length} bytes");
        assert_eq!(state[..8], before);
        assert_eq!(region.0[136..][..record.len()], record);
    }
    assert_eq!(region.0[128..136], 11_u64.to_le_bytes());
    assert_eq!(region.0[288], 0xee, "what lies behind the longest record");
    for length in [0, 7, 8, 161] {
        let (step, _) = region.run(&program, &vec![0; length], |_| {});
        assert_eq!(step, Step::Done(Status::BadParameters), "{length} bytes of parameters");
    }
}

/// A program that only puts `offset`, `length`, `from` and the verb into the context.
fn asks(verb: Verb, offset: i32, length: i32, from: i32) -> [Instruction; 5] {
    [
        put(n::DW, 1, OFFSET, offset),
        put(n::W, 1, LENGTH, length),
        put(n::W, 1, FROM, from),
        mov(0, verb as i32),
        exit(),
    ]
}

#[test]
fn writing_needs_a_grant_that_lets() {
    for verb in [Verb::Write, Verb::CompareAndSwap] {
        assert_eq!(start(&asks(verb, 64, 8, 0)).1, Step::Done(Status::ReadOnly));
    }
    let ask = |verb, offset, length| {
        let program = verified(&asks(verb, offset, length, 3));
        let grant = grant().writable();
        ProgramInvocation::start(&program, Fuel::default(), &[], &grant).expect("it begins").1
    };
    assert!(matches!(ask(Verb::Write, 4088, 8), Step::Write { to, from: 3 } if to.range().offset() == 4088));
    assert_eq!(ask(Verb::Write, 4089, 8), Step::Done(Status::OutOfBounds));
    assert_eq!(ask(Verb::Write, 0, 0), Step::Done(Status::OutOfBounds));
    assert!(matches!(ask(Verb::CompareAndSwap, 8, 0), Step::CompareAndSwap { expected: 0, desired: 0, .. }));
    assert_eq!(ask(Verb::CompareAndSwap, 12, 0), Step::Done(Status::BadParameters), "no multiple of 8");
}

#[test]
fn an_event_that_no_verb_asks_for_ends_the_request() {
    let program = verified(&asks(Verb::Fetch, 0, 8, 0));
    let (mut invocation, _) =
        ProgramInvocation::start(&program, Fuel::default(), &[], &grant()).expect("it begins");
    let part = Event::Part { part: 0, bytes: &[0; 8] };
    assert_eq!(invocation.resumed(&program, part, &grant()), Step::Done(Status::BadParameters));
}

/// RFC 9669, sections 4.1 and 4.3: the cases in which the oracle departs from it.
#[test]
fn remainders_negations_and_comparisons_follow_the_standard_where_the_oracle_does_not() {
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

/// Both ways lead to the last access: with a pointer to the window, and with one to the parameters.
#[test]
fn a_pointer_to_the_window_or_the_parameters_is_guessed_to_be_one_to_the_window() {
    let ways = [
        load(n::DW, 2, 1, 16),
        Instruction::new(n::JMP | n::JEQ, 3, 0, 1, 0),
        load(n::DW, 2, 1, 0),
        load(n::DW, 4, 2, 0),
        mov(0, 0),
        exit(),
    ];
    assert_eq!(verified(&ways).guess(3), Some(Segment::Window));
    let [window, _, parameters, rest @ ..] = ways;
    let straight = [window, mov(3, 0), parameters, rest[0], rest[1], rest[2]];
    assert_eq!(verified(&straight).guess(3), Some(Segment::Parameters));
    let list = compiled(include_bytes!("../../../objects/sum_list.o"));
    assert_eq!(
        list.guess(20),
        Some(Segment::Window),
        "the next element is in the window at each step but the first"
    );
}
