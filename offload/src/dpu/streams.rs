//! Streams that arrive in pieces at the cores of a DPU: see [`piece`](crate::streams::piece).
//!
//! A connection has one stream at a time; it counts as a request of its share. A piece is taken whole or waits at the
//! head of its connection's requests, whose receive buffer is not reposted meanwhile. So a stream without room makes
//! its own client wait, through credits and answers, and nobody else.
//!
//! Each write has its place in the staging buffer of the stream, from which a DMA takes it. Writes wait for their turn
//! beside the requests of all tenants, and for the allowance of their own.

use crate::endpoint::{Endpoint, Part, PostError};
use crate::grant::{Checked, Grant};
use crate::host_dma::{DmaEnd, DmaFault, HostDma};
use crate::kernel::{Deployment, Opcode};
use crate::runtime::{Admission, Body, ConnectionId, DropReason, Reply, Runtime, Source, Tag};
use crate::status::Status;
use crate::streams::open_stream::{MAX_RESPONSE, OpenStream, WRITES};
use crate::streams::piece::{MAX_PIECE, PIECE, call_of, uses};
use crate::wire::{OPCODE, RegionHandle, ReplyTo, Request, WITHDRAW};
use bareverbs_prm::time::{Duration, Time};

/// Bytes in the staging buffer for one write.
const PLACE: usize = MAX_PIECE.next_multiple_of(64);
/// Bytes of the staging buffer of a stream.
pub const STREAM_STAGING: usize = PLACE * WRITES;

const _: () = assert!(MAX_RESPONSE + crate::wire::TRAILER_SIZE <= STREAM_STAGING);

/// How long a stream may rest.
const REST: Duration = Duration::from_secs(1);

/// A write that has its bytes in the staging buffer.
#[derive(Debug, Clone, Copy)]
struct StagedWrite {
    to: Checked,
    in_flight: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPhase {
    /// Bytes are awaited or being written.
    Open,
    /// All is written, or it cannot go on: the call has to be answered.
    Respond(Result<(), Status>),
    /// The answer is in flight and uses the staging buffer.
    Answering,
    /// Only writes in flight are left to wait for.
    Ended,
}

/// A stream of a connection.
struct CoreStream {
    stream: OpenStream,
    connection: ConnectionId,
    region: RegionHandle,
    request_id: u64,
    reply: ReplyTo,
    opened: Time,
    /// When it has rested too long.
    until: Time,
    /// Bytes taken of the piece that waits.
    taken: usize,
    /// Whether a piece was admitted and not taken whole.
    held: bool,
    /// Whether the piece can only be taken after a write has ended.
    waits: bool,
    /// Whether the kernel keeps nothing back to combine it with later bytes.
    finished: bool,
    /// Whether the kernel has handed out its last write.
    drained: bool,
    writes: [Option<StagedWrite>; WRITES],
    phase: StreamPhase,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offered {
    /// Answer it with this status.
    Taken(Status),
    /// Hand it in again when the connection no longer waits.
    Later,
}

/// A place for one stream.
struct StreamPlace {
    generation: u32,
    running: Option<CoreStream>,
}

/// The streams of a server.
pub(super) struct CoreStreams<const STREAMS: usize> {
    places: [StreamPlace; STREAMS],
    /// The place that the next round looks at first.
    first: usize,
    /// Places with a stream.
    occupied: usize,
    opened: u64,
}

impl CoreStream {
    fn fail(&mut self, status: Status) {
        if self.phase == StreamPhase::Open {
            self.phase = StreamPhase::Respond(Err(status));
            self.drop_due();
        }
    }

    fn abandon(&mut self) {
        if self.phase != StreamPhase::Answering {
            self.phase = StreamPhase::Ended;
            self.drop_due();
        }
    }

    /// Writes that have not begun never will, and a piece that waits is answered.
    fn drop_due(&mut self) {
        (self.held, self.waits) = (false, false);
        for write in &mut self.writes {
            *write = write.filter(|write| write.in_flight);
        }
    }

    fn is_flying(&self) -> bool {
        self.writes.iter().flatten().any(|write| write.in_flight)
    }

    fn offer(&mut self, now: Time, bytes: &[u8]) -> Offered {
        if self.phase != StreamPhase::Open {
            return Offered::Taken(Status::NoStream);
        }
        loop {
            let rest = bytes.get(self.taken..).unwrap_or_default();
            if rest.is_empty() {
                (self.taken, self.held) = (0, false);
                self.until = now + REST;
                return Offered::Taken(Status::Ok);
            }
            match self.stream.offer(rest) {
                Ok(0) => {
                    (self.held, self.waits) = (true, true);
                    return Offered::Later;
                }
                Ok(taken) => self.taken += taken,
                Err(status) => {
                    self.fail(status);
                    return Offered::Taken(status);
                }
            }
        }
    }

