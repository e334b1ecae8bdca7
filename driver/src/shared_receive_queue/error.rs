//! Errors of shared receive queues.

use crate::command::{CommandError, InterfaceBusy};
use crate::hal::HalError;
use core::fmt;

/// Why a shared receive queue could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedReceiveQueueError {
    /// An argument is zero or exceeds the device's limit.
    Limit {
        /// The argument.
        name: &'static str,
        /// Requested value.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The device does not support XRC.
    NoXrc,
    /// The device was opened for no more queue pairs and shared receive queues.
    TooManyQueues {
        /// That number.
        limit: usize,
    },
    /// The memory for recording posted work is full.
    LedgerFull {
        /// Contiguous words needed.
        needed: usize,
        /// Words in total.
        limit: u32,
    },
    /// The HAL has no memory left.
    Memory(HalError),
    /// Another thread held the command interface until the command timeout.
    InterfaceBusy(InterfaceBusy),
    /// The command failed.
    Command(CommandError),
}

impl fmt::Display for SharedReceiveQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit { name, asked, limit } => {
                write!(f, "shared receive queue with {name} {asked}: the device allows 1 to {limit}")
            }
            Self::NoXrc => f.write_str(
                "shared receive queue of XRC: the device has no XRC; ask Capabilities::xrc first, or use create",
            ),
            Self::TooManyQueues { limit } => {
                write!(
                    f,
                    "{limit} queue pairs and shared receive queues exist already: raise DeviceConfig::queue_pairs"
                )
            }
            Self::LedgerFull { needed, limit } => write!(
                f,
                "no room for {needed} words of posted work in {limit}: raise DeviceConfig::ledger_words or use a shorter queue"
            ),
            Self::Memory(error) => write!(f, "shared receive queue: {error}"),
            Self::InterfaceBusy(busy) => write!(f, "{busy}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for SharedReceiveQueueError {}

/// Why a shared receive queue could not be modified. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModifySharedReceiveQueueError {
    /// mlx5 cannot resize a shared receive queue.
    Resize {
        /// Requested number of receives.
        asked: u32,
        /// Receives of the queue.
        capacity: u32,
    },
    /// The limit exceeds the capacity of the queue.
    Limit {
        /// Requested limit.
        asked: u16,
        /// Receives of the queue.
        capacity: u32,
    },
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for ModifySharedReceiveQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Resize { asked, capacity } => write!(
                f,
                "resizing a shared receive queue of {capacity} receives to {asked}: mlx5 cannot do that, make another queue"
            ),
            Self::Limit { asked, capacity } => {
                write!(f, "a limit of {asked} receives for a shared receive queue that holds {capacity}")
            }
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ModifySharedReceiveQueueError {}
