//! One invocation and the slot it lives in.

use super::connection::ConnectionId;
use super::traffic::{Body, Reply, Source, Tag};
use crate::budget::{Budget, Next};
use crate::cost::KernelCost;
use crate::grant::{Checked, Grant};
use crate::host_dma::DmaFault;
use crate::kernel::{Deployment, Emission, Step};
use crate::status::Status;
use crate::wire::{RegionHandle, ReplyTo, Trailer};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::time::Time;

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending {
    status: Status,
    source: Source,
    offset: u32,
    length: u32,
    version: u64,
}

impl Ending {
    const fn without_answer(status: Status) -> Self {
        Self { status, source: Source::Fetched, offset: 0, length: 0, version: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A range is to be read, not before `at`.
    Fetch { range: Checked, at: Time },
    /// A range is being read.
    Fetching { range: Checked },
    /// A reply is to be sent, not before `at`.
    Answer { ending: Ending, at: Time },
    /// The reply is on its way and may still use the staging buffer.
    Answering,
    /// Nothing is left to do but to wait for a DMA under way.
    Answered,
}

pub(super) struct Invocation<I> {
    pub(super) kernel: I,
    pub(super) connection: ConnectionId,
    pub(super) region: RegionHandle,
    pub(super) grant: Grant,
    pub(super) reply: ReplyTo,
    pub(super) request_id: u64,
    pub(super) accepted: Time,
    pub(super) budget: Budget,
    /// Bytes in the staging buffer.
    pub(super) fetched: u32,
    pub(super) dma_in_flight: bool,
    pub(super) phase: Phase,
}

impl<I> Invocation<I> {
    /// Charges a step; what it asks for becomes due `at`.
    pub(super) fn take_step(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        step: Step,
        now: Time,
        at: Time,
    ) {
        match self.budget.charge(step, now) {
            Next::Read(range) => self.phase = Phase::Fetch { range, at },
            Next::Emit(emission) => {
                let available = self.fetched as usize;
                self.answer(Source::Fetched, available, emission, at);
            }
            Next::Reply(emission) => {
                let available = deployment.computed(&self.kernel).len();
                self.answer(Source::Computed, available, emission, at);
            }
            Next::End(status) => self.end(status, at),
            // The payload was handed over whole; there is no more.
            Next::Payload => self.end(Status::BadParameters, at),
        }
    }

    fn answer(&mut self, source: Source, available: usize, emission: Emission, at: Time) {
        let Emission { offset, length, version } = emission;
        let inside = offset.checked_add(length).is_some_and(|end| end as usize <= available);
        let status = match () {
            () if !inside => return self.end(Status::OutOfBounds, at),
            () if length > self.reply.max_response => Status::Truncated,
            () => Status::Ok,
        };
        self.phase = Phase::Answer { ending: Ending { status, source, offset, length, version }, at };
    }

    /// The part of what the kernel computed that `body` names.
    pub(super) fn computed<'a>(
        &'a self,
        deployment: &'a impl Deployment<Invocation = I>,
        body: &Body,
    ) -> Option<&'a [u8]> {
        let begin = body.offset as usize;
        deployment.computed(&self.kernel).get(begin..)?.get(..body.length as usize)
    }

    pub(super) fn end(&mut self, status: Status, at: Time) {
        self.phase = Phase::Answer { ending: Ending::without_answer(status), at };
    }

    fn expire(&mut self, now: Time) {
        if now >= self.budget.deadline() && matches!(self.phase, Phase::Fetch { .. } | Phase::Fetching { .. })
        {
            self.end(Status::Deadline, now);
        }
    }

    pub(super) fn due_fetch(&mut self, now: Time) -> Option<Checked> {
        self.expire(now);
        match self.phase {
            Phase::Fetch { range, at } if at <= now => Some(range),
            _ => None,
        }
    }

    pub(super) fn fetching(&mut self, range: Checked) {
        self.fetched = range.length();
        self.dma_in_flight = true;
        self.phase = Phase::Fetching { range };
    }

    pub(super) fn is_fetching(&self) -> bool {
        matches!(self.phase, Phase::Fetching { .. })
    }

    pub(super) fn dma_done(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        now: Time,
        cost: KernelCost,
        result: Result<&[u8], DmaFault>,
    ) {
        let at = now + cost.per_dma;
        match result {
            Ok(bytes) if bytes.len() == self.fetched as usize => {
                let before = deployment.fuel_used(&self.kernel);
                let step = deployment.dma_done(&mut self.kernel, bytes, &self.grant);
                let fuel = deployment.fuel_used(&self.kernel).saturating_sub(before);
                self.take_step(deployment, step, now, at + cost.per_fuel.saturating_mul(fuel.into()));
            }
            Err(DmaFault::TakenBack) => self.end(Status::TakenBack, at),
            _ => self.end(Status::DmaFault, at),
        }
    }

