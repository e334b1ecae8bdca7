//! Runs instructions as they are, one at a time, and pays for each: a step whose fuel may end before the program
//! does. The [interpreter](super::interpret) of decoded programs leaves such a step to this one, and the tests compare the two.

use super::fault::Fault;
use super::helpers::call;
use super::instruction::{Instruction, numbers as n};
use super::machine::{Exit, Position, Registers};
use super::memory::Memory;
use super::operators::with_operators;

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
        with_operators! { raw, registers, at;
            others {
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
