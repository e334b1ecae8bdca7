//! The responder of a reliable connection, with one small function for each check of the specification. IBTA
//! v1.4 §9.7.4, §9.7.5.1.

mod duplicate;
mod execute;

pub(super) use execute::{finished_send, finished_write};

use super::host::{
    ReceiveBuffer, ReceiveCompletion, ReceiveKind, ReceiveStatus, ResponderError, ResponderHost, UnknownQueue,
};
use super::parameters::ConnectionParameters;
use super::replay::Replay;
use super::replies::{ResponseNumbers, ResponseQueue};
use super::response::ResponsePacket;
use super::segment::PathMtu;
use crate::wire::{BthOpcode, NakCode, OperationKind, Packet, ServiceHeader, Syndrome};
use bareverbs_prm::psn::Psn;
use core::cmp::Ordering;
use core::mem;

/// Room in the response queue besides that for two rounds of remembered READs and atomics.
const SPARE_REPLIES: usize = 8;

/// What a responder has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponderCounters {
    /// Packets executed.
    pub packets: u64,
    /// Duplicate packets.
    pub duplicates: u64,
    /// Packets ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// WRITE requests, counted at the first packet of the message.
    pub writes: u64,
    /// READ requests.
    pub reads: u64,
    /// Atomic requests.
    pub atomics: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// NAKs "invalid request".
    pub invalid_requests: u64,
    /// NAKs "remote access error".
    pub access_errors: u64,
    /// Other NAKs.
    pub naks: u64,
    /// ACKs that the peer requested.
    pub acks: u64,
    /// How many of these ACKs merged into a later response before they were sent.
    pub merged_acks: u64,
    /// Packets dropped silently: invalid duplicates, no room for the response, or the connection is broken.
    pub dropped: u64,
}

/// The responder of a reliable connection.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::transport::{Responder, rnr_timer};
/// # use bareverbs_sim::transport::ConnectionParameters;
/// # let parameters = ConnectionParameters {
/// #     path_mtu: 1024, send_psn: Psn::new(100), receive_psn: Psn::new(200), ack_timeout: 14, ack_timeout_factor: 1,
/// #     retry_count: 7, rnr_retry: 7, min_rnr_timer: 12, max_outstanding_reads: 16, max_remembered_reads: 16,
/// # };
///
/// // A device names stretches of memory by address and length.
/// let mut responder: Responder<(u64, u32)> = Responder::new(&parameters);
/// responder.set_min_rnr_timer(1);
/// assert_eq!(rnr_timer(1).as_nanos(), 10_000);
/// assert_eq!((responder.expected_psn(), responder.has_work()), (Psn::new(200), false));
/// ```
#[derive(Debug)]
pub struct Responder<R> {
    mtu: PathMtu,
    first_psn: Psn,
    min_rnr_timer: u8,
    read_limit: usize,
    /// Sequence number of the expected packet. It counts packets in 64 bits; a PSN is the low 24 bits of it.
    expected: u64,
    /// Messages completed.
    msn: u32,
    current: PartialMessage<R>,
    /// A NAK or an RNR NAK has already asked for the expected packet.
    nak_sent: bool,
    broken: bool,
    replies: ResponseQueue<R>,
    replay: Replay,
    counters: ResponderCounters,
}

/// A message whose first packet has arrived and whose last has not.
#[derive(Debug, Clone)]
enum PartialMessage<R> {
    None,
    Send { buffer: ReceiveBuffer, offset: u32 },
    Write { range: R, length: u32, offset: u32 },
    Rpc { rpc_opcode: u64, region: u32, total: u32, offset: u32 },
}

/// Why a packet was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rejection {
    /// No receive is posted: RNR NAK.
    NotReady,
    /// A NAK is sent, and the connection breaks.
    Break(ResponderError),
}

