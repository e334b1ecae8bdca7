//! The requester, one packet at a time.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

struct RequesterTest {
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

impl RequesterTest {
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

/// Requirement: IBTA v1.4 §9.4.3: an RDMA WRITE is segmented into packets of the path MTU; only the first carries the
/// RETH, with the length of the whole message.
/// Requirement: IBTA v1.4 §9.7.6.1: a work request completes when the last PSN of its message is acknowledged, not
/// earlier.
#[test]
fn write_is_cut_into_packets() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 600)]);
    let first = test.expect(BthOpcode::WriteFirst, 100);
    assert_eq!(first.header.extension, reth(0, 600));
    assert_eq!((first.payload_offset, first.payload_length, first.header.ack_request), (0, 256, false));
    let middle = test.expect(BthOpcode::WriteMiddle, 101);
    assert_eq!((middle.payload_offset, middle.payload_length), (256, 256));
    let last = test.expect(BthOpcode::WriteLast, 102);
    assert_eq!((last.payload_offset, last.payload_length, last.header.ack_request), (512, 88, true));
    test.expect_silence()
        .expect_nothing_done()
        .ack(101)
        .expect_nothing_done()
        .ack(102)
        .expect_done(1, Ok(()));
    assert_eq!((test.requester.poll_timeout(), test.requester.outstanding()), (None, 0));
    assert_eq!(test.requester.next_psn(), Psn::new(103));
}

/// Requirement: IBTA v1.4 §9.4.1: the op-code says first, middle, last or only; only the last packet carries immediate
/// data and the solicited event bit.
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
        let mut test = RequesterTest::new();
        test.submit(&[request]);
        for (index, opcode) in opcodes.iter().enumerate() {
            let packet = test.expect(*opcode, 100 + index as u32);
            assert_eq!(packet.header.extension.kind(), opcode.extension(), "{opcode}");
            assert_eq!(packet.header.solicited, index + 1 == opcodes.len());
        }
        test.expect_silence();
    }
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: one acknowledgement completes all requests up to its PSN.
#[test]
fn acknowledgement_is_asked_for_at_the_end_and_now_and_then() {
    let mut test = RequesterTest::new();
    for token in 0..40 {
        test.submit(&[write(token, 1)]);
    }
    let asked: Vec<u32> =
        (100..140).filter(|psn| test.expect(BthOpcode::WriteOnly, *psn).header.ack_request).collect();
    assert_eq!(asked, [115, 131, 139]);
    test.ack(139);
    for token in 0..40 {
        test.expect_done(token, Ok(()));
    }
}

/// Requirement: IBTA v1.4 §9.7.3.1: a READ consumes as many PSNs as its response has packets.
/// Requirement: IBTA v1.4 §9.7.5.1.2: a READ response acknowledges all earlier requests.
#[test]
fn read_is_placed_and_acknowledges_what_is_before() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), read(2, 300), write(3, 1)]);
    assert!(!test.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    assert_eq!(test.expect(BthOpcode::ReadRequest, 101).payload_length, 0);
    assert!(test.expect(BthOpcode::WriteOnly, 103).header.ack_request);
    let placed = test.send(data(BthOpcode::ReadResponseFirst, 101), &FULL);
    assert_eq!(placed, Placement::Payload { token: 2, offset: 0 });
    test.expect_done(1, Ok(())).expect_nothing_done();
    let placed = test.send(data(BthOpcode::ReadResponseLast, 102), &FULL[..44]);
    assert_eq!(placed, Placement::Payload { token: 2, offset: 256 });
    test.expect_done(2, Ok(())).expect_nothing_done().ack(103).expect_done(3, Ok(()));
}

