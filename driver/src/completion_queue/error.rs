//! Errors of completion queues.

use crate::command::{CommandError, DeviceLoss};
use crate::hal::HalError;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Duration;
use core::fmt;

/// Why a completion queue could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionQueueError {
    /// Zero entries, or more than the device supports.
    Entries {
        /// The requested number of entries.
        asked: u32,
        /// The device's limit.
        limit: u32,
    },
    /// The device does not support a feature.
    NotOffered {
        /// The feature, with the name of the capability.
        feature: &'static str,
    },
    /// A moderation period longer than 4095 microseconds.
    Period {
        /// The requested period.
        asked: Duration,
    },
    /// The completion channel belongs to another device, where its number names an unrelated event queue.
    OtherDevice,
    /// The queue was resized, but the device did not mark the end of the old ring: completions may be
    /// missing.
    EntriesLost {
        /// Entries that were moved.
        moved: u32,
    },
    /// The HAL has no memory left.
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
            Self::NotOffered { feature } => {
                write!(
                    f,
                    "a completion queue with what the device does not offer: {feature}; ask Capabilities first"
                )
            }
            Self::Period { asked } => {
                write!(f, "moderation over {asked}: ask for at most 4095 microseconds")
            }
            Self::OtherDevice => f.write_str(
                "a completion queue: the completion channel belongs to another device; make both from the same handle",
            ),
            Self::EntriesLost { moved } => write!(
                f,
                "resizing a completion queue: the device did not end the old ring, {moved} completions were moved, \
                 others may be lost; reset the queue pairs"
            ),
            Self::Memory(error) => write!(f, "a completion queue: {error}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CompletionQueueError {}

/// An impossible completion entry, or a lost device found while waiting. The entry has been consumed; the
/// next call continues after it.
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
    /// It has an opcode that cannot occur in this queue.
    UnexpectedOpcode {
        /// The opcode.
        opcode: CqeOpcode,
        /// The queue pair it names.
        qpn: Qpn,
    },
    /// It begins a compressed run of an impossible length.
    BadRun {
        /// The length of the run according to the entry.
        entries: u32,
    },
    /// The device is lost and completes nothing any more. Only waits check for this, polling does not.
    DeviceLost(DeviceLoss),
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOutstanding { qpn, counter } => write!(
                f,
                "the device completes work request {counter:#x} of queue pair {qpn}, which is not outstanding: reset the queue pair"
            ),
            Self::DeviceLost(loss) => write!(f, "waiting for completions: {loss}"),
            Self::BadRun { entries } => write!(
                f,
                "the device wrote a compressed run of {entries} completions, which is impossible: make a new queue"
            ),
            Self::UnexpectedOpcode { opcode, qpn } => {
                write!(
                    f,
                    "the device wrote a completion {opcode} of queue pair {qpn}, which is impossible: reset the queue pair"
                )
            }
        }
    }
}

impl core::error::Error for PollError {}
