//! Why a verified program can still fail.

use crate::kernel::Status;
use core::fmt;

/// Why a step of a verified program did not reach its `exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It ran out of fuel before this instruction.
    OutOfFuel {
        /// Index of the instruction.
        instruction: usize,
    },
    /// It accessed memory that it does not have or may not write.
    Outside {
        /// Index of the instruction.
        instruction: usize,
        /// The address: segment in the high half, offset in the low one.
        address: u64,
        /// Bytes; `u32::MAX` for more than that.
        bytes: u32,
        /// Whether it wrote.
        write: bool,
    },
    /// It returned a verb, or a status, that does not exist.
    Verb {
        /// What it returned.
        value: u64,
    },
    /// The verifier would have refused this program.
    Unverified {
        /// Where.
        instruction: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFuel { instruction } => {
                write!(f, "out of fuel before instruction {instruction}: look for a loop without end")
            }
            Self::Outside { instruction, address, bytes, write } => {
                let (access, segment) = (if *write { "write" } else { "read" }, address >> 32);
                let offset = *address as u32;
                write!(f, "instruction {instruction}: a {access} of {bytes} bytes at segment {segment}, ")?;
                write!(f, "offset {offset:#x}, leaves the memory of the program")
            }
            Self::Verb { value } => {
                write!(f, "the program returned {value:#x}, which is not a verb or status")
            }
            Self::Unverified { instruction } => write!(f, "instruction {instruction} was never verified"),
        }
    }
}

impl core::error::Error for Fault {}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::OutOfFuel { .. } => Self::OutOfFuel,
            Fault::Outside { .. } | Fault::Verb { .. } | Fault::Unverified { .. } => Self::ProgramFault,
        }
    }
}
