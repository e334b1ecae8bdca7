//! Reliable-connection queue pairs.
//!
//! Bring-up is two types: a [`PreparedQueuePair`] (INIT) takes receives and tells its number, a [`QueuePair`] (RTS) sends
//! as well. What the device may do by itself, failing above all, is not a type but a value: posting to a failed queue
//! pair is allowed, and the completions say that the work was flushed.
//!
//! Posting needs `&mut`: one thread posts. The completion queues may be polled by other threads.

pub mod attributes;
mod builder;
mod connect;
mod core;
mod error;
mod receive;
mod send;
pub mod transitions;

pub use attributes::{AddressVector, QueuePairAttributes};
pub use builder::QueuePairBuilder;
pub use connect::{ConnectOptions, RemoteEndpoint};
pub use error::{BuildError, ConnectError, ModifyError, PostError, ResetError};

use self::core::Core;
use self::receive::ReceiveQueue;
use self::send::{Progress, SendQueue, Short};
use crate::command::CommandError;
use crate::completion_queue::CompletionQueue;
use crate::device::ledgers::Ledgers;
use crate::device::{Device, DeviceRef, DmaOf};
use crate::dma::{Rings, Run};
use crate::ledger::Poster;
use crate::memory_region::AccessFlags;
use crate::work_request::{ReceiveForm, ReceiveRequest, WorkRequest};
use ::core::fmt;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{PathMtu, QpState};
use bareverbs_prm::psn::Psn;

/// A queue pair in INIT: it takes receives and can be connected.
pub struct PreparedQueuePair<D: DeviceRef> {
    core: Core<D>,
}

/// A connected queue pair.
#[doc(alias = "ibv_qp")]
pub struct QueuePair<D: DeviceRef> {
    core: Core<D>,
}

/// What the device says of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_query_qp")]
pub struct QueuePairStatus {
    /// Its state.
    pub state: QpState,
    /// The peer.
    pub remote_qpn: Qpn,
    /// PSN of the next packet to send.
    pub next_send_psn: Psn,
    /// PSN of the next packet to receive.
    pub next_receive_psn: Psn,
    /// The largest packet.
    pub path_mtu: PathMtu,
    /// Basic blocks of the send queue that the device has executed, modulo 2^16.
    pub hardware_send_counter: u16,
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
        let (poster, form) = (parts.receive.poster.clone(), parts.receive.form);
        let at = (parts.rings.segments(), slots);
        ReceiveBatch { place, rings: &parts.rings, queue: &mut parts.receive, at, poster, form }
    }
}

impl<D: DeviceRef> PreparedQueuePair<D> {
    /// The number that the device gave.
    pub fn qpn(&self) -> Qpn {
        self.core.parts.qpn
    }

    /// Posts a receive.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.core.post_receive(request)
    }

    /// Posts several receives with one doorbell.
    pub fn receive_batch(&mut self) -> ReceiveBatch<'_, D> {
        self.core.receive_batch()
    }
}

impl<D: DeviceRef> QueuePair<D> {
    /// The number that the device gave.
    pub fn qpn(&self) -> Qpn {
        self.core.parts.qpn
    }

    /// Posts one request and rings the doorbell. A request that is refused leaves no trace.
    #[inline(always)]
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let (device, parts) = (self.core.device.device(), &mut self.core.parts);
        let (hal, rings, ledgers) = (device.hal(), &parts.rings, device.ledgers());
        let at = (rings.blocks(), &parts.send.progress.poster.pairs(ledgers));
        parts.send.write(at, ledgers, request, |queue, block| queue.ring((hal, rings), ledgers, block))
    }

    /// Posts several requests with one doorbell.
    #[inline]
    #[doc(alias = "ibv_wr_start")]
    pub fn send_batch(&mut self) -> SendBatch<'_, D> {
        let (place, parts) = (Place::of(self.core.device.device()), &mut self.core.parts);
        let slots = place.ledgers.send_slots(parts.send.progress.poster.slots());
        let progress = parts.send.progress.clone();
        SendBatch { place, rings: &parts.rings, queue: &mut parts.send, slots, progress, posted: 0 }
    }

    /// Posts a receive.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.core.post_receive(request)
    }

    /// Posts several receives with one doorbell.
    #[inline]
    pub fn receive_batch(&mut self) -> ReceiveBatch<'_, D> {
        self.core.receive_batch()
    }

    /// Basic blocks of the send queue that are not retired.
    pub fn sends_outstanding(&self) -> u32 {
        let parts = &self.core.parts;
        parts.send.progress.poster.outstanding(self.core.device.device().ledgers())
    }

    /// Receives that are not retired.
    pub fn receives_outstanding(&self) -> u32 {
        let parts = &self.core.parts;
        parts.receive.poster.outstanding(self.core.device.device().ledgers())
    }

    /// Moves the queue pair to ERROR: everything outstanding completes as flushed.
    pub fn modify_to_error(&mut self) -> Result<(), ModifyError> {
        self.core.modify(QpState::Error, &QueuePairAttributes::default())
    }

    /// Moves the queue pair to another state, or changes attributes in this one. `from` is what the device last said
    /// ([`Self::query`]) or what was last commanded. To RESET only with [`Self::reset`].
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, to: QpState, attributes: &QueuePairAttributes) -> Result<(), ModifyError> {
        if to == QpState::Reset {
            let from = self.core.parts.state;
            return Err(ModifyError::Transition(transitions::TransitionError::NotSupported { from, to }));
        }
        self.core.modify(to, attributes)
    }

    /// What the device says.
    pub fn query(&mut self) -> Result<QueuePairStatus, CommandError> {
        self.core.query()
    }

    /// Resets the queue pair and brings it to INIT. What was outstanding is forgotten; its completions are taken out
    /// of the completion queues, which must be those that the queue pair was made with.
    pub fn reset(
        mut self,
        send: &mut CompletionQueue<D>,
        receive: Option<&mut CompletionQueue<D>>,
        access: AccessFlags,
    ) -> Result<PreparedQueuePair<D>, ResetError> {
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
        self.core.initialise(access).map_err(|error| ResetError::Modify(ModifyError::Command(error)))?;
        Ok(PreparedQueuePair { core: self.core })
    }
}