    /// Moves on if all bytes have come.
    fn advance(&mut self, now: Time) {
        if self.phase != StreamPhase::Open {
            return;
        }
        if now >= self.until {
            return self.fail(Status::Deadline);
        }
        if !self.stream.is_whole() {
            return;
        }
        if !self.finished {
            match self.stream.finish() {
                Ok(finished) => self.finished = finished,
                Err(status) => self.fail(status),
            }
        }
    }

    /// Puts the next write into the staging buffer at `staging`, if there is one.
    fn stage(&mut self, endpoint: &mut impl Endpoint, staging: usize) -> Result<(), Status> {
        let Some(write) = self.stream.poll_write() else {
            self.drained = self.finished;
            return Ok(());
        };
        let place = self.writes.get_mut(write.tag).filter(|_| write.bytes.len() <= PLACE);
        let place = place.ok_or(Status::DmaFault)?;
        endpoint.copy_in(staging + write.tag * PLACE, write.bytes).map_err(|_| Status::DmaFault)?;
        *place = Some(StagedWrite { to: write.to.range(), in_flight: false });
        Ok(())
    }

    /// The write that has to be submitted next.
    fn next_write(&mut self, endpoint: &mut impl Endpoint, staging: usize) -> Result<Option<usize>, Status> {
        let waits = |write: &Option<StagedWrite>| write.as_ref().is_some_and(|write| !write.in_flight);
        if !self.writes.iter().any(waits) {
            self.stage(endpoint, staging)?;
        }
        Ok(self.writes.iter().position(waits))
    }

    /// Submits a write, and returns its bytes; zero if there is no room.
    fn submit(
        &mut self,
        dma: &mut impl HostDma,
        write: usize,
        staging: usize,
        tag: u64,
    ) -> Result<u32, Status> {
        let Some(Some(staged)) = self.writes.get_mut(write) else { return Ok(0) };
        let (region, address, length) = (staged.to.region(), staged.to.address(), staged.to.length());
        let from = Part { offset: staging + write * PLACE, length };
        match dma.submit_write(tag, region, address, from) {
            Ok(()) => {
                staged.in_flight = true;
                Ok(length)
            }
            Err(PostError::Full) => Ok(0),
            Err(PostError::Broken) => Err(Status::TakenBack),
            Err(PostError::BadRequest) => Err(Status::DmaFault),
        }
    }

    fn write_ended(&mut self, now: Time, write: usize, end: DmaEnd) {
        let Some(place) = self.writes.get_mut(write) else { return };
        match end {
            DmaEnd::Flushed if self.phase == StreamPhase::Open => {
                *place = place.map(|write| StagedWrite { in_flight: false, ..write });
                return;
            }
            DmaEnd::Done | DmaEnd::Flushed => *place = None,
            DmaEnd::Fault(fault) => {
                *place = None;
                self.fail(if fault == DmaFault::TakenBack { Status::TakenBack } else { Status::DmaFault });
            }
        }
        self.stream.write_done(write);
        self.waits = false;
        self.until = now + REST;
    }

