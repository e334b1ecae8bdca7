//! A DPU that runs kernels. It takes requests from its receive queues, feeds the runtime, reads its host's memory, and
//! answers by RDMA WRITE with immediate.
//!
//! ```text
//! memory of the endpoint: [ receive buffers ][ staging buffers ]
//! staging buffer:         [ what was read or is to be written ][ room for a trailer ], several times
//! ```
//! After the staging buffers of the requests come those of the streams, if the server takes streams.
//!
//! A reply is one contiguous WRITE from the staging buffer: the trailer follows the answer and overwrites read data
//! that is no longer needed. A receive buffer is reposted as soon as its request was taken, and its credit travels with
//! the next reply. Receiver-not-ready is a backstop, never the rule.

mod places;
mod reply;
mod streams;

pub use places::{RECEIVE_SIZE, STAGING_SIZE, memory_size};
pub use streams::STREAM_STAGING;

use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError};
use crate::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone, HostRead};
use crate::kernel::Deployment;
use crate::runtime::{Admission, ConnectionId, DmaAction, DmaRequest, Reply, Runtime, Tag};
use bareverbs_prm::time::Time;
use heapless::Deque;
use places::{receive_offset, staging_offset};
use reply::{REPLY, post_reply};
use streams::CoreStreams;

/// Bytes that a server needs for `streams` streams, in addition to [`memory_size`].
pub const fn stream_memory_size(streams: usize) -> usize {
    streams * STREAM_STAGING
}

/// Counters of the server, besides those of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DpuCounters {
    /// Replies that were posted.
    pub replies: u64,
    /// Replies that could not be posted.
    pub lost_replies: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Requests that could not be copied out of their receive buffers. They got no answer.
    pub unreadable: u64,
    /// Streams that were opened.
    pub streams: u64,
}

#[derive(Debug, Clone, Copy)]
struct Arrived {
    connection: usize,
    buffer: usize,
    length: usize,
}

/// A server with `RECEIVES` receive buffers for each of `CONNECTIONS` connections, and room for `STREAMS` streams, one for
/// each connection that has one.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::cost::KernelCost;
/// use bareverbs_offload::dpu::DpuServer;
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_offload::kernel::CompiledIn;
/// use bareverbs_offload::kernels::BuiltInKernels;
/// use bareverbs_offload::runtime::{ResponseWindow, Runtime};
/// use std::error::Error;
///
/// type Server = DpuServer<CompiledIn<BuiltInKernels>, 8, 1, 16>;
///
/// /// Takes requests of one client. The endpoint has `dpu::memory_size(16, 8)` bytes.
/// fn serve(endpoint: &mut impl Endpoint, client: ResponseWindow) -> Result<Server, Box<dyn Error>> {
///     let mut server = Server::new(Runtime::new(Limits::default(), KernelCost::FREE));
///     let id = server.runtime().connect(client, 8)?;
///     server.serve(endpoint, 0, id)?;
///     Ok(server)
/// }
/// ```
pub struct DpuServer<
    D: Deployment,
    const SLOTS: usize,
    const CONNECTIONS: usize,
    const RECEIVES: usize,
    const STREAMS: usize = 0,
> {
    runtime: Runtime<D, SLOTS, CONNECTIONS>,
    ids: [Option<ConnectionId>; CONNECTIONS],
    credits: [u16; CONNECTIONS],
    arrived: [Deque<Arrived, RECEIVES>; CONNECTIONS],
    /// The connection that the next round looks at first.
    first: usize,
    counters: DpuCounters,
    /// When that connection was last polled.
    polled: Time,
    /// The request that is being taken.
    message: [u8; RECEIVE_SIZE],
    streams: CoreStreams<STREAMS>,
}

/// What a poll works with.
struct Outside<'a, E, H> {
    now: Time,
    endpoint: &'a mut E,
    dma: &'a mut H,
    scratch: &'a mut [u8],
}

/// Steps between two requests, if memory is read at once. A lookup has ended by then, and the next request finds its slot
/// and its staging buffer in the cache. A long walk delays a request by no more than these.
const STEPS_BETWEEN: usize = 4;

/// Work request ids: the kind in the two highest bits.
const RECEIVE: u64 = 1 << 62;
const KIND: u64 = 3 << 62;

