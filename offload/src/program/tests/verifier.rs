use super::*;
use proptest::prelude::*;

#[track_caller]
fn refused(code: &[Instruction]) -> DeployError {
    Program::verify(&bytes(code)).expect_err("refused")
}

fn illegal(code: &[Instruction]) -> (usize, Illegal) {
    match refused(code) {
        DeployError::Illegal { instruction, reason } => (instruction, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sizes() {
    assert_eq!(refused(&[]), DeployError::Empty);
    assert_eq!(Program::verify(&[0; 12]), Err(DeployError::NotWhole { bytes: 12 }));
    assert_eq!(refused(&[exit(); 513]), DeployError::TooLong { instructions: 513 });
    assert_eq!(verified(&[exit(); 512]).instructions().len(), 512);
}

#[test]
fn jumps_lead_to_instructions() {
    let constant = [Instruction::new(n::LDDW, 1, 0, 0, 5), Instruction::default()];
    assert_eq!(refused(&[jump(1), exit()]), DeployError::JumpOutside { instruction: 0, target: 2 });
    assert_eq!(refused(&[jump(-2), exit()]), DeployError::JumpOutside { instruction: 0, target: -1 });
    let into = [jump(1), constant[0], constant[1], exit()];
    assert_eq!(refused(&into), DeployError::JumpIntoConstant { instruction: 0, target: 2 });
    verified(&[jump(2), constant[0], constant[1], exit()]);
    verified(&[jump(-1)]);
}

#[test]
fn every_path_has_an_end() {
    assert_eq!(refused(&[mov(0, 1)]), DeployError::NoEnd { instruction: 0 });
    let equal = Instruction::new(n::JMP | n::JEQ, 0, 0, -1, 0);
    assert_eq!(refused(&[equal]), DeployError::NoEnd { instruction: 0 });
    let constant = Instruction::new(n::LDDW, 1, 0, 0, 5);
    assert_eq!(refused(&[constant, Instruction::default()]), DeployError::NoEnd { instruction: 0 });
    assert_eq!(illegal(&[exit(), constant]), (1, Illegal::CutConstant));
    assert_eq!(illegal(&[constant, exit()]), (0, Illegal::CutConstant));
}

#[test]
fn operands_that_mean_nothing_are_refused() {
    let shift = |wide, bits| Instruction::new(wide | n::LSH, 0, 0, 0, bits);
    assert_eq!(refused(&[shift(n::ALU, 32), exit()]), DeployError::Shift { instruction: 0, bits: 32 });
    assert_eq!(refused(&[shift(n::ALU64, -1), exit()]), DeployError::Shift { instruction: 0, bits: -1 });
    verified(&[shift(n::ALU64, 63), shift(n::ALU, 31), exit()]);
    for code in [n::DIV, n::MOD] {
        let divide = Instruction::new(n::ALU64 | code, 0, 0, 0, 0);
        assert_eq!(refused(&[exit(), divide, exit()]), DeployError::DivisionByZero { instruction: 1 });
    }
    assert_eq!(refused(&[mov(10, 1), exit()]), DeployError::FramePointer { instruction: 0 });
    assert_eq!(refused(&[load(n::W, 10, 1, 0), exit()]), DeployError::FramePointer { instruction: 0 });
    assert_eq!(illegal(&[mov(11, 1), exit()]), (0, Illegal::Register(11)));
    assert_eq!(illegal(&[copy(1, 15), exit()]), (0, Illegal::Register(15)));
}

#[test]
fn the_stack_has_256_bytes_below_the_frame_pointer() {
    let outside = |offset, bytes| DeployError::StackOutside { instruction: 0, offset, bytes };
    assert_eq!(refused(&[put(n::DW, 10, -7, 0), exit()]), outside(-7, 8));
    assert_eq!(refused(&[load(n::B, 0, 10, 0), exit()]), outside(0, 1));
    assert_eq!(refused(&[store(n::W, 10, -257, 0), exit()]), outside(-257, 4));
    verified(&[put(n::DW, 10, -8, 0), put(n::W, 10, -256, 0), load(n::B, 0, 10, -1), exit()]);
}

#[test]
fn instructions_outside_the_subset_are_refused_with_the_reason() {
    let one = |opcode, registers: (u8, u8), offset, immediate| {
        illegal(&[Instruction::new(opcode, registers.0, registers.1, offset, immediate), exit()]).1
    };
    let unsupported = |illegal| matches!(illegal, Illegal::Unsupported(_));
    assert!(unsupported(one(0xdb, (1, 2), 0, 0)), "atomic addition");
    assert!(unsupported(one(n::LDDW, (1, 1), 0, 0)), "a map");
    assert!(unsupported(one(0x20, (0, 0), 0, 0)), "packet access");
    assert!(unsupported(one(n::JMP | n::CALL, (0, 1), 0, 4)), "a call between functions");
    assert!(unsupported(one(n::ALU64 | n::DIV, (1, 0), 1, 3)), "signed division");
    assert!(unsupported(one(n::ALU64 | n::END, (1, 0), 0, 16)), "an unconditional swap");
    assert!(unsupported(one(n::JMP32, (0, 0), 0, 4)), "a long jump");
    assert!(unsupported(one(0x81, (0, 1), 0, 0)), "a load that extends the sign");
    assert_eq!(one(n::JMP | n::CALL, (0, 0), 0, 4), Illegal::Helper(4));
    assert_eq!(one(n::JMP | n::CALL, (0, 0), 0, 0), Illegal::Helper(0));
    assert_eq!(one(0xe7, (0, 0), 0, 0), Illegal::Opcode(0xe7));
    assert_eq!(one(n::JMP | 0xe0, (0, 0), 0, 0), Illegal::Opcode(0xe5));
    assert_eq!(one(n::JMP | n::EXIT | n::REGISTER, (0, 0), 0, 0), Illegal::Opcode(0x9d));
    assert_eq!(one(n::ALU64 | n::MOV | n::REGISTER, (0, 1), 0, 1), Illegal::ReservedField);
    assert_eq!(one(n::ALU64 | n::MOV, (0, 1), 0, 1), Illegal::ReservedField);
    assert_eq!(one(n::LDX | n::MEM, (0, 1), 0, 1), Illegal::ReservedField);
    assert_eq!(one(n::ALU | n::END, (0, 0), 0, 17), Illegal::ReservedField);
    assert_eq!(one(n::JMP | n::EXIT, (0, 0), 1, 0), Illegal::ReservedField);
}

/// The text is of `llvm-objdump -d`, without labels.
#[test]
fn the_disassembly_matches_llvm() {
    let program = compiled(include_bytes!("../../../objects/kv_lookup.o"));
    let code = program.instructions();
    let (mut at, mut lines) = (0, include_str!("../../../objects/kv_lookup.txt").lines());
    while at < code.len() {
        let operation = Operation::decode(code, at).expect("verified");
        let text = match operation {
            Operation::Call(helper) => format!("call {}", helper.number()),
            other => other.to_string(),
        };
        assert_eq!(Some(text.as_str()), lines.next(), "instruction {at}");
        at += operation.slots();
    }
    assert_eq!(lines.next(), None);
    let negate = [Instruction::new(n::ALU | n::NEG, 3, 0, 0, 0)];
    assert_eq!(Operation::decode(&negate, 0).expect("legal").to_string(), "w3 = -w3");
    let less = [Instruction::new(n::JMP32 | n::JSLT, 3, 0, -2, 7)];
    assert_eq!(Operation::decode(&less, 0).expect("legal").to_string(), "if w3 s< 7 goto -2");
}

/// Instructions that are often legal.
fn plausible() -> impl Strategy<Value = Instruction> {
    (
        any::<u8>(),
        0_u8..11,
        0_u8..11,
        -8_i16..8,
        prop_oneof![Just(0), Just(3), Just(16), any::<i32>()],
        any::<bool>(),
    )
        .prop_map(|(opcode, destination, source, offset, immediate, plain)| match plain {
            true => Instruction::new(opcode, destination, source, offset, immediate),
            false => Instruction::new(opcode, destination, 0, 0, immediate),
        })
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_run_to_an_end(
        noise in proptest::collection::vec(any::<u8>(), 0..400),
        code in proptest::collection::vec(plausible(), 1..30),
        parameters in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let _refused_or_not = Program::verify(&noise);
        // Keeps the instructions that are legal by themselves and adds an end; the verifier accepts most of
        // the results.
        let mut code: Vec<Instruction> = code.into_iter().filter(|raw| Operation::decode(&[*raw], 0).is_ok()).collect();
        code.push(exit());
        let Ok(program) = Program::verify(&bytes(&code)) else { return Ok(()) };
        let grant = crate::grant::Grant::new(0, 1 << 20).expect("no wrap");
        let fuel = Fuel { step: 300, invocation: 500 };
        let started = ProgramInvocation::start(&program, fuel, &parameters, &grant);
        let (mut invocation, mut step) = started.expect("the parameters fit");
        for _ in 0..10 {
            match step {
                crate::kernel::Step::Fetch(range) | crate::kernel::Step::Refetch { range, .. } => {
                    prop_assert!(range.offset() + u64::from(range.length()) <= 1 << 20);
                    step = invocation.dma_done(&program, &parameters, &grant);
                }
                _ => break,
            }
        }
        prop_assert!(invocation.fuel_used() <= 500);
    }
}
