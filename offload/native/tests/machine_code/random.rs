//! Random programs: most of them run to their end through a good part of their instructions, and some fail anywhere.

use crate::assemble::{PARAMETERS, STATE, WINDOW, call, copy, ending, load, mov, verified, wide};
use crate::{Inputs, Seen};
use bareverbs_offload::kernel::Step;
use bareverbs_offload::program::{Fuel, Instruction};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Instructions, and which item a jump among them goes to: one behind it as a rule, and anywhere if it is a multiple
/// of eight.
type Item = (Vec<Instruction>, Option<usize>);

fn one(instruction: Instruction) -> Item {
    (vec![instruction], None)
}

/// Constants at which arithmetic changes.
fn value() -> impl Strategy<Value = u64> {
    let bits = (0_u32..64, -1_i64..2).prop_map(|(bit, more)| (1_u64 << bit).wrapping_add(more as u64));
    prop_oneof![any::<u64>(), bits, 0_u64..70]
}

/// Registers that may be overwritten: the others keep pointers longer.
fn written() -> impl Strategy<Value = u8> {
    prop_oneof![40 => 0_u8..6, 1 => 6_u8..9]
}

fn computation() -> impl Strategy<Value = Item> {
    let codes = [0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0];
    let class = prop_oneof![Just(0x04_u8), Just(0x07)];
    (class, proptest::sample::select(codes.to_vec()), written(), 0_u8..11, value(), any::<bool>()).prop_map(
        |(class, code, to, from, value, register)| {
            let value = value as i32;
            one(match code {
                0x80 => Instruction::new(class | code, to, 0, 0, 0),
                _ if register => Instruction::new(class | code | 0x08, to, from, 0, 0),
                0x60 | 0x70 | 0xc0 => {
                    Instruction::new(class | code, to, 0, 0, value & if class == 4 { 31 } else { 63 })
                }
                0x30 | 0x90 if value == 0 => Instruction::new(class | code, to, 0, 0, -1),
                _ => Instruction::new(class | code, to, 0, 0, value),
            })
        },
    )
}

fn swap() -> impl Strategy<Value = Item> {
    (written(), prop_oneof![Just(16), Just(32), Just(64)], any::<bool>())
        .prop_map(|(to, bits, big)| one(Instruction::new(if big { 0xdc } else { 0xd4 }, to, 0, 0, bits)))
}

/// Accesses, most of them in a segment: r6 to r8 begin as pointers to parameters, state and window.
fn access() -> impl Strategy<Value = Item> {
    let size = || prop_oneof![Just(0x00_u8), Just(0x08), Just(0x10), Just(0x18)];
    let read_from = prop_oneof![20 => 6_u8..8, 15 => Just(9), 20 => Just(10), 1 => Just(8), 1 => 0_u8..9];
    let written_to = prop_oneof![20 => Just(7_u8), 15 => Just(9), 20 => Just(10), 1 => 6_u8..9, 1 => 0_u8..9];
    // One in a hundred is just outside.
    let offset = |base: u8, offset: i16| match base {
        10 => -8 - offset.rem_euclid(248),
        9 => offset.rem_euclid(96),
        _ => offset.rem_euclid(40) - i16::from(offset % 100 == 0) * 41,
    };
    let read = (size(), written(), read_from, any::<i16>())
        .prop_map(move |(size, to, base, at)| one(load(size, to, base, offset(base, at))));
    let write = (size(), written_to, any::<i16>(), 0_u8..11, any::<i32>(), any::<bool>()).prop_map(
        move |(size, base, at, from, value, register)| {
            let at = offset(base, at);
            one(match register {
                true => Instruction::new(0x63 | size, base, from, at, 0),
                false => Instruction::new(0x62 | size, base, 0, at, value),
            })
        },
    );
    prop_oneof![read, write]
}