/// Requirement: IBTA v1.4 §9.7.5.2.9: after a gap in the responses of a READ, the requester asks again from the missing
/// packet.
#[test]
fn the_rest_of_a_read_is_asked_for_again() {
    let mut test = RequesterTest::new();
    test.submit(&[read(1, 1000), write(2, 1)]);
    test.expect(BthOpcode::ReadRequest, 100);
    test.expect(BthOpcode::WriteOnly, 104);
    test.send(data(BthOpcode::ReadResponseFirst, 100), &FULL);
    assert_eq!(test.send(data(BthOpcode::ReadResponseMiddle, 102), &FULL), Placement::None);
    let again = test.expect(BthOpcode::ReadRequest, 101);
    assert_eq!(again.header.extension, reth(256, 744));
    assert!(again.retransmission.is_some() && again.payload_offset == 256);
    // The remaining responses to the first READ request carry nothing new.
    assert_eq!(test.send(data(BthOpcode::ReadResponseLast, 103), &FULL[..232]), Placement::None);
    test.ack(104);
    assert_eq!(test.requester.counters().implied_naks, 1);
    test.expect(BthOpcode::WriteOnly, 104);
    for psn in [101, 102] {
        assert_ne!(test.send(data(BthOpcode::ReadResponseMiddle, psn), &FULL), Placement::None);
    }
    test.send(data(BthOpcode::ReadResponseLast, 103), &FULL[..232]);
    test.ack(104).expect_done(1, Ok(())).expect_done(2, Ok(())).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.2.6: an acknowledgement of a later request implies a NAK of an unanswered READ or atomic
#[test]
fn ack_behind_a_read_is_an_implied_nak() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), read(2, 10), write(3, 1)]);
    assert_eq!(test.drain(), 3);
    test.ack(102).expect_done(1, Ok(())).expect_nothing_done();
    test.expect(BthOpcode::ReadRequest, 101);
    test.expect(BthOpcode::WriteOnly, 102);
    assert_eq!(test.requester.counters().implied_naks, 1);
}

/// Only this ACK proves that responses are lost; one for an earlier packet may have overtaken them (IBTA v1.4 §9.7.5.2.6).
#[test]
fn an_ack_for_the_last_packet_of_a_read_is_an_implied_nak() {
    let mut test = RequesterTest::new();
    test.submit(&[read(1, 300)]);
    test.expect(BthOpcode::ReadRequest, 100);
    test.ack(100).expect_silence();
    assert_eq!(test.requester.counters().implied_naks, 0);
    test.ack(101).expect(BthOpcode::ReadRequest, 100);
    assert_eq!(test.requester.counters().implied_naks, 1);
}

/// Requirement: IBTA v1.4 §9.4.5: the response to an atomic carries the old value.
#[test]
fn atomics() {
    let mut test = RequesterTest::new();
    let operation = fetch_add(BASE, 2);
    test.submit(&[Request { operation, ..write(9, 8) }]);
    test.expect(BthOpcode::FetchAdd, 100);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
    let response = header(BthOpcode::AtomicAcknowledge, 100, Extension::AtomicAck(aeth, 77));
    assert_eq!(test.send(response, &[]), Placement::Atomic { token: 9, old: 77 });
    assert_eq!(test.send(response, &[]), Placement::None);
    test.expect_done(9, Ok(()));
}

/// Requirement: IBTA v1.4 §10.8.3.3: a fenced request waits for all earlier READs and atomics.
/// Requirement: IBTA v1.4 §9.7.3.1: a requester has no more READs and atomics outstanding than was agreed.
#[test]
fn reads_are_limited_and_fences_wait() {
    let mut test = RequesterTest::new();
    let fenced = Request { fence: true, ..write(3, 1) };
    test.submit(&[read(0, 1), read(1, 1), read(2, 1), fenced]);
    test.expect(BthOpcode::ReadRequest, 100);
    test.expect(BthOpcode::ReadRequest, 101);
    test.expect_silence();
    test.send(data(BthOpcode::ReadResponseOnly, 100), &[1]);
    test.expect(BthOpcode::ReadRequest, 102);
    test.send(data(BthOpcode::ReadResponseOnly, 101), &[1]);
    test.expect_silence();
    test.send(data(BthOpcode::ReadResponseOnly, 102), &[1]);
    assert!(test.expect(BthOpcode::WriteOnly, 103).header.ack_request);
}

#[test]
fn a_fenced_request_does_not_hold_back_the_ack_request() {
    let mut test = RequesterTest::new();
    test.submit(&[read(0, 1), write(1, 1), Request { fence: true, ..write(2, 1) }]);
    test.expect(BthOpcode::ReadRequest, 100);
    assert!(test.expect(BthOpcode::WriteOnly, 101).header.ack_request);
    test.expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.2.4: a NAK for a PSN sequence error acknowledges earlier packets, and the requester
/// retransmits from its PSN.
#[test]
fn sequence_nak_sends_again_from_there() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 1), write(3, 1)]);
    assert_eq!(test.drain(), 3);
    test.send(nak(101, NakCode::SequenceError), &[]);
    test.send(nak(101, NakCode::SequenceError), &[]);
    test.expect_done(1, Ok(())).expect_nothing_done();
    let again = test.expect(BthOpcode::WriteOnly, 101);
    assert!(again.retransmission.is_some() && again.header.ack_request && again.token == 2);
    test.expect(BthOpcode::WriteOnly, 102);
    test.expect_silence().ack(102).expect_done(2, Ok(())).expect_done(3, Ok(()));
    assert_eq!((test.requester.counters().sequence_naks, test.requester.counters().ghosts), (1, 1));
}

