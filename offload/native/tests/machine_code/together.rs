//! Accesses that code compares together because they have the same base: one of them is outside, in every order and
//! across lines; the base changes in between; its segment was guessed wrongly; the fuel ends among them.

use crate::assemble::{
    DOUBLE_WORD, PARAMETERS, STATE, WINDOW, copy, ending, exit, load, mov, store, verified, wide,
};
use crate::{Inputs, Watched, has_machine_code};
use bareverbs_offload::program::{Fault, Fuel, Instruction};
use bareverbs_offload_native::Processor;

const fn add(to: u8, value: i32) -> Instruction {
    Instruction::new(0x07, to, 0, 0, value)
}

/// Ends a line, and not its block: a jump over one instruction that is not taken, because r1 points to the context.
const BRANCH: Instruction = Instruction::new(0x15, 1, 0, 1, 0);

/// A pointer to the state that looks like one to something else, in r3.
fn misled(pointer: i16) -> Vec<Instruction> {
    let clear = Instruction::new(0x1f, 3, 3, 0, 0);
    let point = Instruction::new(0x0f, 3, 4, 0, 0);
    [vec![load(DOUBLE_WORD, 3, 1, pointer), clear], wide(4, 4 << 32).to_vec(), vec![point]].concat()
}

/// Where a program fails that has these instructions between its beginning and its ending, as both forms of it say.
#[track_caller]
fn failure(middle: &[Instruction]) -> Option<usize> {
    let mut code = vec![copy(9, 1)];
    code.extend_from_slice(middle);
    code.extend(ending());
    let seen = Inputs::default().compare(&verified(&code), 2);
    seen.iter().find_map(|seen| match seen.fault {
        Some(Fault::Outside { instruction, .. }) => Some(instruction),
        _ => None,
    })
}

#[test]
fn the_first_access_outside_fails_and_those_before_it_do_not() {
    const OFFSETS: [i16; 6] = [-8, -1, 0, 72, 152, 153];
    for begin in [vec![load(DOUBLE_WORD, 3, 1, STATE)], misled(PARAMETERS), misled(WINDOW)] {
        for a in OFFSETS {
            for b in OFFSETS {
                for c in OFFSETS {
                    let accesses =
                        [load(DOUBLE_WORD, 4, 3, a), store(DOUBLE_WORD, 3, b, 9), load(DOUBLE_WORD, 5, 3, c)];
                    let outside = [a, b, c].iter().position(|offset| !(0..=152).contains(offset));
                    // In one line, and in two of the same block.
                    let first = 1 + begin.len();
                    let found = failure(&[&begin[..], &accesses].concat());
                    assert_eq!(found, outside.map(|at| first + at), "{a}, {b}, {c}");
                    let [load_a, store_b, load_c] = accesses;
                    let found = failure(&[&begin[..], &[load_a, store_b, BRANCH, load_c]].concat());
                    let behind = |at| first + at + usize::from(at == 2);
                    assert_eq!(found, outside.map(behind), "{a}, {b}, {c} in two lines");
                }
            }
        }
    }
}

/// The parameters have 15 bytes.
#[test]
fn a_segment_without_a_fixed_length_ends_where_it_does() {
    for (a, b, fits) in
        [(0, 7, true), (7, 0, true), (0, 8, false), (8, 0, false), (-1, 7, false), (7, -8, false)]
    {
        let accesses =
            [load(DOUBLE_WORD, 3, 1, PARAMETERS), load(DOUBLE_WORD, 4, 3, a), load(DOUBLE_WORD, 5, 3, b)];
        assert_eq!(failure(&accesses).is_none(), fits, "{a}, {b}");
    }
    // So far apart that no comparison is for both.
    let far =
        [load(DOUBLE_WORD, 3, 1, PARAMETERS), load(DOUBLE_WORD, 4, 3, 0), load(DOUBLE_WORD, 5, 3, 32767)];
    assert_eq!(failure(&far), Some(3));
}

