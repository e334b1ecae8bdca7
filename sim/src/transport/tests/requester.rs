//! The requester, one packet at a time.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

struct Talk {
    requester: Requester,
    now: Time,
}

fn write(token: u64, length: u32) -> Request {
    let operation = Operation::Write { address: BASE, rkey: RKEY, immediate: None };
    let service_header = crate::wire::ServiceHeader::None;
    Request { operation, length, token, solicited: false, fence: false, service_header }
}

fn read(token: u64, length: u32) -> Request {
    Request { operation: Operation::Read { address: BASE, rkey: RKEY }, ..write(token, length) }
}

impl Talk {
    fn new() -> Self {
        Self::with(parameters())
    }
    fn with(parameters: ConnectionParameters) -> Self {
        Self { requester: Requester::new(&parameters), now: at(0) }
    }
    fn submit(&mut self, requests: &[Request]) -> &mut Self {
        for request in requests {
            self.requester.submit(*request).unwrap();
        }
        self
    }
    #[track_caller]
    fn expect(&mut self, opcode: BthOpcode, psn: u32) -> RequestPacket {
        assert!(self.requester.has_work());
        let packet = self.requester.poll_transmit(self.now).expect("a packet");
        assert_eq!((packet.header.opcode, packet.header.psn), (opcode, Psn::new(psn)));
        packet
    }
    #[track_caller]
    fn expect_silence(&mut self) -> &mut Self {
        assert!(!self.requester.has_work());
        assert_eq!(self.requester.poll_transmit(self.now), None);
        self
    }
    fn send(&mut self, header: PacketHeader, payload: &[u8]) -> Placement {
        self.requester.handle_response(self.now, &packet(header, payload))
    }
    fn ack(&mut self, psn: u32) -> &mut Self {
        assert_eq!(self.send(acknowledge(psn, Syndrome::ACK), &[]), Placement::None);
        self
    }
    #[track_caller]
    fn expect_done(&mut self, token: u64, result: Result<(), RequesterError>) -> &mut Self {
        assert_eq!(self.requester.poll_completion(), Some(RequestCompletion { token, result }));
        self
    }
    #[track_caller]
    fn expect_nothing_done(&mut self) -> &mut Self {
        assert_eq!(self.requester.poll_completion(), None);
        self
    }
    /// Waits for the next deadline.
    #[track_caller]
    fn wait(&mut self) -> &mut Self {
        self.now = self.requester.poll_timeout().expect("a deadline");
        self.requester.handle_timeout(self.now);
        self
    }
    fn drain(&mut self) -> usize {
        core::iter::from_fn(|| self.requester.poll_transmit(self.now)).count()
    }
}

fn data(opcode: BthOpcode, psn: u32) -> PacketHeader {
    let extension = match opcode.extension() {
        ExtensionKind::None => Extension::None,
        _ => Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
    };
    header(opcode, psn, extension)
}

const FULL: [u8; MTU as usize] = [3; MTU as usize];

/// Requirement: IBTA v1.4 §9.4.3: a RDMA WRITE is cut into packets of the path MTU; only the first carries the RETH, with the length of the whole message
/// Requirement: IBTA v1.4 §9.7.6.1: a work request completes when the last PSN of its message is acknowledged, not before
#[test]
fn write_is_cut_into_packets() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 600)]);
    let first = talk.expect(BthOpcode::WriteFirst, 100);
    assert_eq!(first.header.extension, reth(0, 600));
    assert_eq!((first.payload_offset, first.payload_length, first.header.ack_request), (0, 256, false));
    let middle = talk.expect(BthOpcode::WriteMiddle, 101);
    assert_eq!((middle.payload_offset, middle.payload_length), (256, 256));
    let last = talk.expect(BthOpcode::WriteLast, 102);
    assert_eq!((last.payload_offset, last.payload_length, last.header.ack_request), (512, 88, true));
    talk.expect_silence()
        .expect_nothing_done()
        .ack(101)
        .expect_nothing_done()
        .ack(102)
        .expect_done(1, Ok(()));
    assert_eq!((talk.requester.poll_timeout(), talk.requester.outstanding()), (None, 0));
    assert_eq!(talk.requester.next_psn(), Psn::new(103));
}

