//! Instructions of aarch64 as words (Arm ARM, part C). Only what the translator needs.

use crate::buffer::{Buffer, Distance, Label};

/// A general register, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u8);

/// Zero, where an instruction does not read the stack pointer.
pub const ZERO: Register = Register(31);
/// Where a function returns to.
pub const LINK: Register = Register(30);

/// Operations of three registers: the word without size and registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DataProcessing {
    Add = 0x0b00_0000,
    Sub = 0x4b00_0000,
    /// Subtracts and sets the flags.
    Subs = 0x6b00_0000,
    And = 0x0a00_0000,
    /// And sets the flags.
    Ands = 0x6a00_0000,
    Or = 0x2a00_0000,
    Xor = 0x4a00_0000,
    Divide = 0x1ac0_0800,
    Left = 0x1ac0_2000,
    Right = 0x1ac0_2400,
    Arithmetic = 0x1ac0_2800,
    /// With zero as the summand.
    Multiply = 0x1b00_7c00,
}

/// Operations with a constant of twelve bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DataProcessingConstant {
    Add = 0x1100_0000,
    Sub = 0x5100_0000,
    Subs = 0x7100_0000,
}

/// Conditions of branches, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionCode {
    Equal = 0,
    NotEqual = 1,
    AboveOrEqual = 2,
    Below = 3,
    Above = 8,
    BelowOrEqual = 9,
    GreaterOrEqual = 10,
    Less = 11,
    Greater = 12,
    LessOrEqual = 13,
}

/// Where a branch has its distance, in words.
#[derive(Debug, Clone, Copy)]
pub enum Branch {
    /// 26 bits from bit 0 on.
    Always,
    /// 19 bits from bit 5 on.
    Conditional,
}

impl Distance for Branch {
    fn write(self, bytes: &mut [u8], from: usize, to: usize) -> bool {
        let (bits, first) = match self {
            Self::Always => (26, 0),
            Self::Conditional => (19, 5),
        };
        let words = (to as i64 - from as i64) / 4;
        if !(-(1 << (bits - 1))..1 << (bits - 1)).contains(&words) {
            return false;
        }
        let place = &mut bytes[from..from + 4];
        let field = (words as u32 & ((1 << bits) - 1)) << first;
        let branch = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        place.copy_from_slice(&(branch | field).to_le_bytes());
        true
    }
}

pub type Words = Buffer<Branch>;

fn word(code: &mut Words, word: u32) {
    code.put(&word.to_le_bytes());
}

const fn size(wide: bool) -> u32 {
    (wide as u32) << 31
}

const fn fields(to: Register, left: Register, right: Register) -> u32 {
    (right.0 as u32) << 16 | (left.0 as u32) << 5 | to.0 as u32
}

pub fn alu(
    code: &mut Words,
    operation: DataProcessing,
    wide: bool,
    to: Register,
    left: Register,
    right: Register,
) {
    word(code, size(wide) | operation as u32 | fields(to, left, right));
}

/// Adds a register shifted left.
pub fn add_shifted(code: &mut Words, to: Register, left: Register, right: Register, shift: u8) {
    word(code, size(true) | DataProcessing::Add as u32 | u32::from(shift) << 10 | fields(to, left, right));
}

/// Whether a constant fits an [`DataProcessingConstant`].
pub const fn is_short(value: u64) -> bool {
    value < 1 << 12
}

pub fn alu_constant(
    code: &mut Words,
    operation: DataProcessingConstant,
    wide: bool,
    to: Register,
    left: Register,
    value: u16,
) {
    debug_assert!(is_short(value.into()));
    word(code, size(wide) | operation as u32 | u32::from(value) << 10 | fields(to, left, Register(0)));
}

/// `minuend - left * right`
pub fn multiply_subtract(
    code: &mut Words,
    wide: bool,
    to: Register,
    left: Register,
    right: Register,
    minuend: Register,
) {
    word(code, size(wide) | 0x1b00_8000 | u32::from(minuend.0) << 10 | fields(to, left, right));
}

pub fn copy(code: &mut Words, wide: bool, to: Register, from: Register) {
    alu(code, DataProcessing::Or, wide, to, ZERO, from);
}

