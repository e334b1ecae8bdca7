//! Every segment at both its ends, with every size, with and without a guess of the segment; and where fuel ends.

use crate::assemble::{
    DOUBLE_WORD, LENGTH, SIZES, STATE, call, copy, ending, exit, jump, load, mov, put, store, verified, wide,
};
use crate::{Inputs, Watched, has_machine_code};
use bareverbs_offload::program::{Fault, Fuel, Instruction, MAX_INSTRUCTIONS};
use bareverbs_offload_native::Processor;

/// An access through r3, which has the address.
#[track_caller]
fn inside(address: &[Instruction], access: Instruction) -> bool {
    let mut code = vec![copy(9, 1)];
    code.extend_from_slice(address);
    code.push(access);
    code.extend(ending());
    // The first step has no window; the second has one of 40 bytes.
    let seen = Inputs::default().compare(&verified(&code), 2);
    seen.iter().all(|seen| seen.fault.is_none())
}

#[test]
fn every_segment_ends_where_it_does_for_the_interpreter() {
    // The address of each segment in a way that lets its segment be guessed, and its number, bytes and rights.
    let guessed = |offset| vec![load(DOUBLE_WORD, 3, 1, offset)];
    let segments = [
        (vec![copy(3, 1)], 1, 104, true),
        (guessed(0), 2, 15, false),
        (guessed(8), 4, 160, true),
        (vec![copy(3, 10), Instruction::new(0x07, 3, 0, 0, -256)], 5, 256, true),
    ];
    for (guess, number, length, writable) in segments {
        let begin = wide(3, number << 32);
        // Guessed to be in the parameters, the state or the window, and in fact elsewhere.
        let misled = |pointer| {
            let zero = Instruction::new(0x1f, 3, 3, 0, 0);
            let add = Instruction::new(0x0f, 3, 4, 0, 0);
            [guessed(pointer), vec![zero], wide(4, number << 32).to_vec(), vec![add]].concat()
        };
        for address in [guess, begin.to_vec(), misled(0), misled(8), misled(16)] {
            for (size, bytes) in SIZES {
                let last = length - bytes as i64;
                for offset in [-8, -1, 0, last, last + 1, length, 32767, -32768] {
                    let fits = (0..=last).contains(&offset);
                    let offset = offset as i16;
                    assert_eq!(
                        inside(&address, load(size, 4, 3, offset)),
                        fits,
                        "{number}, {bytes} at {offset}"
                    );
                    let may = fits && writable;
                    assert_eq!(
                        inside(&address, store(size, 3, offset, 2)),
                        may,
                        "{number}, {bytes} to {offset}"
                    );
                    assert_eq!(
                        inside(&address, put(size, 3, offset, -2)),
                        may,
                        "{number}, {bytes} to {offset}"
                    );
                }
            }
        }
    }
}

/// The window of the second step has 40 bytes.
#[test]
fn the_window_ends_where_it_does_for_the_interpreter() {
    for (size, bytes) in SIZES {
        for offset in [-1, 0, 39, 40, 41, 40 - bytes as i16, 41 - bytes as i16] {
            // In the first step there is no window, and this is not reached.
            let guarded = |access: Instruction| {
                let mut code = vec![copy(9, 1), load(DOUBLE_WORD, 3, 1, 16), load(0x00, 4, 1, 40)];
                code.push(Instruction::new(0x15, 4, 0, 1, 0));
                code.push(access);
                code.extend(ending());
                let seen = Inputs::default().compare(&verified(&code), 2);
                assert_eq!(seen.len(), 2, "the first step fetches");
                seen[1].fault.is_none()
            };
            let fits = offset >= 0 && i64::from(offset) + bytes as i64 <= 40;
            assert_eq!(guarded(load(size, 5, 3, offset)), fits, "{bytes} at {offset}");
            assert!(!guarded(store(size, 3, offset, 5)), "a window is not for writing");
        }
    }
}

#[test]
fn addresses_of_no_segment() {
    for address in [
        0,
        7,
        6 << 32,
        7 << 32,
        8 << 32,
        9 << 32,
        0x1_0001 << 32,
        1 << 63,
        u64::MAX - 3,
        u64::MAX,
        (1 << 32) - 4,
    ] {
        for (size, _) in SIZES {
            for offset in [0, 4, 8, -8] {
                let code = [&wide(3, address)[..], &[load(size, 4, 3, offset), mov(0, 0), exit()]].concat();
                Inputs::default().compare(&verified(&code), 1);
                let code = [&wide(3, address)[..], &[store(size, 3, offset, 4), mov(0, 0), exit()]].concat();
                Inputs::default().compare(&verified(&code), 1);
            }
        }
    }
}

#[test]
fn helpers_read_each_segment_to_its_end() {
    for (number, length) in [(0, 0), (1, 104), (2, 15), (3, 0), (4, 160), (5, 256), (6, 0)] {
        let bytes_and_offsets = [0, 1, 8, 64].into_iter().flat_map(|bytes| {
            let last = length - bytes;
            [-1, 0, 1, last, last + 1, length, i64::from(u32::MAX)].map(|offset| (bytes, offset))
        });
        for (bytes, offset) in bytes_and_offsets {
            let address = ((number << 32) + offset) as u64;
            for helper in 1..=3 {
                let second = if helper == 3 { wide(2, address) } else { [mov(2, bytes as i32), mov(4, 0)] };
                let code = [
                    &[copy(9, 1)][..],
                    &wide(1, address),
                    &second,
                    &[mov(3, bytes as i32), call(helper)],
                    &ending(),
                ]
                .concat();
                let seen = Inputs::default().compare(&verified(&code), 1);
                let fits = (1..=5).contains(&number) && offset >= 0 && offset + bytes <= length;
                assert_eq!(seen[0].fault.is_none(), fits, "{helper}: {bytes} at {offset} of {number}");
                // Code of a program without a stack has none.
                let code = [&wide(1, address)[..], &second, &[mov(3, bytes as i32), call(helper)]].concat();
                Inputs::default().compare(&verified(&[&code[..], &[exit()]].concat()), 1);
            }
        }
    }
}

