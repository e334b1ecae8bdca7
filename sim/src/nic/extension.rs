//! The place for what is not mlx5: an engine behind StRoM's op-codes. The device knows no kernels.

use super::HostMemory;
use crate::transport::RpcPacket;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;

/// What runs behind the RPC op-codes. Pure, as the device is: packets and deadlines in, replies out.
pub trait RpcEngine {
    /// Takes one packet of a remote procedure call, in order and never twice.
    fn handle_rpc(&mut self, now: Time, memory: &mut dyn HostMemory, qpn: Qpn, packet: RpcPacket<'_>);
    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Time, memory: &mut dyn HostMemory);
    /// When to call [`Self::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;
    /// The next reply.
    fn poll_reply(&mut self) -> Option<RpcReply>;
}

/// A reply: sent as an ordinary RDMA WRITE in the requester's numbers of the queue pair. No WQE begins it and no CQE
/// ends it; if it fails, the queue pair goes to the error state as after any failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcReply {
    /// The queue pair, on this device, over which to send.
    pub qpn: Qpn,
    /// Remote address.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// What to write there.
    pub bytes: Vec<u8>,
}
