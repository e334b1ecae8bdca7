//! Runs one step of a verified program: no allocation, no recursion, and an end after so much fuel.

use super::fault::Fault;
use super::helpers::{BYTES_PER_FUEL, Helper};
use super::instruction::{FRAME_POINTER, Instruction, numbers as n};
use super::memory::Memory;

/// How a step came to its `exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit {
    /// Register r0.
    pub(super) value: u64,
    /// Fuel that is left.
    pub(super) fuel: u32,
}

/// Runs until `exit`. All registers are zero at first but r1, the context, and r10, the end of the stack.
pub(super) fn run(code: &[Instruction], memory: &mut Memory<'_>, fuel: u32) -> Result<Exit, Fault> {
    let mut registers = [0_u64; 16];
    registers[1] = Memory::CONTEXT_ADDRESS;
    registers[usize::from(FRAME_POINTER)] = Memory::STACK_END;
    let mut fuel = fuel;
    let mut at = 0_usize;
    loop {
        // The verifier let no path lead out of the program.
        let Some(&raw) = code.get(at) else { return Err(Fault::Unverified { instruction: at }) };
        if fuel == 0 {
            return Err(Fault::OutOfFuel { instruction: at });
        }
        fuel -= 1;
        match raw.opcode & n::CLASS {
            n::ALU64 => compute_wide(raw, &mut registers),
            n::LDX => load(at, raw, &mut registers, memory)?,
            n::JMP if raw.opcode == n::JMP | n::EXIT => return Ok(Exit { value: registers[0], fuel }),
            n::JMP if raw.opcode == n::JMP | n::CALL => {
                fuel = call(at, raw, &mut registers, memory, fuel)?;
            }
            n::JMP => {
                let (left, right) = (left(raw, &registers), right(raw, &registers));
                if holds(raw.opcode, left, right, left as i64, right as i64) {
                    at = at.wrapping_add_signed(raw.offset.get().into());
                }
            }
            n::JMP32 => {
                let (left, right) = (left(raw, &registers) as u32, right(raw, &registers) as u32);
                if holds(raw.opcode, left, right, left as i32, right as i32) {
                    at = at.wrapping_add_signed(raw.offset.get().into());
                }
            }
            n::ALU => compute_narrow(raw, &mut registers),
            n::LD => {
                let high = code.get(at + 1).map_or(0, |next| next.immediate.get() as u32);
                let low = raw.immediate.get() as u32;
                registers[usize::from(raw.destination())] = u64::from(high) << 32 | u64::from(low);
                at += 1;
            }
            n::STX => store(at, raw, registers[usize::from(raw.source())], &registers, memory)?,
            _ => store(at, raw, i64::from(raw.immediate.get()) as u64, &registers, memory)?,
        }
        // A jump to the first instruction leaves `at` one before it.
        at = at.wrapping_add(1);
    }
}

#[inline]
fn left(raw: Instruction, registers: &[u64; 16]) -> u64 {
    registers[usize::from(raw.destination())]
}

#[inline]
fn right(raw: Instruction, registers: &[u64; 16]) -> u64 {
    if raw.opcode & n::REGISTER == 0 {
        i64::from(raw.immediate.get()) as u64
    } else {
        registers[usize::from(raw.source())]
    }
}

#[inline]
fn compute_wide(raw: Instruction, registers: &mut [u64; 16]) {
    let (left, right) = (left(raw, registers), right(raw, registers));
    registers[usize::from(raw.destination())] = match raw.opcode & 0xf0 {
        n::ADD => left.wrapping_add(right),
        n::SUB => left.wrapping_sub(right),
        n::MUL => left.wrapping_mul(right),
        n::DIV => left.checked_div(right).unwrap_or(0),
        n::OR => left | right,
        n::AND => left & right,
        n::LSH => left.wrapping_shl(right as u32),
        n::RSH => left.wrapping_shr(right as u32),
        n::NEG => left.wrapping_neg(),
        n::MOD => left.checked_rem(right).unwrap_or(left),
        n::XOR => left ^ right,
        n::ARSH => (left as i64).wrapping_shr(right as u32) as u64,
        _ => right,
    };
}