/// Requirement: IBTA v1.4 §9.4.1: the op-code says first, middle, last or only; immediate data and the solicited event stand in the last packet alone
#[test]
fn every_operation_has_its_opcode() {
    use BthOpcode::*;
    let of = |operation, length| Request { operation, length, solicited: true, ..write(0, 0) };
    let send = |immediate, invalidate| Operation::Send { immediate, invalidate };
    let rpc = Operation::RpcWrite { rpc_opcode: 5, region: 6 };
    let cases = [
        (of(send(None, None), 0), vec![SendOnly]),
        (of(send(Some(1), None), 257), vec![SendFirst, SendLastImmediate]),
        (of(send(None, Some(1)), 513), vec![SendFirst, SendMiddle, SendLastInvalidate]),
        (of(send(None, Some(1)), 256), vec![SendOnlyInvalidate]),
        (of(Operation::Write { address: 0, rkey: 0, immediate: Some(1) }, 1), vec![WriteOnlyImmediate]),
        (
            of(Operation::Write { address: 0, rkey: 0, immediate: Some(1) }, 512),
            vec![WriteFirst, WriteLastImmediate],
        ),
        (of(compare_swap(0, 1, 2), 8), vec![CompareSwap]),
        (of(fetch_add(0, 2), 8), vec![FetchAdd]),
        (of(Operation::RpcParams { rpc_opcode: 5, region: 6 }, 256), vec![RpcParams]),
        (of(rpc, 100), vec![RpcWriteOnly]),
        (of(rpc, 600), vec![RpcWriteFirst, RpcWriteMiddle, RpcWriteLast]),
    ];
    for (request, opcodes) in cases {
        let mut talk = Talk::new();
        talk.submit(&[request]);
        for (index, opcode) in opcodes.iter().enumerate() {
            let packet = talk.expect(*opcode, 100 + index as u32);
            assert_eq!(packet.header.extension.kind(), opcode.extension(), "{opcode}");
            assert_eq!(packet.header.solicited, index + 1 == opcodes.len());
        }
        talk.expect_silence();
    }
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: one acknowledgement ends all requests up to its PSN
#[test]
fn acknowledgement_is_asked_for_at_the_end_and_now_and_then() {
    let mut talk = Talk::new();
    for token in 0..40 {
        talk.submit(&[write(token, 1)]);
    }
    let asked: Vec<u32> =
        (100..140).filter(|psn| talk.expect(BthOpcode::WriteOnly, *psn).header.ack_request).collect();
    assert_eq!(asked, [115, 131, 139]);
    talk.ack(139);
    for token in 0..40 {
        talk.expect_done(token, Ok(()));
    }
}

/// Requirement: IBTA v1.4 §9.7.3.1: a READ takes as many PSNs as its response has packets
/// Requirement: IBTA v1.4 §9.7.5.1.2: a READ response acknowledges all requests before it
#[test]
fn read_is_placed_and_acknowledges_what_is_before() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), read(2, 300), write(3, 1)]);
    assert!(!talk.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    assert_eq!(talk.expect(BthOpcode::ReadRequest, 101).payload_length, 0);
    assert!(talk.expect(BthOpcode::WriteOnly, 103).header.ack_request);
    let placed = talk.send(data(BthOpcode::ReadResponseFirst, 101), &FULL);
    assert_eq!(placed, Placement::Payload { token: 2, offset: 0 });
    talk.expect_done(1, Ok(())).expect_nothing_done();
    let placed = talk.send(data(BthOpcode::ReadResponseLast, 102), &FULL[..44]);
    assert_eq!(placed, Placement::Payload { token: 2, offset: 256 });
    talk.expect_done(2, Ok(())).expect_nothing_done().ack(103).expect_done(3, Ok(()));
}