impl<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize, const RECEIVES: usize, const STREAMS: usize>
    DpuServer<D, SLOTS, CONNECTIONS, RECEIVES, STREAMS>
{
    const TAGS_FIT: () = assert!(SLOTS + STREAMS <= 256, "a tag has a byte for the staging buffer");

    /// A server around `runtime`, without connections.
    pub fn new(runtime: Runtime<D, SLOTS, CONNECTIONS>) -> Self {
        let () = Self::TAGS_FIT;
        Self {
            runtime,
            ids: [None; CONNECTIONS],
            credits: [0; CONNECTIONS],
            arrived: core::array::from_fn(|_| Deque::new()),
            first: 0,
            counters: DpuCounters::default(),
            polled: Time::ZERO,
            message: [0; RECEIVE_SIZE],
            streams: CoreStreams::new(),
        }
    }

    /// The runtime, for connecting, granting and revoking.
    pub const fn runtime(&mut self) -> &mut Runtime<D, SLOTS, CONNECTIONS> {
        &mut self.runtime
    }

    /// The counters so far.
    pub fn counters(&self) -> DpuCounters {
        DpuCounters { streams: self.streams.opened(), ..self.counters }
    }

    /// Starts taking requests of the endpoint's connection `index` on behalf of `id`. Posts all its receive buffers.
    pub fn serve(
        &mut self,
        endpoint: &mut impl Endpoint,
        index: usize,
        id: ConnectionId,
    ) -> Result<(), PostError> {
        let place = self.ids.get_mut(index).ok_or(PostError::BadRequest)?;
        *place = Some(id);
        self.forget(index);
        for buffer in 0..RECEIVES {
            self.post_receive(endpoint, index, buffer)?;
        }
        Ok(())
    }

    /// Whether requests of connection `index` are taken.
    pub fn is_served(&self, index: usize) -> bool {
        self.ids.get(index).is_some_and(Option::is_some)
    }

    /// Ends connection `index`; its pending requests get no answer. Replies in flight still use their staging buffers,
    /// so its queue pair must complete or flush them before the place is reused.
    pub fn dismiss(&mut self, index: usize) {
        if let Some(id) = self.ids.get_mut(index).and_then(Option::take) {
            self.runtime.disconnect(id);
            self.streams.disconnect(id);
            self.forget(index);
        }
    }

    /// Whether no request is waiting for an answer.
    pub fn is_idle(&self) -> bool {
        self.runtime.running() == 0 && self.streams.is_idle() && self.arrived.iter().all(Deque::is_empty)
    }

    /// Drops requests and credits of the previous owner of connection `index`.
    fn forget(&mut self, index: usize) {
        if let (Some(queue), Some(credits)) = (self.arrived.get_mut(index), self.credits.get_mut(index)) {
            queue.clear();
            *credits = 0;
        }
    }

    fn post_receive(
        &self,
        endpoint: &mut impl Endpoint,
        connection: usize,
        buffer: usize,
    ) -> Result<(), PostError> {
        let into =
            Part { offset: receive_offset::<RECEIVES>(connection, buffer), length: RECEIVE_SIZE as u32 };
        endpoint.post_receive(connection, RECEIVE | buffer as u64, into)
    }

    /// Does all the work that is ready. `scratch` has room for [`MAX_READ`](crate::budget::MAX_READ) bytes. Returns
    /// whether anything was done.
    pub fn poll(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        dma: &mut impl HostDma,
        scratch: &mut [u8],
    ) -> bool {
        self.polled = now;
        let mut active = self.take_all(endpoint);
        let mut outside = Outside { now, endpoint, dma, scratch };
        // No more rounds than a connection has receive buffers, because further requests may arrive meanwhile.
        for _ in 0..RECEIVES {
            if !self.admit_round(now, outside.endpoint) {
                break;
            }
            active = true;
            if outside.dma.reads_at_once() {
                self.advance(&mut outside, STEPS_BETWEEN);
                self.take_all(outside.endpoint);
            }
        }
        active | self.advance(&mut outside, SLOTS)
    }

    /// Takes all completions. Returns whether there were any.
    fn take_all(&mut self, endpoint: &mut impl Endpoint) -> bool {
        let mut active = false;
        while let Some(completion) = endpoint.poll() {
            self.take(endpoint, &completion);
            active = true;
        }
        active
    }

    /// Does what is ready for the requests that were taken, in at most this many steps.
    fn advance<E: Endpoint, H: HostDma>(&mut self, outside: &mut Outside<'_, E, H>, steps: usize) -> bool {
        let mut active = self.finish_all(outside);
        active |= self.submit_all(outside, steps);
        active | self.send_replies(outside.now, outside.endpoint)
    }

    /// When to poll again if nothing arrives before. Work that the last poll could not do waits for a completion, not
    /// for a time.
    pub fn poll_timeout(&self, dma: &impl HostDma) -> Option<Time> {
        let requests = (0..CONNECTIONS).filter_map(|connection| self.request_at(connection));
        let requests = requests.filter(|at| *at > self.polled).min();
        let streams = self.streams.poll_timeout(&self.runtime, self.polled);
        [requests, streams, self.runtime.poll_timeout_after(self.polled), dma.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn take(&mut self, endpoint: &mut impl Endpoint, completion: &Completion) {
        let Completion { connection, id, outcome } = *completion;
        match (id & KIND, outcome) {
            (RECEIVE, Outcome::Received { length, .. }) => {
                self.arrive(endpoint, connection, (id & !KIND) as usize, length as usize)
            }
            (_, Outcome::Failed) => self.broken(connection, id),
            (REPLY, _) => self.reply_done(Tag::from_bits(id & !KIND)),
            _ => {}
        }
    }

    fn reply_done(&mut self, tag: Tag) {
        match tag.buffer().checked_sub(SLOTS) {
            Some(stream) => self.streams.reply_done(stream, tag),
            None => self.runtime.reply_done(tag),
        }
    }

    fn arrive(&mut self, endpoint: &mut impl Endpoint, connection: usize, buffer: usize, length: usize) {
        let arrived = Arrived { connection, buffer, length };
        let full = match self.arrived.get_mut(connection) {
            Some(queue) => queue.push_back(arrived).is_err(),
            None => true,
        };
        if full {
            // Cannot happen: there are as many places as receive buffers. Keep the buffer in use all the
            // same.
            let _ = self.post_receive(endpoint, connection, buffer);
        }
    }

    /// A failed request breaks its connection, and all its replies are dropped.
    fn broken(&mut self, connection: usize, id: u64) {
        if id & KIND == REPLY {
            self.reply_done(Tag::from_bits(id & !KIND));
        }
        if self.is_served(connection) {
            self.counters.broken += 1;
            self.dismiss(connection);
        }
    }

    /// When the next request of a waiting connection may be taken.
    fn request_at(&self, connection: usize) -> Option<Time> {
        let id = self.ids[connection].filter(|_| !self.arrived[connection].is_empty())?;
        Some(self.runtime.request_at(id))
    }

    /// Takes one request of each connection that could be answered and has a token for it; each round begins
    /// with another connection. A connection that takes no answers keeps its own requests waiting, and nobody
    /// else's.
    fn admit_round(&mut self, now: Time, endpoint: &mut impl Endpoint) -> bool {
        let mut active = false;
        let first = self.first;
        for turn in 0..CONNECTIONS {
            let connection = (first + turn) % CONNECTIONS;
            if !endpoint.has_room(connection)
                || self.request_at(connection).is_some_and(|at| at > now)
                || self.ids[connection].is_some_and(|id| self.streams.waits(id))
            {
                continue;
            }
            if let Some(arrived) = self.arrived[connection].pop_front() {
                active |= self.admit(now, endpoint, arrived);
                self.first = (first + 1) % CONNECTIONS;
            }
        }
        active
    }

    /// Takes a request, and returns whether it did: a piece of a stream without room stays at the head of its
    /// connection.
    fn admit(&mut self, now: Time, endpoint: &mut impl Endpoint, arrived: Arrived) -> bool {
        let Arrived { connection, buffer, length } = arrived;
        let at = receive_offset::<RECEIVES>(connection, buffer);
        let request = copied(endpoint, at, self.message.get_mut(..length));
        // A connection's requests leave with it.
        let Some(id) = self.ids[connection] else { return true };
        let Some(bytes) = request else {
            self.counters.unreadable += 1;
            self.return_receive(endpoint, connection, buffer);
            return true;
        };
        let admission = if STREAMS > 0 {
            let Some(admission) = self.streams.handle_message(now, &mut self.runtime, id, bytes) else {
                // There was room for it a moment ago.
                let _ = self.arrived[connection].push_front(arrived);
                return false;
            };
            admission
        } else {
            self.runtime.handle_message(now, id, bytes)
        };
        self.return_receive(endpoint, connection, buffer);
        if let Admission::Refused(reply) = admission {
            self.send_seldom(endpoint, &reply);
        }
        true
    }

    /// Posts a receive again whose message was taken, and credits the client with it.
    #[inline]
    fn return_receive(&mut self, endpoint: &mut impl Endpoint, connection: usize, buffer: usize) {
        if self.post_receive(endpoint, connection, buffer).is_ok() {
            self.credits[connection] = self.credits[connection].saturating_add(1);
        }
    }

    /// Submits what is due, at most this many reads and writes of requests. A read that is done at once is a step of its
    /// kernel. Requests and streams take turns.
    fn submit_all<E: Endpoint, H: HostDma>(&mut self, outside: &mut Outside<'_, E, H>, most: usize) -> bool {
        let (now, mut left) = (outside.now, most);
        let mut streams = self.submit_streams(outside);
        let mut active = streams;
        while left > 0 {
            if outside.dma.reads_at_once() && self.read_now(outside) {
                left -= 1;
                continue;
            }
            if !outside.dma.has_room() {
                break;
            }
            match self.runtime.poll_dma(now) {
                Some(request) => {
                    left -= 1;
                    if !self.submit_request(outside, &request) {
                        break;
                    }
                }
                None if streams => {}
                None => break,
            }
            streams = streams && self.submit_streams(outside);
            active |= streams;
        }
        active |= left < most;
        if active {
            outside.dma.flush();
        }
        active
    }

    /// Submits a write of each stream, and returns whether any was.
    fn submit_streams<E: Endpoint, H: HostDma>(&mut self, outside: &mut Outside<'_, E, H>) -> bool {
        let base = staging_offset::<CONNECTIONS, RECEIVES>(SLOTS);
        self.streams.submit(outside.now, &mut self.runtime, outside.endpoint, outside.dma, base)
    }

    /// Submits a read or write of a request, and returns whether there is room for more.
    fn submit_request<E: Endpoint, H: HostDma>(
        &mut self,
        outside: &mut Outside<'_, E, H>,
        request: &DmaRequest,
    ) -> bool {
        match self.submit(request, outside.endpoint, outside.dma) {
            Ok(()) => true,
            Err(None) => {
                self.runtime.handle_dma_flushed(request.tag);
                false
            }
            Err(Some(fault)) => {
                self.runtime.handle_dma_done(outside.now, request.tag, Err(fault));
                true
            }
        }
    }

    /// Takes the next step, if it is a read that can be done at once.
    fn read_now<E: Endpoint, H: HostDma>(&mut self, outside: &mut Outside<'_, E, H>) -> bool {
        let Outside { now, endpoint, dma, scratch } = outside;
        let Some(read) = self.runtime.poll_read(*now) else { return false };
        let range = read.range();
        let offset = staging_offset::<CONNECTIONS, RECEIVES>(read.buffer());
        let into = Part { offset, length: range.length() };
        let host = HostRead { region: range.region(), address: range.address(), into };
        match dma.read_at_once(&host, *endpoint, scratch) {
            Some(result) => read.finish(*now, result),
            None => return false,
        }
        true
    }

    /// Submits a read or write. `None` if it cannot be submitted now.
    fn submit(
        &self,
        request: &DmaRequest,
        endpoint: &mut impl Endpoint,
        dma: &mut impl HostDma,
    ) -> Result<(), Option<DmaFault>> {
        let DmaRequest { tag, action, offset, region, address, length } = *request;
        let part =
            Part { offset: staging_offset::<CONNECTIONS, RECEIVES>(tag.buffer()) + offset as usize, length };
        let id = tag.to_bits();
        let submitted = match action {
            DmaAction::Read => dma.submit_read(id, region, address, part),
            DmaAction::Write { .. } => {
                let bytes = self.runtime.to_be_written(request).ok_or(Some(DmaFault::Memory))?;
                endpoint.copy_in(part.offset, bytes).map_err(|_| Some(DmaFault::Memory))?;
                dma.submit_write(id, region, address, part)
            }
            DmaAction::CompareAndSwap { .. } if !dma.compares_and_swaps() => {
                return Err(Some(DmaFault::NoCompareAndSwap));
            }
            DmaAction::CompareAndSwap { expected, desired } => {
                dma.submit_compare_and_swap(id, region, address, [expected, desired], part)
            }
        };
        submitted.map_err(|error| match error {
            PostError::Full => None,
            PostError::Broken => Some(DmaFault::TakenBack),
            PostError::BadRequest => Some(DmaFault::Memory),
        })
    }

    fn finish_all<E: Endpoint, H: HostDma>(&mut self, outside: &mut Outside<'_, E, H>) -> bool {
        let Outside { now, endpoint, dma, scratch } = outside;
        let mut active = false;
        while let Some(HostDmaDone { tag, end }) = dma.poll(*endpoint) {
            active = true;
            let tag = Tag::from_bits(tag);
            if let Some(stream) = tag.buffer().checked_sub(SLOTS) {
                self.streams.write_ended(*now, stream, tag, end);
                continue;
            }
            let result = match end {
                DmaEnd::Done => self.staged(*endpoint, tag, scratch),
                DmaEnd::Fault(fault) => Err(fault),
                DmaEnd::Flushed => {
                    self.runtime.handle_dma_flushed(tag);
                    continue;
                }
            };
            self.runtime.handle_dma_done(*now, tag, result);
        }
        active
    }

    /// Copies the bytes that were read into the staging buffer of `tag` to where a kernel may look at them.
    /// Copies nothing for a read that nobody awaits.
    fn staged<'s>(
        &self,
        endpoint: &impl Endpoint,
        tag: Tag,
        scratch: &'s mut [u8],
    ) -> Result<&'s [u8], DmaFault> {
        let (place, length) = self.runtime.reading(tag).unwrap_or_default();
        let bytes = scratch.get_mut(..length as usize).ok_or(DmaFault::Memory)?;
        let staging = staging_offset::<CONNECTIONS, RECEIVES>(tag.buffer()) + place as usize;
        endpoint.copy_out(staging, bytes).map_err(|_| DmaFault::Memory)?;
        Ok(bytes)
    }

    fn send_replies(&mut self, now: Time, endpoint: &mut impl Endpoint) -> bool {
        let mut active = false;
        loop {
            let ids = &self.ids;
            let takes = |id| connection_of(ids, id).is_none_or(|connection| endpoint.has_room(connection));
            let Some(reply) = self.runtime.poll_reply_to(now, takes) else { break };
            active = true;
            self.send(endpoint, &reply);
        }
        active | self.send_stream_replies(now, endpoint)
    }

    fn send_stream_replies(&mut self, now: Time, endpoint: &mut impl Endpoint) -> bool {
        let mut active = false;
        let base = staging_offset::<CONNECTIONS, RECEIVES>(SLOTS);
        while !self.streams.is_idle() {
            let (ids, runtime) = (&self.ids, &mut self.runtime);
            let room = core::array::from_fn::<_, CONNECTIONS, _>(|connection| endpoint.has_room(connection));
            let takes = |id| connection_of(ids, id).is_none_or(|connection| room[connection]);
            let stage = |place, bytes: &[u8]| endpoint.copy_in(base + place, bytes);
            let Some(reply) = self.streams.poll_reply(now, runtime, takes, stage) else { break };
            active = true;
            self.send_seldom(endpoint, &reply);
        }
        active
    }

    /// Like `send`, but not inlined: for rare messages.
    #[inline(never)]
    fn send_seldom(&mut self, endpoint: &mut impl Endpoint, reply: &Reply) {
        self.send(endpoint, reply);
    }

    #[inline]
    fn send(&mut self, endpoint: &mut impl Endpoint, reply: &Reply) {
        if self.try_send(endpoint, reply).is_ok() {
            self.counters.replies += 1;
            return;
        }
        self.counters.lost_replies += 1;
        if let Some(ticket) = reply.ticket {
            self.reply_done(ticket);
        }
    }

    // Without the attribute, a reply goes through memory.
    #[inline(always)]
    fn try_send(&mut self, endpoint: &mut impl Endpoint, reply: &Reply) -> Result<(), PostError> {
        let connection = connection_of(&self.ids, reply.connection).ok_or(PostError::Broken)?;
        if let (Some(bytes), Some(body)) = (self.runtime.computed(reply), reply.body) {
            let staging = staging_offset::<CONNECTIONS, RECEIVES>(body.buffer) + body.place as usize;
            endpoint.copy_in(staging, bytes)?;
        }
        let credits = self.credits[connection].min(u8::MAX.into()) as u8;
        post_reply::<CONNECTIONS, RECEIVES>(endpoint, connection, reply, credits)?;
        self.credits[connection] -= u16::from(credits);
        Ok(())
    }
}

/// The bytes at this offset, if there is room for them and they can be copied.
fn copied<'b>(endpoint: &impl Endpoint, at: usize, buffer: Option<&'b mut [u8]>) -> Option<&'b [u8]> {
    let bytes = buffer?;
    endpoint.copy_out(at, bytes).ok()?;
    Some(bytes)
}

fn connection_of(ids: &[Option<ConnectionId>], id: ConnectionId) -> Option<usize> {
    ids.iter().position(|served| *served == Some(id))
}
