//! One invocation and its slot.

use super::connection::ConnectionId;
use super::shared_core::SharedCore;
use super::traffic::{Body, DmaAction, Reply, STAGING, Source, Tag};
use super::transfers::{Asked, Transfer, Transfers};
use crate::budget::{Budget, Limits, Next};
use crate::grant::{Checked, Grant};
use crate::host_dma::DmaFault;
use crate::kernel::{Deployment, Emission, Event, KernelCall, Step};
use crate::status::Status;
use crate::wire::{RegionHandle, ReplyTo, Request, TRAILER_SIZE, Trailer};
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
    const fn without_response(status: Status) -> Self {
        Self { status, source: Source::Fetched, offset: 0, length: 0, version: 0 }
    }
}

/// An ending, and where the bytes of its answer are.
pub(super) struct Answer {
    ending: Ending,
    body: Option<Body>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Something has to be read or written, not before `at`.
    Ask { asked: Asked, at: Time },
    /// Its transfer waits for its turn or is being carried out.
    Transfer,
    /// A reply has to be sent, not before `at`.
    Respond { ending: Ending, at: Time },
    /// The reply is in flight and may still use the staging buffer.
    Answering,
    /// Only DMAs in flight are left to wait for.
    Answered,
}

/// The bytes in the staging buffer that the kernel received last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    place: u32,
    length: u32,
}

/// A request that runs, in its slot. Without a kernel, the slot is free.
pub(super) struct Invocation<I> {
    pub(super) kernel: Option<I>,
    pub(super) origin: Origin,
    pub(super) budget: Budget,
    pub(super) window: Window,
    pub(super) transfers: Transfers,
    pub(super) phase: Phase,
}

/// Where a request came from, and where its reply goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// How many invocations had begun before it.
    pub(super) number: u64,
    pub(super) connection: ConnectionId,
    pub(super) region: RegionHandle,
    pub(super) grant: Grant,
    pub(super) reply: ReplyTo,
    pub(super) request_id: u64,
    pub(super) accepted: Time,
}

/// The result of a DMA, and when it ended.
pub(super) struct DmaCompletion<'a> {
    pub(super) now: Time,
    pub(super) core: &'a mut SharedCore,
    pub(super) result: Result<&'a [u8], DmaFault>,
}

impl<'a> DmaCompletion<'a> {
    /// The bytes that came back, if they are as many as expected; else the status that the invocation ends with.
    #[inline]
    fn bytes(&self, expected: u32) -> Result<&'a [u8], Status> {
        match self.result {
            Ok(bytes) if bytes.len() == expected as usize => Ok(bytes),
            Err(DmaFault::TakenBack) => Err(Status::TakenBack),
            Err(DmaFault::NoCompareAndSwap) => Err(Status::NoAtomics),
            Ok(_) | Err(DmaFault::Memory) => Err(Status::DmaFault),
        }
    }

    /// When the DMA itself is paid for.
    fn charged(&self) -> Time {
        self.now + self.core.cost.per_dma
    }
}

impl<I> Invocation<I> {
    /// A free slot's.
    fn vacant() -> Self {
        let origin = Origin {
            number: 0,
            connection: ConnectionId::FIRST,
            region: RegionHandle::default(),
            grant: Grant::NONE,
            reply: ReplyTo { address: 0, rkey: 0, max_response: 0, slot: 0 },
            request_id: 0,
            accepted: Time::ZERO,
        };
        let (window, transfers) = (Window::default(), Transfers::default());
        let budget = Budget::new(Limits::default(), Time::ZERO);
        Self { kernel: None, origin, budget, window, transfers, phase: Phase::Answered }
    }

    /// Begins with the first step of the kernel. The earlier invocation in this place has left no transfers, because it
    /// kept its slot until the last one had ended.
    pub(super) fn begin(&mut self, origin: Origin, budget: Budget) {
        (self.origin, self.budget) = (origin, budget);
        self.window = Window::default();
    }

