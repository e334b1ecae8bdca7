//! What client and DPU need of the verbs below them: queue pairs that share one region of memory and one completion
//! queue.
//!
//! Two implement it: the driver's objects, and a scripted network in the tests that loses, delays and fails at will.

use core::fmt;

/// Most bytes of [`Work::Send`]: a request with all the parameters that a program may have.
pub const MAX_SEND: usize = 512;

/// A part of the memory of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// First byte, from the start of the memory.
    pub offset: usize,
    /// Bytes.
    pub length: u32,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// First address.
    pub address: u64,
    /// The key that allows the access.
    pub rkey: u32,
}

/// One request to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work<'a> {
    /// SEND these bytes; at most [`MAX_SEND`].
    Send(&'a [u8]),
    /// StRoM's RPC Params: these bytes to the kernel with this op-code, on this region.
    RpcParameters {
        /// The kernel.
        opcode: u64,
        /// The region handle.
        region: u32,
        /// The parameter block.
        bytes: &'a [u8],
    },
    /// StRoM's RPC WRITE: a part of own memory to the stream that this op-code has opened.
    RpcWrite {
        /// The kernel.
        opcode: u64,
        /// The region handle.
        region: u32,
        /// The part of the stream.
        from: Part,
    },
    /// READ from the peer into own memory.
    Read {
        /// Where to.
        into: Part,
        /// Where from.
        from: Remote,
    },
    /// RDMA WRITE with immediate from own memory.
    WriteImmediate {
        /// Where from.
        from: Part,
        /// Where to.
        to: Remote,
        /// The immediate.
        immediate: u32,
    },
    /// RDMA WRITE with immediate of these bytes; at most 64.
    WriteBytesImmediate {
        /// What is written.
        bytes: &'a [u8],
        /// Where to.
        to: Remote,
        /// The immediate.
        immediate: u32,
    },
}

/// Why a request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full; poll completions and try again.
    Full,
    /// The request names memory or lengths that cannot be.
    BadRequest,
    /// The connection is broken or does not exist.
    Broken,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full: poll completions and try again",
            Self::BadRequest => "the request names memory or lengths that cannot be",
            Self::Broken => "the connection is broken: connect again",
        })
    }
}

impl core::error::Error for PostError {}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is complete.
    Done,
    /// A message, or a WRITE with immediate, took this receive.
    Received {
        /// Bytes of the message.
        length: u32,
        /// The immediate, if it had one.
        immediate: Option<u32>,
    },
    /// It failed, and the connection with it.
    Failed,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The connection.
    pub connection: usize,
    /// The id it was posted under.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// Queue pairs, numbered from zero, that share one region of memory and one completion queue.
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
