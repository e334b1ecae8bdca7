//! What can go wrong with a completion queue.

use crate::command::CommandError;
use crate::hal::HalError;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use core::fmt;

/// Why a completion queue could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionQueueError {
    /// Zero entries, or more than the device can do.
    Entries {
        /// Asked for.
        asked: u32,
        /// Most that the device can do.
        limit: u32,
    },
    /// There is no memory.
    Memory(HalError),
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for CompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Entries { asked, limit } => {
                write!(f, "a completion queue of {asked} entries: ask for 1 to {limit}")
            }
            Self::Memory(error) => write!(f, "{error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CompletionQueueError {}

/// A completion entry that cannot be true. It has been consumed; the next call goes on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// It completes a work request that is not outstanding.
    NotOutstanding {
        /// The queue pair it names.
        qpn: Qpn,
        /// The counter it names.
        counter: u16,
    },
    /// It has an opcode that does not occur in this queue.
    UnexpectedOpcode {
        /// The opcode.
        opcode: CqeOpcode,
        /// The queue pair it names.
        qpn: Qpn,
    },
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOutstanding { qpn, counter } => write!(
                f,
                "the device completes work request {counter:#x} of queue pair {qpn}, which is not outstanding: reset it"
            ),
            Self::UnexpectedOpcode { opcode, qpn } => {
                write!(
                    f,
                    "the device wrote a completion {opcode} of queue pair {qpn}, which cannot occur: reset it"
                )
            }
        }
    }
}

impl core::error::Error for PollError {}
