//! The requester of a reliable connection: go-back-N over numbered packets. IBTA v1.4 §9.7.5.2.

mod drain;
mod response;

use super::failure::EarliestFailure;
use super::outstanding::{Message, MissingResponse, Outstanding};
use super::parameters::ConnectionParameters;
use super::request::{
    QueueFull, Request, RequestCompletion, RequestPacket, RequesterError, RetransmissionCause,
};
use super::segment::{self, PathMtu};
use super::timers::{Due, RetryTimers};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

/// Packets after which the requester requests an acknowledgement even though it has more to send.
const ACK_INTERVAL: u32 = 16;
/// PSNs that may be outstanding: less than half of the PSN space, so that old and new ones can be told apart.
/// IBTA v1.4 §9.7.2.
const WINDOW: u64 = (1 << 23) - 1;
/// A number that no message reaches.
const NO_HOLD: u64 = u64::MAX;
/// Messages for which the ring has room from the start. It grows with use. A large ring would cost every idle
/// connection memory and every busy one cache lines, because the requester walks it end to end.
const RESERVE: usize = 1;

/// The counters of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequesterCounters {
    /// Packets given to the wire.
    pub packets: u64,
    /// How many of these packets were on the wire before.
    pub retransmissions: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// NAKs "PSN sequence error" that caused a retransmission.
    pub sequence_naks: u64,
    /// Missing READ or atomic responses that a later response revealed.
    pub implied_naks: u64,
    /// RNR NAKs that caused a wait.
    pub rnr_naks: u64,
    /// Responses outside the window of outstanding packets, and NAKs that report nothing new.
    pub ghosts: u64,
}

/// The requester of a reliable connection.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_prm::time::Time;
/// use bareverbs_sim::transport::{Operation, Request, Requester};
/// use bareverbs_sim::wire::{BthOpcode, ServiceHeader};
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// let mut requester = Requester::new(&parameters);
/// let operation = Operation::Write { address: 0x1000, rkey: 0x1234_5600, immediate: None };
/// let service_header = ServiceHeader::None;
/// let request = Request { operation, length: 1500, token: 1, solicited: false, fence: false, service_header };
/// requester.submit(request).unwrap();
/// let packets = [(); 3].map(|()| requester.poll_transmit(Time::ZERO).map(|packet| packet.header.opcode));
/// assert_eq!(packets, [Some(BthOpcode::WriteFirst), Some(BthOpcode::WriteLast), None]);
/// assert_eq!((requester.next_psn(), requester.outstanding()), (Psn::new(102), 1), "it waits for the ACK");
/// ```
#[derive(Debug)]
pub struct Requester {
    mtu: PathMtu,
    first_psn: Psn,
    read_limit: u64,
    outstanding: Outstanding,
    cursor: SendPosition,
    /// Why the cursor was last moved back.
    rewound_by: RetransmissionCause,
    /// Sequence number after the last packet that was ever sent.
    sent: u64,
    /// Packets sent since the last acknowledge request.
    unrequested: u32,
    timers: RetryTimers,
    failure: EarliestFailure,
    /// Number of the first message that may not begin because the send queue drains or is drained; [`NO_HOLD`] if all may.
    hold: u64,
    counters: RequesterCounters,
}

/// The next packet to send.
#[derive(Debug, Clone, Copy)]
struct SendPosition {
    /// Message number.
    number: u64,
    /// Sequence number of the packet.
    sequence: u64,
}

impl Requester {
    /// The maximum number of messages that a requester holds.
    pub const CAPACITY: usize = 1024;