/// In 32 bits; the high half of the result is zero.
#[inline]
fn compute_narrow(raw: Instruction, registers: &mut [u64; 16]) {
    let (left, right) = (left(raw, registers), right(raw, registers) as u32);
    if raw.opcode & 0xf0 == n::END {
        registers[usize::from(raw.destination())] = swap(raw, left);
        return;
    }
    let left = left as u32;
    registers[usize::from(raw.destination())] = u64::from(match raw.opcode & 0xf0 {
        n::ADD => left.wrapping_add(right),
        n::SUB => left.wrapping_sub(right),
        n::MUL => left.wrapping_mul(right),
        n::DIV => left.checked_div(right).unwrap_or(0),
        n::OR => left | right,
        n::AND => left & right,
        n::LSH => left.wrapping_shl(right),
        n::RSH => left.wrapping_shr(right),
        n::NEG => left.wrapping_neg(),
        n::MOD => left.checked_rem(right).unwrap_or(left),
        n::XOR => left ^ right,
        n::ARSH => (left as i32).wrapping_shr(right) as u32,
        _ => right,
    });
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

#[inline]
fn holds<U, S>(opcode: u8, left: U, right: U, signed_left: S, signed_right: S) -> bool
where
    U: PartialOrd + core::ops::BitAnd<Output = U> + Default,
    S: PartialOrd,
    U: Copy,
{
    match opcode & 0xf0 {
        n::JEQ => left == right,
        n::JGT => left > right,
        n::JGE => left >= right,
        n::JSET => left & right != U::default(),
        n::JNE => left != right,
        n::JSGT => signed_left > signed_right,
        n::JSGE => signed_left >= signed_right,
        n::JLT => left < right,
        n::JLE => left <= right,
        n::JSLT => signed_left < signed_right,
        n::JSLE => signed_left <= signed_right,
        _ => true,
    }
}

#[inline]
fn load(at: usize, raw: Instruction, registers: &mut [u64; 16], memory: &Memory<'_>) -> Result<(), Fault> {
    let base = registers[usize::from(raw.source())];
    let address = base.wrapping_add_signed(raw.offset.get().into());
    registers[usize::from(raw.destination())] = match raw.opcode & 0x18 {
        n::W => u32::from_le_bytes(memory.load(at, address)?).into(),
        n::H => u16::from_le_bytes(memory.load(at, address)?).into(),
        n::B => u8::from_le_bytes(memory.load(at, address)?).into(),
        _ => u64::from_le_bytes(memory.load(at, address)?),
    };
    Ok(())
}

#[inline]
fn store(
    at: usize,
    raw: Instruction,
    value: u64,
    registers: &[u64; 16],
    memory: &mut Memory<'_>,
) -> Result<(), Fault> {
    let base = registers[usize::from(raw.destination())];
    let address = base.wrapping_add_signed(raw.offset.get().into());
    match raw.opcode & 0x18 {
        n::W => memory.store(at, address, (value as u32).to_le_bytes()),
        n::H => memory.store(at, address, (value as u16).to_le_bytes()),
        n::B => memory.store(at, address, (value as u8).to_le_bytes()),
        _ => memory.store(at, address, value.to_le_bytes()),
    }
}

/// Calls a helper and returns the fuel that is left. r1 to r5 are zero afterwards: nothing of theirs may be relied on.
fn call(
    at: usize,
    raw: Instruction,
    registers: &mut [u64; 16],
    memory: &Memory<'_>,
    fuel: u32,
) -> Result<u32, Fault> {
    let helper = Helper::from_number(raw.immediate.get()).ok_or(Fault::Unverified { instruction: at })?;
    let length = registers[if helper == Helper::KeyEqual { 3 } else { 2 }];
    let outside = Fault::Outside { instruction: at, address: registers[1], bytes: u32::MAX, write: false };
    let bytes = u32::try_from(length).map_err(|_| outside)?;
    let one = memory.range(at, registers[1], bytes)?;
    let other = if helper == Helper::KeyEqual { memory.range(at, registers[2], bytes)? } else { &[] };
    let left =
        fuel.checked_sub(bytes.div_ceil(BYTES_PER_FUEL)).ok_or(Fault::OutOfFuel { instruction: at })?;
    registers[0] = helper.apply(one, other);
    registers[1..6].fill(0);
    Ok(left)
}
