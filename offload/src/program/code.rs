//! A verified program: only these are run.

use super::decoded::{DecodedProgram, decode, guess};
use super::instruction::{FRAME_POINTER, Instruction};
use super::limits::MAX_INSTRUCTIONS;
use super::memory::Segment;
use super::verify::{DeployError, verify};
use core::fmt;
use sha2::{Digest, Sha256};
use zerocopy::{FromBytes, IntoBytes};

/// A program that was verified.
///
/// ```
/// use bareverbs_offload::program::{Instruction, Program};
/// use zerocopy::IntoBytes;
///
/// // r0 = 0, which is the verb "done"; exit.
/// let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
/// let program = Program::verify(code.as_bytes()).unwrap();
/// assert_eq!(program.instructions(), code);
/// assert!(Program::verify(code[..1].as_bytes()).is_err(), "it runs over its end");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    code: [Instruction; MAX_INSTRUCTIONS],
    length: usize,
    names_stack: bool,
    operations: DecodedProgram,
}

impl Program {
    /// Verifies a program, given as the bytes of its instructions.
    pub fn verify(bytes: &[u8]) -> Result<Self, DeployError> {
        let whole = <[Instruction]>::ref_from_bytes(bytes);
        let found = whole.map_err(|_| DeployError::NotWhole { bytes: bytes.len() })?;
        verify(found)?;
        let mut code = [Instruction::default(); MAX_INSTRUCTIONS];
        let too_long = DeployError::TooLong { instructions: found.len() };
        code.get_mut(..found.len()).ok_or(too_long)?.copy_from_slice(found);
        let names_stack = found.iter().any(names_stack);
        Ok(Self { code, length: found.len(), names_stack, operations: decode(found) })
    }

    /// The instructions.
    pub fn instructions(&self) -> &[Instruction] {
        self.code.get(..self.length).unwrap_or(&[])
    }

    /// The segment that the access of an instruction probably goes to. An engine may look there first, and
    /// compares the address all the same.
    pub fn guess(&self, slot: usize) -> Option<Segment> {
        self.operations.get(slot).and_then(guess)
    }

    /// Whether it names the frame pointer. A program that does not hardly ever uses its stack.
    pub const fn names_stack(&self) -> bool {
        self.names_stack
    }

    /// The instructions, decoded.
    pub(super) const fn operations(&self) -> &DecodedProgram {
        &self.operations
    }

    /// SHA-256 of the bytes of the instructions. It identifies a version of a program.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.instructions().as_bytes()).into()
    }
}

fn names_stack(instruction: &Instruction) -> bool {
    [instruction.destination(), instruction.source()].contains(&FRAME_POINTER)
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program of {} instructions", self.length)
    }
}
