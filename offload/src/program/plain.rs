//! Runs instructions as they are, one at a time, and pays for each: a step whose fuel may end before the program
//! does. The [interpreter](super::interpret) of decoded programs leaves such a step to this one, and the tests compare the two.

use super::fault::Fault;
use super::helpers::call;
use super::instruction::{Instruction, numbers as n};
use super::machine::{Exit, Position, Registers};
use super::memory::Memory;

/// One arm for each opcode of RFC 9669 with a constant on the right, and one for each with a register, so
/// that each instruction costs one jump.
macro_rules! dispatch {
    (
        $raw:ident, $registers:ident, $at:ident;
        wide { $($wide:literal $wide_register:literal => $on_wide:expr,)* }
        narrow { $($narrow:literal $narrow_register:literal => $on_narrow:expr,)* }
        jump { $($jump:literal $jump_register:literal => $if_wide:expr,)* }
        narrow_jump { $($short:literal $short_register:literal => $if_narrow:expr,)* }
        others { $($others:tt)* }
    ) => {
        match $raw.opcode {
            $($wide => wide($raw, $registers, constant($raw), $on_wide),
            $wide_register => wide($raw, $registers, register($raw, $registers), $on_wide),)*
            $($narrow => narrow($raw, $registers, constant($raw), $on_narrow),
            $narrow_register => narrow($raw, $registers, register($raw, $registers), $on_narrow),)*
            $($jump => jump($raw, &mut $at, $if_wide(left($raw, $registers), constant($raw))),
            $jump_register => {
                jump($raw, &mut $at, $if_wide(left($raw, $registers), register($raw, $registers)));
            })*
            $($short => {
                jump($raw, &mut $at, $if_narrow(left($raw, $registers) as u32, constant($raw) as u32));
            }
            $short_register => {
                let right = register($raw, $registers) as u32;
                jump($raw, &mut $at, $if_narrow(left($raw, $registers) as u32, right));
            })*
            $($others)*
        }
    };
}

/// The operations of RFC 9669 that compute or jump, with their opcodes; the caller supplies the others.
macro_rules! execute {
    ($raw:ident, $registers:ident, $at:ident; $($others:tt)*) => {
        dispatch! {
            $raw, $registers, $at;
            wide {
                0x07 0x0f => u64::wrapping_add,
                0x17 0x1f => u64::wrapping_sub,
                0x27 0x2f => u64::wrapping_mul,
                0x37 0x3f => |left: u64, right| left.checked_div(right).unwrap_or(0),
                0x47 0x4f => |left, right| left | right,
                0x57 0x5f => |left, right| left & right,
                0x67 0x6f => |left: u64, right| left.wrapping_shl(right as u32),
                0x77 0x7f => |left: u64, right| left.wrapping_shr(right as u32),
                0x87 0x8f => |left: u64, _| left.wrapping_neg(),
                0x97 0x9f => |left: u64, right| left.checked_rem(right).unwrap_or(left),
                0xa7 0xaf => |left, right| left ^ right,
                0xb7 0xbf => |_, right| right,
                0xc7 0xcf => |left, right| (left as i64).wrapping_shr(right as u32) as u64,
            }
            narrow {
                0x04 0x0c => u32::wrapping_add,
                0x14 0x1c => u32::wrapping_sub,
                0x24 0x2c => u32::wrapping_mul,
                0x34 0x3c => |left: u32, right| left.checked_div(right).unwrap_or(0),
                0x44 0x4c => |left, right| left | right,
                0x54 0x5c => |left, right| left & right,
                0x64 0x6c => u32::wrapping_shl,
                0x74 0x7c => u32::wrapping_shr,
                0x84 0x8c => |left: u32, _| left.wrapping_neg(),
                0x94 0x9c => |left: u32, right| left.checked_rem(right).unwrap_or(left),
                0xa4 0xac => |left, right| left ^ right,
                0xb4 0xbc => |_, right| right,
                0xc4 0xcc => |left, right| (left as i32).wrapping_shr(right) as u32,
            }
            jump {
                0x15 0x1d => |left: u64, right: u64| left == right,
                0x25 0x2d => |left: u64, right: u64| left > right,
                0x35 0x3d => |left: u64, right: u64| left >= right,
                0x45 0x4d => |left: u64, right: u64| left & right != 0,
                0x55 0x5d => |left: u64, right: u64| left != right,
                0x65 0x6d => |left: u64, right: u64| left as i64 > right as i64,
                0x75 0x7d => |left: u64, right: u64| left as i64 >= right as i64,
                0xa5 0xad => |left: u64, right: u64| left < right,
                0xb5 0xbd => |left: u64, right: u64| left <= right,
                0xc5 0xcd => |left: u64, right: u64| (left as i64) < right as i64,
                0xd5 0xdd => |left: u64, right: u64| left as i64 <= right as i64,
            }
            narrow_jump {
                0x16 0x1e => |left: u32, right: u32| left == right,
                0x26 0x2e => |left: u32, right: u32| left > right,
                0x36 0x3e => |left: u32, right: u32| left >= right,
                0x46 0x4e => |left: u32, right: u32| left & right != 0,
                0x56 0x5e => |left: u32, right: u32| left != right,
                0x66 0x6e => |left: u32, right: u32| left as i32 > right as i32,
                0x76 0x7e => |left: u32, right: u32| left as i32 >= right as i32,
                0xa6 0xae => |left: u32, right: u32| left < right,
                0xb6 0xbe => |left: u32, right: u32| left <= right,
                0xc6 0xce => |left: u32, right: u32| (left as i32) < right as i32,
                0xd6 0xde => |left: u32, right: u32| left as i32 <= right as i32,
            }
            others { $($others)* }
        }
    };
}

