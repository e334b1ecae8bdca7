//! Pointers that a program has from its context: code takes them for what they are only after it has compared them.

use crate::assemble::{
    DOUBLE_WORD, LENGTH, PARAMETERS, SIZES, STATE, WINDOW, copy, ending, exit, jump, load, mov, put, store,
    verified, wide,
};
use crate::{Inputs, Watched, has_machine_code, native};
use bareverbs_offload::program::{Executable, Fault, Instruction, Program, RunningStep};
use bareverbs_offload_native::NativeProgram;

const FUEL: u32 = 1000;

#[test]
fn code_goes_through_accesses_by_pointers_of_the_context() {
    let code = [copy(6, 1), load(DOUBLE_WORD, 7, 6, STATE), put(DOUBLE_WORD, 7, 152, 1), exit()];
    if has_machine_code() {
        assert_eq!(Watched::first_stop(&code, FUEL).0, 3, "before its end");
    }
}

/// The program puts another address where the context has a pointer, and uses what it loads from there.
#[test]
fn a_pointer_that_the_program_has_replaced_is_no_pointer() {
    let addresses =
        [0, 1, 1 << 32, (1 << 32) + 8, 2 << 32, 3 << 32, 4 << 32, (4 << 32) + 8, 5 << 32, u64::MAX];
    let has_machine_code = has_machine_code();
    for (pointer, segment) in [(PARAMETERS, 2_u64), (STATE, 4), (WINDOW, 3)] {
        for address in addresses {
            let replace =
                [&[copy(9, 1)][..], &wide(2, address), &[store(DOUBLE_WORD, 1, pointer, 2)]].concat();
            let at = replace.len();
            for (size, _) in SIZES {
                for access in [load(size, 4, 3, 8), store(size, 3, 8, 2), put(size, 3, 8, 7)] {
                    let begin = [&replace[..], &[load(DOUBLE_WORD, 3, 1, pointer), access]].concat();
                    Inputs::default().compare(&verified(&[&begin[..], &ending()].concat()), 2);
                }
            }
            if has_machine_code && address != segment << 32 {
                let code = [&replace[..], &[load(DOUBLE_WORD, 3, 1, pointer), mov(0, 0), exit()]].concat();
                assert_eq!(
                    Watched::first_stop(&code, FUEL),
                    (at, FUEL - at as u32 + 1),
                    "{pointer}, {address:#x}"
                );
            }
        }
    }
}

/// A jump to the first instruction, where r1 no longer points to the context.
#[test]
fn the_beginning_is_reached_again_with_another_pointer() {
    let end = Instruction::new(0x55, 7, 0, 5, 0);
    let again = [load(DOUBLE_WORD, 2, 1, STATE), put(DOUBLE_WORD, 1, 96, 3), end, copy(9, 1), mov(7, 1)];
    for change in [load(DOUBLE_WORD, 1, 1, STATE), mov(1, 0), Instruction::new(0x07, 1, 0, 0, 8)] {
        let code = [&again[..], &[change, jump(-7), mov(0, 0)], &ending()].concat();
        Inputs::default().compare(&verified(&code), 2);
    }
}

/// The same register points to different segments, by the way that was taken.
#[test]
fn two_ways_with_two_pointers_meet() {
    for condition in [0, 1] {
        for (one, other) in [(STATE, WINDOW), (WINDOW, STATE), (PARAMETERS, STATE), (STATE, STATE)] {
            let code = [
                &[copy(9, 1), mov(2, condition), load(DOUBLE_WORD, 3, 9, one)][..],
                &[Instruction::new(0x15, 2, 0, 1, 0), load(DOUBLE_WORD, 3, 9, other)],
                &[store(DOUBLE_WORD, 3, 16, 9), load(DOUBLE_WORD, 4, 3, 16)],
                &ending(),
            ]
            .concat();
            Inputs::default().compare(&verified(&code), 2);
        }
    }
}

