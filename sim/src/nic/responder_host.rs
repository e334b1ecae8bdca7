//! The device around a responder: receive queue, keys, memory and completions of one queue pair.

use super::completion::CompletionQueues;
use super::event::EventQueues;
use super::extension::RpcEngine;
use super::mkey::{Access, Accessor, HostRange, MkeyTable};
use super::receive_queue::{Landing, Taken, Taker};
use super::shared_receive::{ReceiveSource, token};
use super::wqe::{self, WorkFault};
use super::{HostMemory, cqe};
use crate::transport::{
    AtomicOperation, LocalFault, ReceiveBuffer, ReceiveCompletion, ReceiveStatus, RemoteAccess, RemoteFault,
    ResponderError, ResponderHost, RpcPacket, UnknownQueue,
};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Mkey, Srqn};
use bareverbs_prm::time::Time;

/// What a responder sees of the device.
pub(crate) struct QueuePairHost<'a, M> {
    pub(crate) now: Time,
    pub(crate) memory: &'a mut M,
    pub(crate) mkeys: &'a mut MkeyTable,
    pub(crate) completions: &'a mut CompletionQueues,
    pub(crate) events: &'a mut EventQueues,
    pub(crate) engine: Option<&'a mut (dyn RpcEngine + 'static)>,
    pub(crate) context: &'a QueuePairContext,
    pub(crate) accessor: Accessor,
    pub(crate) receives: ReceiveSource<'a>,
    pub(crate) landing: &'a mut Landing,
    pub(crate) strict: bool,
    /// Set when the connection broke; the device then moves the queue pair.
    pub(crate) error: Option<ResponderError>,
}

impl<M: HostMemory> QueuePairHost<'_, M> {
    fn complete_with_fault(&mut self, token: u64, fault: WorkFault) {
        let Some((cqn, user_index)) = self.receives.destination(self.context, token) else { return };
        let mut entry = cqe::responder_error(self.context, self.accessor.qpn, token as u16, fault);
        entry.set_user_index(user_index);
        self.completions.post(self.memory, self.events, cqn, &mut entry, true);
    }
}

impl<M: HostMemory> QueuePairHost<'_, M> {
    /// The receive that could not be read fails, if it is one of a queue of its own: of a shared one nobody can say which
    /// entry it is, and an event tells that the queue is broken.
    fn fail_own_receive(&mut self, fault: WorkFault) {
        let ReceiveSource::Own(queue) = &mut self.receives else { return };
        let index = queue.taken();
        queue.skip(self.memory);
        self.complete_with_fault(index.into(), fault);
    }
}

impl<M: HostMemory> ResponderHost for QueuePairHost<'_, M> {
    type Range = HostRange;

    fn receive_from(&mut self, queue: Srqn) -> Result<(), UnknownQueue> {
        let ReceiveSource::Xrc { queues, domain, named } = &mut self.receives else {
            return Err(UnknownQueue);
        };
        let known = queues.get(queue.value()).and_then(|shared| shared.context.of_domain(*domain));
        let pd = known.ok_or(UnknownQueue)?.pd();
        *named = Some(queue);
        self.accessor.pd = pd;
        Ok(())
    }

    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault> {
        let taker = Taker { mkeys: self.mkeys, accessor: self.accessor, strict: self.strict };
        let mut chosen = None;
        let taken = match &mut self.receives {
            ReceiveSource::None => return Err(LocalFault),
            ReceiveSource::Own(queue) => queue.take(self.memory, taker, self.landing),
            ReceiveSource::Shared(queue) => queue.take(self.memory, taker, self.landing),
            ReceiveSource::Xrc { queues, named, .. } => {
                chosen = *named;
                let queue = named.and_then(|number| queues.get_mut(number.value())).ok_or(LocalFault)?;
                queue.take(self.memory, taker, self.landing)
            }
        };
        match taken {
            Taken::Receive { index, capacity } => {
                Ok(Some(ReceiveBuffer { token: token(chosen, index), capacity }))
            }
            Taken::Empty => Ok(None),
            Taken::Broken(fault) => {
                self.fail_own_receive(fault);
                Err(LocalFault)
            }
        }
    }

    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault> {
        // An XRC queue may have been destroyed while a message went to one of its receives.
        self.receives.destination(self.context, buffer.token).ok_or(LocalFault)?;
        self.landing.scatter(self.memory, self.mkeys, offset, payload).map_err(|_| LocalFault)
    }

    fn shares_receives(&self) -> bool {
        matches!(self.receives, ReceiveSource::Shared(_) | ReceiveSource::Xrc { .. })
    }

    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion) {
        let fault = match completion.status {
            ReceiveStatus::Success => {
                let Some((cqn, user_index)) = self.receives.destination(self.context, buffer.token) else {
                    return;
                };
                let (qpn, index) = (self.accessor.qpn, buffer.token as u16);
                let mut entry = cqe::responder(self.context, qpn, index, &completion, self.now);
                entry.set_user_index(user_index);
                self.completions.post(self.memory, self.events, cqn, &mut entry, completion.solicited);
                return;
            }
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
        // IBTA v1.4 §9.7.5.1.4: a request of no bytes is not validated against any key.
        if length == 0 {
            return Ok(HostRange::default());
        }
        self.mkeys
            .check(self.accessor, Mkey::new(rkey), access, address, length.into())
            .map_err(|_| RemoteFault)
    }

    #[inline]
    fn write_remote(&mut self, range: &HostRange, offset: u64, payload: &[u8]) -> Result<(), RemoteFault> {
        self.mkeys.write(self.memory, range, offset, payload).map_err(|_| RemoteFault)
    }

    /// Values are in the byte order of the host, which is little-endian.
    fn atomic(&mut self, range: &HostRange, operation: AtomicOperation) -> Result<u64, RemoteFault> {
        let mut bytes = [0; 8];
        self.mkeys.read(self.memory, range, 0, &mut bytes).map_err(|_| RemoteFault)?;
        let old = u64::from_le_bytes(bytes);
        self.mkeys
            .write(self.memory, range, 0, &operation.apply(old).to_le_bytes())
            .map_err(|_| RemoteFault)?;
        Ok(old)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), RemoteFault> {
        self.mkeys.invalidate(self.accessor, Mkey::new(rkey)).map_err(|_| RemoteFault)
    }

    fn permits(&self, access: RemoteAccess) -> bool {
        match access {
            RemoteAccess::Read => self.context.rre(),
            RemoteAccess::Write => self.context.rwe(),
            RemoteAccess::Atomic => self.context.rae(),
        }
    }

    fn accepts_rpc(&self) -> bool {
        self.engine.is_some()
    }

    fn rpc(&mut self, packet: RpcPacket<'_>) {
        if let Some(engine) = &mut self.engine {
            engine.handle_rpc(self.now, self.memory, self.accessor.qpn, packet);
        }
    }

    fn connection_error(&mut self, error: ResponderError) {
        self.error = Some(error);
    }
}