/// Requirement: IBTA v1.4 §9.7.6.1: an acknowledgement also covers requests that are being retransmitted.
#[test]
fn an_ack_during_retransmission_skips_what_it_covers() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 600)]);
    assert_eq!(test.drain(), 3);
    test.wait().expect(BthOpcode::WriteFirst, 100);
    test.ack(101).expect(BthOpcode::WriteLast, 102);
    test.ack(102).expect_done(1, Ok(())).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: without a timely response the requester retransmits as often as the retry count
/// allows, then fails with "transport retry counter exceeded".
/// Requirement: IBTA v1.4 §9.9.2: after a fatal error, the requests behind the failed one are flushed.
#[test]
fn timeouts_until_retries_are_used_up() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(test.drain(), 2);
    assert_eq!(test.requester.poll_timeout(), ack_timeout(4).map(|timeout| at(0) + timeout));
    for _ in 0..3 {
        test.wait().expect_nothing_done();
        assert_eq!(test.drain(), 2);
    }
    test.wait().expect_silence();
    test.expect_done(1, Err(RequesterError::RetryExceeded)).expect_done(2, Err(RequesterError::Flushed));
    assert_eq!((test.requester.poll_timeout(), test.requester.counters().timeouts), (None, 4));
    test.submit(&[write(3, 1)]).expect_silence().expect_done(3, Err(RequesterError::Flushed));
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the local ACK timer may run up to four times as long as the configured timeout, and
/// no longer.
#[test]
fn the_ack_timer_runs_at_most_four_times_its_timeout() {
    for (factor, runs) in [(1, 1), (4, 4), (0, 1), (9, 4)] {
        let mut test =
            RequesterTest::with(ConnectionParameters { ack_timeout_factor: factor, ..parameters() });
        test.submit(&[write(1, 1)]);
        assert_eq!(test.drain(), 1);
        let due = ack_timeout(4).map(|timeout| at(0) + timeout.saturating_mul(runs));
        assert_eq!(test.requester.poll_timeout(), due, "{factor}");
    }
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the retry counter restarts when an outstanding request is acknowledged.
#[test]
fn progress_gives_the_retries_back() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 2560)]);
    for psn in 100..109 {
        test.drain();
        test.wait().ack(psn);
    }
    test.drain();
    test.ack(109).expect_done(1, Ok(()));
    assert_eq!(test.requester.counters().timeouts, 9);
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the timer runs from the oldest unacknowledged request; later packets do not extend
/// it.
#[test]
fn packets_that_follow_do_not_put_the_timer_off() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 600)]);
    test.expect(BthOpcode::WriteFirst, 100);
    let due = ack_timeout(4).map(|timeout| at(0) + timeout);
    for (psn, micros) in [(101, 1), (102, 2)] {
        test.now = at(micros);
        assert!(
            test.requester.poll_transmit(test.now).is_some_and(|packet| packet.header.psn == Psn::new(psn))
        );
        assert_eq!(test.requester.poll_timeout(), due);
    }
}

/// Requirement: IBTA v1.4 §9.7.5.2.4: after a timeout, a sequence NAK may again ask for packets that were retransmitted.
#[test]
fn a_sequence_nak_counts_after_a_timeout() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(test.drain(), 2);
    test.wait();
    assert_eq!(test.drain(), 2, "both packets are retransmitted");
    test.send(nak(100, NakCode::SequenceError), &[]);
    test.expect(BthOpcode::WriteOnly, 100);
    test.expect(BthOpcode::WriteOnly, 101);
    test.expect_silence().ack(101).expect_done(1, Ok(())).expect_done(2, Ok(()));
    assert_eq!((test.requester.counters().sequence_naks, test.requester.counters().ghosts), (1, 0));
}