    /// Takes the first step, which the start of the kernel has led to.
    pub(super) fn take_first_step(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        step: &Step,
        core: &mut SharedCore,
    ) {
        let now = self.origin.accepted;
        let at = core.start(now, self.fuel_used(deployment));
        self.take_step(deployment, step, now, at);
    }

    /// Charges a step; what it asks for becomes due at `at`. The steps of a lookup take the fast path, which is inlined so
    /// that a step need not go through memory.
    #[inline(always)]
    fn take_step(&mut self, deployment: &impl Deployment<Invocation = I>, step: &Step, now: Time, at: Time) {
        match *step {
            Step::Fetch(range) => match self.budget.charge_fetch(range.length(), now) {
                Ok(()) => {
                    self.transfers.throw_away();
                    self.phase = Phase::Ask { asked: Asked::One { action: DmaAction::Read, range }, at };
                }
                Err(status) => self.end(status, at),
            },
            Step::Emit(emission) if now < self.budget.deadline() => {
                self.transfers.throw_away();
                self.emit(emission, at);
            }
            _ => self.take_other_step(deployment, step, now, at),
        }
    }

    fn take_other_step(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        step: &Step,
        now: Time,
        at: Time,
    ) {
        let next = self.budget.charge(*step, now);
        if next == Next::AwaitPart && self.transfers.is_waited_for() {
            return;
        }
        self.transfers.throw_away();
        let one = |action, range| Phase::Ask { asked: Asked::One { action, range }, at };
        match next {
            Next::Read(range) => self.phase = one(DmaAction::Read, range),
            Next::ReadEach(ranges) => self.phase = Phase::Ask { asked: Asked::Each(ranges), at },
            Next::Write { to, from } if is_part(from, to.range().length(), self.all_computed(deployment)) => {
                self.phase = one(DmaAction::Write { from }, to.range());
            }
            Next::Write { .. } => self.end(Status::OutOfBounds, at),
            Next::CompareAndSwap { word, expected, desired } => {
                self.phase = one(DmaAction::CompareAndSwap { expected, desired }, word.range());
            }
            Next::Emit(emission) => self.emit(emission, at),
            Next::Reply(emission) => {
                let available = self.all_computed(deployment).len();
                self.answer(Source::Computed, available, emission, at);
            }
            Next::End(status) => self.end(status, at),
            // The payload was handed over completely and all parts have arrived; there is nothing more to
            // wait for.
            Next::Payload | Next::AwaitPart => self.end(Status::BadParameters, at),
        }
    }

    fn emit(&mut self, emission: Emission, at: Time) {
        let available = self.window.length as usize;
        self.answer(Source::Fetched, available, emission, at);
    }

    fn answer(&mut self, source: Source, available: usize, emission: Emission, at: Time) {
        let Emission { offset, length, version } = emission;
        let inside = offset.checked_add(length).is_some_and(|end| end as usize <= available);
        let status = match () {
            () if !inside => return self.end(Status::OutOfBounds, at),
            () if length > self.origin.reply.max_response => Status::Truncated,
            () => Status::Ok,
        };
        self.phase = Phase::Respond { ending: Ending { status, source, offset, length, version }, at };
    }

