//! What a responder needs from the device around it.

use super::arithmetic::AtomicOperation;
use bareverbs_prm::ids::Srqn;

/// The kind of a remote memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Atomic.
    Atomic,
}

/// A remote access was refused because the key, the protection domain, the access right or the range is
/// wrong. The responder answers with the NAK "remote access error".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFault;

/// The local memory of a receive could not be written, or a receive queue is broken. The responder answers
/// with the NAK "remote operational error".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFault;

/// A request names a shared receive queue that does not exist or does not belong to the XRC domain of the
/// queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownQueue;

/// A receive work request taken from the receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// The name by which the host knows it.
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
    /// The message was dropped, and the receive cannot be kept for another message.
    Aborted,
}

/// What a responder needs from the device around it. Every call is synchronous and takes no simulated time.
pub trait ResponderHost {
    /// A checked range of memory, in the device's own representation.
    type Range: Clone;

    /// The next request is for a shared receive queue that the peer named. Subsequent calls use that queue
    /// and its protection domain (IBTA v1.4 annex A14). On an error the responder answers with the NAK
    /// "invalid request".
    fn receive_from(&mut self, queue: Srqn) -> Result<(), UnknownQueue>;
    /// Takes the next receive work request. On `Ok(None)` the responder answers with an RNR NAK.
    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault>;
    /// Writes payload at `offset` into the scatter list of a receive.
    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault>;
    /// Whether other queue pairs take receives from the same queue. If so, a receive cannot be kept for
    /// another message.
    fn shares_receives(&self) -> bool;
    /// Ends a receive: the host writes its completion.
    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion);
    /// Checks key, protection domain, access right and range. A length of zero is checked for the right only,
    /// IBTA v1.4 §9.7.4.1.5.
    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        address: u64,
        length: u32,
    ) -> Result<Self::Range, RemoteFault>;
    /// Writes payload at `offset` into a checked range.
    fn write_remote(&mut self, range: &Self::Range, offset: u64, payload: &[u8]) -> Result<(), RemoteFault>;
    /// Executes an 8-byte atomic on a checked range and returns the old value.
    fn atomic(&mut self, range: &Self::Range, operation: AtomicOperation) -> Result<u64, RemoteFault>;
    /// Invalidates a key for SEND with invalidate.
    fn invalidate(&mut self, rkey: u32) -> Result<(), RemoteFault>;
    /// Whether the queue pair lets its peer perform this kind of access. If not, the responder answers with
    /// the NAK "invalid request".
    fn permits(&self, access: RemoteAccess) -> bool;
    /// Whether this queue pair accepts StRoM's op-codes.
    fn accepts_rpc(&self) -> bool;
    /// Passes on one packet of a StRoM RPC.
    fn rpc(&mut self, packet: RpcPacket<'_>);
    /// The connection broke: the host moves the queue pair to the error state.
    fn connection_error(&mut self, error: ResponderError);
}

/// One packet of a StRoM RPC. Packets arrive in order and only once.
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
    /// The NAK "invalid request" was sent.
    InvalidRequest,
    /// The NAK "remote access error" was sent.
    RemoteAccess,
    /// The NAK "remote operational error" was sent.
    Operational,
}
