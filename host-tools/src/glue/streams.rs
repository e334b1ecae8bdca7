//! Streams into a NIC: one at a time on each queue pair.

use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{KernelSet, Opcode};
use bareverbs_offload::runtime::{Admission, ConnectionId, Reply};
use bareverbs_offload::status::Status;
use bareverbs_offload::streams::open_stream::{MAX_RESPONSE, OpenStream};
use bareverbs_offload::wire::{RegionHandle, ReplyTo, Request};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;
use bareverbs_sim::transport::RpcPacket;
use std::collections::BTreeMap;

use super::runtime::NicRuntime;

/// A stream that a client is filling, and where the answer goes.
struct RunningStream {
    stream: Box<OpenStream>,
    opcode: Opcode,
    region: RegionHandle,
    request_id: u64,
    reply: ReplyTo,
}

/// The sender of a packet, and the time of its arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamCaller {
    pub(super) now: Time,
    pub(super) qpn: Qpn,
    pub(super) connection: ConnectionId,
}

/// A reply with its answer.
pub(super) struct StreamResponse {
    pub(super) reply: Reply,
    pub(super) bytes: Vec<u8>,
}

/// The streams of all queue pairs.
#[derive(Default)]
pub(super) struct Streams(BTreeMap<Qpn, RunningStream>);

impl Streams {
    /// Handles an RPC Params that may open a stream. Returns the reply if it does not.
    pub(super) fn open<S: KernelSet>(
        &mut self,
        runtime: &mut NicRuntime<S>,
        caller: StreamCaller,
        packet: &RpcPacket<'_>,
    ) -> Option<StreamResponse> {
        let StreamCaller { now, qpn, connection } = caller;
        let opcode = Opcode(packet.rpc_opcode);
        let (request, grant) =
            match runtime.open_stream(now, connection, opcode, packet.region, packet.payload) {
                Ok(opened) => opened,
                Err(Admission::Refused(reply)) => return Some(StreamResponse { reply, bytes: Vec::new() }),
                Err(_) => return None,
            };
        let Request { request_id, reply, region, .. } = request;
        match self.begin(qpn, &request, grant) {
            Ok(stream) => {
                self.0.insert(qpn, RunningStream { stream, opcode, region, request_id, reply });
                None
            }
            Err(status) => {
                let reply = runtime.stream_reply(connection, request_id, &reply, Err(status))?;
                Some(StreamResponse { reply, bytes: Vec::new() })
            }
        }
    }

    fn begin(&self, qpn: Qpn, request: &Request<'_>, grant: Grant) -> Result<Box<OpenStream>, Status> {
        if self.0.contains_key(&qpn) {
            return Err(Status::Busy);
        }
        OpenStream::open(request.opcode, request.parameters, grant).map(Box::new)
    }

    /// Handles a part of an RPC WRITE. Returns the answer after the last part, or when the stream cannot go
    /// on. `Err`: there is no such stream.
    pub(super) fn fill<S: KernelSet>(
        &mut self,
        runtime: &mut NicRuntime<S>,
        caller: StreamCaller,
        packet: &RpcPacket<'_>,
        memory: &mut dyn HostMemory,
    ) -> Result<Option<StreamResponse>, NoStream> {
        let StreamCaller { now, qpn, connection } = caller;
        let running = self.0.get_mut(&qpn).filter(|running| running.opcode.0 == packet.rpc_opcode);
        let running = running.ok_or(NoStream)?;
        let mut written = 0;
        // The grant may have been revoked since the stream was opened.
        let granted = runtime.check_stream(connection, running.region);
        let taken = granted.and_then(|()| {
            running.stream.take(packet.payload, |write| {
                written += write.bytes.len() as u32;
                memory.write(write.to.range().address(), write.bytes).is_ok()
            })
        });
        runtime.charge_stream(now, connection, written);
        if taken.is_ok() && !running.stream.is_whole() {
            return Ok(None);
        }
        let Some(running) = self.0.remove(&qpn) else { return Err(NoStream) };
        let mut buffer = [0; MAX_RESPONSE];
        let response = running.stream.answer(&mut buffer);
        let outcome = taken.map(|()| response.len() as u32);
        let reply = runtime.stream_reply(connection, running.request_id, &running.reply, outcome);
        Ok(reply.map(|reply| {
            let bytes = if reply.trailer.status == Status::Ok { response.to_vec() } else { Vec::new() };
            StreamResponse { reply, bytes }
        }))
    }

    /// Drops the stream of a client that has given up.
    pub(super) fn withdraw(&mut self, qpn: Qpn, packet: &RpcPacket<'_>) {
        let parsed = Request::parse_strom(Opcode(packet.rpc_opcode), packet.region, packet.payload);
        let id = parsed.ok().map(|request| request.request_id);
        if self.0.get(&qpn).is_some_and(|running| Some(running.request_id) == id) {
            self.0.remove(&qpn);
        }
    }
}

/// The bytes belong to no open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoStream;

#[cfg(test)]
mod tests;