    /// The part of the computed bytes that `body` names.
    pub(super) fn computed<'a>(
        &'a self,
        deployment: &'a impl Deployment<Invocation = I>,
        body: &Body,
    ) -> Option<&'a [u8]> {
        let begin = body.offset as usize;
        self.all_computed(deployment).get(begin..)?.get(..body.length as usize)
    }

    /// All that the kernel has computed.
    pub(super) fn all_computed<'a>(&'a self, deployment: &'a impl Deployment<Invocation = I>) -> &'a [u8] {
        self.kernel.as_ref().map_or(&[], |kernel| deployment.computed(kernel))
    }

    /// Fuel that was used so far.
    fn fuel_used(&self, deployment: &impl Deployment<Invocation = I>) -> u32 {
        self.kernel.as_ref().map_or(0, |kernel| deployment.fuel_used(kernel))
    }

    pub(super) fn end(&mut self, status: Status, at: Time) {
        self.transfers.throw_away();
        self.phase = Phase::Respond { ending: Ending::without_response(status), at };
    }

    /// Ends without a reply. The slot waits for a reply or DMA in flight.
    pub(super) fn abandon(&mut self) {
        if !matches!(self.phase, Phase::Answering) {
            self.transfers.throw_away();
            self.phase = Phase::Answered;
        }
    }

    /// Ends it if it reads or writes and its time is over. If its time comes later, returns when.
    pub(super) fn expire(&mut self, now: Time) -> Option<Time> {
        let deadline = self.budget.deadline();
        if !matches!(self.phase, Phase::Ask { .. } | Phase::Transfer) {
            return None;
        }
        if now < deadline {
            return Some(deadline);
        }
        self.end(Status::Deadline, now);
        None
    }

    /// Whether it wants to read or write, now or later.
    #[inline]
    pub(super) const fn is_asking(&self) -> bool {
        match self.phase {
            Phase::Ask { .. } => true,
            Phase::Transfer => self.transfers.is_due(),
            Phase::Respond { .. } | Phase::Answering | Phase::Answered => false,
        }
    }

    /// Whether it has a reply to be sent, now or later.
    #[inline]
    pub(super) const fn is_answering(&self) -> bool {
        matches!(self.phase, Phase::Respond { .. })
    }

    /// The next read or write that is due, and its number.
    #[inline]
    pub(super) fn due_transfer(&mut self, now: Time) -> Option<(usize, Transfer)> {
        if let Phase::Ask { asked, at } = &self.phase
            && *at <= now
            && self.transfers.begin(asked)
        {
            self.phase = Phase::Transfer;
        }
        if matches!(self.phase, Phase::Transfer) { self.transfers.next_due() } else { None }
    }

    /// The range that it wants to read, and from when on, if it wants nothing else and nothing of it is in flight.
    #[inline]
    pub(super) const fn lone_read(&self) -> Option<(Checked, Time)> {
        match self.phase {
            Phase::Ask { asked: Asked::One { action: DmaAction::Read, range }, at }
                if !self.transfers.is_flying() =>
            {
                Some((range, at))
            }
            _ => None,
        }
    }

    /// Hands the result of a finished DMA that was awaited to the kernel.
    pub(super) fn dma_completed(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        transfer: &Transfer,
        completion: DmaCompletion<'_>,
    ) {
        let bytes = match completion.bytes(transfer.returned()) {
            Ok(bytes) => bytes,
            Err(status) => return self.end(status, completion.charged()),
        };
        self.window = match transfer.action {
            DmaAction::Read => Window { place: transfer.place, length: transfer.range.length() },
            // Its bytes overwrote the staging buffer, so the kernel has no window now.
            DmaAction::Write { .. } | DmaAction::CompareAndSwap { .. } => Window::default(),
        };
        let before = self.fuel_used(deployment);
        let step = self.hand_over(deployment, transfer, bytes);
        self.take_next_step(deployment, &step, before, completion);
    }

    /// The same for a read of so many bytes that was alone, so that they lie at the beginning of the staging buffer.
    #[inline]
    pub(super) fn read_completed(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        length: u32,
        completion: DmaCompletion<'_>,
    ) {
        let (bytes, kernel) = match (completion.bytes(length), &mut self.kernel) {
            (Ok(bytes), Some(kernel)) => (bytes, kernel),
            (Err(status), _) => return self.end(status, completion.charged()),
            (Ok(_), None) => return,
        };
        self.window = Window { place: 0, length };
        let before = deployment.fuel_used(kernel);
        let step = deployment.dma_done(kernel, bytes, &self.origin.grant);
        self.take_next_step(deployment, &step, before, completion);
    }

    /// Takes a step for which the kernel may have used fuel.
    #[inline(always)]
    fn take_next_step(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        step: &Step,
        before: u32,
        completion: DmaCompletion<'_>,
    ) {
        let fuel = self.fuel_used(deployment).saturating_sub(before);
        let DmaCompletion { now, core, .. } = completion;
        self.take_step(deployment, step, now, core.step(now, fuel));
    }

    #[inline]
    fn hand_over(
        &mut self,
        deployment: &impl Deployment<Invocation = I>,
        transfer: &Transfer,
        bytes: &[u8],
    ) -> Step {
        let grant = &self.origin.grant;
        let Some(kernel) = &mut self.kernel else { return Step::Done(Status::NoKernel) };
        let event = match (transfer.action, transfer.part, bytes.first_chunk()) {
            (DmaAction::Read, None, _) => return deployment.dma_done(kernel, bytes, grant),
            (DmaAction::Read, Some(part), _) => Event::Part { part: part.into(), bytes },
            (DmaAction::Write { .. }, ..) => Event::Written,
            (DmaAction::CompareAndSwap { .. }, _, Some(word)) => {
                Event::Compared { found: u64::from_be_bytes(*word) }
            }
            (DmaAction::CompareAndSwap { .. }, _, None) => return Step::Done(Status::DmaFault),
        };
        deployment.resumed(kernel, event, grant)
    }

    /// How it ended and where its answer is, if its reply is due and there is room for the answer.
    #[inline]
    pub(super) fn due_answer(&self, now: Time, tag: Tag) -> Option<Answer> {
        let Phase::Respond { ending, at } = self.phase else { return None };
        if at > now {
            return None;
        }
        let has_body = ending.status == Status::Ok && ending.length > 0;
        Some(Answer { ending, body: if has_body { Some(self.body(&ending, tag)?) } else { None } })
    }

    /// The reply, which is in flight from now on.
    #[inline]
    pub(super) fn reply(&mut self, now: Time, tag: Tag, answer: Answer) -> Option<Reply> {
        let Answer { ending, body } = answer;
        self.phase = Phase::Answering;
        // The window was checked to cover the slot when the request was admitted, and the length when it was
        // answered.
        let address = self.origin.reply.write_address(body.map_or(0, |body| body.length))?;
        Some(Reply {
            ticket: Some(tag),
            connection: self.origin.connection,
            address,
            rkey: self.origin.reply.rkey,
            slot: self.origin.reply.slot,
            body,
            trailer: self.trailer(&ending, now),
        })
    }

    /// Where the bytes of an answer are. `None` if discarded reads in flight leave no room for a computed
    /// answer.
    fn body(&self, ending: &Ending, tag: Tag) -> Option<Body> {
        let Ending { source, offset, length, .. } = *ending;
        let (offset, place) = match source {
            Source::Fetched => (self.window.place + offset, self.window.place + offset),
            Source::Computed => (offset, self.transfers.unused_from()),
        };
        let fits = source == Source::Fetched || place + length + TRAILER_SIZE as u32 <= STAGING;
        fits.then_some(Body { buffer: tag.buffer(), source, offset, place, length })
    }

    fn trailer(&self, ending: &Ending, now: Time) -> Trailer {
        Trailer {
            hops: self.budget.hops(),
            retries: self.budget.retries(),
            length: ending.length,
            version: ending.version,
            server_nanos: u32::try_from(now.since(self.origin.accepted).as_nanos()).unwrap_or(u32::MAX),
            ..empty_trailer(ending.status, self.origin.request_id)
        }
    }

    /// The first moment after `now` at which something is due, if its connection has tokens for a DMA from
    /// `dma_at` on.
    pub(super) fn next_due_after(&self, now: Time, dma_at: Time) -> Option<Time> {
        let deadline =
            matches!(self.phase, Phase::Ask { .. } | Phase::Transfer).then(|| self.budget.deadline());
        [self.next_due(dma_at), deadline].into_iter().flatten().filter(|due| *due > now).min()
    }

    pub(super) fn next_due(&self, dma_at: Time) -> Option<Time> {
        match self.phase {
            Phase::Ask { at, .. } => Some(at.max(dma_at).min(self.budget.deadline())),
            Phase::Transfer if self.transfers.is_due() => Some(dma_at.min(self.budget.deadline())),
            Phase::Transfer => Some(self.budget.deadline()),
            Phase::Respond { at, .. } => Some(at),
            Phase::Answering | Phase::Answered => None,
        }
    }
}

