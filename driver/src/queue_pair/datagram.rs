//! Operations of UD queue pairs: no connection, an address with every request, multicast groups.

use super::batch::{Place, SendBatch};
use super::core::Core;
use super::service::{Service, Ud};
use super::{
    ConnectError, ModifyError, MulticastError, PostError, PreparedQueuePair, QueuePair, QueuePairAttributes,
    ResetError,
};
use crate::address_handle::Destination;
use crate::command::Request;
use crate::completion_queue::CompletionQueue;
use crate::device::DeviceRef;
use crate::work_completion::WorkCompletionOpcode;
use crate::work_request::WorkRequest;
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::multicast::{AttachToMcgIn, DetachFromMcgIn};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::{CommandOpcode, QpState};
use core::marker::PhantomData;

impl<D: DeviceRef> Core<D> {
    fn attach(&self, group: Gid) -> Result<(), MulticastError> {
        check_group(group)?;
        let mut input = AttachToMcgIn::new();
        input.set_opcode(CommandOpcode::AttachToMcg).set_qpn(self.parts.qpn).set_multicast_gid(group.0);
        self.command(&Request::new(&input))
    }

    fn detach(&self, group: Gid) -> Result<(), MulticastError> {
        check_group(group)?;
        let mut input = DetachFromMcgIn::new();
        input.set_opcode(CommandOpcode::DetachFromMcg).set_qpn(self.parts.qpn).set_multicast_gid(group.0);
        self.command(&Request::new(&input))
    }

    fn command(&self, request: &Request<'_>) -> Result<(), MulticastError> {
        let done = self.device.device().call::<CommandHeaderOut>(request);
        done.map(|_| ()).map_err(MulticastError::Command)
    }
}

fn check_group(group: Gid) -> Result<(), MulticastError> {
    if group.is_multicast() { Ok(()) } else { Err(MulticastError::NotMulticast { gid: group }) }
}

impl<D: DeviceRef> PreparedQueuePair<D, Ud> {
    /// INIT to RTR to RTS: sends and receives datagrams from then on. On failure, the queue pair is destroyed.
    pub fn ready_to_send(mut self) -> Result<QueuePair<D, Ud>, ConnectError> {
        let psn = self.core.parts.psn;
        self.core.modify(QpState::Rtr, &QueuePairAttributes::default())?;
        let to_send = QueuePairAttributes { send_psn: Some(psn), ..QueuePairAttributes::default() };
        self.core.modify(QpState::Rts, &to_send)?;
        Ok(QueuePair { core: self.core, service: PhantomData })
    }
}

impl<D: DeviceRef> QueuePair<D, Ud> {
    /// Posts a request to `destination` and rings the doorbell. A refused request has no effect.
    #[inline]
    #[doc(alias = "ibv_post_send")]
    pub fn post_send_to(
        &mut self,
        request: &WorkRequest<'_>,
        destination: &Destination,
    ) -> Result<(), PostError> {
        check_offered(request)?;
        let (device, parts) = (self.core.device.device(), &mut self.core.parts);
        let Place { hal, ledgers } = Place::<D>::of(device);
        parts.send.write(parts.rings.blocks(), ledgers, request, address(request, destination))?;
        parts.send.ring(hal, &parts.rings, ledgers);
        Ok(())
    }

    /// Joins a multicast group. Its messages also arrive here, each of which consumes a posted receive.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&mut self, group: Gid) -> Result<(), MulticastError> {
        self.core.attach(group)
    }

    /// Leaves a multicast group.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_multicast(&mut self, group: Gid) -> Result<(), MulticastError> {
        self.core.detach(group)
    }

    /// Changes the Q_Key that datagrams must carry.
    pub fn set_q_key(&mut self, key: u32) -> Result<(), ModifyError> {
        let attributes = QueuePairAttributes { q_key: Some(key), ..QueuePairAttributes::default() };
        self.core.modify(QpState::Rts, &attributes)
    }

    /// Resets the queue pair and moves it to INIT. Outstanding work is forgotten; its completions are removed from the
    /// completion queues, which must be those of the queue pair.
    pub fn reset(
        self,
        send: &mut CompletionQueue<D>,
        receive: Option<&mut CompletionQueue<D>>,
        q_key: u32,
    ) -> Result<PreparedQueuePair<D, Ud>, ResetError> {
        self.restart(send, receive, &QueuePairAttributes::initial_q_key(q_key))
    }
}

impl<D: DeviceRef> SendBatch<'_, D, Ud> {
    /// Adds a request to `destination`. A refused request has no effect; earlier ones stay.
    #[inline]
    pub fn post_to(&mut self, request: &WorkRequest<'_>, destination: &Destination) -> Result<(), PostError> {
        check_offered(request)?;
        self.write(request, address(request, destination))?;
        self.posted += 1;
        Ok(())
    }
}

/// The destination of a request; a NOP has none.
#[inline(always)]
fn address<'a>(request: &WorkRequest<'_>, destination: &'a Destination) -> &'a [u64] {
    if request.kind == WorkCompletionOpcode::Nop { &[] } else { destination.words() }
}

#[inline(always)]
fn check_offered(request: &WorkRequest<'_>) -> Result<(), PostError> {
    match Ud::offers(request.kind) {
        true => Ok(()),
        false => Err(PostError::NotOffered { kind: request.kind, service: Ud::TYPE }),
    }
}