#[test]
fn a_helper_takes_no_more_bytes_than_32_bits_count() {
    let code = [&wide(2, 1 << 32)[..], &[call(1), exit()]].concat();
    let seen = Inputs::default().compare(&verified(&code), 1);
    assert!(matches!(seen[0].fault, Some(Fault::Outside { bytes: u32::MAX, .. })), "{seen:?}");
}

/// A loop, a call, an access that fails, and the end, with every amount of fuel.
#[test]
fn fuel_ends_at_the_same_instruction() {
    let code = [
        vec![copy(9, 1), load(DOUBLE_WORD, 6, 1, 8), mov(7, 3)],
        vec![copy(1, 6), mov(2, 33), call(1), Instruction::new(0x07, 7, 0, 0, -1)],
        vec![Instruction::new(0x55, 7, 0, -5, 0)],
        vec![put(0x00, 6, 0, 1), mov(3, 0), load(0x00, 3, 3, 0)],
        vec![exit()],
    ]
    .concat();
    let program = verified(&code);
    let mut outcomes = std::collections::BTreeSet::new();
    for fuel in 0..60 {
        let inputs = Inputs { fuel: Fuel { step: fuel, invocation: fuel }, ..Inputs::default() };
        let seen = inputs.compare(&program, 1);
        outcomes.insert(match seen[0].fault {
            Some(Fault::OutOfFuel { instruction } | Fault::Outside { instruction, .. }) => instruction,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), (0..=10).collect::<Vec<_>>());
}

#[test]
fn a_loop_without_end_ends_with_its_fuel() {
    for code in [
        vec![jump(-1)],
        vec![mov(0, 0), jump(-2)],
        vec![mov(1, 1), Instruction::new(0x15, 1, 0, -2, 1), exit()],
    ] {
        let seen = Inputs::default().compare(&verified(&code), 1);
        assert!(matches!(seen[0].fault, Some(Fault::OutOfFuel { .. })), "{seen:?}");
    }
}

/// Where there is machine code, it goes as far as it can by itself.
#[test]
fn code_runs_to_calls_faults_and_the_end() {
    if !has_machine_code() {
        return;
    }
    let sum = [mov(0, 0), Instruction::new(0x07, 0, 0, 0, 1), Instruction::new(0xa5, 0, 0, -2, 9), exit()];
    assert_eq!(Watched::first_stop(&sum, 100), (3, 100 - 19), "ten rounds of two, after the first");
    assert_eq!(Watched::first_stop(&sum, 8), (1, 1), "the next round needs two");
    assert_eq!(Watched::first_stop(&[mov(1, 0), mov(2, 0), call(1), exit()], 9), (2, 7));
    let outside = [mov(3, 0), mov(4, 0), load(0, 5, 3, 0), mov(0, 0), exit()];
    assert_eq!(Watched::first_stop(&outside, 9), (2, 7));
}

/// The longest programs of the longest instructions, for both processors.
#[test]
fn any_program_can_be_translated() {
    let longest = [
        vec![Instruction::new(0x3f, 9, 8, 0, 0)],
        vec![Instruction::new(0x9f, 9, 10, 0, 0)],
        vec![store(DOUBLE_WORD, 9, 32767, 10)],
        vec![put(DOUBLE_WORD, 9, -32767, 0x1234_5678)],
        vec![Instruction::new(0x45, 10, 0, 0, 0x1234_5678)],
        vec![Instruction::new(0x47, 9, 0, 0, -0x1234_5678)],
    ];
    for instruction in longest {
        let mut code = vec![copy(9, 1)];
        while code.len() < MAX_INSTRUCTIONS - 1 {
            code.extend_from_slice(&instruction);
        }
        code.push(exit());
        let program = verified(&code);
        for processor in [Processor::X86_64, Processor::Aarch64] {
            let translation = processor.translate(&program).unwrap_or_else(|error| panic!("{error}"));
            assert!(translation.bytes().len() < 100_000, "{processor}: {translation:?}");
        }
        Inputs::default().compare(&program, 1);
    }
}

/// Such a program does not name the stack, so its code gets none before it needs one.
#[test]
fn a_made_address_of_the_stack_is_one() {
    let address = wide(3, (5 << 32) + 8);
    let key_equal = [copy(1, 3), copy(2, 3), mov(3, 8), call(3), store(DOUBLE_WORD, 7, 0, 0)];
    // Counts on the stack and in the state, and replies with what a helper says of the stack.
    let count = [load(DOUBLE_WORD, 4, 3, 0), Instruction::new(0x07, 4, 0, 0, 1), store(DOUBLE_WORD, 3, 0, 4)];
    let code = |middle: &[Instruction]| {
        let before = [copy(9, 1), load(DOUBLE_WORD, 7, 1, STATE)];
        let fetch = [store(DOUBLE_WORD, 7, 8, 4), put(0x00, 9, LENGTH, 40), mov(0, 1), exit()];
        verified(&[&before[..], &address, middle, &fetch].concat())
    };
    for (middle, first, second) in [(&count[..], 0, 1), (&key_equal[..], 1, 0)] {
        let program = code(middle);
        assert!(!program.names_stack());
        let seen = Inputs::default().compare(&program, 3);
        assert_eq!(seen.len(), 3, "each step fetches: {seen:?}");
        for seen in seen {
            assert_eq!((seen.fault, seen.state[0], seen.state[8]), (None, first, second));
        }
    }
}