/// Whether `length` bytes from `from` on lie in `bytes`.
fn is_part(from: u32, length: u32, bytes: &[u8]) -> bool {
    from.checked_add(length).is_some_and(|end| end as usize <= bytes.len())
}

pub(super) const fn empty_trailer(status: Status, request_id: u64) -> Trailer {
    Trailer { status, hops: 0, length: 0, retries: 0, credits: 0, server_nanos: 0, version: 0, request_id }
}

/// Starts a kernel in its place and hands the payload to it. If it refuses, the place stays empty.
#[inline]
pub(super) fn first_step<D: Deployment>(
    deployment: &mut D,
    place: &mut Option<D::Invocation>,
    request: &Request<'_>,
    call: &KernelCall<'_>,
) -> Result<Step, Status> {
    let started = deployment.start(place, request.opcode, call);
    if request.payload.is_empty() && !matches!(started, Ok(Step::AwaitPayload)) {
        return started;
    }
    let awaits = matches!(started?, Step::AwaitPayload);
    match place {
        Some(kernel) if awaits => Ok(deployment.payload(kernel, request.payload, call.grant)),
        Some(kernel) => {
            deployment.ended(kernel);
            *place = None;
            Err(Status::BadParameters)
        }
        // Cannot happen: a start that succeeds has a kernel.
        None => Err(Status::NoKernel),
    }
}