impl<R: Clone> Responder<R> {
    /// A responder that expects the first packet.
    pub fn new(parameters: &ConnectionParameters) -> Self {
        let mtu = PathMtu::new(parameters.path_mtu);
        let read_limit = usize::from(parameters.max_remembered_reads);
        Self {
            mtu,
            first_psn: parameters.receive_psn,
            min_rnr_timer: parameters.min_rnr_timer,
            read_limit,
            expected: 0,
            msn: 0,
            current: PartialMessage::None,
            nak_sent: false,
            broken: false,
            replies: ResponseQueue::new(2 * read_limit + SPARE_REPLIES, mtu),
            replay: Replay::new(read_limit),
            counters: ResponderCounters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> ResponderCounters {
        self.counters
    }

    /// The expected PSN.
    pub fn expected_psn(&self) -> Psn {
        self.psn(self.expected)
    }

    /// Changes the timer code of later RNR NAKs; RTR2RTS and RTS2RTS do this.
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        self.min_rnr_timer = code;
    }

    /// Changes how many READs and atomics the responder remembers; SQD2SQD does this. Operations that it
    /// already remembers stay.
    pub fn set_max_remembered_reads(&mut self, limit: u8) {
        self.read_limit = usize::from(limit);
        self.replay.set_capacity(self.read_limit);
        self.replies.set_capacity(2 * self.read_limit + SPARE_REPLIES);
    }

    /// Whether [`Self::poll_transmit`] would return a packet.
    pub fn has_work(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The next packet for the wire. After a connection error, responses and the NAK may still be waiting.
    pub fn poll_transmit(&mut self) -> Option<ResponsePacket<R>> {
        let first = self.first_psn;
        self.replies.pop(|sequence| first.add(sequence as u32))
    }

    /// Handles a request (not `opcode.is_response()`).
    pub fn handle_request<H: ResponderHost<Range = R>>(&mut self, packet: &Packet<'_>, host: &mut H) {
        if self.broken || packet.bth.opcode.is_response() || !self.replies.has_room() {
            self.counters.dropped += 1;
            return;
        }
        let distance = packet.bth.psn.distance_from(self.expected_psn());
        match (distance.cmp(&0), find_queue(packet, host)) {
            (Ordering::Equal, Ok(())) => self.handle_expected(packet, host),
            (Ordering::Equal, Err(error)) => self.break_connection(self.expected, error, host),
            (Ordering::Greater, _) => self.handle_gap(),
            (Ordering::Less, Ok(())) => self.handle_duplicate(packet, distance, host),
            // The shared receive queue is gone, so the earlier response cannot be repeated.
            (Ordering::Less, Err(_)) => self.counters.dropped += 1,
        }
    }

    fn handle_expected<H: ResponderHost<Range = R>>(&mut self, packet: &Packet<'_>, host: &mut H) {
        match self.execute(packet, host) {
            Ok(span) => self.accept(packet, span),
            Err(Rejection::NotReady) => self.refuse_not_ready(),
            Err(Rejection::Break(error)) => self.break_connection(self.expected, error, host),
        }
    }

    /// Accounts for an executed packet. IBTA v1.4 §9.7.7.1 for the MSN.
    fn accept(&mut self, packet: &Packet<'_>, span: u32) {
        self.count(packet.bth.opcode);
        self.nak_sent = false;
        self.expected += u64::from(span);
        if packet.bth.opcode.position().ends() {
            self.msn = self.next_msn();
        }
        if packet.bth.ack_request && packet.bth.opcode.is_acknowledged() {
            self.acknowledge();
        }
    }

    fn count(&mut self, opcode: BthOpcode) {
        self.counters.packets += 1;
        let begins = u64::from(opcode.position().begins());
        match opcode.kind() {
            OperationKind::Write => self.counters.writes += begins,
            OperationKind::ReadRequest => self.counters.reads += begins,
            OperationKind::CompareSwap | OperationKind::FetchAdd => self.counters.atomics += begins,
            _ => {}
        }
    }

    /// Acknowledges everything up to the newest packet.
    fn acknowledge(&mut self) {
        if let Some(sequence) = self.expected.checked_sub(1) {
            self.counters.acks += 1;
            let merged = self.replies.push_ack(ResponseNumbers { sequence, msn: self.msn });
            self.counters.merged_acks += u64::from(merged);
        }
    }

    /// Handles a missing packet: one NAK per gap. IBTA v1.4 §9.7.5.1.1.
    fn handle_gap(&mut self) {
        self.counters.out_of_sequence += 1;
        if !self.nak_sent {
            self.nak_sent = true;
            self.counters.naks += 1;
            self.replies.push_nak(self.numbers(self.expected), Syndrome::Nak(NakCode::SequenceError));
        }
    }

    /// Answers with an RNR NAK because no receive is posted. Later packets are dropped silently until this
    /// one is sent again. IBTA v1.4 §9.7.5.2.8.
    fn refuse_not_ready(&mut self) {
        self.nak_sent = true;
        self.counters.rnr_naks += 1;
        self.replies.push_nak(self.numbers(self.expected), Syndrome::RnrNak(self.min_rnr_timer));
    }

    fn break_connection<H: ResponderHost<Range = R>>(
        &mut self,
        sequence: u64,
        error: ResponderError,
        host: &mut H,
    ) {
        if let Some(buffer) = self.flush_current() {
            host.complete_receive(buffer, failed_receive(ReceiveKind::Send, ReceiveStatus::QpOperation));
        }
        self.broken = true;
        self.counters.naks += 1;
        match error {
            ResponderError::InvalidRequest => self.counters.invalid_requests += 1,
            ResponderError::RemoteAccess => self.counters.access_errors += 1,
            ResponderError::Operational => {}
        }
        self.replies.push_nak(self.numbers(sequence), Syndrome::Nak(nak_code(error)));
        host.connection_error(error);
    }

    /// Handles a READ response whose payload could not be read: a NAK takes the place of the response with
    /// number `psn`, and the connection breaks.
    pub fn fail_read<H: ResponderHost<Range = R>>(&mut self, psn: Psn, error: ResponderError, host: &mut H) {
        if self.broken {
            return;
        }
        self.replies.clear();
        let sequence = self.expected.saturating_add_signed(i64::from(psn.distance_from(self.expected_psn())));
        self.break_connection(sequence, error, host);
    }

    /// Stops the responder when the queue pair leaves its receiving states: it takes and sends nothing more.
    /// Returns the receive that a SEND was being written to.
    pub fn flush(&mut self) -> Option<ReceiveBuffer> {
        self.broken = true;
        self.replies.clear();
        self.flush_current()
    }

    fn flush_current(&mut self) -> Option<ReceiveBuffer> {
        match mem::replace(&mut self.current, PartialMessage::None) {
            PartialMessage::Send { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    fn psn(&self, sequence: u64) -> Psn {
        self.first_psn.add(sequence as u32)
    }

    fn numbers(&self, sequence: u64) -> ResponseNumbers {
        ResponseNumbers { sequence, msn: self.msn }
    }

    fn next_msn(&self) -> u32 {
        self.msn.wrapping_add(1) & 0xff_ffff
    }
}

/// Tells the host which shared receive queue a request of an extended reliable connection names.
fn find_queue<H: ResponderHost>(packet: &Packet<'_>, host: &mut H) -> Result<(), ResponderError> {
    match packet.service_header {
        ServiceHeader::Xrceth(queue) => {
            host.receive_from(queue).map_err(|UnknownQueue| ResponderError::InvalidRequest)
        }
        _ => Ok(()),
    }
}

pub(super) fn failed_receive(kind: ReceiveKind, status: ReceiveStatus) -> ReceiveCompletion {
    ReceiveCompletion { kind, length: 0, immediate: None, solicited: false, status }
}

fn nak_code(error: ResponderError) -> NakCode {
    match error {
        ResponderError::InvalidRequest => NakCode::InvalidRequest,
        ResponderError::RemoteAccess => NakCode::RemoteAccess,
        ResponderError::Operational => NakCode::RemoteOperational,
    }
}
