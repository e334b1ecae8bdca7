//! The asking side: looks keys up in a remote table in one of four ways, and deploys programs.
//!
//! | way | request | answer |
//! |---|---|---|
//! | kernel on the DPU | SEND | RDMA WRITE with immediate into a response slot |
//! | program on the DPU | the same, with the op-code of the program | the same |
//! | kernel in the NIC | StRoM RPC Params | RDMA WRITE into a response slot, found by polling its request id |
//! | plain READ | an RDMA READ for each element | the elements; the client walks by itself |
//!
//! [`KvClient`] never waits: [`KvClient::start`] begins a lookup, [`KvClient::poll`] ends some. [`slots`] and [`walk`]
//! are pure. [`deployer`] deploys, lists and removes programs. [`advisor`] says which way is the fastest.

pub mod advisor;
mod config;
pub mod deployer;
pub mod slots;
pub mod walk;

pub use config::{ClientConfig, Ended, LookupResult, StartError, Way};

use crate::budget::Limits;
use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Remote, Work};
use crate::grant::{Checked, Grant};
use crate::kernel::{Kernel, Opcode};
use crate::kernels::kv_layout::{MAX_KEY, object_size};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::status::Status;
use crate::table::TableDescriptor;
use crate::wire::{HEADER_SIZE, Immediate, RegionHandle, Request, TRAILER_SIZE, Trailer, WITHDRAW};
use bareverbs_prm::time::Time;
use slots::{Loan, Slots};
use walk::{Walk, WalkStep};

/// A client with at most `N` lookups at a time, over connection 0 of its endpoint.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::client::slots::SlotLayout;
/// use bareverbs_offload::client::{ClientConfig, KvClient, StartError, Way};
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_offload::table::TableDescriptor;
/// use bareverbs_offload::wire::RegionHandle;
/// use bareverbs_prm::time::{Duration, Time};
///
/// /// A client of a DPU that looks one key up. `slots` is the memory of the endpoint as the server knows it.
/// fn client(
///     endpoint: &mut impl Endpoint,
///     slots: SlotLayout,
///     table: TableDescriptor,
///     region: RegionHandle,
/// ) -> Result<KvClient<4>, StartError> {
///     let (way, timeout, limits) = (Way::KernelDpu(region), Duration::from_millis(5), Limits::default());
///     let mut client = KvClient::new(ClientConfig { way, table, layout: slots, credits: 4, timeout, limits });
///     client.start(Time::ZERO, endpoint, b"user:4711")?;
///     Ok(client)
/// }
/// ```
#[derive(Debug)]
pub struct KvClient<const N: usize> {
    config: ClientConfig,
    slots: Slots<N>,
    /// The walks of lookups by READ, by slot.
    walks: [Option<Walk>; N],
    receives_posted: bool,
    broken: bool,
}

/// What a request is for.
#[derive(Debug, Clone, Copy)]
struct Target {
    opcode: Opcode,
    region: RegionHandle,
}

impl Target {
    /// The lookup kernel.
    const fn kernel(region: RegionHandle) -> Self {
        Self { opcode: KvLookup::OPCODE, region }
    }
}

/// Work request id of a receive.
const RECEIVE: u64 = u64::MAX;

impl<const N: usize> KvClient<N> {
    /// A client that has not begun anything.
    pub fn new(config: ClientConfig) -> Self {
        let slots = Slots::new(config.layout, config.credits);
        Self { config, slots, walks: core::array::from_fn(|_| None), receives_posted: false, broken: false }
    }

    /// Bytes that the buffer given to [`KvClient::poll`] must have.
    pub const fn buffer_size(&self) -> usize {
        object_size(MAX_KEY, self.config.layout.max_response as usize) as usize
    }

    /// Begins to look `key` up; returns the id of the request.
    pub fn start(&mut self, now: Time, endpoint: &mut impl Endpoint, key: &[u8]) -> Result<u64, StartError> {
        if self.broken {
            return Err(StartError::Post(PostError::Broken));
        }
        self.post_receives(endpoint).map_err(StartError::Post)?;
        let loan = self.slots.lend(now + self.config.timeout).map_err(StartError::NoSlot)?;
        let posted = match self.config.way {
            Way::KernelDpu(region) => self.send(endpoint, &loan, Target::kernel(region), key),
            Way::Program { opcode, region } => self.send(endpoint, &loan, Target { opcode, region }, key),
            Way::KernelNic(region) => self.call(endpoint, &loan, region, key),
            Way::Read { rkey, region } => self.walk(now, endpoint, &loan, rkey, region, key),
        };
        if posted.is_err() {
            self.slots.cancel(&loan);
        }
        posted.map(|()| loan.request_id)
    }