/// Any constant, 16 bits at a time.
pub fn constant(code: &mut Words, to: Register, value: u64) {
    let halves = [0, 16, 32, 48].map(|shift| (value >> shift) as u16);
    let ones = halves.iter().filter(|half| **half == u16::MAX).count();
    let zeros = halves.iter().filter(|half| **half == 0).count();
    let (first, rest) = if ones > zeros { (0x9280_0000, u16::MAX) } else { (0xd280_0000, 0) };
    let mut written = false;
    for (at, half) in (0_u32..).zip(halves) {
        let only = at == 0 && halves.iter().all(|half| *half == rest);
        if half == rest && !only {
            continue;
        }
        let (opcode, half) = match written {
            true => (0xf280_0000, half),
            false if rest == 0 => (first, half),
            false => (first, !half),
        };
        word(code, opcode | at << 21 | u32::from(half) << 5 | u32::from(to.0));
        written = true;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShiftKind {
    Left,
    Right,
    Arithmetic,
}

/// Shifts by 0 to 63 bits, or 31 if not wide.
pub fn shift_constant(code: &mut Words, operation: ShiftKind, wide: bool, register: Register, bits: u8) {
    let (width, bits) = (if wide { 64 } else { 32 }, u32::from(bits));
    let (opcode, rotated, last) = match operation {
        ShiftKind::Left => (0x5300_0000, (width - bits) % width, width - 1 - bits),
        ShiftKind::Right => (0x5300_0000, bits, width - 1),
        ShiftKind::Arithmetic => (0x1300_0000, bits, width - 1),
    };
    bit_field(code, opcode, wide, rotated, last, register, register);
}

fn bit_field(
    code: &mut Words,
    opcode: u32,
    wide: bool,
    rotated: u32,
    last: u32,
    to: Register,
    from: Register,
) {
    word(
        code,
        size(wide)
            | opcode
            | u32::from(wide) << 22
            | rotated << 16
            | last << 10
            | fields(to, from, Register(0)),
    );
}

/// Moves the high half to the low one.
pub fn high_half(code: &mut Words, to: Register, from: Register) {
    bit_field(code, 0x5300_0000, true, 32, 63, to, from);
}

/// Keeps the low 16 bits.
pub fn low_16(code: &mut Words, register: Register) {
    bit_field(code, 0x5300_0000, false, 0, 15, register, register);
}

/// Swaps all bytes of 32 or 64 bits.
pub fn swap_bytes(code: &mut Words, wide: bool, register: Register) {
    let opcode = if wide { 0x5ac0_0c00 } else { 0x5ac0_0800 };
    word(code, size(wide) | opcode | fields(register, register, Register(0)));
}

/// Swaps the bytes of each 16 bits of 32.
pub fn swap_bytes_of_halves(code: &mut Words, register: Register) {
    word(code, 0x5ac0_0400 | fields(register, register, Register(0)));
}

/// The size of an access: 1, 2, 4 or 8 bytes.
const fn bytes_field(bytes: u8) -> u32 {
    bytes.trailing_zeros() << 30
}

/// Loads from the sum of two registers; the upper bytes become zero.
pub fn load_sum(code: &mut Words, bytes: u8, to: Register, base: Register, index: Register) {
    word(code, bytes_field(bytes) | 0x3860_6800 | fields(to, base, index));
}

pub fn store_sum(code: &mut Words, bytes: u8, from: Register, base: Register, index: Register) {
    word(code, bytes_field(bytes) | 0x3820_6800 | fields(from, base, index));
}

/// Loads from a base and an offset of -256 to 255.
pub fn load_near(code: &mut Words, bytes: u8, to: Register, base: Register, offset: i16) {
    word(code, bytes_field(bytes) | 0x3840_0000 | near(offset) | fields(to, base, Register(0)));
}

pub fn store_near(code: &mut Words, bytes: u8, from: Register, base: Register, offset: i16) {
    word(code, bytes_field(bytes) | 0x3800_0000 | near(offset) | fields(from, base, Register(0)));
}

fn near(offset: i16) -> u32 {
    debug_assert!((-256..256).contains(&offset));
    u32::from(offset as u16 & 0x1ff) << 12
}

/// Loads 8 bytes from a base and an offset that is a multiple of 8.
pub fn load(code: &mut Words, to: Register, base: Register, offset: i32) {
    word(code, 0xf940_0000 | scaled(offset) | fields(to, base, Register(0)));
}

pub fn store(code: &mut Words, from: Register, base: Register, offset: i32) {
    word(code, 0xf900_0000 | scaled(offset) | fields(from, base, Register(0)));
}

fn scaled(offset: i32) -> u32 {
    debug_assert!((0..8 << 12).contains(&offset) && offset % 8 == 0);
    (offset as u32 / 8) << 10
}

/// Loads two registers of 8 bytes each from a base and an offset that is a multiple of 8, at most 504.
pub fn load_pair(code: &mut Words, to: [Register; 2], base: Register, offset: i32) {
    word(code, 0xa940_0000 | pair(to[1], offset) | fields(to[0], base, Register(0)));
}

pub fn store_pair(code: &mut Words, from: [Register; 2], base: Register, offset: i32) {
    word(code, 0xa900_0000 | pair(from[1], offset) | fields(from[0], base, Register(0)));
}

fn pair(second: Register, offset: i32) -> u32 {
    debug_assert!((0..=504).contains(&offset) && offset % 8 == 0);
    (offset as u32 / 8) << 15 | u32::from(second.0) << 10
}

pub fn jump(code: &mut Words, to: Label) {
    code.jump(to, Branch::Always);
    word(code, 0x1400_0000);
}

pub fn jump_if(code: &mut Words, condition: ConditionCode, to: Label) {
    code.jump(to, Branch::Conditional);
    word(code, 0x5400_0000 | condition as u32);
}

pub fn jump_to(code: &mut Words, register: Register) {
    word(code, 0xd61f_0000 | fields(Register(0), register, Register(0)));
}

pub fn ret(code: &mut Words) {
    word(code, 0xd65f_0000 | fields(Register(0), LINK, Register(0)));
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