/// Requirement: IBTA v1.4 §9.7.5.2.9: a READ whose responses have a gap is asked for again from the missing packet
#[test]
fn the_rest_of_a_read_is_asked_for_again() {
    let mut talk = Talk::new();
    talk.submit(&[read(1, 1000), write(2, 1)]);
    talk.expect(BthOpcode::ReadRequest, 100);
    talk.expect(BthOpcode::WriteOnly, 104);
    talk.send(data(BthOpcode::ReadResponseFirst, 100), &FULL);
    assert_eq!(talk.send(data(BthOpcode::ReadResponseMiddle, 102), &FULL), Placement::None);
    let again = talk.expect(BthOpcode::ReadRequest, 101);
    assert_eq!(again.header.extension, reth(256, 744));
    assert!(again.retransmission.is_some() && again.payload_offset == 256);
    // The remaining responses to the first READ request carry nothing new.
    assert_eq!(talk.send(data(BthOpcode::ReadResponseLast, 103), &FULL[..232]), Placement::None);
    talk.ack(104);
    assert_eq!(talk.requester.counters().implied_naks, 1);
    talk.expect(BthOpcode::WriteOnly, 104);
    for psn in [101, 102] {
        assert_ne!(talk.send(data(BthOpcode::ReadResponseMiddle, psn), &FULL), Placement::None);
    }
    talk.send(data(BthOpcode::ReadResponseLast, 103), &FULL[..232]);
    talk.ack(104).expect_done(1, Ok(())).expect_done(2, Ok(())).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.2.6: an acknowledgement of a later request implies a NAK of an unanswered READ or atomic
#[test]
fn ack_behind_a_read_is_an_implied_nak() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), read(2, 10), write(3, 1)]);
    assert_eq!(talk.drain(), 3);
    talk.ack(102).expect_done(1, Ok(())).expect_nothing_done();
    talk.expect(BthOpcode::ReadRequest, 101);
    talk.expect(BthOpcode::WriteOnly, 102);
    assert_eq!(talk.requester.counters().implied_naks, 1);
}

/// Requirement: IBTA v1.4 §9.4.5: the answer to an atomic brings the value that was there before
#[test]
fn atomics() {
    let mut talk = Talk::new();
    let operation = fetch_add(BASE, 2);
    talk.submit(&[Request { operation, ..write(9, 8) }]);
    talk.expect(BthOpcode::FetchAdd, 100);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
    let answer = header(BthOpcode::AtomicAcknowledge, 100, Extension::AtomicAck(aeth, 77));
    assert_eq!(talk.send(answer, &[]), Placement::Atomic { token: 9, old: 77 });
    assert_eq!(talk.send(answer, &[]), Placement::None);
    talk.expect_done(9, Ok(()));
}

/// Requirement: IBTA v1.4 §10.8.3.3: a fenced request waits for all READs and atomics before it
/// Requirement: IBTA v1.4 §9.7.3.1: a requester has no more READs and atomics outstanding than were agreed
#[test]
fn reads_are_limited_and_fences_wait() {
    let mut talk = Talk::new();
    let fenced = Request { fence: true, ..write(3, 1) };
    talk.submit(&[read(0, 1), read(1, 1), read(2, 1), fenced]);
    talk.expect(BthOpcode::ReadRequest, 100);
    talk.expect(BthOpcode::ReadRequest, 101);
    talk.expect_silence();
    talk.send(data(BthOpcode::ReadResponseOnly, 100), &[1]);
    talk.expect(BthOpcode::ReadRequest, 102);
    talk.send(data(BthOpcode::ReadResponseOnly, 101), &[1]);
    talk.expect_silence();
    talk.send(data(BthOpcode::ReadResponseOnly, 102), &[1]);
    assert!(talk.expect(BthOpcode::WriteOnly, 103).header.ack_request);
}

#[test]
fn what_waits_for_a_fence_does_not_hold_back_the_ack_request() {
    let mut talk = Talk::new();
    talk.submit(&[read(0, 1), write(1, 1), Request { fence: true, ..write(2, 1) }]);
    talk.expect(BthOpcode::ReadRequest, 100);
    assert!(talk.expect(BthOpcode::WriteOnly, 101).header.ack_request);
    talk.expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.2.4: a NAK for a PSN sequence error acknowledges what is before it, and the requester sends again from its PSN
#[test]
fn sequence_nak_sends_again_from_there() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 1), write(3, 1)]);
    assert_eq!(talk.drain(), 3);
    talk.send(nak(101, NakCode::SequenceError), &[]);
    talk.send(nak(101, NakCode::SequenceError), &[]);
    talk.expect_done(1, Ok(())).expect_nothing_done();
    let again = talk.expect(BthOpcode::WriteOnly, 101);
    assert!(again.retransmission.is_some() && again.header.ack_request && again.token == 2);
    talk.expect(BthOpcode::WriteOnly, 102);
    talk.expect_silence().ack(102).expect_done(2, Ok(())).expect_done(3, Ok(()));
    assert_eq!((talk.requester.counters().sequence_naks, talk.requester.counters().ghosts), (1, 1));
}

/// Requirement: IBTA v1.4 §9.7.6.1: an acknowledgement counts for requests that are being sent again too
#[test]
fn an_ack_during_retransmission_skips_what_it_covers() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 600)]);
    assert_eq!(talk.drain(), 3);
    talk.wait().expect(BthOpcode::WriteFirst, 100);
    talk.ack(101).expect(BthOpcode::WriteLast, 102);
    talk.ack(102).expect_done(1, Ok(())).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: without an answer in time the requester sends again, as often as the retry count says, then fails with «transport retry counter exceeded»