/// The lengths of parameters and window are found out once in a line, for its farthest access.
#[test]
fn accesses_by_pointers_end_where_their_segment_does() {
    for (pointer, length) in [(PARAMETERS, 15_i16), (STATE, 160), (WINDOW, 40)] {
        for (size, bytes) in SIZES {
            let last = length - bytes as i16;
            for (first, second) in
                [(0, last), (last, 0), (0, last + 1), (last + 1, 0), (-1, 0), (0, length), (0, 4090)]
            {
                // The first step has no window.
                let guard = [load(0x00, 4, 1, 40), Instruction::new(0x15, 4, 0, 2, 0)];
                let accesses = [load(size, 4, 3, first), load(size, 5, 3, second)];
                let begin = [copy(9, 1), load(DOUBLE_WORD, 3, 1, pointer)];
                let code = [&begin[..], &guard, &accesses, &ending()].concat();
                let seen = Inputs::default().compare(&verified(&code), 2);
                let fits = [first, second].iter().all(|offset| (0..=last).contains(offset));
                assert_eq!(seen[1].fault.is_none(), fits, "{pointer}: {bytes} at {first} and {second}");
                // And nothing is written to what is lent for reading.
                let stores = [put(size, 3, first, 1), store(size, 3, second, 9)];
                let code = [&begin[..], &guard, &stores, &ending()].concat();
                let seen = Inputs::default().compare(&verified(&code), 2);
                assert_eq!(
                    seen[1].fault.is_none(),
                    fits && pointer == STATE,
                    "{pointer}: {first} and {second}"
                );
            }
        }
    }
}

/// A pointer that was moved, by as much as is followed and by more.
#[test]
fn moved_pointers_point_where_they_were_moved() {
    for by in [-8, 8, 152, 153, 160, 4095, 4096, i32::MAX, i32::MIN] {
        for offset in [0, -8, 8, -152, -160, LENGTH] {
            let moved = [load(DOUBLE_WORD, 3, 1, STATE), Instruction::new(0x07, 3, 0, 0, by)];
            let code = [&[copy(9, 1)][..], &moved, &[put(DOUBLE_WORD, 3, offset, 5)], &ending()].concat();
            let seen = Inputs::default().compare(&verified(&code), 1);
            let fits = (0..=152).contains(&(i64::from(by) + i64::from(offset)));
            assert_eq!(seen[0].fault.is_none(), fits, "{by}, then {offset}");
        }
    }
}

/// A block goes on in its second form, whose accesses know nothing of what other blocks have found.
#[test]
fn the_second_form_of_a_block_compares_lengths_itself() {
    let clear = Instruction::new(0x1f, 5, 5, 0, 0);
    let point = Instruction::new(0x0f, 5, 4, 0, 0);
    // The state, guessed to be the parameters, and then the window, which the first step has not.
    let misled = [&[load(DOUBLE_WORD, 5, 1, PARAMETERS), clear][..], &wide(4, 4 << 32), &[point]].concat();
    let begin = [&[copy(9, 1), load(DOUBLE_WORD, 3, 1, WINDOW)][..], &misled].concat();
    let never = Instruction::new(0x15, 9, 0, ending().len() as i16 + 2, 0);
    let accesses = [never, load(DOUBLE_WORD, 6, 5, 0), load(DOUBLE_WORD, 7, 3, 8)];
    let last = [load(DOUBLE_WORD, 6, 3, 40), exit()];
    let code = [&begin[..], &accesses, &ending(), &last].concat();
    let seen = Inputs::default().compare(&verified(&code), 1);
    let failed = begin.len() + 2;
    assert!(
        matches!(seen[0].fault, Some(Fault::Outside { instruction, .. }) if instruction == failed),
        "{seen:?}"
    );
}

/// Runs a program whose r1 somebody has changed before it began.
struct Elsewhere(NativeProgram);

impl Executable for Elsewhere {
    fn program(&self) -> &Program {
        self.0.program()
    }

    fn advance(&self, step: &mut RunningStep<'_, '_>) -> bool {
        step.parts().0[1] = 0x1234_5678;
        self.0.advance(step)
    }
}

#[test]
fn a_step_that_begins_with_another_pointer_reaches_no_memory() {
    if !has_machine_code() {
        return;
    }
    for access in [load(DOUBLE_WORD, 2, 1, 48), put(DOUBLE_WORD, 1, 96, 3)] {
        let program = Elsewhere(native(&verified(&[access, mov(0, 0), exit()])));
        let seen = Inputs::default().run(&program, 1);
        assert!(matches!(seen[0].fault, Some(Fault::Outside { instruction: 0, .. })), "{seen:?}");
    }
}
