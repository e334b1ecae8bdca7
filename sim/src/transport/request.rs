//! The input and output of a requester: messages, packets, placements and completions.

use super::arithmetic::AtomicOperation;
use crate::wire::{PacketHeader, ServiceHeader};
use core::fmt;

/// What a request asks for. Lengths and tokens are in [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// SEND, with immediate data or a key to invalidate.
    Send {
        /// Immediate data as 32 opaque bits.
        immediate: Option<u32>,
        /// Key that the responder is to invalidate.
        invalidate: Option<u32>,
    },
    /// RDMA WRITE.
    Write {
        /// Remote virtual address.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data as 32 opaque bits.
        immediate: Option<u32>,
    },
    /// RDMA READ.
    Read {
        /// Remote virtual address.
        address: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Atomic of 8 bytes.
    Atomic {
        /// Remote virtual address.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// The operation on them.
        operation: AtomicOperation,
    },
    /// StRoM RPC Params (BTH op-code 0x18): at most one path MTU.
    RpcParams {
        /// RPC op-code, in the address field of the RETH.
        rpc_opcode: u64,
        /// Region handle, in the key field of the RETH.
        region: u32,
    },
    /// StRoM RPC WRITE (BTH op-codes 0x19 to 0x1c).
    RpcWrite {
        /// RPC op-code, in the address field of the RETH.
        rpc_opcode: u64,
        /// Region handle, in the key field of the RETH.
        region: u32,
    },
}

impl Operation {
    /// Whether it is an atomic, which returns the old value.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic { .. })
    }

    /// Whether response data ends it rather than an ACK.
    pub fn expects_data(&self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }
}

/// A message given to a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub operation: Operation,
    /// Bytes of payload: sent by SEND and WRITE, requested by READ.
    pub length: u32,
    /// The owner's name for the message; returned in packets, placements and completions.
    pub token: u64,
    /// Solicited event bit of the last packet.
    pub solicited: bool,
    /// Wait for earlier READs and atomics to finish first.
    pub fence: bool,
    /// Header of the service class, carried by all its packets.
    pub service_header: ServiceHeader,
}

/// Why a requester failed a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequesterError {
    /// No response after all retries.
    RetryExceeded,
    /// Receiver not ready after all retries.
    RnrRetryExceeded,
    /// NAK "invalid request".
    RemoteInvalidRequest,
    /// NAK "remote access error".
    RemoteAccess,
    /// NAK "remote operational error".
    RemoteOperational,
    /// A malformed response.
    BadResponse,
    /// The owner could not read or write local memory.
    LocalProtection,
    /// The message is longer than its operation allows: 2^30 bytes, or one path MTU for RPC Params.
    LocalLength,
    /// The service has no such operation.
    NotOffered,
    /// An earlier message failed.
    Flushed,
}

/// A message that has ended. Completions come in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCompletion {
    /// The message.
    pub token: u64,
    /// How it ended.
    pub result: Result<(), RequesterError>,
}

/// Where the payload of a response belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Nothing to place.
    None,
    /// The payload of the packet belongs at `offset` in the message's local buffer.
    Payload {
        /// The message.
        token: u64,
        /// Offset in its buffer.
        offset: u32,
    },
    /// Eight bytes of an atomic's old value.
    Atomic {
        /// The message.
        token: u64,
        /// The old value.
        old: u64,
    },
}

/// A packet that a requester wants on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPacket {
    /// Op-code, PSN, flags and extension headers.
    pub header: PacketHeader,
    /// The message it belongs to.
    pub token: u64,
    /// Offset of its payload in the local buffer of the message.
    pub payload_offset: u32,
    /// Bytes of payload to read there; zero for READs and atomics.
    pub payload_length: u32,
    /// Why it is sent again, if it was on the wire before.
    pub retransmission: Option<RetransmissionCause>,
    /// Another packet can follow at once. An unreliable connection does not say so.
    pub is_followed: bool,
}

/// Why packets are sent again.
///
/// ```
/// use bareverbs_sim::transport::RetransmissionCause;
///
/// let cause = RetransmissionCause::from_name("RNR NAK");
/// assert_eq!(cause, Some(RetransmissionCause::ReceiverNotReady));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetransmissionCause {
    /// The local ACK timer ran out (IBTA v1.4 §9.7.6.1.3).
    Timer,
    /// A NAK "PSN sequence error" (§9.7.5.2.4).
    SequenceNak,
    /// A later request was acknowledged while a READ or an atomic before it had no response (§9.7.5.2.6).
    ImpliedNak,
    /// An RNR NAK said that no receive was posted (§9.7.5.2.8).
    ReceiverNotReady,
    /// A message failed locally before one of its packets could request an acknowledgement for the packets
    /// before it.
    LocalFailure,
    /// The send queue drains, so the packet that would have requested an acknowledgement is not sent.
    Drain,
}

impl RetransmissionCause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::Timer,
        Self::SequenceNak,
        Self::ImpliedNak,
        Self::ReceiverNotReady,
        Self::LocalFailure,
        Self::Drain,
    ];

    /// The cause in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::SequenceNak => "NAK",
            Self::ImpliedNak => "implied NAK",
            Self::ReceiverNotReady => "RNR NAK",
            Self::LocalFailure => "local failure",
            Self::Drain => "drain",
        }
    }

    /// The cause with this [`Self::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

impl fmt::Display for RetransmissionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The requester already holds as many messages as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot submit a message: the requester's queue is full, poll completions first")
    }
}

impl core::error::Error for QueueFull {}

impl fmt::Display for RequesterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RetryExceeded => "no answer within all retries; is the peer up and in RTR?",
            Self::RnrRetryExceeded => "the peer had no receive posted within all RNR retries",
            Self::RemoteInvalidRequest => "the peer refused the request as invalid",
            Self::RemoteAccess => "the peer refused the key, the right or the range",
            Self::RemoteOperational => "the peer could not carry the request out",
            Self::BadResponse => "the peer's answer makes no sense",
            Self::LocalProtection => "local memory of the message could not be read or written",
            Self::LocalLength => "the message is longer than its operation allows",
            Self::NotOffered => "the service of the queue pair does not offer the operation",
            Self::Flushed => "an earlier message failed",
        })
    }
}

impl core::error::Error for RequesterError {}
