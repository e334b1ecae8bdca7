//! Instructions of x86-64 as bytes (Intel SDM, volume 2). Only what the translator needs.

use crate::buffer::{Buffer, Distance, Label};

/// A general register, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(pub u8);

pub const RAX: Reg = Reg(0);
pub const RCX: Reg = Reg(1);
pub const RDX: Reg = Reg(2);
pub const RBX: Reg = Reg(3);
pub const RBP: Reg = Reg(5);
pub const RSI: Reg = Reg(6);
pub const RDI: Reg = Reg(7);

/// Operations of two operands: the op-code with registers, and the extension with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

/// Conditions of jumps, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum If {
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
    Above = 7,
    Less = 12,
    GreaterOrEqual = 13,
    LessOrEqual = 14,
    Greater = 15,
}

/// Memory operands: a base, perhaps an index, and a displacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub base: Reg,
    pub index: Option<Reg>,
    pub displacement: i32,
}

pub const fn at(base: Reg, displacement: i32) -> Place {
    Place { base, index: None, displacement }
}

pub const fn at_sum(base: Reg, index: Reg, displacement: i32) -> Place {
    Place { base, index: Some(index), displacement }
}

/// The distance of a jump is in the last four bytes of it.
#[derive(Debug, Clone, Copy)]
pub struct Rel32 {
    /// Bytes of the jump.
    length: usize,
}

impl Distance for Rel32 {
    fn write(self, bytes: &mut [u8], from: usize, to: usize) -> bool {
        let end = from + self.length;
        let Ok(distance) = i32::try_from(to as i64 - end as i64) else { return false };
        bytes[end - 4..end].copy_from_slice(&distance.to_le_bytes());
        true
    }
}

pub type Code = Buffer<Rel32>;

/// The prefix that selects 64 bits and the upper eight registers. `forced` makes the low bytes of RSI and RDI
/// addressable.
fn rex(code: &mut Code, wide: bool, reg: u8, index: u8, base: u8, forced: bool) {
    let prefix = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
    if prefix != 0x40 || forced {
        code.put(&[prefix]);
    }
}

/// An instruction whose operand in `ModRM.rm` is a register.
fn with_register(code: &mut Code, wide: bool, opcode: &[u8], reg: u8, rm: Reg) {
    rex(code, wide, reg, 0, rm.0, false);
    code.put(opcode);
    code.put(&[0xc0 | (reg & 7) << 3 | rm.0 & 7]);
}

/// An instruction whose operand in `ModRM.rm` is in memory.
fn with_place(code: &mut Code, wide: bool, forced: bool, opcode: &[u8], reg: u8, place: Place) {
    let Place { base, index, displacement } = place;
    rex(code, wide, reg, index.map_or(0, |index| index.0), base.0, forced);
    code.put(opcode);
    let short = i8::try_from(displacement);
    // Without a displacement, RBP and R13 as a base would mean something else.
    let mode = match (displacement, short) {
        (0, _) if base.0 & 7 != 5 => 0x00,
        (_, Ok(_)) => 0x40,
        _ => 0x80,
    };
    let reg = (reg & 7) << 3;
    match index {
        Some(index) => code.put(&[mode | reg | 4, (index.0 & 7) << 3 | base.0 & 7]),
        // RSP and R12 as a base need the second byte.
        None if base.0 & 7 == 4 => code.put(&[mode | reg | 4, 0x24]),
        None => code.put(&[mode | reg | base.0 & 7]),
    }
    match (mode, short) {
        (0x40, Ok(short)) => code.put(&short.to_le_bytes()),
        (0x80, _) => code.put(&displacement.to_le_bytes()),
        _ => {}
    }
}

pub fn alu(code: &mut Code, operation: Alu, wide: bool, to: Reg, from: Reg) {
    with_register(code, wide, &[(operation as u8) << 3 | 1], from.0, to);
}

pub fn alu_constant(code: &mut Code, operation: Alu, wide: bool, to: Reg, value: i32) {
    match i8::try_from(value) {
        Ok(short) => {
            with_register(code, wide, &[0x83], operation as u8, to);
            code.put(&short.to_le_bytes());
        }
        Err(_) => {
            with_register(code, wide, &[0x81], operation as u8, to);
            code.put(&value.to_le_bytes());
        }
    }
}

pub fn compare_with_memory(code: &mut Code, left: Reg, right: Place) {
    with_place(code, true, false, &[0x3b], left.0, right);
}

pub fn test(code: &mut Code, wide: bool, left: Reg, right: Reg) {
    with_register(code, wide, &[0x85], right.0, left);
}

pub fn test_constant(code: &mut Code, wide: bool, left: Reg, value: i32) {
    with_register(code, wide, &[0xf7], 0, left);
    code.put(&value.to_le_bytes());
}

pub fn copy(code: &mut Code, wide: bool, to: Reg, from: Reg) {
    with_register(code, wide, &[0x89], from.0, to);
}

