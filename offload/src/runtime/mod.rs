//! Runs kernels: admits requests, emits DMA requests, takes their bytes, emits replies.
//!
//! Sans-IO. The owner of a runtime moves the bytes; it may be the loop of a DPU core or the model of a NIC:
//!
//! 1. [`Runtime::handle_message`] or [`Runtime::handle_strom`] when a request arrives. Handle the [`Admission`]: a
//!    refusal may hold a reply to send at once.
//! 2. [`Runtime::poll_dma`] until `None`. Read each range into the staging buffer numbered by its tag, or write it,
//!    then call [`Runtime::handle_dma_done`]. One invocation may have several in flight.
//! 3. [`Runtime::poll_reply`] until `None`. Send each, and call [`Runtime::reply_done`] when its staging buffer may be
//!    reused.
//! 4. Call again at [`Runtime::poll_timeout`], or when something arrives.
//!
//! Every invocation takes one step per turn, round-robin: a walk of ten thousand hops does not delay one of two hops.
//! The runtime, never the kernel, decides what an invocation may read, how often, and for how long.

mod admission;
mod connection;
mod progress;
mod read_now;
mod shared_core;
mod slot;
mod slot_set;
mod streams;
mod tokens;
mod traffic;
mod transfers;

pub use crate::host_dma::DmaFault;
pub use admission::{Admission, Counters, DropReason};
pub use connection::{ConnectError, ConnectionId, ResponseWindow};
pub use progress::ReaderProgress;
pub use read_now::ReadNow;
pub use tokens::Allowance;
pub use traffic::{Body, DmaAction, DmaRequest, Reply, STAGING, Source, Tag};

use crate::budget::{Budget, Limits};
use crate::cost::KernelCost;
use crate::grant::Grant;
use crate::kernel::{Deployment, KernelCall, Opcode};
use crate::status::Status;
use crate::wire::{Malformed, RegionHandle, ReplyTo, Request, WITHDRAW};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::time::Time;
use connection::Connections;
use shared_core::SharedCore;
use slot::{DmaCompletion, Invocation, Origin, Phase, Slot, first_step};
use slot_set::{SlotSet, after};

/// Runs at most `SLOTS` (1 to 64) invocations for at most `CONNECTIONS` connections.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::cost::KernelCost;
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::CompiledIn;
/// use bareverbs_offload::kernels::BuiltInKernels;
/// use bareverbs_offload::runtime::{Admission, DropReason, ResponseWindow, Runtime};
/// use bareverbs_prm::time::Time;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut runtime: Runtime<CompiledIn<BuiltInKernels>, 8, 2> = Runtime::new(Limits::default(), KernelCost::FREE);
/// let window = ResponseWindow { address: 0x9000, length: 0x1000, rkey: 0x1234_5600 };
/// let tenant = runtime.connect(window, 4)?;
/// let _region = runtime.grant(tenant, Grant::new(0x10_0000, 1 << 20)?)?;
/// let admission = runtime.handle_message(Time::ZERO, tenant, b"no request");
/// assert_eq!(admission, Admission::Dropped(DropReason::Unintelligible));
/// # Ok(())
/// # }
/// ```
pub struct Runtime<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> {
    deployment: D,
    slots: [Slot<D::Invocation>; SLOTS],
    connections: Connections<CONNECTIONS>,
    /// Slots that have an invocation.
    occupied: SlotSet,
    /// Those whose invocation wants to read or write, now or later.
    asking: SlotSet,
    /// Those whose invocation has a reply to be sent, now or later.
    answering: SlotSet,
    /// No invocation has an earlier deadline.
    first_deadline: Time,
    /// Invocations of each connection.
    invocations: [u16; CONNECTIONS],
    /// The slot at which the next round of DMAs, and of replies, begins.
    cursor: usize,
    answered: usize,
    limits: Limits,
    core: SharedCore,
    counters: Counters,
    /// Number of invocations that have begun.
    begun: u64,
    /// Whether new requests are refused.
    draining: bool,
}

impl<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> Runtime<D, SLOTS, CONNECTIONS> {
    const SLOTS_FIT: () = assert!(SLOTS >= 1 && SLOTS <= 64, "a runtime has 1 to 64 slots");

