//! Extension point beyond mlx5: an engine for StRoM's opcodes. The device knows no kernels.

use super::HostMemory;
use crate::transport::RpcPacket;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;

/// An engine for the RPC opcodes. Pure like the device: packets and deadlines in, replies out.
pub trait RpcEngine {
    /// Takes one packet of a remote procedure call. Packets arrive in order and only once.
    fn handle_rpc(&mut self, now: Time, memory: &mut dyn HostMemory, qpn: Qpn, packet: RpcPacket<'_>);
    /// Handles the timers that are due at `now`.
    fn handle_timeout(&mut self, now: Time, memory: &mut dyn HostMemory);
    /// When to call [`Self::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;
    /// The next reply.
    fn poll_reply(&mut self) -> Option<RpcReply>;
}

/// A reply, sent as an ordinary RDMA WRITE by the queue pair's requester. It has no WQE and no CQE; if it fails, the
/// queue pair goes to the error state like after any failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcReply {
    /// The queue pair of this device to send over.
    pub qpn: Qpn,
    /// Remote address.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Data to write.
    pub bytes: Vec<u8>,
}