/// A place for one invocation. It begins in place, since it is too large to be moved for each request.
pub(super) struct Slot<I> {
    generation: u32,
    invocation: Invocation<I>,
}

impl<I> Default for Slot<I> {
    fn default() -> Self {
        Self { generation: 0, invocation: Invocation::vacant() }
    }
}

impl<I> Slot<I> {
    pub(super) const fn tag(&self, index: usize) -> Tag {
        Tag::new(index, self.generation)
    }

    pub(super) fn matches(&self, tag: Tag) -> bool {
        (self.generation == tag.generation() || mutated("old_tag")) && self.invocation.kernel.is_some()
    }

    pub(super) const fn invocation(&self) -> Option<&Invocation<I>> {
        if self.invocation.kernel.is_some() { Some(&self.invocation) } else { None }
    }

    pub(super) const fn invocation_mut(&mut self) -> Option<&mut Invocation<I>> {
        if self.invocation.kernel.is_some() { Some(&mut self.invocation) } else { None }
    }

    /// The place of the invocation, running or not. Whoever puts a kernel there has to begin it.
    pub(super) const fn place(&mut self) -> &mut Invocation<I> {
        &mut self.invocation
    }

    /// Frees the slot if nothing is left to do, and reports to the deployment. Returns the connection that
    /// had it.
    pub(super) fn free_if_done(
        &mut self,
        deployment: &mut impl Deployment<Invocation = I>,
    ) -> Option<ConnectionId> {
        let Invocation { kernel, phase, transfers, origin, .. } = &mut self.invocation;
        let ended = kernel.as_ref()?;
        if !matches!(phase, Phase::Answered) || transfers.is_flying() {
            return None;
        }
        deployment.ended(ended);
        *kernel = None;
        self.generation = self.generation.wrapping_add(1);
        Some(origin.connection)
    }
}