    /// Whether the call can be answered now.
    fn response(&mut self) -> Option<Result<(), Status>> {
        if self.phase == StreamPhase::Open && self.drained && self.writes.iter().all(Option::is_none) {
            self.phase = StreamPhase::Respond(Ok(()));
        }
        match self.phase {
            StreamPhase::Respond(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl<const STREAMS: usize> CoreStreams<STREAMS> {
    pub(super) fn new() -> Self {
        Self {
            places: core::array::from_fn(|_| StreamPlace { generation: 0, running: None }),
            first: 0,
            occupied: 0,
            opened: 0,
        }
    }

    fn running(&self) -> impl Iterator<Item = &CoreStream> {
        let places = if self.is_idle() { [].iter() } else { self.places.iter() };
        places.filter_map(|place| place.running.as_ref())
    }

    fn of_connection(&mut self, connection: ConnectionId) -> Option<&mut CoreStream> {
        let places = self.places.iter_mut().filter_map(|place| place.running.as_mut());
        places
            .into_iter()
            .find(|running| running.connection == connection && running.phase != StreamPhase::Ended)
    }

    /// Whether the request at the head of the connection is a piece that waits for room.
    pub(super) fn waits(&self, connection: ConnectionId) -> bool {
        self.running().any(|running| running.connection == connection && running.waits)
    }

    /// Whether a piece of this connection was admitted before.
    fn is_resumed(&self, connection: ConnectionId) -> bool {
        self.running().any(|running| running.connection == connection && running.held)
    }

    /// Whether no stream is left.
    pub(super) const fn is_idle(&self) -> bool {
        STREAMS == 0 || self.occupied == 0
    }

    /// Streams that were opened.
    pub(super) const fn opened(&self) -> u64 {
        self.opened
    }

    /// Gives a message to its stream, or to the runtime if it is about no stream. `None`: it is a piece for which there
    /// is no room.
    pub(super) fn handle_message<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &mut self,
        now: Time,
        runtime: &mut Runtime<D, SLOTS, CONNECTIONS>,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Option<Admission> {
        let opcode = bytes.get(OPCODE).and_then(<[u8]>::first_chunk);
        let opcode = opcode.map(|bytes| Opcode(u64::from_be_bytes(*bytes)));
        if !opcode.is_some_and(uses) {
            if let Some(request) = Request::parse_message(bytes).ok().filter(|_| opcode == Some(WITHDRAW)) {
                self.withdraw(connection, request.request_id);
            }
            return Some(runtime.handle_message(now, connection, bytes));
        }
        let admitted = match self.is_resumed(connection) {
            true => runtime.resume_stream_message(connection, bytes),
            false => runtime.handle_stream_message(now, connection, bytes),
        };
        let (request, grant) = match admitted {
            Ok(admitted) => admitted,
            Err(admission) => return Some(admission),
        };
        let status = if request.opcode == PIECE {
            match self.offer(now, connection, &request) {
                Offered::Taken(status) => status,
                Offered::Later => return None,
            }
        } else {
            match self.open(now, runtime, connection, &request, grant) {
                Ok(()) => return Some(Admission::Accepted),
                Err(status) => status,
            }
        };
        let outcome = if status == Status::Ok { Ok(0) } else { Err(status) };
        let reply = runtime.stream_reply(connection, request.request_id, &request.reply, outcome);
        Some(reply.map_or(Admission::Dropped(DropReason::ReplyWindow), Admission::Refused))
    }

    /// Opens a stream on the share of its connection.
    ///
    /// # Errors
    /// The connection has a stream, or no share is left for it, or no place; or [`OpenStream::open`] refuses.
    fn open<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &mut self,
        now: Time,
        runtime: &mut Runtime<D, SLOTS, CONNECTIONS>,
        connection: ConnectionId,
        request: &Request<'_>,
        grant: Grant,
    ) -> Result<(), Status> {
        let taken = self.of_connection(connection).is_some();
        let place = self.places.iter_mut().find(|place| place.running.is_none());
        let place = place.filter(|_| !taken).ok_or(Status::Busy)?;
        if !request.payload.is_empty() {
            return Err(Status::BadParameters);
        }
        let stream = OpenStream::open(request.opcode, request.parameters, grant)?;
        runtime.take_share(connection)?;
        let Request { region, request_id, reply, .. } = *request;
        place.running = Some(CoreStream {
            stream,
            connection,
            region,
            request_id,
            reply,
            opened: now,
            until: now + REST,
            taken: 0,
            held: false,
            waits: false,
            finished: false,
            drained: false,
            writes: [None; WRITES],
            phase: StreamPhase::Open,
        });
        self.opened += 1;
        self.occupied += 1;
        Ok(())
    }

    /// Offers a piece to the stream that it names.
    fn offer(&mut self, now: Time, connection: ConnectionId, request: &Request<'_>) -> Offered {
        let Some(call) = call_of(request.parameters).filter(|_| request.payload.len() <= MAX_PIECE) else {
            return Offered::Taken(Status::BadParameters);
        };
        match self.of_connection(connection).filter(|running| running.request_id == call) {
            Some(running) => running.offer(now, request.payload),
            None => Offered::Taken(Status::NoStream),
        }
    }

    /// Drops the stream of a call that its client withdraws.
    fn withdraw(&mut self, connection: ConnectionId, request_id: u64) {
        if let Some(running) = self.of_connection(connection).filter(|r| r.request_id == request_id) {
            running.abandon();
        }
    }

    /// Drops the stream of a connection that ends.
    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        if let Some(running) = self.of_connection(connection) {
            running.abandon();
        }
    }

    /// Frees places with nothing left to do.
    fn free<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &mut self,
        runtime: &mut Runtime<D, SLOTS, CONNECTIONS>,
    ) {
        for place in &mut self.places {
            let done = |running: &mut CoreStream| running.phase == StreamPhase::Ended && !running.is_flying();
            if let Some(running) = place.running.take_if(done) {
                place.generation = place.generation.wrapping_add(1);
                self.occupied -= 1;
                runtime.release_share(running.connection);
            }
        }
    }

    /// Submits at most one write of each stream, as far as there is room, and returns whether any was. `base` is
    /// where the staging buffers of the streams begin.
    pub(super) fn submit<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &mut self,
        now: Time,
        runtime: &mut Runtime<D, SLOTS, CONNECTIONS>,
        endpoint: &mut impl Endpoint,
        dma: &mut impl HostDma,
        base: usize,
    ) -> bool {
        if self.is_idle() {
            return false;
        }
        self.free(runtime);
        let mut active = false;
        for turn in 0..STREAMS {
            let index = (self.first + turn) % STREAMS;
            let StreamPlace { generation, running: Some(running) } = &mut self.places[index] else {
                continue;
            };
            running.advance(now);
            if running.phase != StreamPhase::Open {
                continue;
            }
            // The grant may have been revoked since the stream was opened.
            if let Err(status) = runtime.check_stream(running.connection, running.region) {
                running.fail(status);
                continue;
            }
            let staging = base + index * STREAM_STAGING;
            let tag =
                |write: usize| (write as u64) << 40 | u64::from(*generation) << 8 | (SLOTS + index) as u64;
            let may_write = dma.has_room() && runtime.dma_at(running.connection) <= now;
            let submitted = running.next_write(endpoint, staging).and_then(|write| match write {
                Some(write) if may_write => running.submit(dma, write, staging, tag(write)),
                _ => Ok(0),
            });
            match submitted {
                Ok(0) => {}
                Ok(bytes) => {
                    runtime.charge_stream(now, running.connection, bytes);
                    active = true;
                }
                Err(status) => running.fail(status),
            }
        }
        self.first = (self.first + 1) % STREAMS;
        active
    }

