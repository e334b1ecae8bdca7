//! What the responder of a queue pair uses of the device: receives, keys, memory and completions.

use super::{Accessor, Bus, HostMemory};
use crate::nic::cqe::CompletionOwner;
use crate::nic::mkey::{Access, HostRange};
use crate::nic::observer::{DeviceEvent, ObservedMemory};
use crate::nic::optional_state::OptionalState;
use crate::nic::receive_queue::{FetchedReceive, ReceiveAccess, ScatterList};
use crate::nic::shared_parts::SharedParts;
use crate::nic::shared_receive::{ReceiveSource, destination, token};
use crate::nic::wqe::{self, WorkFault};
use crate::transport::{
    AtomicOperation, LocalFault, ReceiveBuffer, ReceiveCompletion, ReceiveStatus, RemoteAccess, RemoteFault,
    ResponderError, ResponderHost, RpcPacket, UnknownQueue,
};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Mkey, Srqn};

/// The device as the responder of one queue pair sees it.
pub(super) struct QueuePairHost<'a, 'b, M> {
    pub(super) bus: &'a mut Bus<'b, M>,
    pub(super) context: &'a QueuePairContext,
    pub(super) accessor: Accessor,
    pub(super) receives: &'a mut ReceiveSource,
    /// The XRC shared receive queue that the request names.
    pub(super) named: Option<Srqn>,
    pub(super) scatter: &'a mut ScatterList,
    /// Set when the connection broke. The queue pair then moves to the error state.
    pub(super) error: Option<ResponderError>,
    /// Whether the RPC engine got a packet.
    pub(super) rpc_delivered: bool,
}

impl<M: HostMemory> QueuePairHost<'_, '_, M> {
    fn complete_with_fault(&mut self, token: u64, fault: WorkFault) {
        match destination(&self.bus.shared.shared_receives, self.context, token) {
            Some((cqn, user_index)) => {
                let owner = CompletionOwner { user_index, qpn: self.accessor.qpn };
                self.bus.complete(cqn, &mut owner.responder_error(token as u16, fault), true);
            }
            None => self.bus.shared.counters.shared_receives_gone += 1,
        }
    }

    fn complete_with_success(&mut self, token: u64, completion: &ReceiveCompletion) {
        match destination(&self.bus.shared.shared_receives, self.context, token) {
            Some((cqn, user_index)) => {
                let owner = CompletionOwner { user_index, qpn: self.accessor.qpn };
                let mut entry = owner.responder(token as u16, completion, self.bus.now);
                self.bus.complete(cqn, &mut entry, completion.solicited);
            }
            None => self.bus.shared.counters.shared_receives_gone += 1,
        }
    }

    /// Completes a receive that could not be read with an error, if it belongs to the queue pair's own
    /// receive queue. In a shared queue the entry is unknown, and an event reports that the queue is broken.
    fn fail_own_receive(&mut self, fault: WorkFault) {
        if let ReceiveSource::Own(queue) = &mut self.receives {
            let index = queue.taken();
            queue.skip(self.bus.memory);
            self.complete_with_fault(index.into(), fault);
        }
    }
}

impl<M: HostMemory> ResponderHost for QueuePairHost<'_, '_, M> {
    type Range = HostRange;

    fn receive_from(&mut self, queue: Srqn) -> Result<(), UnknownQueue> {
        let ReceiveSource::Xrc(domain) = *self.receives else { return Err(UnknownQueue) };
        let shared = self.bus.shared.shared_receives.get(queue.value()).ok_or(UnknownQueue)?;
        self.accessor.pd = shared.context.of_domain(domain).ok_or(UnknownQueue)?.pd();
        self.named = Some(queue);
        Ok(())
    }

    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault> {
        let Bus { memory, shared, config, .. } = &mut *self.bus;
        let SharedParts { mkeys, shared_receives, .. } = &mut **shared;
        let access = ReceiveAccess { mkeys, accessor: self.accessor, strict: config.strict };
        let taken = self.receives.take(*memory, shared_receives, self.named, access, self.scatter);
        match taken.ok_or(LocalFault)? {
            FetchedReceive::Receive { index, capacity } => {
                Ok(Some(ReceiveBuffer { token: token(self.named, index), capacity }))
            }
            FetchedReceive::Empty => Ok(None),
            FetchedReceive::Broken(fault) => {
                self.fail_own_receive(fault);
                Err(LocalFault)
            }
        }
    }

    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault> {
        // An XRC receive queue may have been destroyed while a message was being written to one of its
        // receives.
        destination(&self.bus.shared.shared_receives, self.context, buffer.token).ok_or(LocalFault)?;
        self.scatter.write(self.bus.memory, &self.bus.shared.mkeys, offset, payload).map_err(|_| LocalFault)
    }

