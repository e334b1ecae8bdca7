//! Why a send queue, receive queue or shared receive queue refused a work request.

use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::numbering::ServiceType;
use core::fmt;

/// Why a work request was refused. The queue is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The queue has no room.
    QueueFull {
        /// Slots needed: basic blocks of a send queue, or entries of a receive queue.
        needed: u32,
        /// Slots of the queue.
        size: u32,
    },
    /// An XRC request names no shared receive queue, or a request of another service names one.
    SharedReceiveQueue {
        /// Whether the request names one.
        named: bool,
    },
    /// The queue pair has no receive queue of its own.
    NoReceiveQueue,
    /// Too many slices.
    TooManySlices {
        /// Number of slices.
        count: usize,
        /// Number that the queue pair was created for.
        limit: u32,
    },
    /// Too many inline bytes.
    InlineTooLong {
        /// Number of inline bytes.
        length: usize,
        /// Number that the queue pair was created for.
        limit: u32,
    },
    /// An empty slice, one of more than 2^31 bytes, or one of an atomic that is not 8 bytes long.
    SliceLength {
        /// Index of the slice.
        index: usize,
        /// Its length.
        length: u32,
    },
    /// The message is too long.
    MessageTooLong {
        /// Length in bytes.
        length: u64,
        /// Longest message in bytes.
        limit: u64,
    },
    /// The service does not have this operation.
    NotOffered {
        /// The operation.
        kind: WorkCompletionOpcode,
        /// The service.
        service: ServiceType,
    },
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QueueFull { needed, size } => write!(
                f,
                "no room for {needed} of {size} places: poll the completion queue, and signal at least one \
                 request per queue length"
            ),
            Self::SharedReceiveQueue { named: true } => f.write_str(
                "the request names a shared receive queue, and only an XRC initiator can send to one: leave out for_shared_queue",
            ),
            Self::SharedReceiveQueue { named: false } => f.write_str(
                "an XRC request must name the peer's shared receive queue: add for_shared_queue",
            ),
            Self::NoReceiveQueue => f.write_str(
                "the queue pair has no receive queue: post to the shared one, or make it with receive_queue",
            ),
            Self::TooManySlices { count, limit } => {
                write!(
                    f,
                    "{count} slices, the queue pair was made for {limit}: raise max_send_sge or max_receive_sge"
                )
            }
            Self::InlineTooLong { length, limit } => {
                write!(
                    f,
                    "{length} bytes inline, the queue pair was made for {limit}: raise max_inline or use a slice"
                )
            }
            Self::SliceLength { index, length } => write!(
                f,
                "slice {index} has {length} bytes: a slice has 1 to 2^31, that of an atomic 8; an empty message has no slice"
            ),
            Self::MessageTooLong { length, limit } => {
                write!(f, "a message of {length} bytes: the device allows {limit}, split the message")
            }
            Self::NotOffered { kind, service } => {
                write!(f, "{service} has no {kind:?}: use a reliable connection")
            }
        }
    }
}

impl core::error::Error for PostError {}