fn jump() -> impl Strategy<Value = Item> {
    let codes = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0];
    let class = prop_oneof![Just(0x05_u8), Just(0x06)];
    let codes = proptest::sample::select(codes.to_vec());
    let conditional = (class, codes, 0_u8..11, 0_u8..11, value(), any::<bool>(), any::<usize>()).prop_map(
        |(class, code, left, right, value, register, target)| {
            let instruction = match register {
                true => Instruction::new(class | code | 0x08, left, right, 0, 0),
                false => Instruction::new(class | code, left, 0, 0, value as i32),
            };
            (vec![instruction], Some(target))
        },
    );
    let always = any::<usize>().prop_map(|target| (vec![crate::assemble::jump(0)], Some(target)));
    prop_oneof![6 => conditional, 1 => always]
}

/// A call with arguments that often fit.
fn helper() -> impl Strategy<Value = Item> {
    let pointer = || prop_oneof![10 => Just(6_u8), 10 => Just(7), 10 => Just(9), 1 => 0_u8..11];
    (1..4, pointer(), pointer(), prop_oneof![20 => 0..40, 1 => any::<i32>()]).prop_map(
        |(helper, one, other, length)| {
            let second = if helper == 3 { copy(2, other) } else { mov(2, length) };
            (vec![copy(1, one), second, mov(3, length), call(helper)], None)
        },
    )
}

fn program() -> impl Strategy<Value = Vec<Instruction>> {
    let constant = (written(), value()).prop_map(|(to, value)| (wide(to, value).to_vec(), None));
    let item = prop_oneof![6 => computation(), 1 => swap(), 6 => access(), 2 => jump(), 1 => constant, 1 => helper()];
    let values = proptest::collection::vec(value(), 6);
    (values, proptest::collection::vec(item, 1..40)).prop_map(|(values, items)| {
        let mut code = vec![copy(9, 1)];
        code.extend([load(0x18, 6, 1, PARAMETERS), load(0x18, 7, 1, STATE), load(0x18, 8, 1, WINDOW)]);
        (0..).zip(values).for_each(|(register, value)| code.extend(wide(register, value)));
        let first = code.len();
        // Where each item begins, and where the ending does.
        let mut places = vec![first];
        for (instructions, _) in &items {
            places.push(places[places.len() - 1] + instructions.len());
        }
        for (number, (instructions, target)) in items.into_iter().enumerate() {
            let at = places[number];
            match target {
                Some(target) => {
                    let behind = number + 1 + target / 8 % (places.len() - number - 1);
                    let target = if target % 8 == 0 { target / 8 % places.len() } else { behind };
                    let offset = places[target] as i16 - at as i16 - 1;
                    code.push(aimed(instructions[0], offset));
                }
                None => code.extend(instructions),
            }
        }
        code.extend(ending());
        code
    })
}

/// A jump with another offset.
fn aimed(jump: Instruction, offset: i16) -> Instruction {
    let mut bytes: [u8; 8] = zerocopy::transmute!(jump);
    bytes[2..4].copy_from_slice(&offset.to_le_bytes());
    zerocopy::transmute!(bytes)
}

#[test]
fn random_programs_do_what_the_interpreter_does() {
    // Another processor is emulated as a rule, and takes a hundred times as long.
    const CASES: u32 = if cfg!(target_arch = "x86_64") { 2000 } else { 400 };
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(CASES) });
    let (ended, failed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let fuel = (prop_oneof![4 => 300_u32..2000, 1 => 1_u32..300], 500_u32..6000)
        .prop_map(|(step, invocation)| Fuel { step, invocation });
    let inputs = (fuel, proptest::collection::vec(any::<u8>(), 40..60))
        .prop_map(|(fuel, parameters)| Inputs { fuel, parameters, ..Inputs::default() });
    runner
        .run(&(program(), inputs), |(code, inputs)| {
            let seen = inputs.compare(&verified(&code), 3);
            let count = |what: &std::cell::Cell<u32>, when: fn(&Seen) -> bool| {
                what.set(what.get() + u32::from(seen.iter().any(when)));
            };
            count(&ended, |seen| matches!(seen.step, Ok(Step::Fetch(_))));
            count(&failed, |seen| seen.fault.is_some());
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (ended, failed) = (ended.get(), failed.get());
    assert!(
        ended > CASES / 5 && failed > CASES / 5,
        "{ended} programs ended, {failed} failed: the test is one-sided"
    );
}
