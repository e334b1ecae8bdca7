//! The messages of a requester between submission and completion, and how far the peer has acknowledged them.
//!
//! Sequence numbers count packets in 64 bits and never wrap; a PSN is the low 24 bits of one.

use super::request::Request;
use std::collections::VecDeque;

/// A message and the sequence numbers it occupies.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub request: Request,
    /// Sequence number of its first packet.
    pub start: u64,
    /// Sequence number after its last packet. A READ occupies as many as it has response packets.
    pub end: u64,
    /// READs and atomics submitted before it.
    pub reads_before: u64,
    /// Whether response data ends it rather than an ACK. Derived from the operation and stored because every
    /// packet asks for it.
    expects_data: bool,
}

impl Message {
    /// The message of `request` whose packets have the sequence numbers from `start` up to but excluding
    /// `end`.
    pub fn new(request: Request, start: u64, end: u64, reads_before: u64) -> Self {
        Self { request, start, end, reads_before, expects_data: request.operation.expects_data() }
    }

    /// Whether response data ends it rather than an ACK.
    pub fn expects_data(&self) -> bool {
        self.expects_data
    }
}

/// A later request was acknowledged, but a READ or atomic before it has no response yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingResponse {
    /// Sequence number after that message.
    pub end: u64,
}

/// The messages of a requester, numbered in the order of submission.
#[derive(Debug)]
pub struct Outstanding {
    messages: VecDeque<Message>,
    /// Number of the first message of the ring.
    first: u64,
    /// Sequence number of the next message to be submitted.
    next_sequence: u64,
    reads_submitted: u64,
    /// The oldest sequence number that is not acknowledged.
    unacknowledged: u64,
    /// Number of the message that it belongs to.
    unacknowledged_number: u64,
    reads_done: u64,
}

impl Outstanding {
    /// An empty ring that can hold `reserve` messages without allocating.
    pub fn new(reserve: usize) -> Self {
        Self {
            messages: VecDeque::with_capacity(reserve),
            first: 0,
            next_sequence: 0,
            reads_submitted: 0,
            unacknowledged: 0,
            unacknowledged_number: 0,
            reads_done: 0,
        }
    }

    /// Adds a message of `span` packets and returns its number.
    #[inline]
    pub fn push(&mut self, request: Request, span: u32) -> u64 {
        let (start, reads_before) = (self.next_sequence, self.reads_submitted);
        let end = start + u64::from(span);
        let message = Message::new(request, start, end, reads_before);
        self.next_sequence = end;
        self.reads_submitted += u64::from(message.expects_data);
        self.messages.push_back(message);
        self.first + self.messages.len() as u64 - 1
    }

    /// The message with a number.
    pub fn get(&self, number: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Number of the oldest message with a token.
    pub fn find(&self, token: u64) -> Option<u64> {
        let index = self.messages.iter().position(|message| message.request.token == token)?;
        Some(self.first + index as u64)
    }

    /// Number of the first message that begins at or after `sequence`, whether or not it was submitted yet.
    pub fn number_from(&self, sequence: u64) -> u64 {
        self.first + self.messages.partition_point(|message| message.start < sequence) as u64
    }

    /// Number of the oldest message, or of the next one if there is none.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The oldest message and its number.
    pub fn front(&self) -> Option<(u64, &Message)> {
        Some((self.first, self.messages.front()?))
    }

    /// Removes the oldest message.
    pub fn pop_front(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.first += 1;
            self.unacknowledged_number = self.unacknowledged_number.max(self.first);
            self.unacknowledged = self.unacknowledged.max(message.end);
        }
    }

    /// Messages in the ring.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// The oldest sequence number that is not acknowledged, and the number of its message.
    pub fn unacknowledged(&self) -> (u64, u64) {
        (self.unacknowledged, self.unacknowledged_number)
    }

    /// Sequence number after everything that was submitted.
    pub fn end(&self) -> u64 {
        self.next_sequence
    }

    /// READs and atomics without a response.
    pub fn reads_pending(&self) -> u64 {
        self.reads_submitted.saturating_sub(self.reads_done)
    }

    /// READs and atomics before `message` without a response.
    pub fn reads_pending_before(&self, message: &Message) -> u64 {
        message.reads_before.saturating_sub(self.reads_done)
    }

    /// Acknowledges everything before `limit`. Stops at a READ or an atomic, which only its response data
    /// acknowledges.
    pub fn acknowledge_before(&mut self, limit: u64) -> Result<(), MissingResponse> {
        while self.unacknowledged < limit {
            let Some(message) = self.get(self.unacknowledged_number) else { return Ok(()) };
            let end = message.end;
            if message.expects_data() {
                return Err(MissingResponse { end });
            }
            self.advance_to(limit.min(end), end);
        }
        Ok(())
    }

    /// Records that one response packet of the first unacknowledged message, which ends before `end`, has
    /// arrived.
    pub fn acknowledge_data(&mut self, end: u64) {
        self.advance_to(self.unacknowledged + 1, end);
        self.reads_done += u64::from(self.unacknowledged == end);
    }

    fn advance_to(&mut self, sequence: u64, end: u64) {
        self.unacknowledged = sequence;
        self.unacknowledged_number += u64::from(sequence == end);
    }
}