    /// The stream that `tag` names, and the number of its write.
    fn tagged(&mut self, place: usize, tag: Tag) -> Option<(&mut CoreStream, usize)> {
        let bits = tag.to_bits();
        let place = self.places.get_mut(place).filter(|p| p.generation == (bits >> 8) as u32)?;
        Some((place.running.as_mut()?, (bits >> 40) as usize))
    }

    /// Takes the end of a write of the stream in this place.
    pub(super) fn write_ended(&mut self, now: Time, place: usize, tag: Tag, end: DmaEnd) {
        if let Some((running, write)) = self.tagged(place, tag) {
            running.write_ended(now, write, end);
        }
    }

    /// Takes the end of an answer.
    pub(super) fn reply_done(&mut self, place: usize, tag: Tag) {
        if let Some((running, _)) = self.tagged(place, tag) {
            running.phase = StreamPhase::Ended;
        }
    }

    /// The next call to answer, on a connection that can take it. `stage` puts bytes at an offset from the first staging
    /// buffer of the streams, where the body of the reply is.
    pub(super) fn poll_reply<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &mut self,
        now: Time,
        runtime: &mut Runtime<D, SLOTS, CONNECTIONS>,
        takes: impl Fn(ConnectionId) -> bool,
        mut stage: impl FnMut(usize, &[u8]) -> Result<(), PostError>,
    ) -> Option<Reply> {
        for (index, StreamPlace { generation, running }) in self.places.iter_mut().enumerate() {
            let Some(running) = running.as_mut().filter(|running| takes(running.connection)) else {
                continue;
            };
            let Some(outcome) = running.response() else { continue };
            let mut buffer = [0; MAX_RESPONSE];
            let response = running.stream.answer(&mut buffer);
            let outcome = outcome.and_then(|()| {
                stage(index * STREAM_STAGING, response).map_err(|_| Status::DmaFault)?;
                Ok(response.len() as u32)
            });
            let CoreStream { connection, request_id, reply, opened, .. } = *running;
            let replied = runtime.stream_reply(connection, request_id, &reply, outcome);
            let Some(mut reply) = replied else {
                running.phase = StreamPhase::Ended;
                continue;
            };
            reply.trailer.server_nanos = u32::try_from(now.since(opened).as_nanos()).unwrap_or(u32::MAX);
            running.phase = StreamPhase::Ended;
            if reply.trailer.status == Status::Ok {
                // The answer is sent from the staging buffer.
                running.phase = StreamPhase::Answering;
                reply.ticket = Some(Tag::from_bits(u64::from(*generation) << 8 | (SLOTS + index) as u64));
                let place = (index * STREAM_STAGING) as u32;
                let (source, length) = (Source::Computed, reply.trailer.length);
                reply.body = Some(Body { buffer: SLOTS, source, offset: 0, place, length });
            }
            return Some(reply);
        }
        None
    }

    /// When to poll again if nothing arrives before: a stream has rested too long, or its tenant may write again.
    pub(super) fn poll_timeout<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize>(
        &self,
        runtime: &Runtime<D, SLOTS, CONNECTIONS>,
        polled: Time,
    ) -> Option<Time> {
        let open = self.running().filter(|running| running.phase == StreamPhase::Open);
        let times = open.flat_map(|running| [running.until, runtime.dma_at(running.connection)]);
        times.filter(|time| *time > polled).min()
    }
}