/// Requirement: IBTA v1.4 §9.9.2: after a fatal error the requests behind the failing one are flushed
#[test]
fn timeouts_until_retries_are_used_up() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(talk.drain(), 2);
    assert_eq!(talk.requester.poll_timeout(), ack_timeout(4).map(|timeout| at(0) + timeout));
    for _ in 0..3 {
        talk.wait().expect_nothing_done();
        assert_eq!(talk.drain(), 2);
    }
    talk.wait().expect_silence();
    talk.expect_done(1, Err(RequesterError::RetryExceeded)).expect_done(2, Err(RequesterError::Flushed));
    assert_eq!((talk.requester.poll_timeout(), talk.requester.counters().timeouts), (None, 4));
    talk.submit(&[write(3, 1)]).expect_silence().expect_done(3, Err(RequesterError::Flushed));
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the local ACK timer may run up to four times as long as the timeout says, and no longer
#[test]
fn a_patient_timer_runs_up_to_four_times() {
    for (factor, runs) in [(1, 1), (4, 4), (0, 1), (9, 4)] {
        let mut talk = Talk::with(ConnectionParameters { ack_timeout_factor: factor, ..parameters() });
        talk.submit(&[write(1, 1)]);
        assert_eq!(talk.drain(), 1);
        let due = ack_timeout(4).map(|timeout| at(0) + timeout.saturating_mul(runs));
        assert_eq!(talk.requester.poll_timeout(), due, "{factor}");
    }
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the retry counter is loaded again when an outstanding request is acknowledged
#[test]
fn progress_gives_the_retries_back() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 2560)]);
    for psn in 100..109 {
        talk.drain();
        talk.wait().ack(psn);
    }
    talk.drain();
    talk.ack(109).expect_done(1, Ok(()));
    assert_eq!(talk.requester.counters().timeouts, 9);
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the timer counts from the oldest request that is not acknowledged; later packets do not put it off
#[test]
fn packets_that_follow_do_not_put_the_timer_off() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 600)]);
    talk.expect(BthOpcode::WriteFirst, 100);
    let due = ack_timeout(4).map(|timeout| at(0) + timeout);
    for (psn, micros) in [(101, 1), (102, 2)] {
        talk.now = at(micros);
        assert!(
            talk.requester.poll_transmit(talk.now).is_some_and(|packet| packet.header.psn == Psn::new(psn))
        );
        assert_eq!(talk.requester.poll_timeout(), due);
    }
}

/// Requirement: IBTA v1.4 §9.7.5.2.4: what was sent again after a timeout may be complained of again
#[test]
fn a_sequence_nak_counts_after_a_timeout() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(talk.drain(), 2);
    talk.wait();
    assert_eq!(talk.drain(), 2, "both packets are retransmitted");
    talk.send(nak(100, NakCode::SequenceError), &[]);
    talk.expect(BthOpcode::WriteOnly, 100);
    talk.expect(BthOpcode::WriteOnly, 101);
    talk.expect_silence().ack(101).expect_done(1, Ok(())).expect_done(2, Ok(()));
    assert_eq!((talk.requester.counters().sequence_naks, talk.requester.counters().ghosts), (1, 0));
}

