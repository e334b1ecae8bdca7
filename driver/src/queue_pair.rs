//! Queue pairs.
//!
//! The transport service is a type parameter ([`service`]); the default is a reliable connection.
//!
//! Bring-up has two types: a [`PreparedQueuePair`] (INIT) accepts receives and has a number; a [`QueuePair`]
//! (RTS) also sends. State changes that the device makes by itself, above all failures, do not change the
//! type: posting to a failed queue pair is allowed, and the work completes as flushed.
//!
//! Posting takes `&mut`, so one thread posts. Other threads may poll the completion queues.

mod address_error;
pub mod attributes;
mod batch;
mod builder;
mod connect;
mod core;
mod datagram;
mod diagnose;
mod diagnosis;
mod error;
mod mismatch;
pub(crate) mod receive;
mod send;
#[cfg(feature = "serde")]
mod serialize;
pub mod service;
mod status;
pub mod transitions;
mod wire_form;

pub use crate::address_vector::AddressVector;
pub use crate::post_error::PostError;
pub use address_error::AddressError;
pub use attributes::QueuePairAttributes;
pub use batch::{ReceiveBatch, SendBatch};
pub use builder::QueuePairBuilder;
pub use connect::{ConnectOptions, RemoteEndpoint};
pub use diagnosis::{Diagnosis, Suspect};
pub use error::{BuildError, ConnectError, ModifyError, MulticastError, ResetError};
pub use mismatch::Mismatch;
pub use service::{Connected, Rc, Service, Uc, Ud, XrcInitiator, XrcTarget};
pub use status::QueuePairStatus;
pub use wire_form::WireFormError;

use self::batch::Place;
use self::core::Core;
use crate::command::CommandError;
use crate::completion_queue::CompletionQueue;
use crate::device::DeviceRef;
use crate::memory_region::AccessFlags;
use crate::work_request::{ReceiveRequest, WorkRequest};
use crate::wqe::receive::ReceivePath;
use ::core::fmt;
use ::core::marker::PhantomData;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::QpState;

/// A queue pair in INIT: receives can be posted to it, and it can be connected.
pub struct PreparedQueuePair<D: DeviceRef, S: Service = Rc> {
    core: Core<D>,
    service: PhantomData<S>,
}

/// A connected queue pair.
#[doc(alias = "ibv_qp")]
pub struct QueuePair<D: DeviceRef, S: Service = Rc> {
    core: Core<D>,
    service: PhantomData<S>,
}

impl<D: DeviceRef> Core<D> {
    #[inline(always)]
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let (device, parts) = (self.device.device(), &mut self.parts);
        let (hal, ledgers) = (device.hal(), device.ledgers());
        parts.receive.write(&parts.rings, ledgers, request)?;
        parts.receive.ring(hal, &parts.rings, ledgers);
        Ok(())
    }

    #[inline(always)]
    fn receive_batch(&mut self) -> ReceiveBatch<'_, D> {
        let (place, parts) = (Place::of(self.device.device()), &mut self.parts);
        let slots = place.ledgers.receive_slots(parts.receive.poster.slots());
        let (poster, path) = (parts.receive.poster.clone(), parts.receive.path);
        let segments = parts.rings.segments();
        // Entries of one slice are segments, as many as there are slots. Other entries do not use these copies.
        debug_assert!(path != ReceivePath::OneSlice || slots.last() == segments.last());
        let at = (segments.up_to(slots), slots.up_to(segments));
        ReceiveBatch { place, rings: &parts.rings, queue: &mut parts.receive, at, poster, path }
    }
}

impl<D: DeviceRef, S: Service> PreparedQueuePair<D, S> {
    /// Queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.core.parts.qpn
    }

    /// Enables memory-to-memory operations.
    pub(crate) fn enable_mmo(&mut self) -> Result<(), CommandError> {
        self.core.enable_mmo()
    }

    /// Posts a receive.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.core.post_receive(request)
    }

    /// Starts a batch of receives with one doorbell.
    pub fn receive_batch(&mut self) -> ReceiveBatch<'_, D> {
        self.core.receive_batch()
    }
}

