//! Every operator and every comparison with operands at which they change.

use crate::Inputs;
use crate::assemble::{DOUBLE_WORD, STATE, copy, exit, load, mov, store, verified, wide};
use bareverbs_offload::program::Instruction;

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

/// r1 and r2, then code, and then r1 and r2 in the state.
fn around(left: u64, right: u64, code: &[Instruction]) -> Vec<Instruction> {
    let mut whole = vec![load(DOUBLE_WORD, 7, 1, STATE)];
    whole.extend(wide(1, left));
    whole.extend(wide(2, right));
    whole.extend_from_slice(code);
    whole.extend([store(DOUBLE_WORD, 7, 0, 1), store(DOUBLE_WORD, 7, 8, 2), mov(0, 0), exit()]);
    whole
}

#[track_caller]
fn agrees(left: u64, right: u64, code: &[Instruction]) {
    let seen = Inputs::default().compare(&verified(&around(left, right, code)), 1);
    assert_eq!(seen[0].fault, None);
}

#[test]
fn computations() {
    for class in [0x04, 0x07] {
        for code in (0x00..=0xc0).step_by(0x10) {
            let shifts = matches!(code, 0x60 | 0x70 | 0xc0);
            let divides = matches!(code, 0x30 | 0x90);
            for left in VALUES {
                if code == 0x80 {
                    agrees(left, 0, &[Instruction::new(class | code, 1, 0, 0, 0)]);
                    continue;
                }
                for right in VALUES {
                    agrees(left, right, &[Instruction::new(class | code | 8, 1, 2, 0, 0)]);
                }
                // With itself, and with the frame pointer.
                agrees(left, 0, &[Instruction::new(class | code | 8, 1, 1, 0, 0)]);
                agrees(left, 0, &[Instruction::new(class | code | 8, 1, 10, 0, 0)]);
                for value in if shifts { [0, 1, 5, 8, 13, 16, 30, 31, 7] } else { CONSTANTS } {
                    if !(divides && value == 0) {
                        agrees(left, 0, &[Instruction::new(class | code, 1, 0, 0, value)]);
                    }
                }
            }
        }
    }
}

#[test]
fn swaps_and_constants() {
    for value in VALUES {
        for bits in [16, 32, 64] {
            agrees(value, 0, &[Instruction::new(0xd4, 1, 0, 0, bits)]);
            agrees(value, 0, &[Instruction::new(0xdc, 1, 0, 0, bits)]);
        }
        agrees(value, 0, &wide(2, !value));
        agrees(value, 0, &[copy(2, 10)]);
    }
}

#[test]
fn comparisons() {
    // Jumps over one instruction that would change r2.
    let compared = |jump| [jump, mov(2, 7)];
    for class in [0x05, 0x06] {
        for code in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0] {
            for left in VALUES {
                for right in VALUES {
                    agrees(left, right, &compared(Instruction::new(class | code | 8, 1, 2, 1, 0)));
                }
                agrees(left, 0, &compared(Instruction::new(class | code | 8, 1, 10, 1, 0)));
                agrees(left, 0, &compared(Instruction::new(class | code | 8, 10, 1, 1, 0)));
                for value in CONSTANTS {
                    agrees(left, 0, &compared(Instruction::new(class | code, 1, 0, 1, value)));
                    agrees(left, 0, &compared(Instruction::new(class | code, 10, 0, 1, value)));
                }
            }
        }
    }
}