/// What posting needs of the device.
struct Place<'a, D: DeviceRef> {
    hal: &'a D::Hal,
    ledgers: &'a Ledgers<DmaOf<D>>,
}

impl<'a, D: DeviceRef> Place<'a, D> {
    #[inline(always)]
    fn of(device: &'a Device<D::Hal>) -> Self {
        Self { hal: device.hal(), ledgers: device.ledgers() }
    }
}

/// Several sends that share a doorbell: it is rung by [`ring`](Self::ring), or when the batch is dropped. Requests of a
/// batch that is leaked (`core::mem::forget`) were never posted and do not complete.
#[must_use = "the doorbell is rung when the batch ends"]
pub struct SendBatch<'a, D: DeviceRef> {
    place: Place<'a, D>,
    rings: &'a Rings<DmaOf<D>>,
    queue: &'a mut SendQueue,
    slots: Run<'a, 16>,
    /// How far the batch is; the queue follows when it is rung.
    progress: Progress,
    posted: u32,
}

impl<D: DeviceRef> SendBatch<'_, D> {
    /// Adds a request. A request that is refused leaves no trace; those before it stay.
    #[inline(always)]
    pub fn post(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        // A copy, so that the batch itself stays in registers.
        let slots = self.slots;
        let (at, ledgers) = ((self.rings.blocks(), &slots), self.place.ledgers);
        match self.queue.limits.write_short(&mut self.progress, at, ledgers, request) {
            Short::Written(_) => (),
            Short::Full => return Err(self.queue.full()),
            Short::Other => {
                self.queue.progress.follow(&self.progress);
                let result = self.queue.write_any(at.0, ledgers, request);
                self.progress.follow(&self.queue.progress);
                result?;
            }
        }
        self.posted += 1;
        Ok(())
    }

    /// Requests added so far.
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// Rings the doorbell.
    #[inline(always)]
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring(self) {
        drop(self);
    }
}

impl<D: DeviceRef> Drop for SendBatch<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.posted > 0 {
            let Place { hal, ledgers } = self.place;
            self.queue.progress.follow(&self.progress);
            self.queue.ring((hal, self.rings), ledgers, None);
        }
    }
}

/// Several receives that share a doorbell: see [`SendBatch`].
#[must_use = "the doorbell is rung when the batch ends"]
pub struct ReceiveBatch<'a, D: DeviceRef> {
    place: Place<'a, D>,
    rings: &'a Rings<DmaOf<D>>,
    queue: &'a mut ReceiveQueue,
    /// Where entries and their identifiers go.
    at: (Run<'a, 16>, Run<'a, 8>),
    /// How far the batch is; the queue follows when it is rung.
    poster: Poster,
    form: ReceiveForm,
}

impl<D: DeviceRef> ReceiveBatch<'_, D> {
    /// Adds a receive. A request that is refused leaves no trace; those before it stay.
    #[inline(always)]
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let ledgers = self.place.ledgers;
        if request.form == self.form {
            // A copy, so that the batch itself stays in registers.
            let (segments, slots) = self.at;
            return receive::write_slice(&mut self.poster, (segments, &slots), ledgers, request);
        }
        self.queue.poster.follow(&self.poster);
        let result = self.queue.write_any(self.rings, ledgers, request.id, request.slices);
        self.poster.follow(&self.queue.poster);
        result
    }

    /// Rings the doorbell.
    #[inline]
    pub fn ring(self) {
        drop(self);
    }
}

impl<D: DeviceRef> Drop for ReceiveBatch<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        let Place { hal, ledgers } = self.place;
        self.queue.poster.follow(&self.poster);
        self.queue.ring(hal, self.rings, ledgers);
    }
}

impl<D: DeviceRef> fmt::Debug for PreparedQueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> fmt::Debug for QueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}
