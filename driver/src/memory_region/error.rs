//! Errors of memory regions.

use super::AccessFlags;
use crate::command::CommandError;
use crate::hal::HalError;
use core::fmt;

/// Why a memory region could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The region is empty.
    Empty,
    /// Remote write or atomic access without local write access.
    InconsistentAccess {
        /// The requested access.
        access: AccessFlags,
    },
    /// The first address and the memory have different offsets in their pages.
    Unaligned {
        /// First address of the region for peers.
        address: u64,
        /// First address of the memory for the device.
        memory: u64,
    },
    /// The region exceeds the address space.
    Range {
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The device was opened without relaxed ordering.
    NoRelaxedOrdering,
    /// Atomic access for peers is requested, but the device does not support atomics.
    NoAtomics,
    /// There is no memory, or it cannot be mapped.
    Memory(HalError),
    /// The device refused.
    Command(CommandError),
}

impl From<HalError> for RegisterError {
    fn from(error: HalError) -> Self {
        Self::Memory(error)
    }
}

impl From<CommandError> for RegisterError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("a memory region of 0 bytes: ask for at least 1"),
            Self::InconsistentAccess { access } => {
                write!(f, "access {access:?}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")
            }
            Self::Unaligned { address, memory } => write!(
                f,
                "a region at {address:#x} over memory at {memory:#x}: the low 12 bits must be the same"
            ),
            Self::Range { address, length } => {
                write!(f, "{length} bytes from {address:#x} leave the address space")
            }
            Self::NoRelaxedOrdering => f.write_str(
                "access RELAXED_ORDERING: the device does not offer it; ask Capabilities::relaxed_ordering first",
            ),
            Self::NoAtomics => {
                f.write_str("access REMOTE_ATOMIC: the device has no atomics; ask Capabilities::atomics first")
            }
            Self::Memory(error) => write!(f, "a memory region: {error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for RegisterError {}
