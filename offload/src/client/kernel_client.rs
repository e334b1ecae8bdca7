//! Calls kernels and programs by op-code, with any parameters and any answer.

use super::config::{Ended, StartError};
use super::slots::{Loan, SlotLayout, Slots};
use crate::budget::Limits;
use crate::endpoint::{Completion, Endpoint, MAX_SEND, Outcome, Part, PostError, Work};
use crate::kernel::Opcode;
use crate::status::Status;
use crate::streams::Tap;
use crate::streams::piece::{MAX_PIECE, PIECE};
use crate::wire::{HEADER_SIZE, Immediate, RegionHandle, Request, TRAILER_SIZE, Trailer, WITHDRAW};
use bareverbs_prm::time::{Duration, Time};

/// Work request id of a receive.
const RECEIVE: u64 = u64::MAX;
/// Work request id of a part of a stream.
const STREAM: u64 = u64::MAX - 1;

/// Most bytes of parameters and payload of a call.
pub const MAX_CALL: usize = MAX_SEND - HEADER_SIZE;

/// Where the called kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelPlace {
    /// On the cores of a DPU or of the server: a request is a SEND, its answer an RDMA WRITE with immediate.
    Cores,
    /// In the NIC of the server: a request is StRoM's RPC Params, its answer an RDMA WRITE that no completion
    /// announces.
    Nic,
}

/// Configuration of a kernel client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelClientConfig {
    /// Where the kernels run.
    pub place: KernelPlace,
    /// Location of the response slots; slot `i` is at offset `i * stride` of the endpoint's memory.
    pub layout: SlotLayout,
    /// Requests that the server has receives for before its first reply. It may run fewer at a time, because the share of
    /// the connection is smaller or others have all its slots, and answers [`Status::Busy`] then. So does a NIC if a request
    /// comes before the allowance of the connection has one. A refused request has done nothing: try it again later, or use
    /// a [`FallbackClient`](super::fallback::FallbackClient).
    pub credits: u32,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// What the server may spend on a request.
    pub limits: Limits,
}

/// A call of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// The op-code of the kernel, or of a deployed program.
    pub opcode: Opcode,
    /// The region that it works on.
    pub region: RegionHandle,
    /// Its parameters; with the payload at most [`MAX_CALL`] bytes.
    pub parameters: &'a [u8],
    /// Payload, for kernels that take one; kernels in a NIC take none.
    pub payload: &'a [u8],
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallResult {
    /// The id that [`KernelClient::start`] returned.
    pub request_id: u64,
    /// How it ended.
    pub ended: Ended,
    /// Bytes of the answer; for [`Status::Truncated`], its full length.
    pub length: u32,
    /// The version that the kernel stated.
    pub version: u64,
    /// Elements that the kernel read.
    pub hops: u16,
    /// Times that it restarted reading.
    pub retries: u16,
    /// Time from the request's arrival to the answer, as the server measured it.
    pub server_time: Duration,
}

impl CallResult {
    /// A call that nobody answered.
    pub(super) const fn without_response(request_id: u64, ended: Ended) -> Self {
        Self { request_id, ended, length: 0, version: 0, hops: 0, retries: 0, server_time: Duration::ZERO }
    }
}

/// What a slot is lent for. It holds what a withdrawal or a piece has to name again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Call {
        opcode: Opcode,
        region: RegionHandle,
    },
    /// A piece of the stream that this call opened.
    Piece {
        call: u64,
        region: RegionHandle,
    },
}

impl Use {
    const fn region(self) -> RegionHandle {
        match self {
            Self::Call { region, .. } | Self::Piece { region, .. } => region,
        }
    }
}

/// A client with at most `N` calls at a time, over connection 0 of its endpoint. It never blocks. On cores it posts `2 * N`
/// receives with its first call.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::client::slots::SlotLayout;
/// use bareverbs_offload::client::{Call, KernelClient, KernelClientConfig, KernelPlace, StartError};
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_offload::kernel::Opcode;
/// use bareverbs_offload::wire::RegionHandle;
/// use bareverbs_prm::time::{Duration, Time};
///
/// /// Has a list added up by the program that was deployed as "SUM". `slots` is the memory of the endpoint as the server knows it.
/// fn sum(
///     endpoint: &mut impl Endpoint,
///     slots: SlotLayout,
///     region: RegionHandle,
/// ) -> Result<KernelClient<4>, StartError> {
///     let mut client = KernelClient::new(KernelClientConfig {
///         place: KernelPlace::Cores,
///         layout: slots,
///         credits: 4,
///         timeout: Duration::from_millis(5),
///         limits: Limits::default(),
///     });
///     let (opcode, first) = (Opcode(u64::from_be_bytes(*b"SUM\0\0\0\0\0")), 64_u64.to_le_bytes());
///     client.start(Time::ZERO, endpoint, &Call { opcode, region, parameters: &first, payload: &[] })?;
///     Ok(client) // `KernelClient::poll` gives the answer.
/// }
/// ```
#[derive(Debug)]
pub struct KernelClient<const N: usize> {
    config: KernelClientConfig,
    slots: Slots<N>,
    /// What each slot was lent for last.
    uses: [Use; N],
    /// Receives that are posted, of [`Self::RECEIVES`].
    receives: usize,
    broken: bool,
}

