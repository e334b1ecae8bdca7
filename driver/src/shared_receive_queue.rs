//! Shared receive queues: receives shared by several queue pairs (IBTA v1.4 §10.2.9).
//!
//! With command interface ISSI 1, which this driver always uses, an ordinary shared receive queue is a receive memory
//! pool (CREATE_RMP) and completes into the completion queue of the queue pair that took the receive. One for XRC
//! (CREATE_XRC_SRQ) has a completion queue of its own. Both are linked lists: each entry names its successor, so that
//! entries can be returned in any order.
//!
//! Posting takes `&mut`, so one thread posts. Pollers on any thread return completed entries without a lock; see
//! `ledger/shared.rs`.

mod create;
mod error;
mod ring;

pub use error::{ModifySharedReceiveQueueError, SharedReceiveQueueError};

use self::ring::{SharedPublication, SharedQueue, SharedRing, SharedSlot, SharedSlots};
use crate::command::{CommandError, Request};
use crate::device::ledgers::Share;
use crate::device::{DestroyCommand, DeviceRef, DmaOf};
use crate::dma::{Rings, Twins};
use crate::doorbell::publish_record;
use crate::ledger::shared::{Front, SharedName};
use crate::post_error::PostError;
use crate::work_request::ReceiveRequest;
use crate::wqe::receive::{ReceivePath, store_shared_slice};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::srq::{
    ArmXrcSrqIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut, QueryXrcSrqIn, QueryXrcSrqOut,
};
use bareverbs_prm::ids::{Pdn, Srqn};
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// `state` of a working receive memory pool.
const POOL_READY: u8 = 1;
/// `state` of a working XRC shared receive queue.
const XRC_GOOD: u8 = 0;
/// `op_mod` of ARM_XRC_SRQ that sets the limit.
const ARM_LIMIT: u16 = 1;

/// Configuration of a shared receive queue.
///
/// ```
/// use bareverbs_core::SharedReceiveQueueConfig;
///
/// // Header and payload of a message go to different memory.
/// let config = SharedReceiveQueueConfig { receives: 1023, slices: 2 };
/// assert_eq!(SharedReceiveQueueConfig::default().slices, 1);
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_srq_init_attr")]
pub struct SharedReceiveQueueConfig {
    /// Minimum number of outstanding receives.
    pub receives: u32,
    /// Slices per receive.
    pub slices: u32,
}

impl Default for SharedReceiveQueueConfig {
    fn default() -> Self {
        Self { receives: 255, slices: 1 }
    }
}

/// Kinds of shared receive queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_srq_type")]
pub enum SharedReceiveQueueKind {
    /// For queue pairs that name it at creation. They determine where its receives complete.
    #[doc(alias = "IBV_SRQT_BASIC")]
    Basic,
    /// Of an XRC domain: peers name it in every message, and its receives complete into its own completion queue.
    #[doc(alias = "IBV_SRQT_XRC")]
    Xrc,
}

/// Attributes to change.
///
/// ```
/// use bareverbs_core::shared_receive_queue::{ModifySharedReceiveQueueError, SharedReceiveQueueAttributes};
/// use bareverbs_core::{DeviceRef, SharedReceiveQueue};
///
/// /// Asks for an event when fewer than 16 receives are left.
/// fn warn<D: DeviceRef>(queue: &mut SharedReceiveQueue<D>) -> Result<(), ModifySharedReceiveQueueError> {
///     queue.modify(&SharedReceiveQueueAttributes { limit: Some(16), ..SharedReceiveQueueAttributes::default() })
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_srq_attr")]
pub struct SharedReceiveQueueAttributes {
    /// Number of outstanding receives. mlx5 cannot change it, so this is refused.
    pub receives: Option<u32>,
    /// The limit; see [`SharedReceiveQueue::arm`].
    pub limit: Option<u16>,
}

/// State of a shared receive queue as reported by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_query_srq")]
pub struct SharedReceiveQueueStatus {
    /// The armed limit; zero if none is armed or its event has been raised.
    pub limit: u16,
    /// Whether the device can take receives from the queue.
    pub works: bool,
}