    /// A runtime without connections.
    pub fn new(limits: Limits, cost: KernelCost) -> Self
    where
        D: Default,
    {
        Self::with(D::default(), limits, cost)
    }

    /// A runtime of this deployment without connections.
    pub fn with(deployment: D, limits: Limits, cost: KernelCost) -> Self {
        let () = Self::SLOTS_FIT;
        Self {
            deployment,
            slots: core::array::from_fn(|_| Slot::default()),
            connections: Connections::default(),
            occupied: SlotSet::default(),
            asking: SlotSet::default(),
            answering: SlotSet::default(),
            first_deadline: Time::MAX,
            invocations: [0; CONNECTIONS],
            cursor: 0,
            answered: 0,
            limits,
            core: SharedCore::new(cost),
            counters: Counters::default(),
            begun: 0,
            draining: false,
        }
    }

    /// Stops accepting requests: running invocations are answered, new requests are refused with
    /// [`Status::ShuttingDown`].
    pub const fn drain(&mut self) {
        self.draining = true;
    }

    /// Adds a connection whose replies may be written to `window` and which may run `share` invocations at a time.
    pub fn connect(&mut self, window: ResponseWindow, share: u16) -> Result<ConnectionId, ConnectError> {
        self.connections.open(window, share)
    }

    /// Removes a connection: its grants are void, its invocations end without a reply.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.connections.close(connection);
        self.abandon(|invocation| invocation.origin.connection == connection);
    }

    /// Ends invocations without a reply. Their slots wait for a reply or DMA in flight.
    fn abandon(&mut self, which: impl Fn(&Invocation<D::Invocation>) -> bool) {
        for index in self.occupied.from(0) {
            if let Some(invocation) = self.slots[index].invocation_mut().filter(|i| which(i)) {
                invocation.abandon();
                self.file(index);
                self.free_if_done(index);
            }
        }
    }

    /// Files a slot under what its invocation waits for.
    #[inline]
    fn file(&mut self, index: usize) {
        let invocation = self.slots[index].place();
        let (asks, answers) = (invocation.is_asking(), invocation.is_answering());
        self.asking.set(index, asks);
        self.answering.set(index, answers);
    }

    /// Ends the invocations whose time is over.
    #[inline]
    fn expire(&mut self, now: Time) {
        if now >= self.first_deadline {
            self.expire_all(now);
        }
    }

    #[cold]
    fn expire_all(&mut self, now: Time) {
        self.first_deadline = Time::MAX;
        for index in self.occupied.from(0) {
            if let Some(deadline) = self.slots[index].place().expire(now) {
                self.first_deadline = self.first_deadline.min(deadline);
            }
            self.file(index);
        }
    }

    /// Frees a slot if nothing is left to do in it.
    fn free_if_done(&mut self, index: usize) {
        if let Some(connection) = self.slots[index].free_if_done(&mut self.deployment) {
            self.occupied.set(index, false);
            self.release_share(connection);
        }
    }

    /// Grants a connection a region, under the returned handle.
    pub fn grant(&mut self, connection: ConnectionId, grant: Grant) -> Result<RegionHandle, ConnectError> {
        self.connections.grant(connection, grant)
    }

    /// Revokes a grant: its running invocations end with [`Status::Revoked`], and the handle is void for good.
    pub fn revoke(&mut self, connection: ConnectionId, region: RegionHandle) {
        self.connections.revoke(connection, region);
    }

    /// Allows or forbids a connection to deploy and remove programs over the wire. The default is to forbid.
    pub fn allow_deployment(&mut self, connection: ConnectionId, allowed: bool) -> Result<(), ConnectError> {
        self.connections.allow_deployment(connection, allowed)
    }

    /// Limits a connection's long-term usage. Its requests and DMAs wait for their time without delaying other
    /// connections. The default is no limit.
    pub fn limit(&mut self, connection: ConnectionId, allowance: Allowance) -> Result<(), ConnectError> {
        self.connections.limit(connection, allowance)
    }

    /// The earliest time to hand in a request of this connection. An earlier one is refused with [`Status::Busy`].
    pub fn request_at(&self, connection: ConnectionId) -> Time {
        self.connections.request_at(connection)
    }

    /// The deployment, for deploying programs.
    pub const fn deployment(&mut self) -> &mut D {
        &mut self.deployment
    }

    /// The counters so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Invocations that hold a slot.
    pub fn running(&self) -> usize {
        self.occupied.len()
    }

    /// Progress of the invocations, for [`TableWriter::announce`](crate::table::TableWriter::announce). An abandoned
    /// invocation counts until nothing of it is in flight.
    pub fn progress(&self) -> ReaderProgress {
        let numbers =
            self.slots.iter().filter_map(Slot::invocation).map(|invocation| invocation.origin.number);
        ReaderProgress { begun: self.begun, oldest: numbers.min().unwrap_or(self.begun) }
    }

    /// Handles a message received by SEND.
    pub fn handle_message(&mut self, now: Time, connection: ConnectionId, bytes: &[u8]) -> Admission {
        match Request::parse_message(bytes) {
            Ok(request) => self.handle_request(now, connection, &request),
            Err(malformed) => self.handle_malformed(now, connection, &malformed),
        }
    }

    /// Handles a StRoM RPC Params packet; `opcode` and `region_key` come from its RETH.
    pub fn handle_strom(
        &mut self,
        now: Time,
        connection: ConnectionId,
        opcode: Opcode,
        region_key: u32,
        bytes: &[u8],
    ) -> Admission {
        match Request::parse_strom(opcode, region_key, bytes) {
            Ok(request) => self.handle_request(now, connection, &request),
            Err(malformed) => self.handle_malformed(now, connection, &malformed),
        }
    }

    #[inline]
    fn handle_request(&mut self, now: Time, connection: ConnectionId, request: &Request<'_>) -> Admission {
        let in_time = self.connections.take_request(connection, now);
        let Request { request_id, reply, .. } = *request;
        if let Err(reason) = self.check_reply(connection, &reply) {
            return self.dropped(reason);
        }
        // Handled even if its tenant is over its allowance, because it frees what the tenant uses.
        if request.opcode == WITHDRAW {
            self.withdraw(connection, request_id);
            return Self::refusal(connection, request_id, &reply, Status::Withdrawn);
        }
        let started = if in_time { self.start(now, connection, request) } else { Err(Status::Busy) };
        match started {
            Ok(()) => {
                self.counters.accepted += 1;
                Admission::Accepted
            }
            Err(status) => self.refused(connection, request_id, &reply, status),
        }
    }

    #[cold]
    fn handle_malformed(&mut self, now: Time, connection: ConnectionId, malformed: &Malformed) -> Admission {
        let in_time = self.connections.take_request(connection, now);
        let Malformed::Answerable { request_id, reply } = malformed else {
            return self.dropped(DropReason::Unintelligible);
        };
        if let Err(reason) = self.check_reply(connection, reply) {
            return self.dropped(reason);
        }
        let status = if in_time { Status::BadParameters } else { Status::Busy };
        self.refused(connection, *request_id, reply, status)
    }

    /// Whether a reply may be written there.
    #[inline]
    fn check_reply(&self, connection: ConnectionId, reply: &ReplyTo) -> Result<(), DropReason> {
        let window = self.connections.window(connection).ok_or(DropReason::NoConnection)?;
        if window.covers(reply) { Ok(()) } else { Err(DropReason::ReplyWindow) }
    }

    fn dropped(&mut self, reason: DropReason) -> Admission {
        self.counters.dropped += 1;
        Admission::Dropped(reason)
    }

    fn refused(&mut self, connection: ConnectionId, id: u64, to: &ReplyTo, status: Status) -> Admission {
        self.counters.refused += 1;
        Self::refusal(connection, id, to, status)
    }

    /// Ends the request with this id without a reply. A request whose reply is in flight is left alone.
    fn withdraw(&mut self, connection: ConnectionId, id: u64) {
        self.counters.withdrawn += 1;
        self.abandon(|i| i.origin.connection == connection && i.origin.request_id == id);
    }

    /// A reply without a body that states the reason.
    fn refusal(connection: ConnectionId, id: u64, to: &ReplyTo, status: Status) -> Admission {
        let Some(address) = to.write_address(0) else { return Admission::Dropped(DropReason::ReplyWindow) };
        Admission::Refused(Reply {
            ticket: None,
            connection,
            address,
            rkey: to.rkey,
            slot: to.slot,
            body: None,
            trailer: slot::empty_trailer(status, id),
        })
    }

    /// Starts the kernel and gives it a slot, or refuses.
    fn start(&mut self, now: Time, connection: ConnectionId, request: &Request<'_>) -> Result<(), Status> {
        if self.draining {
            return Err(Status::ShuttingDown);
        }
        let grant = match self.connections.region(connection, request.region) {
            Ok(grant) => *grant,
            Err(_) if !self.deployment.needs_region(request.opcode) => Grant::NONE,
            Err(status) => return Err(status),
        };
        let invocations = self.invocations.get(connection.index()).copied().unwrap_or_default();
        let free = self.occupied.first_outside();
        if usize::from(invocations) >= self.connections.share(connection) || free >= SLOTS {
            return Err(Status::Busy);
        }
        let call = KernelCall {
            caller: self.connections.caller(connection),
            parameters: request.parameters,
            grant: &grant,
        };
        let invocation = self.slots[free].place();
        let started = first_step(&mut self.deployment, &mut invocation.kernel, request, &call);
        let step = started.as_ref().map_err(|status| *status)?;
        let Request { region, reply, request_id, .. } = *request;
        let origin =
            Origin { number: self.begun, connection, region, grant, reply, request_id, accepted: now };
        let limits = self.limits.tightened(request.hop_limit, request.deadline);
        let budget = Budget::new(limits, now);
        self.first_deadline = self.first_deadline.min(budget.deadline());
        invocation.begin(origin, budget);
        invocation.take_first_step(&self.deployment, step, &mut self.core);
        self.begun += 1;
        self.occupied.set(free, true);
        self.file(free);
        if let Some(invocations) = self.invocations.get_mut(connection.index()) {
            *invocations += 1;
        }
        Ok(())
    }

    /// The next range to read or write, if one is due.
    pub fn poll_dma(&mut self, now: Time) -> Option<DmaRequest> {
        self.expire(now);
        if self.asking.is_empty() {
            return None;
        }
        for index in self.asking.from(self.cursor) {
            let due = self.due_dma(index, now);
            self.file(index);
            if due.is_some() {
                self.cursor = after::<SLOTS>(index);
                self.counters.dma_requests += 1;
                return due;
            }
        }
        None
    }

    fn due_dma(&mut self, index: usize, now: Time) -> Option<DmaRequest> {
        let slot = &mut self.slots[index];
        let tag = slot.tag(index);
        let invocation = slot.invocation_mut()?;
        let Origin { connection, region, .. } = invocation.origin;
        let dma_at = self.connections.dma_at(connection);
        let (number, transfer) = invocation.due_transfer(now).filter(|_| dma_at <= now)?;
        if self.connections.region(connection, region).is_err() {
            invocation.end(Status::Revoked, now);
            return None;
        }
        invocation.transfers.started(number);
        let (action, range, offset) = (transfer.action, transfer.range, transfer.place);
        self.connections.take_dma(connection, now, range.length());
        let (region, address, length) = (range.region(), range.address(), range.length());
        Some(DmaRequest { tag: tag.of_transfer(number), action, offset, region, address, length })
    }

    fn invocation(&self, tag: Tag) -> Option<&Invocation<D::Invocation>> {
        self.slots.get(tag.buffer()).filter(|slot| slot.matches(tag))?.invocation()
    }

    /// Offset and length of the bytes being read into the staging buffer of `tag`; `None` if its completion is not
    /// awaited.
    pub fn reading(&self, tag: Tag) -> Option<(u32, u32)> {
        let (transfer, wanted) = self.invocation(tag)?.transfers.in_flight(tag.transfer())?;
        wanted.then(|| (transfer.place, transfer.returned()))
    }

    /// The bytes to put into the staging buffer and write from there; `None` if the request is not a write.
    pub fn to_be_written(&self, request: &DmaRequest) -> Option<&[u8]> {
        let DmaAction::Write { from } = request.action else { return None };
        let invocation = self.invocation(request.tag)?;
        invocation.all_computed(&self.deployment).get(from as usize..)?.get(..request.length as usize)
    }

    /// Handles the completion of a DMA request. `result` holds the bytes of a read, nothing for a write, or the
    /// previous word of a compare-and-swap. Bytes that were read must also lie in the staging buffer of the tag, where
    /// the request said, and stay there until the reply was sent.
    pub fn handle_dma_done(&mut self, now: Time, tag: Tag, result: Result<&[u8], DmaFault>) {
        let Some(slot) = self.slots.get_mut(tag.buffer()).filter(|slot| slot.matches(tag)) else {
            self.counters.stale_completions += 1;
            return;
        };
        let invocation = slot.place();
        let Some((transfer, wanted)) = invocation.transfers.in_flight(tag.transfer()) else {
            self.counters.stale_completions += 1;
            return;
        };
        invocation.transfers.dma_completed(tag.transfer());
        if !wanted {
            return self.free_if_done(tag.buffer());
        }
        let Origin { connection, region, .. } = invocation.origin;
        if self.connections.region(connection, region).is_ok() || mutated("revoked_bytes") {
            let completion = DmaCompletion { now, core: &mut self.core, result };
            invocation.dma_completed(&self.deployment, &transfer, completion);
        } else {
            invocation.end(Status::Revoked, now + self.core.cost.per_dma);
        }
        self.file(tag.buffer());
    }

    /// Takes back a request that was flushed before it was executed; it will be emitted again.
    pub fn handle_dma_flushed(&mut self, tag: Tag) {
        let Some(slot) = self.slots.get_mut(tag.buffer()).filter(|slot| slot.matches(tag)) else {
            self.counters.stale_completions += 1;
            return;
        };
        if let Some(invocation) = slot.invocation_mut() {
            invocation.transfers.flushed(tag.transfer());
        }
        self.file(tag.buffer());
        self.free_if_done(tag.buffer());
    }

    /// The next reply to send, if one is due.
    pub fn poll_reply(&mut self, now: Time) -> Option<Reply> {
        self.poll_reply_to(now, |_| true)
    }

    /// The next reply to send, if one is due, on a connection that can take it. Replies of other connections stay
    /// queued and block nothing.
    pub fn poll_reply_to(&mut self, now: Time, takes: impl Fn(ConnectionId) -> bool) -> Option<Reply> {
        self.expire(now);
        if self.answering.is_empty() {
            return None;
        }
        for index in self.answering.from(self.answered) {
            let slot = &mut self.slots[index];
            let tag = slot.tag(index);
            let invocation = slot.place();
            if takes(invocation.origin.connection)
                && let Some(answer) = invocation.due_answer(now, tag)
            {
                self.answering.set(index, false);
                self.answered = after::<SLOTS>(index);
                return invocation.reply(now, tag, answer);
            }
        }
        None
    }

    /// The answer that a kernel computed, valid until [`Runtime::reply_done`]; `None` if the answer lies in the staging
    /// buffer.
    pub fn computed(&self, reply: &Reply) -> Option<&[u8]> {
        let (ticket, body) = (reply.ticket?, reply.body.filter(|body| body.source == Source::Computed)?);
        let slot = self.slots.get(ticket.buffer()).filter(|slot| slot.matches(ticket))?;
        slot.invocation()?.computed(&self.deployment, &body)
    }

    /// Reports that a reply was sent and its staging buffer may be reused.
    pub fn reply_done(&mut self, ticket: Tag) {
        if let Some(slot) = self.slots.get_mut(ticket.buffer()).filter(|slot| slot.matches(ticket)) {
            if let Some(invocation) = slot.invocation_mut() {
                invocation.phase = Phase::Answered;
            }
            self.free_if_done(ticket.buffer());
        }
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.dues(|invocation, dma_at| invocation.next_due(dma_at))
    }

    fn dues(&self, due: impl Fn(&Invocation<D::Invocation>, Time) -> Option<Time>) -> Option<Time> {
        let invocations = self.slots.iter().filter_map(Slot::invocation);
        invocations.filter_map(|i| due(i, self.connections.dma_at(i.origin.connection))).min()
    }

    /// The same for an owner that has done all possible work at `now`: work that was due but not done is left out.
    pub fn poll_timeout_after(&self, now: Time) -> Option<Time> {
        self.dues(|invocation, dma_at| invocation.next_due_after(now, dma_at))
    }
}

#[cfg(test)]
mod tests;