    fn shares_receives(&self) -> bool {
        matches!(self.receives, ReceiveSource::Shared(_) | ReceiveSource::Xrc(_))
    }

    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion) {
        let fault = match completion.status {
            ReceiveStatus::Success => return self.complete_with_success(buffer.token, &completion),
            ReceiveStatus::Length => wqe::RECEIVE,
            ReceiveStatus::Protection => wqe::DATA_KEY,
            ReceiveStatus::QpOperation => wqe::SEGMENTS,
            ReceiveStatus::Access => wqe::WRITTEN_ACCESS,
            ReceiveStatus::Aborted => wqe::ABORTED,
        };
        self.complete_with_fault(buffer.token, fault);
    }

    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        address: u64,
        length: u32,
    ) -> Result<HostRange, RemoteFault> {
        let access = match access {
            RemoteAccess::Read => Access::RemoteRead,
            RemoteAccess::Write => Access::RemoteWrite,
            RemoteAccess::Atomic => Access::RemoteAtomic,
        };
        // IBTA v1.4 §9.7.4.1.5: a request of zero length is not checked against any key.
        if length == 0 {
            return Ok(HostRange::default());
        }
        self.bus
            .shared
            .mkeys
            .check(&self.accessor, Mkey::new(rkey), access, address, length.into())
            .map_err(|_| RemoteFault)
    }

    #[inline]
    fn write_remote(&mut self, range: &HostRange, offset: u64, payload: &[u8]) -> Result<(), RemoteFault> {
        self.bus.shared.mkeys.write(self.bus.memory, range, offset, payload).map_err(|_| RemoteFault)
    }

    /// Values are in the byte order of the host, which is little-endian.
    fn atomic(&mut self, range: &HostRange, operation: AtomicOperation) -> Result<u64, RemoteFault> {
        let Bus { memory, shared, .. } = &mut *self.bus;
        let mkeys = &shared.mkeys;
        let mut bytes = [0; 8];
        mkeys.read(*memory, range, 0, &mut bytes).map_err(|_| RemoteFault)?;
        let old = u64::from_le_bytes(bytes);
        mkeys.write(*memory, range, 0, &operation.apply(old).to_le_bytes()).map_err(|_| RemoteFault)?;
        Ok(old)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), RemoteFault> {
        self.bus.shared.mkeys.invalidate(self.accessor, Mkey::new(rkey)).map_err(|_| RemoteFault)
    }

    fn permits(&self, access: RemoteAccess) -> bool {
        match access {
            RemoteAccess::Read => self.context.rre(),
            RemoteAccess::Write => self.context.rwe(),
            RemoteAccess::Atomic => self.context.rae(),
        }
    }

    fn accepts_rpc(&self) -> bool {
        self.bus.config.strom && self.bus.shared.optional.engine.is_some()
    }

    fn rpc(&mut self, packet: RpcPacket<'_>) {
        let (now, qpn) = (self.bus.now, self.accessor.qpn);
        if packet.parameters {
            self.bus.observe(|| DeviceEvent::KernelCalled { qpn, kernel: packet.rpc_opcode });
        }
        let OptionalState { engine, observer, .. } = &mut self.bus.shared.optional;
        if let Some(engine) = engine {
            match observer {
                Some(observer) => {
                    let memory = &mut ObservedMemory { memory: self.bus.memory, observer, now };
                    engine.handle_rpc(now, memory, qpn, packet);
                }
                None => engine.handle_rpc(now, self.bus.memory, qpn, packet),
            }
            self.rpc_delivered = true;
        }
    }

    fn connection_error(&mut self, error: ResponderError) {
        self.error = Some(error);
    }
}