impl<const N: usize> KernelClient<N> {
    /// Each answer is a WRITE with immediate and consumes a receive. Both a request and its withdrawal may be answered.
    const RECEIVES: usize = 2 * N;

    /// A client that has started nothing.
    pub const fn new(config: KernelClientConfig) -> Self {
        let slots = Slots::new(config.layout, config.credits);
        let vacant = Use::Call { opcode: WITHDRAW, region: RegionHandle(0) };
        Self { config, slots, uses: [vacant; N], receives: 0, broken: false }
    }

    /// Bytes that the buffer given to [`KernelClient::poll`] must have.
    pub const fn buffer_size(&self) -> usize {
        self.config.layout.max_response as usize
    }

    /// Starts a call and returns the id of the request.
    ///
    /// # Errors
    /// There is no slot or no credit, the connection is broken, its receive queue is shorter than two receives a slot, or
    /// parameters and payload are too long.
    pub fn start(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        call: &Call<'_>,
    ) -> Result<u64, StartError> {
        if self.broken {
            return Err(StartError::Post(PostError::Broken));
        }
        self.post_receives(endpoint)?;
        let loan = self.slots.lend(now + self.config.timeout).map_err(StartError::NoSlot)?;
        self.post_loan(endpoint, &loan, call, Use::Call { opcode: call.opcode, region: call.region })?;
        Ok(loan.request_id)
    }

    fn post_loan(
        &mut self,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        call: &Call<'_>,
        lent_for: Use,
    ) -> Result<(), StartError> {
        self.uses[usize::from(loan.reply.slot)] = lent_for;
        self.post(endpoint, loan, call).inspect_err(|_| self.slots.cancel(loan))
    }

    /// Posts what is missing of the receives.
    fn post_receives(&mut self, endpoint: &mut impl Endpoint) -> Result<(), StartError> {
        while self.config.place == KernelPlace::Cores && self.receives < Self::RECEIVES {
            post_receive(endpoint).map_err(|error| match error {
                PostError::Full => {
                    StartError::ReceiveQueueFull { posted: self.receives, needed: Self::RECEIVES }
                }
                other => StartError::Post(other),
            })?;
            self.receives += 1;
        }
        Ok(())
    }

    fn post(&self, endpoint: &mut impl Endpoint, loan: &Loan, call: &Call<'_>) -> Result<(), StartError> {
        let request = Request {
            opcode: call.opcode,
            request_id: loan.request_id,
            reply: loan.reply,
            deadline: self.config.limits.time,
            hop_limit: self.config.limits.hops,
            region: call.region,
            parameters: call.parameters,
            payload: call.payload,
        };
        let mut buffer = [0; MAX_SEND];
        let too_long = StartError::Refused(Status::BadParameters);
        let work = match self.config.place {
            KernelPlace::Cores => Work::Send(request.encode_message(&mut buffer).ok_or(too_long)?),
            KernelPlace::Nic => {
                let bytes = request.encode_strom(&mut buffer).ok_or(too_long)?;
                Work::RpcParameters { opcode: call.opcode.0, region: call.region.0, bytes }
            }
        };
        endpoint.post(0, loan.request_id, work).map_err(StartError::Post)
    }

    /// Sends a part of the endpoint's memory on the stream that the call with this id has opened, and returns how many of
    /// its bytes were sent: fewer than it has if there is no slot, no credit or no room for more now. Poll then, and go
    /// on with the rest. The memory may change once the call has ended. See
    /// [`streams::open_stream`](crate::streams::open_stream).
    ///
    /// To a NIC, the part is one RPC WRITE, which needs no slot. To cores, each piece of up to
    /// [`MAX_PIECE`](crate::streams::piece::MAX_PIECE) bytes takes a slot and a credit until the kernel has taken it, so
    /// `N` has to be 2 at least; the call itself times out if no piece is answered for the time of its timeout.
    ///
    /// # Errors
    /// [`Status::NoStream`]: the call has ended, and [`KernelClient::poll`] has said how. Otherwise the part is not in
    /// the memory, or the connection is broken.
    pub fn send_stream(
        &mut self,
        endpoint: &mut impl Endpoint,
        call: u64,
        from: Part,
    ) -> Result<u32, StartError> {
        self.send_stream_through(endpoint, call, from, &mut |_: &[u8]| {})
    }