/// A NAK that acknowledges everything before a message that failed locally leaves nothing to retransmit, so
/// no timer may run.
#[test]
fn a_nak_that_leaves_nothing_in_flight_starts_no_timer() {
    for syndrome in [Syndrome::Nak(NakCode::SequenceError), Syndrome::RnrNak(1)] {
        let mut talk = Talk::new();
        talk.submit(&[write(1, 1), write(2, 300)]);
        talk.expect(BthOpcode::WriteOnly, 100);
        talk.expect(BthOpcode::WriteFirst, 101);
        talk.expect(BthOpcode::WriteLast, 102);
        talk.requester.fail(2, RequesterError::LocalProtection);
        talk.send(acknowledge(101, syndrome), &[]);
        assert_eq!(talk.requester.poll_timeout(), None, "{syndrome:?}");
        talk.expect_silence().expect_done(1, Ok(()));
        talk.expect_done(2, Err(RequesterError::LocalProtection));
    }
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: a timeout of 0 is infinite
#[test]
fn without_a_timeout_nothing_is_due() {
    let mut talk = Talk::with(ConnectionParameters { ack_timeout: 0, ..parameters() });
    talk.submit(&[write(1, 1)]);
    assert_eq!((talk.drain(), talk.requester.poll_timeout()), (1, None));
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: after an RNR NAK the requester waits for its timer, then sends again from its PSN; the RNR retry counter bounds that
#[test]
fn receiver_not_ready() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(talk.drain(), 2);
    for round in 0..2 {
        talk.send(acknowledge(101, Syndrome::RnrNak(1)), &[]);
        talk.expect_silence();
        assert_eq!(talk.requester.poll_timeout(), Some(talk.now + rnr_timer(1)), "{round}");
        talk.wait().expect(BthOpcode::WriteOnly, 101);
    }
    talk.expect_done(1, Ok(())).send(acknowledge(101, Syndrome::RnrNak(1)), &[]);
    talk.expect_done(2, Err(RequesterError::RnrRetryExceeded));
    assert_eq!(talk.requester.poll_timeout(), None);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: the RNR retry counter is loaded again when an outstanding request is acknowledged
#[test]
fn progress_gives_the_rnr_retries_back() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 1), write(3, 1), write(4, 1)]);
    for psn in 100..104 {
        // The limit is two retries per request, not two in total.
        for _ in 0..2 {
            talk.drain();
            talk.send(acknowledge(psn, Syndrome::RnrNak(1)), &[]);
            talk.wait();
        }
        talk.drain();
        talk.ack(psn).expect_done(u64::from(psn) - 99, Ok(()));
    }
    assert_eq!(talk.requester.counters().rnr_naks, 8);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: an RNR retry count of 7 is infinite