/// A NAK that acknowledges everything before a message that failed locally leaves nothing to retransmit, so
/// no timer may run.
#[test]
fn a_nak_that_leaves_nothing_in_flight_starts_no_timer() {
    for syndrome in [Syndrome::Nak(NakCode::SequenceError), Syndrome::RnrNak(1)] {
        let mut test = RequesterTest::new();
        test.submit(&[write(1, 1), write(2, 300)]);
        test.expect(BthOpcode::WriteOnly, 100);
        test.expect(BthOpcode::WriteFirst, 101);
        test.expect(BthOpcode::WriteLast, 102);
        test.requester.fail(2, RequesterError::LocalProtection);
        test.send(acknowledge(101, syndrome), &[]);
        assert_eq!(test.requester.poll_timeout(), None, "{syndrome:?}");
        test.expect_silence().expect_done(1, Ok(()));
        test.expect_done(2, Err(RequesterError::LocalProtection));
    }
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: a timeout of 0 means no timeout.
#[test]
fn without_a_timeout_nothing_is_due() {
    let mut test = RequesterTest::with(ConnectionParameters { ack_timeout: 0, ..parameters() });
    test.submit(&[write(1, 1)]);
    assert_eq!((test.drain(), test.requester.poll_timeout()), (1, None));
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: after an RNR NAK the requester waits for its timer, then retransmits from its PSN;
/// the RNR retry count limits that.
#[test]
fn receiver_not_ready() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 1)]);
    assert_eq!(test.drain(), 2);
    for round in 0..2 {
        test.send(acknowledge(101, Syndrome::RnrNak(1)), &[]);
        test.expect_silence();
        assert_eq!(test.requester.poll_timeout(), Some(test.now + rnr_timer(1)), "{round}");
        test.wait().expect(BthOpcode::WriteOnly, 101);
    }
    test.expect_done(1, Ok(())).send(acknowledge(101, Syndrome::RnrNak(1)), &[]);
    test.expect_done(2, Err(RequesterError::RnrRetryExceeded));
    assert_eq!(test.requester.poll_timeout(), None);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: the RNR retry counter restarts when an outstanding request is acknowledged.
#[test]
fn progress_gives_the_rnr_retries_back() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 1), write(3, 1), write(4, 1)]);
    for psn in 100..104 {
        // The limit is two retries per request, not two in total.
        for _ in 0..2 {
            test.drain();
            test.send(acknowledge(psn, Syndrome::RnrNak(1)), &[]);
            test.wait();
        }
        test.drain();
        test.ack(psn).expect_done(u64::from(psn) - 99, Ok(()));
    }
    assert_eq!(test.requester.counters().rnr_naks, 8);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: an RNR retry count of 7 means no limit.
#[test]
fn seven_rnr_retries_are_without_end() {
    let mut test = RequesterTest::with(ConnectionParameters { rnr_retry: 7, ..parameters() });
    test.submit(&[write(1, 1)]);
    for _ in 0..50 {
        test.expect(BthOpcode::WriteOnly, 100);
        test.send(acknowledge(100, Syndrome::RnrNak(31)), &[]);
        test.wait();
    }
    test.expect(BthOpcode::WriteOnly, 100);
    test.ack(100).expect_done(1, Ok(()));
}

/// Requirement: IBTA v1.4 §9.7.5.2.3: a NAK for an invalid request, remote access error or remote operational error
/// completes its request with that error; earlier requests succeed.
#[test]
fn fatal_naks() {
    for (code, error) in [
        (NakCode::InvalidRequest, RequesterError::RemoteInvalidRequest),
        (NakCode::RemoteAccess, RequesterError::RemoteAccess),
        (NakCode::RemoteOperational, RequesterError::RemoteOperational),
        (NakCode::InvalidRdRequest, RequesterError::BadResponse),
    ] {
        let mut test = RequesterTest::new();
        test.submit(&[write(1, 1), write(2, 1), write(3, 1)]);
        assert_eq!(test.drain(), 3);
        test.send(nak(101, code), &[]);
        test.expect_done(1, Ok(())).expect_done(2, Err(error)).expect_done(3, Err(RequesterError::Flushed));
        test.expect_silence();
    }
}

/// Requirement: IBTA v1.4 §9.7.5.1.3: acknowledgements of packets that are not outstanding are ignored.
#[test]
fn ghosts_change_nothing() {
    let mut test = RequesterTest::new();
    test.ack(100).submit(&[write(1, 1)]);
    test.expect(BthOpcode::WriteOnly, 100);
    test.ack(99).ack(101).ack(100 + (1 << 22));
    test.send(data(BthOpcode::ReadResponseOnly, 101), &[1]);
    test.send(nak(102, NakCode::RemoteAccess), &[]);
    test.send(acknowledge(100, Syndrome::Unknown(0x45)), &[]);
    test.expect_nothing_done();
    assert_eq!(test.requester.counters().ghosts, 7);
    test.ack(100).expect_done(1, Ok(()));
}

