//! The requester of an unreliable connection: it sends every packet once, and a message ends with its last
//! packet.

use crate::transport::failure::EarliestFailure;
use crate::transport::outstanding::Message;
use crate::transport::parameters::ConnectionParameters;
use crate::transport::request::{
    Operation, QueueFull, Request, RequestCompletion, RequestPacket, RequesterError,
};
use crate::transport::requester::{Requester, RequesterCounters};
use crate::transport::segment::{self, PathMtu};
use bareverbs_prm::psn::Psn;
use std::collections::VecDeque;

/// The requester of an unreliable connection.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::transport::{Operation, Request, RequesterError, UnreliableRequester};
/// use bareverbs_sim::wire::ServiceHeader;
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// let mut requester = UnreliableRequester::new(&parameters);
/// let operation = Operation::Read { address: 0x1000, rkey: 0x1234_5600 };
/// let service_header = ServiceHeader::None;
/// let read = Request { operation, length: 8, token: 1, solicited: false, fence: false, service_header };
/// requester.submit(read).unwrap();
/// let completion = requester.poll_completion().unwrap();
/// assert_eq!(completion.result, Err(RequesterError::NotOffered), "nobody would answer");
/// ```
#[derive(Debug)]
pub struct UnreliableRequester {
    mtu: PathMtu,
    first_psn: Psn,
    /// Messages that have not ended, oldest first.
    messages: VecDeque<Message>,
    /// Sequence number of the next message to be submitted.
    next_sequence: u64,
    /// Sequence number of the next packet.
    sent: u64,
    /// Messages are named by the sequence numbers where they begin.
    failure: EarliestFailure,
    /// Sequence number after the last message that may be sent while the send queue drains or is drained.
    hold: Option<u64>,
    packets: u64,
}

impl UnreliableRequester {
    /// A requester without messages.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        Self {
            mtu: PathMtu::new(parameters.path_mtu),
            first_psn: parameters.send_psn,
            messages: VecDeque::new(),
            next_sequence: 0,
            sent: 0,
            failure: EarliestFailure::NONE,
            hold: None,
            packets: 0,
        }
    }

    /// Whether [`Self::submit`] has room.
    pub fn has_room(&self) -> bool {
        self.messages.len() < Requester::CAPACITY
    }

    /// Messages that [`Self::poll_completion`] has not returned yet.
    pub fn outstanding(&self) -> usize {
        self.messages.len()
    }

    /// The PSN of the next packet.
    pub fn next_psn(&self) -> Psn {
        self.first_psn.add(self.sent as u32)
    }

    /// The counters; only packets are counted.
    pub fn counters(&self) -> RequesterCounters {
        RequesterCounters { packets: self.packets, ..RequesterCounters::default() }
    }

    /// Takes a message. A message that it cannot execute ends with an error completion.
    pub fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if !self.has_room() {
            return Err(QueueFull);
        }
        let span = self.span(&request);
        let start = self.next_sequence;
        self.next_sequence += u64::from(span.unwrap_or(1));
        self.messages.push_back(Message::new(request, start, self.next_sequence, 0));
        if let Err(error) = span {
            self.failure.record(start, error);
        }
        Ok(())
    }

    fn span(&self, request: &Request) -> Result<u32, RequesterError> {
        let unreliable =
            matches!(request.operation, Operation::Send { invalidate: None, .. } | Operation::Write { .. });
        if !unreliable {
            return Err(RequesterError::NotOffered);
        }
        segment::span(request, self.mtu).ok_or(RequesterError::LocalLength)
    }

    /// Whether [`Self::poll_transmit`] would return a packet.
    pub fn has_work(&self) -> bool {
        self.sendable().is_some()
    }

    /// The next packet for the wire.
    pub fn poll_transmit(&mut self) -> Option<RequestPacket> {
        let message = self.sendable()?;
        let packet = segment::packet(message, self.sent, self.next_psn(), self.mtu);
        self.sent += 1;
        self.packets += 1;
        Some(packet)
    }

    fn sendable(&self) -> Option<&Message> {
        let failed = self.failure.stops(self.sent);
        let held = self.hold.is_some_and(|hold| self.sent >= hold);
        let at = self.messages.partition_point(|message| message.end <= self.sent);
        self.messages.get(at).filter(|_| !failed && !held)
    }

    /// Starts no further message. IBTA v1.4 §10.3.1.5.
    pub fn drain(&mut self) {
        let begun = self.messages.partition_point(|message| message.start < self.sent);
        self.hold = Some(self.messages.get(begun).map_or(self.next_sequence, |message| message.start));
    }

    /// Whether it drains, and every message that had begun was returned.
    pub fn is_drained(&self) -> bool {
        let waits = |hold| self.messages.front().is_none_or(|message| message.start >= hold);
        self.hold.is_some_and(waits)
    }

    /// Starts messages again.
    pub fn resume(&mut self) {
        self.hold = None;
    }

    /// The next message that has ended, in order of submission. After a failure every later message is flushed.
    pub fn poll_completion(&mut self) -> Option<RequestCompletion> {
        let Message { request, start, end, .. } = *self.messages.front()?;
        let result = self.failure.result(start, || end <= self.sent)?;
        self.messages.pop_front();
        Some(RequestCompletion { token: request.token, result })
    }

    /// Fails a message whose local memory the owner could not read. Earlier messages end normally.
    pub fn fail(&mut self, token: u64, error: RequesterError) {
        if let Some(message) = self.messages.iter().find(|message| message.request.token == token) {
            self.failure.record(message.start, error);
        }
    }

    /// Flushes everything when the queue pair leaves its sending states: nothing more is sent, and every
    /// message ends as flushed.
    pub fn flush(&mut self) {
        let start = self.messages.front().map_or(self.next_sequence, |message| message.start);
        self.failure.record(start, RequesterError::Flushed);
    }
}
