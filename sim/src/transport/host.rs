//! What a responder asks of the device around it.

use super::arithmetic::AtomicOperation;
use bareverbs_prm::ids::Srqn;

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

/// A request names a shared receive queue that does not exist or is not of the XRC domain of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownQueue;

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
    /// The memory that an RDMA WRITE with immediate data goes to could not be written: local access error.
    Access,
    /// The message was forgotten, and the receive cannot be kept for another.
    Aborted,
}

/// What a responder asks of the device around it. Every call is synchronous and has no delay.
pub trait ResponderHost {
    /// A checked stretch of memory, as the device names it.
    type Range: Clone;

    /// The next request is for a shared receive queue that the peer named: it and its protection domain are those of what
    /// follows (IBTA v1.4 annex A14). Refused, the responder answers NAK «invalid request».
    fn receive_from(&mut self, queue: Srqn) -> Result<(), UnknownQueue>;
    /// Takes the next receive work request; `Ok(None)` makes the responder answer RNR NAK.
    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault>;
    /// Writes payload at `offset` into the scatter list of a receive.
    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault>;
    /// Whether receives come from a queue that others take from too: then a receive cannot be kept for another message.
    fn shares_receives(&self) -> bool;
    /// Ends a receive: the host writes its completion.
    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion);
    /// Checks key, domain, right and range. Length zero is checked for the right only, IBTA v1.4 §9.7.4.1.5.
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
    /// Whether the queue pair lets its peer do such a thing at all. If not, the responder answers NAK «invalid request».
    fn permits(&self, access: RemoteAccess) -> bool;
    /// Whether StRoM's op-codes are accepted on this queue pair.
    fn accepts_rpc(&self) -> bool;
    /// Hands over one packet of a StRoM RPC.
    fn rpc(&mut self, packet: RpcPacket<'_>);
    /// The connection broke: the queue pair goes to the error state.
    fn connection_error(&mut self, error: ResponderError);
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