/// Runs from a position until `exit`.
pub(super) fn run(
    code: &[Instruction],
    memory: &mut Memory<'_>,
    registers: Registers,
    position: Position,
) -> Result<Exit, Fault> {
    let Registers(mut registers) = registers;
    let registers = &mut registers;
    let mut fuel = position.fuel();
    let mut at = position.next as usize;
    loop {
        // The verifier has refused every path that leads out of the program.
        let Some(&raw) = code.get(at) else { return Err(Fault::Unverified { instruction: at }) };
        if fuel == 0 {
            return Err(Fault::OutOfFuel { instruction: at });
        }
        fuel -= 1;
        execute! { raw, registers, at;
                0x61 => load(at, raw, registers, memory, |bytes| u32::from_le_bytes(bytes).into())?,
                0x69 => load(at, raw, registers, memory, |bytes| u16::from_le_bytes(bytes).into())?,
                0x71 => load(at, raw, registers, memory, |bytes| u8::from_le_bytes(bytes).into())?,
                0x79 => load(at, raw, registers, memory, u64::from_le_bytes)?,
                0x62 => memory.store(at, target(raw, registers), (constant(raw) as u32).to_le_bytes())?,
                0x6a => memory.store(at, target(raw, registers), (constant(raw) as u16).to_le_bytes())?,
                0x72 => memory.store(at, target(raw, registers), [constant(raw) as u8])?,
                0x7a => memory.store(at, target(raw, registers), constant(raw).to_le_bytes())?,
                0x63 => memory.store(at, target(raw, registers), (register(raw, registers) as u32).to_le_bytes())?,
                0x6b => memory.store(at, target(raw, registers), (register(raw, registers) as u16).to_le_bytes())?,
                0x73 => memory.store(at, target(raw, registers), [register(raw, registers) as u8])?,
                0x7b => memory.store(at, target(raw, registers), register(raw, registers).to_le_bytes())?,
                0x18 => {
                    let high = code.get(at + 1).map_or(0, |next| next.immediate.get() as u32);
                    let low = raw.immediate.get() as u32;
                    registers[usize::from(raw.destination())] = u64::from(high) << 32 | u64::from(low);
                    at += 1;
                }
                0xd4 | 0xdc => registers[usize::from(raw.destination())] = swap(raw, left(raw, registers)),
                0x05 => jump(raw, &mut at, true),
                0x85 => fuel -= call(at, raw.immediate.get(), registers, memory, fuel)?,
                0x95 => return Ok(Exit { value: registers[0], fuel }),
                _ => return Err(Fault::Unverified { instruction: at }),
        }
        // A jump to the first instruction leaves `at` at one before it.
        at = at.wrapping_add(1);
    }
}

#[inline(always)]
fn left(raw: Instruction, registers: &[u64; 16]) -> u64 {
    registers[usize::from(raw.destination())]
}

/// The constant on the right, sign-extended.
#[inline(always)]
const fn constant(raw: Instruction) -> u64 {
    raw.immediate.get() as i64 as u64
}

/// The register on the right.
#[inline(always)]
fn register(raw: Instruction, registers: &[u64; 16]) -> u64 {
    registers[usize::from(raw.source())]
}

#[inline(always)]
fn wide(raw: Instruction, registers: &mut [u64; 16], right: u64, operation: impl Fn(u64, u64) -> u64) {
    let destination = &mut registers[usize::from(raw.destination())];
    *destination = operation(*destination, right);
}

/// Computes in 32 bits; the high half of the result is zero.
#[inline(always)]
fn narrow(raw: Instruction, registers: &mut [u64; 16], right: u64, operation: impl Fn(u32, u32) -> u32) {
    let destination = &mut registers[usize::from(raw.destination())];
    *destination = operation(*destination as u32, right as u32).into();
}

#[inline(always)]
fn jump(raw: Instruction, at: &mut usize, taken: bool) {
    if taken {
        *at = at.wrapping_add_signed(raw.offset.get().into());
    }
}

/// The address of a store.
#[inline(always)]
fn target(raw: Instruction, registers: &[u64; 16]) -> u64 {
    left(raw, registers).wrapping_add_signed(raw.offset.get().into())
}

/// The memory of a program is little-endian, whatever processor runs it.
const fn swap(raw: Instruction, value: u64) -> u64 {
    let big = raw.opcode & n::REGISTER != 0;
    match (raw.immediate.get(), big) {
        (16, true) => (value as u16).swap_bytes() as u64,
        (16, false) => value as u16 as u64,
        (32, true) => (value as u32).swap_bytes() as u64,
        (32, false) => value as u32 as u64,
        (_, true) => value.swap_bytes(),
        (_, false) => value,
    }
}

#[inline(always)]
fn load<const BYTES: usize>(
    at: usize,
    raw: Instruction,
    registers: &mut [u64; 16],
    memory: &Memory<'_>,
    value: impl Fn([u8; BYTES]) -> u64,
) -> Result<(), Fault> {
    let address = register(raw, registers).wrapping_add_signed(raw.offset.get().into());
    registers[usize::from(raw.destination())] = value(memory.load(at, address)?);
    Ok(())
}
