//! The RoCE reliable transport as two pure state machines, requester and responder. IBTA v1.4 §9.7.
//!
//! This room knows packets, sequence numbers and timers. It knows no WQE, no CQE and no memory key: what it needs of
//! those it asks of a [`ResponderHost`], and it names a request by a token that its owner chose.

use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;

/// What a request asks for. Lengths and tokens are in [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// SEND, with immediate data or a key to invalidate.
    Send {
        /// Immediate data as 32 opaque bits.
        immediate: Option<u32>,
        /// Key that the responder shall invalidate.
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
    /// Atomic compare and swap of 8 bytes.
    CompareSwap {
        /// Remote virtual address.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Atomic fetch and add of 8 bytes.
    FetchAdd {
        /// Remote virtual address.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Value to add.
        add: u64,
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

/// A message given to a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub operation: Operation,
    /// Bytes of payload: sent for SEND and WRITE, asked for by READ.
    pub length: u32,
    /// Names the message to its owner; comes back in packets, placements and completions.
    pub token: u64,
    /// Solicited event bit of the last packet.
    pub solicited: bool,
    /// Wait for earlier READs and atomics to finish first.
    pub fence: bool,
}

/// How a reliable connection was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// First PSN to send.
    pub send_psn: Psn,
    /// First PSN to expect.
    pub receive_psn: Psn,
    /// Local ACK timeout exponent: 4.096 µs × 2^n, 0 means never. IBTA v1.4 §9.7.6.1.3.
    pub ack_timeout: u8,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// Retries after RNR NAK, 7 means without end.
    pub rnr_retry: u8,
    /// RNR timer code sent in RNR NAKs, 5 bits. IBTA v1.4 table 45.
    pub min_rnr_timer: u8,
    /// READs and atomics that may be outstanding as requester.
    pub max_outstanding_reads: u8,
    /// READs and atomics that are remembered as responder.
    pub max_remembered_reads: u8,
}

/// Local ACK timeout of exponent `n`; `None` means never.
pub const fn ack_timeout(exponent: u8) -> Option<Duration> {
    if exponent == 0 { None } else { Some(Duration::from_picos(4_096_000 << (exponent & 31))) }
}

/// What a responder does to remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Atomic.
    Atomic,
}

/// A remote access was refused: the key, the domain, the right or the range is wrong. The responder answers with a
/// NAK «remote access error».
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFault;

/// Local memory of a receive could not be written, or a receive queue is broken. NAK «remote operational error».
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFault;

/// A receive work request taken from the receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Names it to the host.
    pub token: u64,
    /// Bytes of its scatter list.
    pub capacity: u64,
}

/// How a receive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveCompletion {
    /// What consumed it.
    pub kind: ReceiveKind,
    /// Bytes of the message.
    pub length: u32,
    /// Immediate data, or the key that was invalidated.
    pub immediate: Option<u32>,
    /// Solicited event bit.
    pub solicited: bool,
    /// How it ended.
    pub status: ReceiveStatus,
}

/// What consumed a receive work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveKind {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImmediate,
    /// SEND with invalidate.
    SendInvalidate,
    /// RDMA WRITE with immediate.
    WriteImmediate,
}

/// How a receive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// All bytes are in place.
    Success,
    /// The message was longer than the scatter list: local length error.
    Length,
    /// The scatter list could not be written: local protection error.
    Protection,
    /// Local QP operation error.
    QpOperation,
}

/// What a responder asks of the device around it. Every call is synchronous and has no delay.
pub trait ResponderHost {
    /// A checked stretch of memory, as the device names it.
    type Range: Clone;

    /// Takes the next receive work request; `Ok(None)` makes the responder answer RNR NAK.
    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault>;
    /// Writes payload at `offset` into the scatter list of a receive.
    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault>;
    /// Ends a receive: the host writes its completion.
    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion);
    /// Checks key, domain, right and range. Length zero is checked for the right only, IBTA v1.4 §9.7.5.1.4.
    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        address: u64,
        length: u32,
    ) -> Result<Self::Range, RemoteFault>;
    /// Writes payload at `offset` into a checked range.
    fn write_remote(&mut self, range: &Self::Range, offset: u64, payload: &[u8]) -> Result<(), RemoteFault>;
    /// Does an 8-byte atomic on a checked range and gives the old value.
    fn atomic(&mut self, range: &Self::Range, operation: AtomicOperation) -> Result<u64, RemoteFault>;
    /// Invalidates a key for SEND with invalidate.
    fn invalidate(&mut self, rkey: u32) -> Result<(), RemoteFault>;
    /// Whether StRoM's op-codes are accepted on this queue pair.
    fn accepts_rpc(&self) -> bool;
    /// Hands over one packet of a StRoM RPC.
    fn rpc(&mut self, packet: RpcPacket<'_>);
    /// The connection broke: the queue pair goes to the error state.
    fn connection_error(&mut self, error: ResponderError);
}

/// The arithmetic of an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Store `swap` if the old value equals `compare`.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
}

/// One packet of a StRoM RPC, in order and never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RpcPacket<'a> {
    /// RPC op-code of the RETH that began the message.
    pub rpc_opcode: u64,
    /// Region handle of that RETH.
    pub region: u32,
    /// Whether this is RPC Params; otherwise it is a part of RPC WRITE.
    pub parameters: bool,
    /// Bytes of the whole message.
    pub total: u32,
    /// Offset of this part.
    pub offset: u32,
    /// The part.
    pub payload: &'a [u8],
}

/// Why a responder broke the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponderError {
    /// NAK «invalid request» was sent.
    InvalidRequest,
    /// NAK «remote access error» was sent.
    RemoteAccess,
    /// NAK «remote operational error» was sent.
    Operational,
}

/// Why a requester failed a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequesterError {
    /// No answer within all retries.
    RetryExceeded,
    /// Receiver not ready within all retries.
    RnrRetryExceeded,
    /// NAK «invalid request».
    RemoteInvalidRequest,
    /// NAK «remote access error».
    RemoteAccess,
    /// NAK «remote operational error».
    RemoteOperational,
    /// A response that makes no sense.
    BadResponse,
    /// The owner could not read or write local memory.
    LocalProtection,
    /// An earlier message failed.
    Flushed,
}

/// A message that has ended, in the order of submission.
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
    /// The payload of the packet goes to `offset` of the message's local buffer.
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