/// Requirement: IBTA v1.4 §9.9.2: a response of the wrong length or kind completes its request with "bad response".
#[test]
fn malformed_responses() {
    let not_ready = Aeth { syndrome: Syndrome::RnrNak(1), msn: 0 };
    let cases: [(Request, PacketHeader, &[u8]); 7] = [
        (read(1, 1), header(BthOpcode::ReadResponseOnly, 100, Extension::Aeth(not_ready)), &[1]),
        (
            Request { operation: fetch_add(BASE, 2), ..write(1, 8) },
            header(BthOpcode::AtomicAcknowledge, 100, Extension::AtomicAck(not_ready, 1)),
            &[],
        ),
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
    for (request, response, payload) in cases {
        let mut test = RequesterTest::new();
        test.submit(&[request]).drain();
        assert_eq!(test.send(response, payload), Placement::None);
        test.expect_done(1, Err(RequesterError::BadResponse));
    }
}

/// Requirement: IBTA v1.4 §9.9.2: a local error of one request does not affect earlier requests.
#[test]
fn local_failure_lets_earlier_messages_end() {
    let mut test = RequesterTest::new();
    test.submit(&[write(1, 1), write(2, 300), write(3, 1)]);
    assert!(!test.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    assert!(!test.expect(BthOpcode::WriteFirst, 101).header.ack_request);
    test.requester.fail(2, RequesterError::LocalProtection);
    test.expect_nothing_done();
    // No earlier packet had requested an acknowledgement of the first message.
    assert!(test.expect(BthOpcode::WriteOnly, 100).header.ack_request);
    test.expect_silence().ack(101).expect_done(1, Ok(()));
    test.expect_done(2, Err(RequesterError::LocalProtection)).expect_done(3, Err(RequesterError::Flushed));
    assert_eq!(test.requester.poll_timeout(), None);
}

/// The ACK that was requested comes, so nothing is sent again for it.
#[test]
fn a_failure_or_a_drain_behind_a_requested_ack_sends_nothing_again() {
    let [mut test, mut draining] = [(); 2].map(|()| RequesterTest::new());
    for test in [&mut test, &mut draining] {
        assert!(test.submit(&[write(1, 1)]).expect(BthOpcode::WriteOnly, 100).header.ack_request);
    }
    test.submit(&[write(2, (1 << 30) + 1)]).expect_silence();
    test.ack(100).expect_done(1, Ok(())).expect_done(2, Err(RequesterError::LocalLength));
    draining.requester.drain();
    draining.expect_silence().ack(100).expect_done(1, Ok(()));
    assert!(draining.requester.is_drained());
}

#[test]
fn failed_placement() {
    let mut test = RequesterTest::new();
    test.submit(&[read(1, 10), write(2, 1)]).drain();
    test.send(data(BthOpcode::ReadResponseOnly, 100), &[1; 10]);
    test.requester.fail(1, RequesterError::LocalProtection);
    test.expect_done(1, Err(RequesterError::LocalProtection)).expect_done(2, Err(RequesterError::Flushed));
}

/// Requirement: IBTA v1.4 §9.7.4.1.6: a message has at most 2^31 bytes, or the device's maximum: 2^30.
#[test]
fn too_long_messages() {
    let params =
        Request { operation: Operation::RpcParams { rpc_opcode: 0, region: 0 }, ..write(1, MTU + 1) };
    for request in [params, write(1, (1 << 30) + 1)] {
        let mut test = RequesterTest::new();
        test.submit(&[write(0, 1), request]).drain();
        test.ack(100).expect_done(0, Ok(())).expect_done(1, Err(RequesterError::LocalLength));
    }
}

#[test]
fn flush_and_capacity() {
    let mut test = RequesterTest::new();
    for token in 0..Requester::CAPACITY as u64 {
        test.submit(&[write(token, 1)]);
    }
    assert!(!test.requester.has_room());
    assert_eq!(test.requester.submit(write(0, 1)), Err(QueueFull));
    test.expect(BthOpcode::WriteOnly, 100);
    test.requester.flush();
    test.expect_silence();
    for token in 0..Requester::CAPACITY as u64 {
        test.expect_done(token, Err(RequesterError::Flushed));
    }
    assert_eq!((test.requester.poll_timeout(), test.requester.outstanding()), (None, 0));
}

/// 2^30 bytes in packets of 256 take 2^22 PSNs, so two such messages fill the window of 2^23.
/// Requirement: IBTA v1.4 §9.7.2: at most 2^23 PSNs are outstanding.
#[test]
fn the_window_of_sequence_numbers_is_kept() {
    let mut test = RequesterTest::new();
    test.submit(&[read(1, 1 << 30), read(2, 1 << 30), write(3, 1)]);
    test.expect(BthOpcode::ReadRequest, 100);
    test.expect_silence();
    test.send(data(BthOpcode::ReadResponseFirst, 100), &FULL);
    assert_eq!(test.expect(BthOpcode::ReadRequest, 100 + (1 << 22)).header.extension, reth(0, 1 << 30));
    test.expect_silence();
}
