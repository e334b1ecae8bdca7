//! What client and DPU need of the verbs below them: queue pairs that share one memory region and one completion queue.
//!
//! It has two implementations: the driver's objects, and a scripted network in the tests that loses, delays and fails
//! at will.

use core::fmt;

/// Most bytes of [`Work::Send`]: a request with the largest parameters of a program.
pub const MAX_SEND: usize = 512;

/// A part of the endpoint's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte from the start of the memory.
    pub offset: usize,
    /// Length in bytes.
    pub length: u32,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// First address.
    pub address: u64,
    /// The remote key.
    pub rkey: u32,
}

/// One request to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work<'a> {
    /// SEND of these bytes; at most [`MAX_SEND`].
    Send(&'a [u8]),
    /// StRoM's RPC Params: passes these bytes to the kernel with this op-code, for this region.
    RpcParameters {
        /// The kernel.
        opcode: u64,
        /// The region handle.
        region: u32,
        /// The parameter block.
        bytes: &'a [u8],
    },
    /// StRoM's RPC WRITE: sends a part of local memory on the stream that this op-code has opened.
    RpcWrite {
        /// The kernel.
        opcode: u64,
        /// The region handle.
        region: u32,
        /// The part of the stream.
        from: Part,
    },
    /// RDMA READ from the peer into local memory.
    Read {
        /// Destination.
        into: Part,
        /// Source.
        from: Remote,
    },
    /// RDMA WRITE with immediate from local memory.
    WriteImmediate {
        /// Source.
        from: Part,
        /// Destination.
        to: Remote,
        /// The immediate data.
        immediate: u32,
    },
    /// RDMA WRITE with immediate of these bytes; at most 64.
    WriteBytesImmediate {
        /// The bytes to write.
        bytes: &'a [u8],
        /// Destination.
        to: Remote,
        /// The immediate data.
        immediate: u32,
    },
}

/// Why a request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full; poll completions and try again.
    Full,
    /// The request names impossible memory or lengths.
    BadRequest,
    /// The connection is broken or does not exist.
    Broken,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full: poll completions and try again",
            Self::BadRequest => "the request names impossible memory or lengths",
            Self::Broken => "the connection is broken: connect again",
        })
    }
}

impl core::error::Error for PostError {}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It completed.
    Done,
    /// A SEND or a WRITE with immediate consumed this receive.
    Received {
        /// Length of the message in bytes.
        length: u32,
        /// The immediate data, if any.
        immediate: Option<u32>,
    },
    /// It failed, and its connection with it.
    Failed,
}

/// The completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The connection.
    pub connection: usize,
    /// The id that it was posted under.
    pub id: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// Queue pairs, numbered from zero, that share one memory region and one completion queue.
pub trait Endpoint {
    /// Posts a request; its completion carries `id`.
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError>;
    /// Whether a request can be posted on this connection.
    fn has_room(&self, connection: usize) -> bool;
    /// Posts a receive; `into` may be empty.
    fn post_receive(&mut self, connection: usize, id: u64, into: Part) -> Result<(), PostError>;
    /// The next completion.
    fn poll(&mut self) -> Option<Completion>;
    /// What the device wrote before is seen by copies after. A completion does the same; who polls memory needs this.
    fn refresh(&self);
    /// Copies bytes into the memory.
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError>;
    /// Copies bytes out of the memory.
    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError>;
}