impl<D: DeviceRef, S: Service> QueuePair<D, S> {
    /// Queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.core.parts.qpn
    }

    /// Starts a batch of sends with one doorbell.
    #[inline]
    #[doc(alias = "ibv_wr_start")]
    pub fn send_batch(&mut self) -> SendBatch<'_, D, S> {
        let (place, parts) = (Place::of(self.core.device.device()), &mut self.core.parts);
        let slots = place.ledgers.send_slots(parts.send.poster.slots());
        let (head, last_control) = (parts.send.poster.head(), parts.send.last_control);
        let (rings, queue) = (&parts.rings, &mut parts.send);
        debug_assert!(slots.last() == rings.blocks().last(), "the ledger has a slot for each block");
        let (ring, slots) = (rings.blocks().up_to(slots), slots.up_to(rings.blocks()));
        SendBatch { place, rings, queue, ring, slots, head, last_control, posted: 0, service: PhantomData }
    }

    /// Posts a receive.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.core.post_receive(request)
    }

    /// Starts a batch of receives with one doorbell.
    #[inline]
    pub fn receive_batch(&mut self) -> ReceiveBatch<'_, D> {
        self.core.receive_batch()
    }

    /// Basic blocks of the send queue that have not been retired.
    pub fn sends_outstanding(&self) -> u32 {
        let parts = &self.core.parts;
        parts.send.poster.outstanding(self.core.device.device().ledgers())
    }

    /// Receives that have not been retired.
    pub fn receives_outstanding(&self) -> u32 {
        let parts = &self.core.parts;
        parts.receive.poster.outstanding(self.core.device.device().ledgers())
    }

    /// Moves the queue pair to ERROR. Everything outstanding completes as flushed.
    pub fn modify_to_error(&mut self) -> Result<(), ModifyError> {
        self.core.modify(QpState::Error, &QueuePairAttributes::default())
    }

    /// Moves the queue pair to another state, or changes attributes in the current one. `from` is the state that the
    /// device last reported ([`Self::query`]) or was last commanded. Use [`Self::reset`] to go to RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, to: QpState, attributes: &QueuePairAttributes) -> Result<(), ModifyError> {
        if to == QpState::Reset {
            let from = self.core.parts.state;
            return Err(ModifyError::Transition(transitions::TransitionError::OnlyByReset { from }));
        }
        self.core.modify(to, attributes)
    }

    /// Moves the queue pair to SQD: sends in progress finish, no others start, receives continue. The event
    /// [`SqDrained`](bareverbs_prm::numbering::EventType::SqDrained) reports when it is done, and so does
    /// [`Self::query`].
    pub fn drain(&mut self) -> Result<(), ModifyError> {
        let attributes = QueuePairAttributes { drained_event: true, ..QueuePairAttributes::default() };
        self.core.modify(QpState::SqDrained, &attributes)
    }

    /// Resumes a drained send queue, or that of a datagram or unreliable connection queue pair which a failed request
    /// has stopped (SQE).
    pub fn resume(&mut self) -> Result<(), ModifyError> {
        self.core.query().map_err(ModifyError::Command)?;
        self.core.modify(QpState::Rts, &QueuePairAttributes::default())
    }

    /// Queries the device for the state of the queue pair.
    pub fn query(&mut self) -> Result<QueuePairStatus, CommandError> {
        self.core.query()
    }

    /// Resets the queue pair and brings it to INIT with `initial`.
    fn restart(
        mut self,
        send: &mut CompletionQueue<D>,
        receive: Option<&mut CompletionQueue<D>>,
        initial: &QueuePairAttributes,
    ) -> Result<PreparedQueuePair<D, S>, ResetError> {
        let [send_number, receive_number] = self.core.parts.queues;
        let given = receive.as_deref().map_or(send.number(), CompletionQueue::number);
        if send.number() != send_number || given != receive_number {
            return Err(ResetError::WrongQueues { send: send_number, receive: receive_number });
        }
        self.core.modify(QpState::Reset, &QueuePairAttributes::default()).map_err(ResetError::Modify)?;
        let user_index = self.core.parts.share.user_index;
        send.disown(user_index);
        if let Some(receive) = receive {
            receive.disown(user_index);
        }
        self.core.restart();
        let initial = initial.with_partition_key(self.core.parts.pkey_index);
        self.core.initialise(&initial).map_err(|error| ResetError::Modify(ModifyError::Command(error)))?;
        Ok(PreparedQueuePair { core: self.core, service: PhantomData })
    }
}

impl<D: DeviceRef, S: Connected> QueuePair<D, S> {
    /// Posts a request and rings the doorbell. A refused request has no effect.
    #[inline(always)]
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        if !S::offers(request.kind) {
            return Err(PostError::NotOffered { kind: request.kind, service: S::TYPE });
        }
        let (device, parts) = (self.core.device.device(), &mut self.core.parts);
        parts.send.post(device.hal(), &parts.rings, device.ledgers(), request)
    }

    /// Resets the queue pair and moves it to INIT. Outstanding work is forgotten; its completions are removed from the
    /// completion queues, which must be those of the queue pair.
    pub fn reset(
        self,
        send: &mut CompletionQueue<D>,
        receive: Option<&mut CompletionQueue<D>>,
        access: AccessFlags,
    ) -> Result<PreparedQueuePair<D, S>, ResetError> {
        self.restart(send, receive, &QueuePairAttributes::initial_access(access))
    }
}

impl<D: DeviceRef, S: Service> fmt::Debug for PreparedQueuePair<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}

impl<D: DeviceRef, S: Service> fmt::Debug for QueuePair<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}