#[test]
fn seven_rnr_retries_are_without_end() {
    let mut talk = Talk::with(ConnectionParameters { rnr_retry: 7, ..parameters() });
    talk.submit(&[write(1, 1)]);
    for _ in 0..50 {
        talk.expect(BthOpcode::WriteOnly, 100);
        talk.send(acknowledge(100, Syndrome::RnrNak(31)), &[]);
        talk.wait();
    }
    talk.expect(BthOpcode::WriteOnly, 100);
    talk.ack(100).expect_done(1, Ok(()));
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: the timer field codes 0.01 ms to 655.36 ms (table 45)
#[test]
fn rnr_timer_table() {
    assert_eq!(rnr_timer(0).as_nanos(), 655_360_000);
    assert_eq!(rnr_timer(1).as_nanos(), 10_000);
    assert_eq!(rnr_timer(14).as_nanos(), 1_280_000);
    assert_eq!(rnr_timer(31).as_nanos(), 491_520_000);
    assert_eq!(rnr_timer(33), rnr_timer(1));
}

/// Requirement: IBTA v1.4 §9.7.5.2.3: a NAK for invalid request, remote access or remote operational error ends its request with that error; what is before it completes
#[test]
fn fatal_naks() {
    for (code, error) in [
        (NakCode::InvalidRequest, RequesterError::RemoteInvalidRequest),
        (NakCode::RemoteAccess, RequesterError::RemoteAccess),
        (NakCode::RemoteOperational, RequesterError::RemoteOperational),
        (NakCode::InvalidRdRequest, RequesterError::BadResponse),
    ] {
        let mut talk = Talk::new();
        talk.submit(&[write(1, 1), write(2, 1), write(3, 1)]);
        assert_eq!(talk.drain(), 3);
        talk.send(nak(101, code), &[]);
        talk.expect_done(1, Ok(())).expect_done(2, Err(error)).expect_done(3, Err(RequesterError::Flushed));
        talk.expect_silence();
    }
}

/// Requirement: IBTA v1.4 §9.7.5.1.3: acknowledgements of what is not outstanding are ignored
#[test]
fn ghosts_change_nothing() {
    let mut talk = Talk::new();
    talk.ack(100).submit(&[write(1, 1)]);
    talk.expect(BthOpcode::WriteOnly, 100);
    talk.ack(99).ack(101).ack(100 + (1 << 22));
    talk.send(data(BthOpcode::ReadResponseOnly, 101), &[1]);
    talk.send(nak(102, NakCode::RemoteAccess), &[]);
    talk.send(acknowledge(100, Syndrome::Unknown(0x45)), &[]);
    talk.expect_nothing_done();
    assert_eq!(talk.requester.counters().ghosts, 7);
    talk.ack(100).expect_done(1, Ok(()));
}

/// Requirement: IBTA v1.4 §9.9.2: a response of a wrong length or kind ends its request with «bad response»
#[test]
fn answers_that_make_no_sense() {
    let cases: [(Request, PacketHeader, &[u8]); 5] = [
        (read(1, 300), data(BthOpcode::ReadResponseFirst, 100), &[1]),
        (read(1, 300), data(BthOpcode::ReadResponseLast, 100), &FULL),
        (read(1, 10), data(BthOpcode::ReadResponseOnly, 100), &[1; 11]),
        (write(1, 10), data(BthOpcode::ReadResponseOnly, 100), &[1; 10]),
        (
            read(1, 10),
            header(BthOpcode::AtomicAcknowledge, 100, Extension::AtomicAck(Aeth::from_raw(0), 1)),
            &[],
        ),
    ];
    for (request, answer, payload) in cases {
        let mut talk = Talk::new();
        talk.submit(&[request]).drain();
        assert_eq!(talk.send(answer, payload), Placement::None);
        talk.expect_done(1, Err(RequesterError::BadResponse));
    }
}

/// Requirement: IBTA v1.4 §9.9.2: a local error of one request does not harm the requests before it
#[test]
fn local_failure_lets_earlier_messages_end() {
    let mut talk = Talk::new();
    talk.submit(&[write(1, 1), write(2, 300), write(3, 1)]);
    assert!(!talk.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    assert!(!talk.expect(BthOpcode::WriteFirst, 101).header.ack_request);
    talk.requester.fail(2, RequesterError::LocalProtection);
    talk.expect_nothing_done();
    // No earlier packet had requested an acknowledgement of the first message.
    assert!(talk.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    talk.expect_silence().ack(101).expect_done(1, Ok(()));
    talk.expect_done(2, Err(RequesterError::LocalProtection)).expect_done(3, Err(RequesterError::Flushed));
    assert_eq!(talk.requester.poll_timeout(), None);
}

#[test]
fn failed_placement() {
    let mut talk = Talk::new();
    talk.submit(&[read(1, 10), write(2, 1)]).drain();
    talk.send(data(BthOpcode::ReadResponseOnly, 100), &[1; 10]);
    talk.requester.fail(1, RequesterError::LocalProtection);
    talk.expect_done(1, Err(RequesterError::LocalProtection)).expect_done(2, Err(RequesterError::Flushed));
}

/// Requirement: IBTA v1.4 §9.7.4.1.6: no message is longer than 2^31 bytes, or what the device says: 2^30
#[test]
fn too_long_messages() {
    let params =
        Request { operation: Operation::RpcParams { rpc_opcode: 0, region: 0 }, ..write(1, MTU + 1) };
    for request in [params, write(1, (1 << 30) + 1)] {
        let mut talk = Talk::new();
        talk.submit(&[write(0, 1), request]).drain();
        talk.ack(100).expect_done(0, Ok(())).expect_done(1, Err(RequesterError::LocalLength));
    }
}

#[test]
fn flush_and_capacity() {
    let mut talk = Talk::new();
    for token in 0..Requester::CAPACITY as u64 {
        talk.submit(&[write(token, 1)]);
    }
    assert!(!talk.requester.has_room());
    assert_eq!(talk.requester.submit(write(0, 1)), Err(QueueFull));
    talk.expect(BthOpcode::WriteOnly, 100);
    talk.requester.flush();
    talk.expect_silence();
    for token in 0..Requester::CAPACITY as u64 {
        talk.expect_done(token, Err(RequesterError::Flushed));
    }
    assert_eq!((talk.requester.poll_timeout(), talk.requester.outstanding()), (None, 0));
}

/// 2^30 bytes in packets of 256 take 2^22 PSNs, so two such messages fill the window of 2^23.
/// Requirement: IBTA v1.4 §9.7.2: no more than 2^23 PSNs are outstanding
#[test]
fn the_window_of_sequence_numbers_is_kept() {
    let mut talk = Talk::new();
    talk.submit(&[read(1, 1 << 30), read(2, 1 << 30), write(3, 1)]);
    talk.expect(BthOpcode::ReadRequest, 100);
    talk.expect_silence();
    talk.send(data(BthOpcode::ReadResponseFirst, 100), &FULL);
    assert_eq!(talk.expect(BthOpcode::ReadRequest, 100 + (1 << 22)).header.extension, reth(0, 1 << 30));
    talk.expect_silence();
}