    /// The same, and `tap` sees the bytes before they leave: each once, in the order of the stream.
    ///
    /// ```
    /// use bareverbs_offload::client::{KernelClient, StartError};
    /// use bareverbs_offload::endpoint::{Endpoint, Part};
    /// use bareverbs_offload::streams::hyper_log_log::ValueCounter;
    ///
    /// /// Sends on what is left of a part, and counts its distinct values.
    /// fn go_on(
    ///     client: &mut KernelClient<4>,
    ///     endpoint: &mut impl Endpoint,
    ///     call: u64,
    ///     rest: &mut Part,
    ///     counter: &mut ValueCounter<1024>,
    /// ) -> Result<(), StartError> {
    ///     let sent = client.send_stream_through(endpoint, call, *rest, counter)?;
    ///     *rest = Part { offset: rest.offset + sent as usize, length: rest.length - sent };
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`KernelClient::send_stream`].
    pub fn send_stream_through(
        &mut self,
        endpoint: &mut impl Endpoint,
        call: u64,
        from: Part,
        tap: &mut impl Tap,
    ) -> Result<u32, StartError> {
        if self.broken {
            return Err(StartError::Post(PostError::Broken));
        }
        let opened = (0..N).find(|index| self.slots.waits_for(*index, call)).map(|index| self.uses[index]);
        let Some(Use::Call { opcode, region }) = opened else {
            return Err(StartError::Refused(Status::NoStream));
        };
        match self.config.place {
            KernelPlace::Cores => self.send_pieces(endpoint, call, region, from, tap),
            KernelPlace::Nic => {
                if !endpoint.has_room(0) {
                    return Ok(0);
                }
                show(endpoint, from, tap)?;
                let work = Work::RpcWrite { opcode: opcode.0, region: region.0, from };
                endpoint.post(0, STREAM, work).map_err(StartError::Post)?;
                Ok(from.length)
            }
        }
    }

    /// Sends pieces while there are slots, credits and room for them.
    fn send_pieces(
        &mut self,
        endpoint: &mut impl Endpoint,
        call: u64,
        region: RegionHandle,
        from: Part,
        tap: &mut impl Tap,
    ) -> Result<u32, StartError> {
        let parameters = call.to_be_bytes();
        let mut buffer = [0; MAX_PIECE];
        let mut sent = 0;
        while sent < from.length && endpoint.has_room(0) {
            let piece = (from.length - sent).min(MAX_PIECE as u32);
            let bytes = buffer.get_mut(..piece as usize).unwrap_or_default();
            endpoint.copy_out(from.offset + sent as usize, bytes).map_err(StartError::Post)?;
            // A piece waits as long as its call does.
            let Ok(loan) = self.slots.lend(Time::MAX) else { break };
            tap.see(bytes);
            let piece_call = Call { opcode: PIECE, region, parameters: &parameters, payload: bytes };
            self.post_loan(endpoint, &loan, &piece_call, Use::Piece { call, region })?;
            sent += piece;
        }
        Ok(sent)
    }

    /// The next call that has ended, if any. Its answer is copied to `buffer`, which has [`KernelClient::buffer_size`]
    /// bytes.
    pub fn poll(&mut self, now: Time, endpoint: &mut impl Endpoint, buffer: &mut [u8]) -> Option<CallResult> {
        while let Some(completion) = endpoint.poll() {
            if let Some(result) = self.take(now, endpoint, &completion, buffer) {
                return Some(result);
            }
        }
        if self.broken {
            return self.give_up(Time::MAX, Ended::Disconnected);
        }
        let result = self.poll_memory(now, endpoint, buffer).or_else(|| self.give_up(now, Ended::TimedOut));
        self.withdraw(endpoint);
        result
    }

    /// Withdraws abandoned requests at the server, so that neither end keeps their slots. A later poll sends
    /// what cannot be sent now.
    fn withdraw(&mut self, endpoint: &mut impl Endpoint) {
        while endpoint.has_room(0)
            && let Some(loan) = self.slots.withdraw()
        {
            let region = self.uses[usize::from(loan.reply.slot)].region();
            let call = Call { opcode: WITHDRAW, region, parameters: &[], payload: &[] };
            if self.post(endpoint, &loan, &call).is_err() {
                self.slots.not_withdrawn(&loan);
                return;
            }
        }
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.slots.poll_timeout()
    }

    /// Answers that arrived after the client had given them up.
    pub const fn stale(&self) -> u64 {
        self.slots.stale()
    }

    fn give_up(&mut self, now: Time, ended: Ended) -> Option<CallResult> {
        while let Some((index, request_id)) = self.slots.expire(now) {
            if let Use::Call { .. } = self.uses[index] {
                self.limit_pieces(request_id, Time::ZERO);
                return Some(CallResult::without_response(request_id, ended));
            }
        }
        None
    }

    /// Nobody needs the pieces of a call that has ended. The server answers them all the same; those that it does not
    /// answer in time are withdrawn.
    fn limit_pieces(&mut self, ended: u64, until: Time) {
        for index in 0..N {
            if matches!(self.uses[index], Use::Piece { call, .. } if call == ended) {
                self.slots.set_deadline(index, until);
            }
        }
    }

    fn take(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        completion: &Completion,
        buffer: &mut [u8],
    ) -> Option<CallResult> {
        match completion.outcome {
            Outcome::Failed => {
                self.broken = true;
                None
            }
            Outcome::Received { immediate, .. } => self.answered(now, endpoint, immediate?, buffer),
            Outcome::Done => None,
        }
    }

    /// Takes the answer that a WRITE with immediate announced.
    fn answered(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        immediate: u32,
        buffer: &mut [u8],
    ) -> Option<CallResult> {
        let immediate = Immediate::decode(immediate);
        self.slots.add_credits(immediate.credits.into());
        self.broken |= post_receive(endpoint).is_err();
        self.settle(now, endpoint, immediate.slot.into(), buffer)
    }

    /// Finds answers that no completion announces: by the request id at the end of each lent slot.
    fn poll_memory(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        buffer: &mut [u8],
    ) -> Option<CallResult> {
        if self.config.place != KernelPlace::Nic {
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
            // The id is written last, so once it is there, so are the bytes before it.
            endpoint.refresh();
            // Answers of the NIC carry no credits: each request returns its own, and so does a withdrawal.
            let credits = 1 + u32::from(self.slots.is_withdrawn(index));
            let result = self.settle(now, endpoint, index, buffer);
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
        let SlotLayout { stride, max_response, .. } = self.config.layout;
        index * stride as usize + (max_response as usize).next_multiple_of(8)
    }

    /// Takes the answer in slot `index` if it is awaited.
    fn settle(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        index: usize,
        buffer: &mut [u8],
    ) -> Option<CallResult> {
        self.slots.request_of(index)?;
        let mut bytes = [0; TRAILER_SIZE];
        endpoint.copy_out(self.trailer_offset(index), &mut bytes).ok()?;
        let trailer = Trailer::parse(&bytes)?;
        if !self.slots.settle(index, &trailer) {
            return None;
        }
        if let Use::Piece { call, .. } = self.uses[index] {
            if let Some(opened) = (0..N).find(|index| self.slots.waits_for(*index, call)) {
                self.slots.set_deadline(opened, now + self.config.timeout);
            }
            return None;
        }
        self.limit_pieces(trailer.request_id, now + self.config.timeout);
        let mut result = CallResult {
            request_id: trailer.request_id,
            ended: Ended::Status(trailer.status),
            length: trailer.length,
            version: trailer.version,
            hops: trailer.hops,
            retries: trailer.retries,
            server_time: Duration::from_nanos(trailer.server_nanos.into()),
        };
        if trailer.status == Status::Ok {
            result.ended = self.copy_response(endpoint, index, trailer.length as usize, buffer);
        }
        Some(result)
    }

    fn copy_response(
        &self,
        endpoint: &mut impl Endpoint,
        index: usize,
        length: usize,
        buffer: &mut [u8],
    ) -> Ended {
        // A trailer that claims more than fits is invalid.
        if length > self.config.layout.max_response as usize {
            return Ended::Status(Status::Inconsistent);
        }
        let Some(response) = buffer.get_mut(..length) else { return Ended::Status(Status::Truncated) };
        match endpoint.copy_out(self.trailer_offset(index) - length, response) {
            Ok(()) => Ended::Found,
            Err(_) => Ended::Status(Status::OutOfBounds),
        }
    }
}

/// Shows a part of the endpoint's memory to a tap.
fn show(endpoint: &impl Endpoint, from: Part, tap: &mut impl Tap) -> Result<(), StartError> {
    let mut buffer = [0; MAX_SEND];
    let end = from.offset + from.length as usize;
    for at in (from.offset..end).step_by(buffer.len()) {
        let bytes = buffer.get_mut(..(end - at).min(MAX_SEND)).unwrap_or_default();
        endpoint.copy_out(at, bytes).map_err(StartError::Post)?;
        tap.see(bytes);
    }
    Ok(())
}

fn post_receive(endpoint: &mut impl Endpoint) -> Result<(), PostError> {
    endpoint.post_receive(0, RECEIVE, Part { offset: 0, length: 0 })
}