/// A constant, sign-extended if 64 bits are meant.
pub fn constant(code: &mut Code, wide: bool, to: Reg, value: i32) {
    if value == 0 {
        return alu(code, Alu::Xor, false, to, to);
    }
    if wide && value < 0 {
        with_register(code, true, &[0xc7], 0, to);
    } else {
        rex(code, false, 0, 0, to.0, false);
        code.put(&[0xb8 | to.0 & 7]);
    }
    code.put(&value.to_le_bytes());
}

pub fn wide_constant(code: &mut Code, to: Reg, value: u64) {
    if let Ok(short) = i32::try_from(value as i64) {
        return constant(code, true, to, short);
    }
    rex(code, true, 0, 0, to.0, false);
    code.put(&[0xb8 | to.0 & 7]);
    code.put(&value.to_le_bytes());
}

pub fn multiply(code: &mut Code, wide: bool, to: Reg, from: Reg) {
    with_register(code, wide, &[0x0f, 0xaf], to.0, from);
}

pub fn multiply_constant(code: &mut Code, wide: bool, to: Reg, value: i32) {
    with_register(code, wide, &[0x69], to.0, to);
    code.put(&value.to_le_bytes());
}

/// Divides RDX:RAX: the quotient is in RAX then, the remainder in RDX.
pub fn divide(code: &mut Code, wide: bool, by: Reg) {
    with_register(code, wide, &[0xf7], 6, by);
}

pub fn negate(code: &mut Code, wide: bool, register: Reg) {
    with_register(code, wide, &[0xf7], 3, register);
}

/// Shifts by CL.
pub fn shift(code: &mut Code, operation: Shift, wide: bool, register: Reg) {
    with_register(code, wide, &[0xd3], operation as u8, register);
}

pub fn shift_constant(code: &mut Code, operation: Shift, wide: bool, register: Reg, bits: u8) {
    with_register(code, wide, &[0xc1], operation as u8, register);
    code.put(&[bits]);
}

pub fn swap_bytes(code: &mut Code, wide: bool, register: Reg) {
    rex(code, wide, 0, 0, register.0, false);
    code.put(&[0x0f, 0xc8 | register.0 & 7]);
}

/// Rotates the low 16 bits by 8, which swaps their bytes.
pub fn swap_low_bytes(code: &mut Code, register: Reg) {
    code.put(&[0x66]);
    with_register(code, false, &[0xc1], 0, register);
    code.put(&[8]);
}

/// Keeps the low 16 bits.
pub fn low_16(code: &mut Code, register: Reg) {
    with_register(code, false, &[0x0f, 0xb7], register.0, register);
}

pub fn address(code: &mut Code, to: Reg, place: Place) {
    with_place(code, true, false, &[0x8d], to.0, place);
}

/// Loads 1, 2, 4 or 8 bytes; the upper bytes of the register become zero.
pub fn load(code: &mut Code, bytes: u8, to: Reg, from: Place) {
    let opcode: &[u8] = match bytes {
        1 => &[0x0f, 0xb6],
        2 => &[0x0f, 0xb7],
        _ => &[0x8b],
    };
    with_place(code, bytes == 8, false, opcode, to.0, from);
}

pub fn store(code: &mut Code, bytes: u8, to: Place, from: Reg) {
    prefix_16(code, bytes);
    let opcode = if bytes == 1 { 0x88 } else { 0x89 };
    with_place(code, bytes == 8, bytes == 1 && from.0 >= 4, &[opcode], from.0, to);
}

/// Stores a constant, sign-extended if it has 8 bytes.
pub fn store_constant(code: &mut Code, bytes: u8, to: Place, value: i32) {
    prefix_16(code, bytes);
    let opcode = if bytes == 1 { 0xc6 } else { 0xc7 };
    with_place(code, bytes == 8, false, &[opcode], 0, to);
    code.put(&value.to_le_bytes()[..usize::from(bytes.min(4))]);
}

fn prefix_16(code: &mut Code, bytes: u8) {
    if bytes == 2 {
        code.put(&[0x66]);
    }
}

pub fn jump(code: &mut Code, to: Label) {
    code.jump(to, Rel32 { length: 5 });
    code.put(&[0xe9, 0, 0, 0, 0]);
}

pub fn jump_if(code: &mut Code, condition: If, to: Label) {
    code.jump(to, Rel32 { length: 6 });
    code.put(&[0x0f, 0x80 | condition as u8, 0, 0, 0, 0]);
}

pub fn jump_to(code: &mut Code, register: Reg) {
    with_register(code, false, &[0xff], 4, register);
}

pub fn push(code: &mut Code, register: Reg) {
    rex(code, false, 0, 0, register.0, false);
    code.put(&[0x50 | register.0 & 7]);
}

pub fn pop(code: &mut Code, register: Reg) {
    rex(code, false, 0, 0, register.0, false);
    code.put(&[0x58 | register.0 & 7]);
}

pub fn ret(code: &mut Code) {
    code.put(&[0xc3]);
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