#[test]
fn a_base_that_changes_is_compared_again() {
    let state = load(DOUBLE_WORD, 3, 1, STATE);
    let (before, after) = (load(DOUBLE_WORD, 4, 3, 0), load(DOUBLE_WORD, 5, 3, 0));
    for change in [add(3, 153), add(3, -1), mov(3, 8), copy(3, 4), load(DOUBLE_WORD, 3, 3, 8), copy(3, 10)] {
        assert_eq!(failure(&[state, before, change, after]), Some(4), "{change:?}");
    }
    for change in [add(3, 152), copy(3, 9), add(4, 1)] {
        assert_eq!(failure(&[state, before, change, after]), None, "{change:?}");
    }
    let load_itself = load(DOUBLE_WORD, 3, 3, 0);
    assert_eq!(failure(&[state, load_itself, after]), Some(3));
}

#[test]
fn one_way_does_not_know_what_the_other_found() {
    for (taken, fails) in [(0, false), (1, true)] {
        // Past the comparison of the state, or past a change of the base.
        let skip = Instruction::new(0x15, 0, 0, 1, 0);
        let code = [load(DOUBLE_WORD, 3, 1, STATE), mov(0, taken), load(DOUBLE_WORD, 4, 3, 0), skip];
        let found = failure(&[&code[..], &[mov(3, 0), load(DOUBLE_WORD, 5, 3, 8)]].concat());
        assert_eq!(found.is_some(), fails);
        let code = [
            load(DOUBLE_WORD, 3, 1, STATE),
            mov(0, 1 - taken),
            mov(3, 0),
            skip,
            load(DOUBLE_WORD, 3, 1, STATE),
        ];
        let found = failure(&[&code[..], &[load(DOUBLE_WORD, 5, 3, 8)]].concat());
        assert_eq!(found.is_some(), fails);
    }
    // Around a loop that moves the base out of its segment.
    let state = load(DOUBLE_WORD, 3, 1, STATE);
    let (access, again) = (load(DOUBLE_WORD, 4, 3, 0), Instruction::new(0x55, 3, 0, -3, 0));
    assert_eq!(failure(&[state, access, add(3, 8), again]), Some(2));
}

/// A loop of several lines whose base was guessed wrongly, with every amount of fuel.
#[test]
fn fuel_ends_alike_in_the_second_form_of_a_block() {
    for begin in [vec![load(DOUBLE_WORD, 3, 1, STATE)], misled(WINDOW)] {
        let body = [
            load(DOUBLE_WORD, 4, 3, 0),
            BRANCH,
            add(4, 3),
            store(DOUBLE_WORD, 3, 0, 4),
            BRANCH,
            load(DOUBLE_WORD, 5, 3, 16),
            Instruction::new(0xa5, 4, 0, -7, 12),
            mov(0, 0),
            exit(),
        ];
        let program = verified(&[&begin[..], &body].concat());
        let failed = (0..50).filter(|fuel| {
            let inputs = Inputs { fuel: Fuel { step: *fuel, invocation: *fuel }, ..Inputs::default() };
            inputs.compare(&program, 1)[0].fault.is_some()
        });
        let all = begin.len() as u32 - u32::from(begin.len() > 1) + 4 * 7 + 2;
        assert_eq!(failed.count() as u32, all);
    }
}

#[test]
fn code_goes_on_behind_a_wrong_guess_and_is_entered_only_where_blocks_begin() {
    if !has_machine_code() {
        return;
    }
    let accesses = [load(DOUBLE_WORD, 4, 3, 0), BRANCH, load(DOUBLE_WORD, 5, 3, 8), mov(0, 0), exit()];
    let code = [misled(WINDOW), accesses.to_vec()].concat();
    assert_eq!(Watched::first_stop(&code, 100), (code.len() - 1, 100 - code.len() as u32 + 2), "at its exit");
    for processor in [Processor::X86_64, Processor::Aarch64] {
        let code = [mov(0, 0), Instruction::new(0x15, 1, 0, 2, 0), mov(3, 0), exit(), mov(4, 0), exit()];
        let translation = processor.translate(&verified(&code)).expect("it is short");
        let entered: Vec<_> = (0..code.len()).filter(|slot| translation.entry(*slot).is_some()).collect();
        assert_eq!(entered, [0, 4]);
    }
}
