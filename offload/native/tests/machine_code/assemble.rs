//! Instructions by their meaning.

use bareverbs_offload::program::{Instruction, Program};
use zerocopy::IntoBytes as _;

pub const CONTEXT_BYTES: i16 = 104;
pub const STACK_BYTES: i16 = 256;
/// Offsets in the context.
pub const PARAMETERS: i16 = 0;
pub const STATE: i16 = 8;
pub const WINDOW: i16 = 16;
pub const LENGTH: i16 = 64;

/// Sizes of accesses: the bits of the op-code, and the bytes.
pub const SIZES: [(u8, u64); 4] = [(0x10, 1), (0x08, 2), (0x00, 4), (0x18, 8)];
pub const DOUBLE_WORD: u8 = 0x18;

#[track_caller]
pub fn verified(code: &[Instruction]) -> Program {
    Program::verify(code.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

pub const fn mov(to: u8, value: i32) -> Instruction {
    Instruction::new(0xb7, to, 0, 0, value)
}

pub const fn copy(to: u8, from: u8) -> Instruction {
    Instruction::new(0xbf, to, from, 0, 0)
}

pub const fn wide(to: u8, value: u64) -> [Instruction; 2] {
    [Instruction::new(0x18, to, 0, 0, value as i32), Instruction::new(0, 0, 0, 0, (value >> 32) as i32)]
}

pub const fn load(size: u8, to: u8, base: u8, offset: i16) -> Instruction {
    Instruction::new(0x61 | size, to, base, offset, 0)
}

pub const fn store(size: u8, base: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(0x63 | size, base, from, offset, 0)
}

pub const fn put(size: u8, base: u8, offset: i16, value: i32) -> Instruction {
    Instruction::new(0x62 | size, base, 0, offset, value)
}

pub const fn call(helper: i32) -> Instruction {
    Instruction::new(0x85, 0, 0, 0, helper)
}

pub const fn jump(offset: i16) -> Instruction {
    Instruction::new(0x05, 0, 0, offset, 0)
}

pub const fn exit() -> Instruction {
    Instruction::new(0x95, 0, 0, 0, 0)
}

/// Mixes a register into the one of the sum.
fn mix(sum: u8, from: u8) -> [Instruction; 2] {
    [Instruction::new(0x27, sum, 0, 0, 0x1000_0193), Instruction::new(0xaf, sum, from, 0, 0)]
}

/// Code that mixes all registers, the stack and the context into words 18 and 19 of the state, and asks for the
/// next window. r9 must have the address of the context.
pub fn ending() -> Vec<Instruction> {
    // The registers go to the stack first, below which nothing is lost: its words are mixed before.
    let mut code = vec![store(DOUBLE_WORD, 9, CONTEXT_BYTES - 8, 0), copy(0, 1)];
    (2..9).for_each(|register| code.extend(mix(0, register)));
    for word in 1..=STACK_BYTES / 8 {
        code.push(load(DOUBLE_WORD, 1, 10, -8 * word));
        code.extend(mix(0, 1));
    }
    for word in 0..CONTEXT_BYTES / 8 {
        code.push(load(DOUBLE_WORD, 1, 9, 8 * word));
        code.extend(mix(0, 1));
    }
    // The state's own address may have been overwritten in the context.
    code.extend(wide(1, 4 << 32));
    code.push(load(DOUBLE_WORD, 2, 1, 144));
    code.push(store(DOUBLE_WORD, 1, 152, 2));
    code.push(store(DOUBLE_WORD, 1, 144, 0));
    code.push(put(0x18, 9, 48, 64));
    code.push(put(0x00, 9, LENGTH, 40));
    code.extend([mov(0, 1), exit()]);
    code
}