    /// A WRITE with immediate takes a receive each.
    fn post_receives(&mut self, endpoint: &mut impl Endpoint) -> Result<(), PostError> {
        let by_send = matches!(self.config.way, Way::KernelDpu(_) | Way::Program { .. });
        if self.receives_posted || !by_send {
            return Ok(());
        }
        // A request may be answered, and its withdrawal besides.
        for _ in 0..2 * N {
            endpoint.post_receive(0, RECEIVE, Part { offset: 0, length: 0 })?;
        }
        self.receives_posted = true;
        Ok(())
    }

    fn request<'a>(&self, loan: &Loan, target: Target, parameters: &'a [u8]) -> Request<'a> {
        let Target { opcode, region } = target;
        Request {
            opcode,
            request_id: loan.request_id,
            reply: loan.reply,
            deadline: self.config.limits.time,
            hop_limit: self.config.limits.hops,
            region,
            parameters,
            payload: &[],
        }
    }

    fn send(
        &self,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        target: Target,
        key: &[u8],
    ) -> Result<(), StartError> {
        let mut buffer = [0; MAX_PARAMETERS];
        let parameters = encode_lookup(&self.config.table, key, &mut buffer)?;
        let mut message = [0; HEADER_SIZE + MAX_PARAMETERS];
        let bytes = self.request(loan, target, parameters).encode_message(&mut message);
        let bytes = bytes.ok_or(StartError::Refused(Status::BadParameters))?;
        endpoint.post(0, loan.request_id, Work::Send(bytes)).map_err(StartError::Post)
    }

    fn call(
        &self,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        region: RegionHandle,
        key: &[u8],
    ) -> Result<(), StartError> {
        let mut buffer = [0; MAX_PARAMETERS];
        let parameters = encode_lookup(&self.config.table, key, &mut buffer)?;
        let mut block = [0; HEADER_SIZE + MAX_PARAMETERS];
        let bytes = self.request(loan, Target::kernel(region), parameters).encode_strom(&mut block);
        let bytes = bytes.ok_or(StartError::Refused(Status::BadParameters))?;
        let work = Work::RpcParameters { opcode: KvLookup::OPCODE.0, region: region.0, bytes };
        endpoint.post(0, loan.request_id, work).map_err(StartError::Post)
    }

    fn walk(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        rkey: u32,
        region: Grant,
        key: &[u8],
    ) -> Result<(), StartError> {
        let limits = Limits { time: self.config.timeout, ..self.config.limits };
        let (walk, step) =
            Walk::start(now, &self.config.table, region, key, limits).map_err(StartError::Refused)?;
        let WalkStep::Read(range) = step else { return Err(StartError::Refused(Status::BadParameters)) };
        let index = usize::from(loan.reply.slot);
        self.post_read(endpoint, index, loan.request_id, rkey, range).map_err(StartError::Post)?;
        self.walks[index] = Some(walk);
        Ok(())
    }

    fn post_read(
        &self,
        endpoint: &mut impl Endpoint,
        index: usize,
        request_id: u64,
        rkey: u32,
        range: Checked,
    ) -> Result<(), PostError> {
        if u64::from(range.length()) > self.config.layout.stride {
            return Err(PostError::BadRequest);
        }
        let into = Part { offset: self.slot_offset(index), length: range.length() };
        let from = Remote { address: range.address(), rkey };
        endpoint.post(0, request_id, Work::Read { into, from })
    }

    fn slot_offset(&self, index: usize) -> usize {
        index * self.config.layout.stride as usize
    }

    /// A lookup that has ended, if any. The value is copied to `buffer`, which has [`KvClient::buffer_size`] bytes.
    pub fn poll(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        while let Some(completion) = endpoint.poll() {
            if let Some(result) = self.take(now, endpoint, &completion, buffer) {
                return Some(result);
            }
        }
        if self.broken {
            return self.give_up(Time::MAX, Ended::Disconnected);
        }
        let result = self.poll_memory(endpoint, buffer).or_else(|| self.give_up(now, Ended::TimedOut));
        self.withdraw(endpoint);
        result
    }

    /// Tells the server of requests that were given up, so that neither end keeps their slots. What cannot be sent now is sent at a later poll.
    fn withdraw(&mut self, endpoint: &mut impl Endpoint) {
        let (Way::KernelDpu(region) | Way::Program { region, .. } | Way::KernelNic(region)) = self.config.way
        else {
            return;
        };
        while endpoint.has_room(0)
            && let Some(loan) = self.slots.withdraw()
        {
            if self.post_withdrawal(endpoint, &loan, region).is_err() {
                self.slots.not_withdrawn(&loan);
                return;
            }
        }
    }

    fn post_withdrawal(
        &self,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        region: RegionHandle,
    ) -> Result<(), PostError> {
        let request = self.request(loan, Target { opcode: WITHDRAW, region }, &[]);
        let mut buffer = [0; HEADER_SIZE];
        let work = if matches!(self.config.way, Way::KernelNic(_)) {
            let bytes = request.encode_strom(&mut buffer).ok_or(PostError::BadRequest)?;
            Work::RpcParameters { opcode: WITHDRAW.0, region: region.0, bytes }
        } else {
            Work::Send(request.encode_message(&mut buffer).ok_or(PostError::BadRequest)?)
        };
        endpoint.post(0, loan.request_id, work)
    }

    /// When to poll again, if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.slots.poll_timeout()
    }

    /// Answers that came after they were given up.
    pub const fn stale(&self) -> u64 {
        self.slots.stale()
    }

    fn give_up(&mut self, now: Time, ended: Ended) -> Option<LookupResult> {
        self.slots.expire(now).map(|request_id| LookupResult {
            request_id,
            ended,
            length: 0,
            version: 0,
            hops: 0,
            round_trips: 0,
            retries: 0,
        })
    }

    fn take(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        completion: &Completion,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        match completion.outcome {
            Outcome::Failed => {
                self.broken = true;
                None
            }
            Outcome::Received { immediate, .. } => self.answered(endpoint, immediate?, buffer),
            Outcome::Done => match self.config.way {
                Way::Read { rkey, .. } => self.read_done(now, endpoint, completion.id, rkey, buffer),
                _ => None,
            },
        }
    }

    /// A WRITE with immediate has come.
    fn answered(
        &mut self,
        endpoint: &mut impl Endpoint,
        immediate: u32,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        let immediate = Immediate::decode(immediate);
        self.slots.add_credits(immediate.credits.into());
        if endpoint.post_receive(0, RECEIVE, Part { offset: 0, length: 0 }).is_err() {
            self.broken = true;
        }
        self.settle(endpoint, immediate.slot.into(), buffer)
    }

    /// Looks for answers that nothing announces: by the request id at the end of each slot that is lent.
    fn poll_memory(&mut self, endpoint: &mut impl Endpoint, buffer: &mut [u8]) -> Option<LookupResult> {
        if !matches!(self.config.way, Way::KernelNic(_)) {
            return None;
        }
        endpoint.refresh();
        for index in 0..N {
            let Some(request_id) = self.slots.request_of(index) else { continue };
            let mut word = [0; 8];
            let end = self.trailer_offset(index) + TRAILER_SIZE;
            if endpoint.copy_out(end - 8, &mut word).is_err() || u64::from_be_bytes(word) != request_id {
                continue;
            }
            // The id is written last: what comes before it is there, once it may be looked at.
            endpoint.refresh();
            // No answer of the NIC has credits: each request returns its own, a withdrawal too.
            let credits = 1 + u32::from(self.slots.is_withdrawn(index));
            let result = self.settle(endpoint, index, buffer);
            if self.slots.request_of(index).is_none() {
                self.slots.add_credits(credits);
            }
            if result.is_some() {
                return result;
            }
        }
        None
    }

    fn trailer_offset(&self, index: usize) -> usize {
        let max = self.config.layout.max_response as usize;
        self.slot_offset(index) + max.next_multiple_of(8)
    }

    /// Takes the answer in slot `index`, if it is the one that is waited for.
    fn settle(
        &mut self,
        endpoint: &mut impl Endpoint,
        index: usize,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        self.slots.request_of(index)?;
        let mut bytes = [0; TRAILER_SIZE];
        endpoint.copy_out(self.trailer_offset(index), &mut bytes).ok()?;
        let trailer = Trailer::parse(&bytes)?;
        if !self.slots.settle(index, &trailer) {
            return None;
        }
        let mut result = LookupResult {
            request_id: trailer.request_id,
            ended: Ended::Status(trailer.status),
            length: trailer.length,
            version: trailer.version,
            hops: trailer.hops,
            round_trips: 1,
            retries: trailer.retries,
        };
        if trailer.status == Status::Ok {
            result.ended = self.copy_value(endpoint, index, trailer.length as usize, buffer);
        }
        Some(result)
    }

    fn copy_value(
        &self,
        endpoint: &mut impl Endpoint,
        index: usize,
        length: usize,
        buffer: &mut [u8],
    ) -> Ended {
        // A server that says more than fits said something impossible.
        if length > self.config.layout.max_response as usize {
            return Ended::Status(Status::Inconsistent);
        }
        let Some(value) = buffer.get_mut(..length) else { return Ended::Status(Status::Truncated) };
        match endpoint.copy_out(self.trailer_offset(index) - length, value) {
            Ok(()) => Ended::Found,
            Err(_) => Ended::Status(Status::OutOfBounds),
        }
    }

    /// A READ has come back: walk on.
    fn read_done(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        request_id: u64,
        rkey: u32,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        let index = (0..N).find(|index| self.slots.request_of(*index) == Some(request_id))?;
        let mut walk = self.walks[index].take()?;
        let found = match self.walk_on(now, endpoint, index, &mut walk, buffer) {
            WalkStep::Read(range) => match self.post_read(endpoint, index, request_id, rkey, range) {
                Ok(()) => {
                    self.walks[index] = Some(walk);
                    return None;
                }
                Err(error) => Err(self.read_refused(error)),
            },
            WalkStep::Found(emission) => {
                let begin = emission.offset as usize;
                buffer.copy_within(begin..begin + emission.length as usize, 0);
                Ok((emission.length, emission.version))
            }
            WalkStep::End(status) => Err(status),
        };
        self.walk_ended(index, request_id, &walk, found)
    }

    fn walk_on(
        &self,
        now: Time,
        endpoint: &impl Endpoint,
        index: usize,
        walk: &mut Walk,
        buffer: &mut [u8],
    ) -> WalkStep {
        let Some(bytes) = buffer.get_mut(..walk.last_read() as usize) else {
            return WalkStep::End(Status::Truncated);
        };
        match endpoint.copy_out(self.slot_offset(index), bytes) {
            Ok(()) => walk.read_done(now, bytes),
            Err(_) => WalkStep::End(Status::OutOfBounds),
        }
    }

    /// A READ that is larger than a slot is an answer; one that cannot be posted is the end of the connection, since the
    /// READ before it has just left its place in the queue.
    const fn read_refused(&mut self, error: PostError) -> Status {
        match error {
            PostError::BadRequest => Status::Truncated,
            PostError::Full | PostError::Broken => {
                self.broken = true;
                Status::DmaFault
            }
        }
    }

    fn walk_ended(
        &mut self,
        index: usize,
        request_id: u64,
        walk: &Walk,
        found: Result<(u32, u64), Status>,
    ) -> Option<LookupResult> {
        self.slots.add_credits(1);
        if !self.slots.settle_request(index, request_id) {
            return None;
        }
        let (length, version) = found.unwrap_or_default();
        Some(LookupResult {
            request_id,
            ended: found.map_or_else(Ended::Status, |_| Ended::Found),
            length,
            version,
            hops: walk.budget().hops(),
            round_trips: walk.budget().hops(),
            retries: walk.budget().retries(),
        })
    }
}

fn encode_lookup<'b>(
    table: &TableDescriptor,
    key: &[u8],
    buffer: &'b mut [u8],
) -> Result<&'b [u8], StartError> {
    table.lookup(key).encode(buffer).ok_or(StartError::Refused(Status::BadParameters))
}