    /// A requester without messages. A `max_outstanding_reads` of zero counts as one: the device stores its
    /// logarithm.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        Self {
            mtu: PathMtu::new(parameters.path_mtu),
            first_psn: parameters.send_psn,
            read_limit: u64::from(parameters.max_outstanding_reads.max(1)),
            outstanding: Outstanding::new(RESERVE),
            cursor: SendPosition { number: 0, sequence: 0 },
            rewound_by: RetransmissionCause::Timer,
            sent: 0,
            unrequested: 0,
            timers: RetryTimers::new(parameters),
            failure: EarliestFailure::NONE,
            hold: NO_HOLD,
            counters: RequesterCounters::default(),
        }
    }

    /// Whether [`Self::submit`] has room.
    pub fn has_room(&self) -> bool {
        self.outstanding.len() < Self::CAPACITY
    }

    /// Messages that [`Self::poll_completion`] has not returned yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether every packet of every message was sent.
    pub fn is_all_sent(&self) -> bool {
        self.sent >= self.outstanding.end()
    }

    /// Whether READs or atomics still wait for their responses.
    pub fn awaits_data(&self) -> bool {
        self.outstanding.reads_pending() > 0
    }

    /// The PSN of the next packet that has never been sent.
    pub fn next_psn(&self) -> Psn {
        self.psn(self.sent)
    }

    /// The counters.
    pub fn counters(&self) -> RequesterCounters {
        self.counters
    }

    /// Takes a message. A message that it cannot execute ends with an error completion.
    #[inline]
    pub fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if !self.has_room() {
            return Err(QueueFull);
        }
        let span = segment::span(&request, self.mtu);
        let number = self.outstanding.push(request, span.unwrap_or(1));
        if span.is_none() {
            self.fail_message(number, RequesterError::LocalLength);
        }
        Ok(())
    }

    /// Whether [`Self::poll_transmit`] would return a packet.
    pub fn has_work(&self) -> bool {
        !self.timers.is_waiting_for_receiver() && self.sendable().is_some()
    }

    /// The next packet for the wire.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<RequestPacket> {
        if self.timers.is_waiting_for_receiver() {
            return None;
        }
        let message = self.sendable()?;
        let (sequence, end, is_data) = (self.cursor.sequence, message.end, message.expects_data());
        let mut packet = segment::packet(message, sequence, self.psn(sequence), self.mtu);
        packet.retransmission = (sequence < self.sent).then_some(self.rewound_by);
        self.advance_cursor(end, is_data);
        packet.is_followed = self.sendable().is_some();
        packet.header.ack_request = self.wants_acknowledge(is_data, packet.is_followed);
        self.timers.packet_sent(now);
        self.counters.packets += 1;
        self.counters.retransmissions += u64::from(packet.retransmission.is_some());
        Some(packet)
    }

    /// The message at the cursor, if its next packet may go out.
    #[inline]
    fn sendable(&self) -> Option<&Message> {
        let SendPosition { number, sequence } = self.cursor;
        if self.failure.stops(number) || number >= self.hold {
            return None;
        }
        let message = self.outstanding.get(number)?;
        let end = if message.expects_data() { message.end } else { sequence + 1 };
        let (unacknowledged, _) = self.outstanding.unacknowledged();
        let in_window = end <= unacknowledged + WINDOW;
        (in_window && self.may_begin(message)).then_some(message)
    }

    /// Checks the fence and the limit of outstanding READs and atomics. IBTA v1.4 §9.7.3.1, §10.8.3.3. What could begin
    /// may go on, because the earlier READs only become fewer.
    fn may_begin(&self, message: &Message) -> bool {
        if !message.request.fence && !message.expects_data() {
            return true;
        }
        let pending = self.outstanding.reads_pending_before(message);
        let fenced = message.request.fence && pending > 0;
        !fenced && (!message.expects_data() || pending < self.read_limit)
    }

    /// Moves the cursor behind a packet of a message that ends before `message_end`. A READ or an atomic takes one.
    fn advance_cursor(&mut self, message_end: u64, is_data: bool) {
        let end = if is_data { message_end } else { self.cursor.sequence + 1 };
        self.cursor.sequence = end;
        self.cursor.number += u64::from(end == message_end);
        self.sent = self.sent.max(end);
    }

    /// Whether to request an acknowledgement: when no packet can follow at once, and every [`ACK_INTERVAL`]
    /// packets.
    fn wants_acknowledge(&mut self, is_data: bool, is_followed: bool) -> bool {
        if is_data {
            self.unrequested = 0;
            return false;
        }
        self.unrequested += 1;
        let wanted = self.unrequested >= ACK_INTERVAL || !is_followed;
        if wanted {
            self.unrequested = 0;
        }
        wanted
    }

    /// Handles the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.timers.take_due(now) {
            Due::Nothing | Due::ReceiverReady => {}
            Due::Acknowledge => {
                self.counters.timeouts += 1;
                match self.timers.retry_after_timeout() {
                    Ok(()) => self.rewind(RetransmissionCause::Timer),
                    Err(_) => self.fail_oldest(RequesterError::RetryExceeded),
                }
            }
        }
    }

    /// When to call [`Self::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.deadline()
    }

    /// The next message that has ended, in order of submission. After a failure every later message is flushed.
    pub fn poll_completion(&mut self) -> Option<RequestCompletion> {
        let (number, message) = self.outstanding.front()?;
        let token = message.request.token;
        let is_complete = || message.end <= self.outstanding.unacknowledged().0;
        let result = self.failure.result(number, is_complete)?;
        self.outstanding.pop_front();
        Some(RequestCompletion { token, result })
    }

    /// Fails a message whose local memory the owner could not read or write. Earlier messages end normally.
    pub fn fail(&mut self, token: u64, error: RequesterError) {
        if let Some(number) = self.outstanding.find(token) {
            self.fail_message(number, error);
            if self.is_in_flight() {
                // The packet that could not be filled may have been the one to request an acknowledgement.
                self.rewind(RetransmissionCause::LocalFailure);
            }
        }
    }

    /// Flushes everything when the queue pair leaves its sending states: nothing more is sent, and every
    /// message ends as flushed.
    pub fn flush(&mut self) {
        let number = self.outstanding.front().map_or(0, |(number, _)| number);
        self.fail_message(number, RequesterError::Flushed);
    }

    fn fail_oldest(&mut self, error: RequesterError) {
        let (_, number) = self.outstanding.unacknowledged();
        self.fail_message(number, error);
    }

    fn fail_message(&mut self, number: u64, error: RequesterError) {
        if self.failure.record(number, error) && !self.is_in_flight() {
            self.timers.stop();
        }
    }

    /// Whether responses are outstanding that can still complete a message.
    fn is_in_flight(&self) -> bool {
        let (sequence, number) = self.outstanding.unacknowledged();
        sequence < self.sent && !self.failure.stops(number)
    }

    /// The sequence number of a response if it concerns something in flight; otherwise it is a ghost, IBTA
    /// v1.4 §9.7.5.1.3.
    fn sequence_in_flight(&self, psn: Psn) -> Option<u64> {
        let (oldest, _) = self.outstanding.unacknowledged();
        let distance = u64::try_from(psn.distance_from(self.psn(oldest))).ok()?;
        let sequence = oldest + distance;
        (sequence < self.sent && self.is_in_flight()).then_some(sequence)
    }

    fn psn(&self, sequence: u64) -> Psn {
        self.first_psn.add(sequence as u32)
    }

    fn acknowledge_before(&mut self, now: Time, limit: u64) -> Result<(), MissingResponse> {
        let (before, _) = self.outstanding.unacknowledged();
        let result = self.outstanding.acknowledge_before(limit);
        if self.outstanding.unacknowledged().0 > before {
            self.progress(now);
        }
        result
    }

    fn progress(&mut self, now: Time) {
        let (sequence, number) = self.outstanding.unacknowledged();
        if self.cursor.sequence < sequence {
            self.cursor = SendPosition { number, sequence };
        }
        self.timers.progress(now, self.is_in_flight());
    }

    /// Retransmits after a NAK. If the NAK acknowledged everything in flight before a message that failed
    /// locally, there is nothing to retransmit, and no timer may run.
    fn retry(&mut self, now: Time, cause: RetransmissionCause) {
        if !self.is_in_flight() && !mutated("idle_timer") {
            return;
        }
        match self.timers.retry() {
            Ok(()) => self.rewind(cause),
            Err(_) => return self.fail_oldest(RequesterError::RetryExceeded),
        }
        self.timers.packet_sent(now);
    }

    /// Moves the cursor back to the oldest unacknowledged packet and requests an acknowledgement at once.
    fn rewind(&mut self, cause: RetransmissionCause) {
        self.rewound_by = cause;
        let (sequence, number) = self.outstanding.unacknowledged();
        self.cursor = SendPosition { number, sequence };
        self.unrequested = ACK_INTERVAL;
    }
}
