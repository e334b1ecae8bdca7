//! Every operator and every comparison with operands at which they change.

use crate::assemble::{DOUBLE_WORD, PARAMETERS, STATE, copy, exit, load, mov, store, verified, wide};
use crate::{Inputs, native};
use bareverbs_offload::program::Instruction;
use bareverbs_offload_native::NativeProgram;

const VALUES: [u64; 14] = [
    0,
    1,
    2,
    31,
    32,
    63,
    64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 63,
    u64::MAX - 4,
    0x0123_4567_89ab_cdef,
];
const CONSTANTS: [i32; 9] = [0, 1, -1, 5, 4095, 4096, -4096, i32::MAX, i32::MIN];

/// A program that computes with r1 and r2, which it finds in its parameters, and puts both into its state.
fn around(code: &[Instruction]) -> NativeProgram {
    let mut whole = vec![load(DOUBLE_WORD, 7, 1, STATE), load(DOUBLE_WORD, 6, 1, PARAMETERS)];
    whole.extend([load(DOUBLE_WORD, 1, 6, 0), load(DOUBLE_WORD, 2, 6, 8)]);
    whole.extend_from_slice(code);
    whole.extend([store(DOUBLE_WORD, 7, 0, 1), store(DOUBLE_WORD, 7, 8, 2), mov(0, 0), exit()]);
    native(&verified(&whole))
}

/// Compares the code with every value in r1 and each of `rights` in r2.
#[track_caller]
fn agrees(code: &[Instruction], rights: &[u64]) {
    let program = around(code);
    for left in VALUES {
        for right in rights {
            let parameters = [left.to_le_bytes(), right.to_le_bytes()].concat();
            let seen =
                Inputs { parameters, memory: Vec::new(), ..Inputs::default() }.compare_with(&program, 1);
            assert_eq!(seen[0].fault, None);
        }
    }
}

#[test]
fn computations() {
    for class in [0x04, 0x07] {
        for code in (0x00..=0xc0).step_by(0x10) {
            if code == 0x80 {
                agrees(&[Instruction::new(class | code, 1, 0, 0, 0)], &[0]);
                continue;
            }
            agrees(&[Instruction::new(class | code | 8, 1, 2, 0, 0)], &VALUES);
            // With itself, and with the frame pointer.
            agrees(&[Instruction::new(class | code | 8, 1, 1, 0, 0)], &[0]);
            agrees(&[Instruction::new(class | code | 8, 1, 10, 0, 0)], &[0]);
            let shifts = matches!(code, 0x60 | 0x70 | 0xc0);
            let divides = matches!(code, 0x30 | 0x90);
            for value in if shifts { [0, 1, 5, 8, 13, 16, 30, 31, 7] } else { CONSTANTS } {
                if !(divides && value == 0) {
                    agrees(&[Instruction::new(class | code, 1, 0, 0, value)], &[0]);
                }
            }
        }
    }
}

#[test]
fn swaps_and_constants() {
    for bits in [16, 32, 64] {
        agrees(&[Instruction::new(0xd4, 1, 0, 0, bits)], &[0]);
        agrees(&[Instruction::new(0xdc, 1, 0, 0, bits)], &[0]);
    }
    for value in VALUES {
        agrees(&wide(2, value), &[0]);
        agrees(&wide(2, !value), &[0]);
    }
    agrees(&[copy(2, 10)], &[0]);
}

#[test]
fn comparisons() {
    // Jumps over one instruction that would change r2.
    let compared = |jump| [jump, mov(2, 7)];
    for class in [0x05, 0x06] {
        for code in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0] {
            agrees(&compared(Instruction::new(class | code | 8, 1, 2, 1, 0)), &VALUES);
            agrees(&compared(Instruction::new(class | code | 8, 1, 10, 1, 0)), &[0]);
            agrees(&compared(Instruction::new(class | code | 8, 10, 1, 1, 0)), &[0]);
            for value in CONSTANTS {
                agrees(&compared(Instruction::new(class | code, 1, 0, 1, value)), &[0]);
                agrees(&compared(Instruction::new(class | code, 10, 0, 1, value)), &[0]);
            }
        }
    }
}
