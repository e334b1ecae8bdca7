//! What streams need of a runtime: their requests admitted, their grants checked, their bytes charged.

use super::slot::empty_trailer;
use super::{Admission, ConnectionId, DropReason, Reply, Runtime};
use crate::grant::Grant;
use crate::kernel::{Deployment, Opcode};
use crate::status::Status;
use crate::streams::piece::PIECE;
use crate::wire::{Malformed, RegionHandle, ReplyTo, Request, Trailer};
use bareverbs_prm::time::Time;

impl<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> Runtime<D, SLOTS, CONNECTIONS> {
    /// Decodes a parameter block that opens a stream into its request and the grant of its region. `Err`: it is refused
    /// or dropped like any other request.
    pub fn open_stream<'a>(
        &mut self,
        now: Time,
        connection: ConnectionId,
        opcode: Opcode,
        region_key: u32,
        bytes: &'a [u8],
    ) -> Result<(Request<'a>, Grant), Admission> {
        let in_time = self.connections.take_request(connection, now);
        let parsed = Request::parse_strom(opcode, region_key, bytes);
        let admitted = self.admit_stream(connection, parsed, in_time);
        self.counters.accepted += u64::from(admitted.is_ok());
        admitted
    }

    /// The same for a message that opens a stream or is a piece of one, the first time that it is handed in.
    pub fn handle_stream_message<'a>(
        &mut self,
        now: Time,
        connection: ConnectionId,
        bytes: &'a [u8],
    ) -> Result<(Request<'a>, Grant), Admission> {
        let in_time = self.connections.take_request(connection, now);
        let admitted = self.admit_stream(connection, Request::parse_message(bytes), in_time);
        self.counters.accepted += u64::from(admitted.is_ok());
        admitted
    }

    /// The same for a piece that was admitted before, and had to wait since.
    pub fn resume_stream_message<'a>(
        &mut self,
        connection: ConnectionId,
        bytes: &'a [u8],
    ) -> Result<(Request<'a>, Grant), Admission> {
        self.admit_stream(connection, Request::parse_message(bytes), true)
    }

    fn admit_stream<'a>(
        &mut self,
        connection: ConnectionId,
        parsed: Result<Request<'a>, Malformed>,
        in_time: bool,
    ) -> Result<(Request<'a>, Grant), Admission> {
        let (request_id, reply) = match &parsed {
            Ok(request) => (request.request_id, request.reply),
            Err(Malformed::Answerable { request_id, reply }) => (*request_id, *reply),
            Err(Malformed::Unanswerable) => return Err(self.dropped(DropReason::Unintelligible)),
        };
        let window =
            self.connections.window(connection).ok_or_else(|| self.dropped(DropReason::NoConnection))?;
        if !window.covers(&reply) {
            return Err(self.dropped(DropReason::ReplyWindow));
        }
        let granted = parsed.map_err(|_| Status::BadParameters).and_then(|request| {
            // A stream that runs is finished.
            if self.draining && request.opcode != PIECE {
                return Err(Status::ShuttingDown);
            }
            if !in_time {
                return Err(Status::Busy);
            }
            Ok((request, *self.connections.region(connection, request.region)?))
        });
        granted.map_err(|status| self.refused(connection, request_id, &reply, status))
    }

    /// Takes a part of a connection's share for a stream, until [`Runtime::release_share`].
    ///
    /// # Errors
    /// [`Status::Busy`]: the connection runs as much as it may.
    pub fn take_share(&mut self, connection: ConnectionId) -> Result<(), Status> {
        let share = self.connections.share(connection);
        let invocations = self.invocations.get_mut(connection.index()).ok_or(Status::Busy)?;
        if usize::from(*invocations) >= share {
            return Err(Status::Busy);
        }
        *invocations += 1;
        Ok(())
    }

    /// Gives back what [`Runtime::take_share`] took.
    pub fn release_share(&mut self, connection: ConnectionId) {
        if let Some(invocations) = self.invocations.get_mut(connection.index()) {
            *invocations = invocations.saturating_sub(1);
        }
    }

    /// When the next DMA of a connection may begin.
    pub fn dma_at(&self, connection: ConnectionId) -> Time {
        self.connections.dma_at(connection)
    }

    /// Checks that the region of a stream is still granted.
    ///
    /// # Errors
    /// The status that ends the stream: [`Status::Revoked`], or [`Status::OutOfBounds`] once the connection has ended.
    pub fn check_stream(&self, connection: ConnectionId, region: RegionHandle) -> Result<(), Status> {
        self.connections.region(connection, region).map(drop)
    }

    /// Charges bytes that a stream wrote to the allowance of its connection. A NIC does not delay the stream itself,
    /// because its bytes are on the wire already; later requests are.
    pub fn charge_stream(&mut self, now: Time, connection: ConnectionId, bytes: u32) {
        self.connections.take_dma(connection, now, bytes);
    }

    /// The reply that ends a stream. It has no body; if the status is [`Status::Ok`], an answer of `length` bytes is
    /// written before it. `None` if nothing can be written there.
    pub fn stream_reply(
        &mut self,
        connection: ConnectionId,
        request_id: u64,
        to: &ReplyTo,
        outcome: Result<u32, Status>,
    ) -> Option<Reply> {
        let (status, length) = match outcome {
            Ok(length) if length > to.max_response => (Status::Truncated, length),
            Ok(length) => (Status::Ok, length),
            Err(status) => (status, 0),
        };
        let written = if status == Status::Ok { length } else { 0 };
        let address = to.write_address(written)?;
        let trailer = Trailer { length, ..empty_trailer(status, request_id) };
        Some(Reply { ticket: None, connection, address, rkey: to.rkey, slot: to.slot, body: None, trailer })
    }
}
