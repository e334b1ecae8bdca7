//! The conditions for running a program. A verified program can run out of fuel or leave its memory, and then
//! ends with a status; it cannot do anything else.

use super::instruction::{FRAME_POINTER, Illegal, Instruction, Operand, Operation, numbers as n};
use super::limits::{MAX_INSTRUCTIONS, STACK};
use core::fmt;

/// Why a program was not deployed. Instructions are counted in slots of 8 bytes, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeployError {
    /// It has no instructions.
    Empty,
    /// It has too many.
    TooLong {
        /// Their number.
        instructions: usize,
    },
    /// Its bytes are not whole instructions.
    NotWhole {
        /// Their number.
        bytes: usize,
    },
    /// It has an instruction that does not exist or that programs may not use.
    Illegal {
        /// Where.
        instruction: usize,
        /// Why.
        reason: Illegal,
    },
    /// It writes to the frame pointer.
    FramePointer {
        /// Where.
        instruction: usize,
    },
    /// It jumps out of the program.
    JumpOutside {
        /// Where.
        instruction: usize,
        /// Where to.
        target: i64,
    },
    /// It jumps into the second half of a 64-bit constant.
    JumpIntoConstant {
        /// Where.
        instruction: usize,
        /// Where to.
        target: i64,
    },
    /// It shifts by more bits than there are.
    Shift {
        /// Where.
        instruction: usize,
        /// By how many.
        bits: i32,
    },
    /// It divides by a constant that is zero.
    DivisionByZero {
        /// Where.
        instruction: usize,
    },
    /// It reaches beyond its stack, relative to the frame pointer.
    StackOutside {
        /// Where.
        instruction: usize,
        /// First byte, from the frame pointer.
        offset: i16,
        /// Bytes.
        bytes: u8,
    },
    /// It continues after its last instruction.
    NoEnd {
        /// The last instruction.
        instruction: usize,
    },
}

/// Checks all instructions.
pub(super) fn verify(code: &[Instruction]) -> Result<(), DeployError> {
    if code.is_empty() {
        return Err(DeployError::Empty);
    }
    if code.len() > MAX_INSTRUCTIONS {
        return Err(DeployError::TooLong { instructions: code.len() });
    }
    let begins = beginnings(code)?;
    for at in (0..code.len()).filter(|at| begins[*at]) {
        check(&begins[..code.len()], at, &decode(code, at)?)?;
    }
    Ok(())
}

/// Marks the slots where instructions begin; the others are second halves of constants.
fn beginnings(code: &[Instruction]) -> Result<[bool; MAX_INSTRUCTIONS], DeployError> {
    let mut begins = [false; MAX_INSTRUCTIONS];
    let mut at = 0;
    while at < code.len() {
        let operation = decode(code, at)?;
        begins[at] = true;
        let next = at + operation.slots();
        if next >= code.len() && !ends(&operation) {
            return Err(DeployError::NoEnd { instruction: at });
        }
        at = next;
    }
    Ok(begins)
}

fn decode(code: &[Instruction], at: usize) -> Result<Operation, DeployError> {
    Operation::decode(code, at).map_err(|reason| DeployError::Illegal { instruction: at, reason })
}

const fn ends(operation: &Operation) -> bool {
    matches!(operation, Operation::Exit | Operation::Jump { condition: None, .. })
}

fn check(begins: &[bool], at: usize, operation: &Operation) -> Result<(), DeployError> {
    match *operation {
        Operation::Compute { code, wide, destination, source } => {
            check_destination(at, destination)?;
            check_constant(at, code, wide, source)
        }
        Operation::Swap { destination, .. } | Operation::Constant { destination, .. } => {
            check_destination(at, destination)
        }
        Operation::Load { destination, base, offset, bytes } => {
            check_destination(at, destination)?;
            check_stack(at, base, offset, bytes)
        }
        Operation::Store { base, offset, bytes, .. } => check_stack(at, base, offset, bytes),
        Operation::Jump { offset, .. } => check_jump(begins, at, offset),
        Operation::Call(_) | Operation::Exit => Ok(()),
    }
}

const fn check_destination(instruction: usize, register: u8) -> Result<(), DeployError> {
    if register == FRAME_POINTER { Err(DeployError::FramePointer { instruction }) } else { Ok(()) }
}

const fn check_constant(
    instruction: usize,
    code: u8,
    wide: bool,
    source: Operand,
) -> Result<(), DeployError> {
    let Operand::Immediate(value) = source else { return Ok(()) };
    let width = if wide { 64 } else { 32 };
    match code {
        n::DIV | n::MOD if value == 0 => Err(DeployError::DivisionByZero { instruction }),
        n::LSH | n::RSH | n::ARSH if value < 0 || value >= width => {
            Err(DeployError::Shift { instruction, bits: value })
        }
        _ => Ok(()),
    }
}

const fn check_stack(instruction: usize, base: u8, offset: i16, bytes: u8) -> Result<(), DeployError> {
    let inside = offset >= -(STACK as i16) && offset <= -(bytes as i16);
    if base != FRAME_POINTER || inside {
        return Ok(());
    }
    Err(DeployError::StackOutside { instruction, offset, bytes })
}

fn check_jump(begins: &[bool], at: usize, offset: i16) -> Result<(), DeployError> {
    let target = at as i64 + 1 + i64::from(offset);
    match usize::try_from(target).ok().and_then(|target| begins.get(target)) {
        Some(true) => Ok(()),
        Some(false) => Err(DeployError::JumpIntoConstant { instruction: at, target }),
        None => Err(DeployError::JumpOutside { instruction: at, target }),
    }
}

impl fmt::Display for DeployError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the program has no instructions"),
            Self::TooLong { instructions } => {
                write!(f, "the program has {instructions} instructions, {MAX_INSTRUCTIONS} are allowed: ")?;
                f.write_str("compile with -Os and do not unroll loops")
            }
            Self::NotWhole { bytes } => write!(f, "{bytes} bytes are not whole instructions of 8 bytes"),
            Self::Illegal { instruction, reason } => write!(f, "instruction {instruction}: {reason}"),
            Self::FramePointer { instruction } => {
                write!(f, "instruction {instruction} writes to r10, the frame pointer")
            }
            Self::JumpOutside { instruction, target } => {
                write!(f, "instruction {instruction} jumps to {target}, outside of the program")
            }
            Self::JumpIntoConstant { instruction, target } => {
                write!(f, "instruction {instruction} jumps to {target}, into a 64-bit constant")
            }
            Self::Shift { instruction, bits } => write!(f, "instruction {instruction} shifts by {bits} bits"),
            Self::DivisionByZero { instruction } => write!(f, "instruction {instruction} divides by zero"),
            Self::StackOutside { instruction, offset, bytes } => {
                write!(f, "instruction {instruction} accesses {bytes} bytes at r10 {offset:+}: ")?;
                write!(f, "the stack has {STACK} bytes below r10")
            }
            Self::NoEnd { instruction } => {
                write!(f, "the program continues past instruction {instruction}, its last one")
            }
        }
    }
}

impl core::error::Error for DeployError {}
