//! Batches of requests that share a doorbell.

use super::PostError;
use super::receive::{self, ReceiveQueue};
use super::send::{FastPaths, SendMemory, SendQueue, Written};
use super::service::{Connected, Rc, Service};
use crate::device::ledgers::Ledgers;
use crate::device::{Device, DeviceRef, DmaOf};
use crate::dma::{BLOCK, Rings, Run};
use crate::ledger::Poster;
use crate::work_request::{ReceiveRequest, WorkRequest};
use crate::wqe::receive::ReceivePath;
use core::marker::PhantomData;

/// What posting needs from the device.
pub(super) struct Place<'a, D: DeviceRef> {
    pub(super) hal: &'a D::Hal,
    pub(super) ledgers: &'a Ledgers<DmaOf<D>>,
}

impl<'a, D: DeviceRef> Place<'a, D> {
    #[inline(always)]
    pub(super) fn of(device: &'a Device<D::Hal>) -> Self {
        Self { hal: device.hal(), ledgers: device.ledgers() }
    }
}

/// A batch of sends with one doorbell, rung by [`ring`](Self::ring) or on drop. Requests in a leaked batch
/// (`core::mem::forget`) are never posted and never complete.
#[must_use = "the doorbell is rung when the batch ends"]
pub struct SendBatch<'a, D: DeviceRef, S: Service = Rc> {
    pub(super) place: Place<'a, D>,
    pub(super) rings: &'a Rings<DmaOf<D>>,
    pub(super) queue: &'a mut SendQueue,
    /// The ring and its slots in the ledger, which are equally many.
    pub(super) ring: Run<'a, BLOCK>,
    pub(super) slots: Run<'a, 16>,
    /// How far the batch has come; the queue takes it over when the doorbell is rung.
    pub(super) head: u32,
    /// First 8 bytes of the last entry.
    pub(super) last_control: u64,
    pub(super) posted: u32,
    pub(super) service: PhantomData<S>,
}

impl<D: DeviceRef, S: Connected> SendBatch<'_, D, S> {
    /// Adds a request. A refused request has no effect; earlier ones stay.
    #[inline(always)]
    pub fn post(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        if !S::offers(request.kind) {
            return Err(PostError::NotOffered { kind: request.kind, service: S::TYPE });
        }
        // Copy them, so that the batch itself stays in registers.
        let (ring, slots, words) = (self.ring, self.slots, self.place.ledgers);
        let memory = SendMemory { ring, slots, words };
        let SendQueue { encoder, poster, .. } = &mut *self.queue;
        let paths = FastPaths { encoder, poster, head: self.head };
        let keep = |_: &mut _, Written { next, control, .. }: Written<'_>| {
            (self.head, self.last_control) = (next, control);
        };
        if !paths.write::<false>(&memory, request, keep) {
            self.write(request, &[])?;
        }
        self.posted += 1;
        Ok(())
    }
}

impl<D: DeviceRef, S: Service> SendBatch<'_, D, S> {
    /// Writes any request segment by segment; see [`SendQueue::write`].
    pub(super) fn write(&mut self, request: &WorkRequest<'_>, address: &[u64]) -> Result<(), PostError> {
        self.hand_over();
        let written = self.queue.write(self.ring, self.place.ledgers, request, address);
        (self.head, self.last_control) = (self.queue.poster.head(), self.queue.last_control);
        written
    }

    /// Makes the queue take over how far the batch has come.
    #[inline(always)]
    fn hand_over(&mut self) {
        self.queue.poster.advance(self.head);
        self.queue.last_control = self.last_control;
    }

    /// Number of requests added so far.
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

impl<D: DeviceRef, S: Service> Drop for SendBatch<'_, D, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.posted > 0 {
            let Place { hal, ledgers } = self.place;
            self.hand_over();
            self.queue.ring(hal, self.rings, ledgers);
        }
    }
}

/// A batch of receives with one doorbell; see [`SendBatch`].
#[must_use = "the doorbell is rung when the batch ends"]
pub struct ReceiveBatch<'a, D: DeviceRef> {
    pub(super) place: Place<'a, D>,
    pub(super) rings: &'a Rings<DmaOf<D>>,
    pub(super) queue: &'a mut ReceiveQueue,
    /// The destination of entries and of their identifiers.
    pub(super) at: (Run<'a, 16>, Run<'a, 8>),
    /// The batch's progress; the queue takes it over when the doorbell is rung.
    pub(super) poster: Poster,
    pub(super) path: ReceivePath,
}

impl<D: DeviceRef> ReceiveBatch<'_, D> {
    /// Adds a receive. A refused request has no effect; earlier ones stay.
    #[inline(always)]
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        // Looking for more room is left to the queue: a call in this loop would cost registers.
        if request.list.path == self.path && self.poster.knows_room(1) {
            // Copy them, so that the batch itself stays in registers.
            let (segments, slots) = self.at;
            receive::write_one_slice(&mut self.poster, segments, &slots, request);
            return Ok(());
        }
        self.queue.poster.follow(&self.poster);
        let result = self.queue.write_rarely(self.rings, self.place.ledgers, request);
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