/// A shared receive queue. If it is dropped before its queue pairs, it is destroyed after them; what they receive until
/// then is discarded.
///
/// ```
/// use bareverbs_core::{
///     DeviceRef, MemoryRegion, ProtectionDomain, ReceiveRequest, SharedReceiveQueue, SharedReceiveQueueConfig,
/// };
/// use std::error::Error;
///
/// /// Receives of 256 bytes for all queue pairs that are built with the queue; an event comes when fewer than 16 are left.
/// fn receives<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     memory: &MemoryRegion<D>,
/// ) -> Result<SharedReceiveQueue<D>, Box<dyn Error>> {
///     let config = SharedReceiveQueueConfig { receives: 64, slices: 1 };
///     let mut queue = SharedReceiveQueue::create(domain, config)?;
///     let mut batch = queue.receive_batch();
///     for index in 0..64 {
///         batch.post(&ReceiveRequest::new(index as u64, &[memory.slice(index * 256, 256)?]))?;
///     }
///     batch.ring();
///     queue.arm(16)?;
///     Ok(queue)
/// }
/// ```
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue<D: DeviceRef> {
    device: D,
    ring: SharedRing<DmaOf<D>>,
    share: Share,
    number: Srqn,
    domain: Pdn,
    kind: SharedReceiveQueueKind,
}

impl<D: DeviceRef> SharedReceiveQueue<D> {
    /// Shared receive queue number. XRC peers name it in their requests.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Srqn {
        self.number
    }

    /// Kind of the queue.
    pub fn kind(&self) -> SharedReceiveQueueKind {
        self.kind
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Maximum number of outstanding receives.
    pub fn capacity(&self) -> u32 {
        self.ring.queue.poster.capacity()
    }

    /// Receives that have not completed, including those of messages that are still arriving. Scans every entry.
    pub fn outstanding(&self) -> u32 {
        self.ring.queue.poster.outstanding(self.device.device().ledgers())
    }

    /// The name under which queue pairs and completions find it.
    pub(crate) fn name(&self) -> SharedName {
        SharedName::new(self.share.user_index)
    }

    /// Posts a receive. A refused request has no effect.
    #[inline(always)]
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let device = self.device.device();
        let (hal, ledgers) = (device.hal(), device.ledgers());
        let SharedRing { rings, queue } = &mut self.ring;
        queue.write(rings, ledgers, request)?;
        publish_record(&SharedPublication { hal, rings, poster: &queue.poster });
        Ok(())
    }

    /// Starts a batch of receives with one doorbell.
    #[inline]
    pub fn receive_batch(&mut self) -> SharedReceiveBatch<'_, D> {
        let Self { device, ring: SharedRing { rings, queue }, .. } = self;
        let slots = device.device().ledgers().send_slots(queue.poster.slots());
        let slots = Twins::new(slots, rings.segment_pairs());
        SharedReceiveBatch { device, slots, rings, front: queue.front(&slots), queue }
    }

    /// Arms one [`SharedReceiveQueueLimit`](crate::events::AsyncEvent::SharedReceiveQueueLimit) event for when fewer
    /// than `limit` untaken receives are left, which may be immediately. Zero disarms. The event disarms as well (IBTA
    /// v1.4 §10.2.9).
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn arm(&mut self, limit: u16) -> Result<(), ModifySharedReceiveQueueError> {
        let capacity = self.capacity();
        if u32::from(limit) > capacity {
            return Err(ModifySharedReceiveQueueError::Limit { asked: limit, capacity });
        }
        let device = self.device.device();
        match self.kind {
            SharedReceiveQueueKind::Basic => {
                let input = modify_limit(self.number, limit);
                device.call::<CommandHeaderOut>(&Request::new(&input))
            }
            SharedReceiveQueueKind::Xrc => {
                let mut input = ArmXrcSrqIn::new();
                input.set_opcode(CommandOpcode::ArmXrcSrq).set_op_mod(ARM_LIMIT);
                input.set_xrc_srqn(self.number).set_lwm(limit);
                device.call::<CommandHeaderOut>(&Request::new(&input))
            }
        }
        .map(|_| ())
        .map_err(ModifySharedReceiveQueueError::Command)
    }

    /// Changes attributes. Only the limit can change; if anything else is requested, nothing changes.
    #[doc(alias = "ibv_modify_srq")]
    pub fn modify(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<(), ModifySharedReceiveQueueError> {
        if let Some(asked) = attributes.receives {
            let capacity = self.capacity();
            return Err(ModifySharedReceiveQueueError::Resize { asked, capacity });
        }
        attributes.limit.map_or(Ok(()), |limit| self.arm(limit))
    }

    /// Queries the device for the state of the queue.
    pub fn query(&self) -> Result<SharedReceiveQueueStatus, CommandError> {
        let device = self.device.device();
        match self.kind {
            SharedReceiveQueueKind::Basic => {
                let mut input = QueryRmpIn::new();
                input.set_opcode(CommandOpcode::QueryRmp).set_rmpn(self.number);
                let output: QueryRmpOut = device.call(&Request::new(&input))?;
                let pool = output.rmp_context();
                let works = pool.state() == POOL_READY;
                Ok(SharedReceiveQueueStatus { limit: pool.wq().lwm(), works })
            }
            SharedReceiveQueueKind::Xrc => {
                let mut input = QueryXrcSrqIn::new();
                input.set_opcode(CommandOpcode::QueryXrcSrq).set_xrc_srqn(self.number);
                let output: QueryXrcSrqOut = device.call(&Request::new(&input))?;
                let queue = output.xrc_srq_context_entry();
                Ok(SharedReceiveQueueStatus { limit: queue.lwm(), works: queue.state() == XRC_GOOD })
            }
        }
    }
}