    /// The range was not read: it is due again.
    pub(super) fn flushed(&mut self, now: Time) {
        self.dma_in_flight = false;
        if let Phase::Fetching { range } = self.phase {
            self.phase = Phase::Fetch { range, at: now };
        }
    }

    pub(super) fn due_reply(&mut self, now: Time, tag: Tag) -> Option<Reply> {
        self.expire(now);
        let Phase::Answer { ending, at } = self.phase else { return None };
        if at > now {
            return None;
        }
        self.phase = Phase::Answering;
        let body = (ending.status == Status::Ok && ending.length > 0).then_some(Body {
            buffer: tag.buffer(),
            source: ending.source,
            offset: ending.offset,
            length: ending.length,
        });
        // The window was found to cover the slot, and the length to fit, when the request was admitted and answered.
        let address = self.reply.write_address(body.map_or(0, |body| body.length))?;
        Some(Reply {
            ticket: Some(tag),
            connection: self.connection,
            address,
            rkey: self.reply.rkey,
            slot: self.reply.slot,
            body,
            trailer: self.trailer(&ending, now),
        })
    }

    fn trailer(&self, ending: &Ending, now: Time) -> Trailer {
        Trailer {
            hops: self.budget.hops(),
            retries: self.budget.retries(),
            length: ending.length,
            version: ending.version,
            server_nanos: u32::try_from(now.since(self.accepted).as_nanos()).unwrap_or(u32::MAX),
            ..empty_trailer(ending.status, self.request_id)
        }
    }

    /// The first moment after `now` at which something is due, if its connection has tokens for a DMA from `dma_at` on.
    pub(super) fn next_due_after(&self, now: Time, dma_at: Time) -> Option<Time> {
        let deadline = match self.phase {
            Phase::Fetch { .. } => Some(self.budget.deadline()),
            _ => None,
        };
        [self.next_due(dma_at), deadline].into_iter().flatten().filter(|due| *due > now).min()
    }

    pub(super) fn next_due(&self, dma_at: Time) -> Option<Time> {
        match self.phase {
            Phase::Fetch { at, .. } => Some(at.max(dma_at).min(self.budget.deadline())),
            Phase::Fetching { .. } => Some(self.budget.deadline()),
            Phase::Answer { at, .. } => Some(at),
            Phase::Answering | Phase::Answered => None,
        }
    }
}

pub(super) const fn empty_trailer(status: Status, request_id: u64) -> Trailer {
    Trailer { status, hops: 0, length: 0, retries: 0, credits: 0, server_nanos: 0, version: 0, request_id }
}

/// A place for one invocation.
pub(super) struct Slot<I> {
    generation: u32,
    invocation: Option<Invocation<I>>,
}

impl<I> Default for Slot<I> {
    fn default() -> Self {
        Self { generation: 0, invocation: None }
    }
}

impl<I> Slot<I> {
    pub(super) const fn tag(&self, index: usize) -> Tag {
        Tag::new(index, self.generation)
    }

    pub(super) fn matches(&self, tag: Tag) -> bool {
        (self.generation == tag.generation() || mutated("old_tag")) && self.invocation.is_some()
    }

    pub(super) const fn invocation(&self) -> Option<&Invocation<I>> {
        self.invocation.as_ref()
    }

    pub(super) const fn invocation_mut(&mut self) -> Option<&mut Invocation<I>> {
        self.invocation.as_mut()
    }

    pub(super) fn occupy(&mut self, invocation: Invocation<I>) {
        self.invocation = Some(invocation);
    }

    /// Gives the slot back if nothing is left to do, and tells the deployment.
    pub(super) fn free_if_done(&mut self, deployment: &mut impl Deployment<Invocation = I>) {
        let done = |i: &mut Invocation<I>| i.phase == Phase::Answered && !i.dma_in_flight;
        if let Some(invocation) = self.invocation.take_if(done) {
            self.generation = self.generation.wrapping_add(1);
            deployment.ended(invocation.kernel);
        }
    }

    /// Ends the invocation without a reply if it belongs to `connection`. A reply or DMA under way is still waited for.
    pub(super) fn abandon(
        &mut self,
        deployment: &mut impl Deployment<Invocation = I>,
        connection: ConnectionId,
    ) {
        if let Some(invocation) = self.invocation.as_mut().filter(|i| i.connection == connection)
            && invocation.phase != Phase::Answering
        {
            invocation.phase = Phase::Answered;
        }
        self.free_if_done(deployment);
    }
}