fn modify_limit(number: Srqn, limit: u16) -> ModifyRmpIn {
    let mut input = ModifyRmpIn::new();
    input.set_opcode(CommandOpcode::ModifyRmp).set_rmp_state(POOL_READY).set_rmpn(number);
    input.set_bitmask_lwm(true);
    input.ctx_mut().set_state(POOL_READY);
    input.ctx_mut().wq_mut().set_lwm(limit);
    input
}

/// A batch of receives with one doorbell, rung by [`ring`](Self::ring) or on drop. Requests in a leaked batch
/// (`core::mem::forget`) are posted with the next doorbell.
#[must_use = "the doorbell is rung when the batch ends"]
pub struct SharedReceiveBatch<'a, D: DeviceRef> {
    device: &'a D,
    /// The slots of the ledger, and the entries of the ring that have one slice.
    slots: SharedSlots<'a>,
    rings: &'a Rings<DmaOf<D>>,
    queue: &'a mut SharedQueue,
    /// What the queue takes next; always in step with it.
    front: Front<SharedSlot<'a>>,
}

impl<D: DeviceRef> SharedReceiveBatch<'_, D> {
    /// Adds a receive. A refused request has no effect; earlier ones stay.
    #[inline(always)]
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        // Copy them, so that the batch itself stays in registers.
        let slots = self.slots;
        if request.list.path == ReceivePath::OneSlice
            && let Some((slot, next)) =
                self.queue.poster.post_at(&mut self.front, |entry| slots.slot(entry), request.id)
        {
            store_shared_slice(slot.second(), next, request.list.first);
            return Ok(());
        }
        // It needs further checks, or the queue has to take back returned entries. A call that borrowed the batch would
        // keep it in memory.
        let written = self.queue.write_rarely(self.rings, self.device.device().ledgers(), request);
        self.front = self.queue.front(&slots);
        written
    }

    /// Rings the doorbell.
    #[inline]
    pub fn ring(self) {
        drop(self);
    }
}

impl<D: DeviceRef> Drop for SharedReceiveBatch<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        let hal = self.device.device().hal();
        publish_record(&SharedPublication { hal, rings: self.rings, poster: &self.queue.poster });
    }
}

impl<D: DeviceRef> fmt::Debug for SharedReceiveQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for SharedReceiveQueue<D> {
    #[doc(alias = "ibv_destroy_srq")]
    fn drop(&mut self) {
        let device = self.device.device();
        self.ring.queue.poster.close(device.ledgers());
        device.ledgers().give_back(self.share);
        let opcode = match self.kind {
            SharedReceiveQueueKind::Basic => CommandOpcode::DestroyRmp,
            SharedReceiveQueueKind::Xrc => CommandOpcode::DestroyXrcSrq,
        };
        let command = DestroyCommand::new(opcode, self.number.value());
        device.destroy(command, Some(self.ring.rings.take()));
    }
}
