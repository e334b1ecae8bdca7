//! The responder, one packet at a time.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::ids::Srqn;
use bareverbs_prm::psn::Psn;

struct ResponderTest {
    responder: Responder<Range>,
    host: Host,
}

impl ResponderTest {
    fn new() -> Self {
        Self::with(parameters())
    }
    fn with(parameters: ConnectionParameters) -> Self {
        Self { responder: Responder::new(&parameters), host: Host::new(8192) }
    }
    fn send(&mut self, header: PacketHeader, payload: &[u8]) -> &mut Self {
        self.responder.handle_request(&packet(header, payload), &mut self.host);
        self
    }
    #[track_caller]
    fn expect(&mut self, psn: u32, syndrome: Syndrome, msn: u32) -> &mut Self {
        let response = self.responder.poll_transmit().expect("a response");
        assert_eq!(response.header.opcode, BthOpcode::Acknowledge);
        assert_eq!(response.header.psn, Psn::new(psn));
        assert_eq!(response.header.extension, Extension::Aeth(Aeth { syndrome, msn }));
        self
    }
    #[track_caller]
    fn expect_data(&mut self, opcode: BthOpcode, psn: u32, offset: u32, length: u32) -> &mut Self {
        let response = self.responder.poll_transmit().expect("a response");
        let payload = response.payload.expect("payload");
        assert_eq!((response.header.opcode, response.header.psn), (opcode, Psn::new(psn)));
        assert_eq!((payload.offset, payload.length), (offset, length));
        self
    }
    #[track_caller]
    fn expect_silence(&mut self) -> &mut Self {
        assert!(!self.responder.has_work());
        assert_eq!(self.responder.poll_transmit(), None);
        self
    }
    /// Expects a NAK and a broken connection that drops every later packet.
    #[track_caller]
    fn expect_break(&mut self, psn: u32, code: NakCode, error: ResponderError) {
        let response = self.responder.poll_transmit().expect("a NAK");
        let syndrome = response.header.extension.aeth().map(|aeth| aeth.syndrome);
        assert_eq!((response.header.psn, syndrome), (Psn::new(psn), Some(Syndrome::Nak(code))));
        self.expect_silence();
        assert_eq!(self.host.errors, [error]);
        self.send(header(BthOpcode::WriteOnly, psn, reth(0, 1)), &[1]).expect_silence();
    }
    #[track_caller]
    fn expect_invalid(&mut self, psn: u32) {
        self.expect_break(psn, NakCode::InvalidRequest, ResponderError::InvalidRequest);
    }
}

fn silent(header: PacketHeader) -> PacketHeader {
    PacketHeader { ack_request: false, ..header }
}

const FULL: [u8; MTU as usize] = [7; MTU as usize];

/// Requirement: IBTA v1.4 §9.4.3: packets of a WRITE go to consecutive addresses, beginning with the one in the RETH.
#[test]
fn write_of_three_packets() {
    let mut test = ResponderTest::new();
    test.send(silent(header(BthOpcode::WriteFirst, 100, reth(16, 520))), &FULL).expect_silence();
    test.send(silent(header(BthOpcode::WriteMiddle, 101, Extension::None)), &FULL).expect_silence();
    test.send(header(BthOpcode::WriteLast, 102, Extension::None), &[9; 8]).expect(102, Syndrome::ACK, 1);
    assert_eq!(test.host.memory[16..16 + 512], [7; 512]);
    assert_eq!(test.host.memory[528..537], [9, 9, 9, 9, 9, 9, 9, 9, 0]);
    assert_eq!(test.host.checks, 1);
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: a responder may coalesce acknowledgements.
#[test]
fn waiting_acks_are_coalesced() {
    let mut test = ResponderTest::new();
    for psn in 100..110 {
        test.send(header(BthOpcode::WriteOnly, psn, reth(0, 1)), &[1]);
    }
    test.expect(109, Syndrome::ACK, 10).expect_silence();
    assert_eq!(test.responder.counters().merged_acks, 9);
}

/// Requirement: IBTA v1.4 §9.7.1: PSNs are counted modulo 2^24
#[test]
fn psn_wraps() {
    let mut test =
        ResponderTest::with(ConnectionParameters { receive_psn: Psn::new(0xff_ffff), ..parameters() });
    test.send(header(BthOpcode::WriteOnly, 0xff_ffff, reth(0, 1)), &[1]).expect(0xff_ffff, Syndrome::ACK, 1);
    test.send(header(BthOpcode::WriteOnly, 0, reth(1, 1)), &[2]).expect(0, Syndrome::ACK, 2);
    test.send(header(BthOpcode::WriteOnly, 0xff_ffff, reth(0, 1)), &[3]).expect(0, Syndrome::ACK, 2);
    assert_eq!(test.host.memory[..2], [1, 2]);
}

/// Requirement: IBTA v1.4 §9.7.5.1.1: the responder answers a gap with one NAK that has the expected PSN, and drops the
/// packets after the gap.
#[test]
fn a_gap_is_answered_with_one_nak() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::WriteOnly, 101, reth(1, 1)), &[2]);
    test.expect(100, Syndrome::Nak(NakCode::SequenceError), 0);
    test.send(header(BthOpcode::WriteOnly, 102, reth(2, 1)), &[3]).expect_silence();
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    test.send(header(BthOpcode::WriteOnly, 105, reth(5, 1)), &[6]);
    test.expect(101, Syndrome::Nak(NakCode::SequenceError), 1);
    assert_eq!(test.host.memory[..3], [1, 0, 0]);
    assert_eq!(test.responder.counters().out_of_sequence, 3);
}

/// Requirement: IBTA v1.4 §9.7.5.1.4: a duplicate SEND or WRITE is acknowledged with the latest PSN and not executed
/// again.
#[test]
fn duplicate_write_and_send_are_acknowledged_and_not_done_again() {
    let mut test = ResponderTest::new();
    test.host.post(64);
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    test.send(header(BthOpcode::SendOnly, 101, Extension::None), &[2]).expect(101, Syndrome::ACK, 2);
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[9]).expect(101, Syndrome::ACK, 2);
    test.send(header(BthOpcode::SendOnly, 101, Extension::None), &[9]).expect(101, Syndrome::ACK, 2);
    assert_eq!((test.host.memory[0], test.host.completions.len()), (1, 1));
    assert_eq!(test.responder.counters().duplicates, 2);
    // Before the first packet there is nothing to acknowledge.
    ResponderTest::new().send(header(BthOpcode::WriteOnly, 99, reth(0, 1)), &[9]).expect_silence();
}

/// Requirement: IBTA v1.4 §9.4.1: a SEND with invalidate invalidates the R_Key in its IETH
/// Requirement: IBTA v1.4 §9.2.3: the solicited event bit of the last packet reaches the completion
#[test]
fn send_with_immediate_invalidate_and_solicited() {
    let mut test = ResponderTest::new();
    test.host.post(600);
    test.host.post(0);
    test.send(header(BthOpcode::SendFirst, 100, Extension::None), &FULL);
    let last = header(BthOpcode::SendLastImmediate, 101, Extension::Immediate(0xabcd));
    test.send(PacketHeader { solicited: true, ..last }, &[1, 2]);
    test.send(header(BthOpcode::SendOnlyInvalidate, 102, Extension::Ieth(0x77)), &[]);
    test.expect(102, Syndrome::ACK, 2);
    assert_eq!(test.host.received[0][256..259], [1, 2, 0]);
    let success = ReceiveStatus::Success;
    let first = ReceiveCompletion {
        kind: ReceiveKind::SendImmediate,
        length: 258,
        immediate: Some(0xabcd),
        solicited: true,
        status: success,
    };
    let second = ReceiveCompletion {
        kind: ReceiveKind::SendInvalidate,
        length: 0,
        immediate: Some(0x77),
        solicited: false,
        status: success,
    };
    assert_eq!(test.host.completions, [(0, first), (1, second)]);
    assert_eq!(test.host.invalidated, [0x77]);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: without a receive, the responder sends an RNR NAK with its timer and drops later
/// packets until the packet is retransmitted.
#[test]
fn send_without_a_receive() {
    let mut test = ResponderTest::new();
    let send = header(BthOpcode::SendOnly, 100, Extension::None);
    test.send(send, &[5]).expect(100, Syndrome::RnrNak(1), 0);
    test.send(header(BthOpcode::SendOnly, 101, Extension::None), &[6]).expect_silence();
    test.host.post(8);
    test.send(send, &[5]).expect(100, Syndrome::ACK, 1);
    assert_eq!(test.host.received[0][0], 5);
    assert_eq!(test.responder.counters().rnr_naks, 1);
}

/// Requirement: IBTA v1.4 §9.4.3: a WRITE with immediate data consumes a receive when its last packet arrives.
#[test]
fn write_with_immediate_takes_a_receive_at_its_last_packet() {
    let mut test = ResponderTest::new();
    test.send(silent(header(BthOpcode::WriteFirst, 100, reth(0, 257))), &FULL).expect_silence();
    let last = header(BthOpcode::WriteLastImmediate, 101, Extension::Immediate(3));
    test.send(last, &[1]).expect(101, Syndrome::RnrNak(1), 0);
    test.host.post(0);
    test.send(last, &[1]).expect(101, Syndrome::ACK, 1);
    let (_, completion) = test.host.completions[0];
    assert_eq!(
        (completion.kind, completion.length, completion.immediate),
        (ReceiveKind::WriteImmediate, 257, Some(3))
    );
}

/// Requirement: IBTA v1.4 §9.7.5.2.9: READ responses are first, middle and last, or only, and each except the last fills
/// the path MTU.
#[test]
fn read_and_its_responses() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    test.send(header(BthOpcode::WriteOnly, 103, reth(0, 1)), &[1]);
    test.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    test.expect_data(BthOpcode::ReadResponseMiddle, 101, 256, 256);
    test.expect_data(BthOpcode::ReadResponseLast, 102, 512, 88);
    test.expect(103, Syndrome::ACK, 2).expect_silence();
    test.send(header(BthOpcode::ReadRequest, 104, reth(0, 0)), &[]);
    test.expect_data(BthOpcode::ReadResponseOnly, 104, 0, 0).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: a READ response acknowledges all earlier requests.
#[test]
fn read_makes_an_earlier_ack_needless() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]);
    test.send(header(BthOpcode::ReadRequest, 101, reth(0, 1)), &[]);
    test.expect_data(BthOpcode::ReadResponseOnly, 101, 0, 1).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ is executed again after another check of its R_Key.
/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ that asks for more than the original is dropped.
#[test]
fn duplicate_read_is_carried_out_again_within_its_range() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    while test.responder.poll_transmit().is_some() {}
    test.send(header(BthOpcode::ReadRequest, 101, reth(256, 344)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 101, 0, 256);
    test.expect_data(BthOpcode::ReadResponseLast, 102, 256, 88).expect_silence();
    test.send(header(BthOpcode::ReadRequest, 101, reth(256, 345)), &[]).expect_silence();
    test.send(header(BthOpcode::ReadRequest, 102, reth(256, 344)), &[]).expect_silence();
    assert_eq!(test.responder.counters().dropped, 2);
    test.host.key_revoked = true;
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    test.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ restarts the responses in progress.
#[test]
fn duplicate_read_whose_responses_are_still_being_sent_begins_again() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 1024)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    test.expect_data(BthOpcode::ReadResponseMiddle, 101, 256, 256);
    test.send(header(BthOpcode::ReadRequest, 101, reth(256, 768)), &[]);
    test.send(header(BthOpcode::ReadRequest, 102, reth(512, 512)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 101, 256, 256);
    test.expect_data(BthOpcode::ReadResponseMiddle, 102, 512, 256);
    test.expect_data(BthOpcode::ReadResponseLast, 103, 768, 256).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.4.1.7: the responder answers READs beyond the agreed number with a NAK for an invalid
/// request.
#[test]
fn more_reads_than_agreed() {
    let mut test = ResponderTest::new();
    for psn in 100..103 {
        test.send(header(BthOpcode::ReadRequest, psn, reth(0, 1)), &[]);
    }
    test.expect_data(BthOpcode::ReadResponseOnly, 100, 0, 1);
    test.expect_data(BthOpcode::ReadResponseOnly, 101, 0, 1);
    test.expect_invalid(102);
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate atomic gets its response from the replay resources and is not executed
/// again.
/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate atomic that is no longer remembered is dropped.
/// Requirement: IBTA v1.4 §9.4.5: an atomic whose address is not a multiple of 8 is an invalid request
#[test]
fn atomics_and_their_duplicates() {
    let mut test = ResponderTest::new();
    let atomic = |address, swap_or_add, compare| {
        Extension::AtomicEth(AtomicEth { address, rkey: RKEY, swap_or_add, compare })
    };
    let olds = |test: &mut ResponderTest| match test.responder.poll_transmit().map(|p| p.header.extension) {
        Some(Extension::AtomicAck(aeth, old)) => (aeth.msn, old),
        other => panic!("{other:?}"),
    };
    test.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]);
    test.send(header(BthOpcode::CompareSwap, 101, atomic(BASE, 9, 5)), &[]);
    assert_eq!((olds(&mut test), olds(&mut test)), ((1, 0), (2, 5)));
    test.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]);
    assert_eq!((olds(&mut test), test.host.memory[7]), ((2, 0), 9));
    // The responder remembers only two.
    test.send(header(BthOpcode::FetchAdd, 102, atomic(BASE, 1, 0)), &[]);
    assert_eq!(olds(&mut test), (3, 9));
    test.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]).expect_silence();
    test.send(header(BthOpcode::FetchAdd, 103, atomic(BASE + 4, 1, 0)), &[]).expect_invalid(103);
}

/// Requirement: IBTA v1.4 §9.7.4.1.3: op-codes out of sequence are invalid requests.
/// Requirement: IBTA v1.4 §9.7.4.1.4: reserved op-codes are invalid requests.
/// Requirement: IBTA v1.4 §9.7.4.1.6: payloads that do not match op-code, path MTU or RETH are invalid requests.
#[test]
fn invalid_sequences_and_lengths() {
    use BthOpcode::*;
    let full = &FULL[..];
    let none = Extension::None;
    let single: [(BthOpcode, Extension, &[u8]); 14] = [
        (WriteMiddle, none, full),
        (SendLast, none, &[1]),
        (RpcWriteMiddle, none, full),
        (WriteOnly, reth(0, 2), &[1]),
        (WriteFirst, reth(0, 600), &[1]),
        (WriteFirst, reth(0, 256), full),
        (WriteOnly, reth(0, (1 << 30) + 1), &[1]),
        (SendFirst, none, &[1]),
        (ReadRequest, reth(0, 4), &[1]),
        (ReadRequest, reth(0, u32::MAX), &[]),
        (RpcParams, reth(0, 5), &[1]),
        (RpcParams, reth(0, 257), &[1; 257]),
        (Unknown(0x15), none, &[]),
        (Unknown(0x64), none, &[]),
    ];
    for (opcode, extension, payload) in single {
        let mut test = ResponderTest::new();
        test.host.post(4096);
        test.send(header(opcode, 100, extension), payload).expect_invalid(100);
        assert_eq!(test.host.memory, vec![0; 8192], "{opcode}");
    }
    for (opcode, payload) in
        [(WriteLast, &[1; 2][..]), (WriteLast, &[]), (WriteMiddle, full), (SendOnly, &[])]
    {
        let mut test = ResponderTest::new();
        test.send(silent(header(WriteFirst, 100, reth(0, 257))), full);
        test.send(header(opcode, 101, none), payload).expect_invalid(101);
    }
}

/// Requirement: IBTA v1.4 §9.7.4.1.6: the last packet of a SEND or WRITE of several packets has at least one byte of
/// payload.
#[test]
fn the_last_packet_of_a_message_is_not_empty() {
    let mut test = ResponderTest::new();
    test.host.post(1000);
    test.send(header(BthOpcode::SendFirst, 100, Extension::None), &[1; MTU as usize]).expect(
        100,
        Syndrome::ACK,
        0,
    );
    test.send(header(BthOpcode::SendLast, 101, Extension::None), &[]).expect_invalid(101);
    assert!(test.host.completions.iter().all(|(_, completion)| completion.status != ReceiveStatus::Success));
}

/// Requirement: IBTA v1.4 §9.9.3: a SEND that breaks off completes its receive with an error.
#[test]
fn a_broken_send_gives_its_receive_back() {
    let mut test = ResponderTest::new();
    test.host.post(4096);
    test.send(silent(header(BthOpcode::SendFirst, 100, Extension::None)), &FULL);
    test.send(header(BthOpcode::WriteOnly, 101, reth(0, 1)), &[1]).expect_invalid(101);
    assert_eq!(test.host.completions[0].1.status, ReceiveStatus::QpOperation);

    let mut test = ResponderTest::new();
    test.host.post(4096);
    test.send(silent(header(BthOpcode::SendFirst, 100, Extension::None)), &FULL);
    assert_eq!(test.responder.flush().map(|buffer| buffer.token), Some(0));
    test.send(header(BthOpcode::SendLast, 101, Extension::None), &[1]).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.4.1.5: the responder answers a wrong R_Key, or a range outside the region, with a NAK for
/// a remote access error.
#[test]
fn keys_and_ranges_are_checked() {
    let wrong = Extension::Reth(Reth { address: BASE, rkey: RKEY + 1, length: 1 });
    let beyond = reth(8190, 3);
    for extension in [wrong, beyond] {
        let mut test = ResponderTest::new();
        let length = extension.reth().map_or(0, |reth| reth.length as usize);
        test.send(header(BthOpcode::WriteOnly, 100, extension), &[1, 1, 1][..length]);
        test.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
        let mut test = ResponderTest::new();
        test.send(header(BthOpcode::ReadRequest, 100, extension), &[]);
        test.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
    }
}

/// Requirement: IBTA v1.4 §9.9.3: a SEND that is longer than its receive is an invalid request for the peer and a local
/// length error here.
/// Requirement: IBTA v1.4 §9.9.3: an error of the responder's own receive is a remote operational error for the peer.
#[test]
fn local_faults_of_a_receive() {
    let mut test = ResponderTest::new();
    test.host.post(1);
    test.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1, 2]).expect_invalid(100);
    assert_eq!(test.host.completions[0].1.status, ReceiveStatus::Length);

    let mut test = ResponderTest::new();
    test.host.post(8);
    test.host.scatter_fails = true;
    test.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1, 2]);
    test.expect_break(100, NakCode::RemoteOperational, ResponderError::Operational);
    assert_eq!(test.host.completions[0].1.status, ReceiveStatus::Protection);

    let mut test = ResponderTest::new();
    test.host.queue_fails = true;
    test.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1]);
    test.expect_break(100, NakCode::RemoteOperational, ResponderError::Operational);
}

#[test]
fn a_write_to_failing_memory_completes_its_receive_in_error() {
    let mut test = ResponderTest::new();
    test.host.post(0);
    test.host.memory_fails = true;
    let reth = Reth { address: BASE, rkey: RKEY, length: 1 };
    test.send(header(BthOpcode::WriteOnlyImmediate, 100, Extension::RethImmediate(reth, 1)), &[1]);
    test.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
    assert_eq!(test.host.completions[0].1.status, ReceiveStatus::Access);
}

/// Requirement: IBTA v1.4 §9.7.4.1.7: a responder that cannot continue answers with a NAK for a remote operational error.
#[test]
fn a_read_whose_memory_fails_midway_gets_an_operational_nak() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    test.send(header(BthOpcode::WriteOnly, 103, reth(0, 1)), &[1]);
    test.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    test.responder.fail_read(Psn::new(101), ResponderError::Operational, &mut test.host);
    test.expect_break(101, NakCode::RemoteOperational, ResponderError::Operational);
}

#[test]
fn rpc_of_strom() {
    let mut test = ResponderTest::new();
    let rpc = |length| Extension::Reth(Reth { address: 0xabc, rkey: 7, length });
    test.send(header(BthOpcode::RpcParams, 100, rpc(3)), &[1, 2, 3]).expect(100, Syndrome::ACK, 1);
    test.send(silent(header(BthOpcode::RpcWriteFirst, 101, rpc(258))), &FULL);
    test.send(header(BthOpcode::RpcWriteLast, 102, Extension::None), &[8, 9]).expect(102, Syndrome::ACK, 2);
    test.send(header(BthOpcode::RpcParams, 100, rpc(3)), &[1, 2, 3]).expect(102, Syndrome::ACK, 2);
    let expected = [
        (0xabc, 7, true, 3, 0, vec![1, 2, 3]),
        (0xabc, 7, false, 258, 0, FULL.to_vec()),
        (0xabc, 7, false, 258, 256, vec![8, 9]),
    ];
    assert_eq!(test.host.rpc, expected);
    test.host.accepts_rpc = false;
    test.send(header(BthOpcode::RpcWriteOnly, 103, rpc(1)), &[1]).expect_invalid(103);
}

/// Requirement: IBTA v1.4 §9.7.4.1.4: READs, WRITEs and atomics that the queue pair does not permit are invalid requests.
#[test]
fn operations_that_the_queue_pair_does_not_permit_are_invalid() {
    let reth = Extension::Reth(Reth { address: BASE, rkey: RKEY, length: 1 });
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    for (access, opcode, extension, payload) in [
        (RemoteAccess::Write, BthOpcode::WriteOnly, reth, &[1][..]),
        (RemoteAccess::Read, BthOpcode::ReadRequest, reth, &[]),
        (RemoteAccess::Atomic, BthOpcode::FetchAdd, atomic, &[]),
    ] {
        let mut test = ResponderTest::new();
        test.host.forbidden = Some(access);
        test.send(header(opcode, 100, extension), payload).expect_invalid(100);
    }
}

#[test]
fn a_storm_of_duplicates_is_bounded() {
    let mut test = ResponderTest::new();
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    for _ in 0..1000 {
        test.send(header(BthOpcode::FetchAdd, 100, atomic), &[]);
    }
    let mut answers = 0;
    while test.responder.poll_transmit().is_some() {
        answers += 1;
    }
    assert!((1..=12).contains(&answers), "{answers}");
    assert_eq!(test.host.memory[7], 1);
}

/// A request of an XRC connection names its shared receive queue (IBTA v1.4 annex A14). One that names a queue which does
/// not exist is an invalid request, and its duplicates are dropped.
#[test]
fn requests_of_an_extended_connection_name_a_queue_that_exists() {
    let named = |number, psn| PacketHeader {
        service_header: ServiceHeader::Xrceth(Srqn::from_low_bits(number)),
        ..header(BthOpcode::SendOnly, psn, Extension::None)
    };
    let mut test = ResponderTest::new();
    test.host.known_queue = Some(Srqn::from_low_bits(7));
    test.host.post(8);
    test.send(named(7, 100), &[5]).expect(100, Syndrome::ACK, 1);
    test.send(named(7, 100), &[5]).expect(100, Syndrome::ACK, 1);
    test.send(named(8, 100), &[5]).expect_silence();
    assert_eq!((test.responder.counters().duplicates, test.responder.counters().dropped), (1, 1));
    test.host.post(8);
    test.send(named(8, 101), &[5]).expect_invalid(101);
    assert_eq!(test.host.receives.len(), 1, "it has taken no receive");
}

/// Each would be the whole rest of the message that has begun.
#[test]
fn a_message_does_not_begin_within_another_of_its_kind() {
    use BthOpcode::*;
    let rpc = |length| Extension::Reth(Reth { address: 5, rkey: 7, length });
    for (first, extension, second, again) in [
        (SendFirst, Extension::None, SendOnly, Extension::None),
        (WriteFirst, reth(0, MTU + 1), WriteOnly, reth(0, 1)),
        (RpcWriteFirst, rpc(MTU + 1), RpcWriteOnly, rpc(1)),
    ] {
        let mut test = ResponderTest::new();
        test.host.post(1024);
        test.send(silent(header(first, 100, extension)), &FULL);
        test.send(header(second, 101, again), &[1]).expect_invalid(101);
    }
}

/// What is older than the first packet was never sent, and a reserved op-code is never acknowledged.
#[test]
fn packets_older_than_the_first_are_dropped() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::WriteOnly, 99, reth(0, 1)), &[1]).expect_silence();
    assert_eq!((test.responder.counters().duplicates, test.responder.counters().dropped), (0, 1));
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    test.send(header(BthOpcode::Unknown(0x15), 100, Extension::None), &[]).expect_silence();
    assert_eq!((test.responder.counters().duplicates, test.responder.counters().dropped), (1, 2));
}

/// The responses to a READ that is repeated from the next packet on begin like those of any other.
#[test]
fn a_repeated_read_begins_with_a_first_response_where_the_other_stands() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::ReadRequest, 100, reth(0, 1024)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    test.send(header(BthOpcode::ReadRequest, 101, reth(256, 768)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 101, 256, 256);
    test.expect_data(BthOpcode::ReadResponseMiddle, 102, 512, 256);
    test.expect_data(BthOpcode::ReadResponseLast, 103, 768, 256).expect_silence();
}

/// Behind other messages too, its responses stand where the first packet that is asked for again has its bytes.
#[test]
fn a_read_behind_a_write_begins_again_where_it_is_repeated() {
    let mut test = ResponderTest::new();
    test.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    test.send(header(BthOpcode::ReadRequest, 101, reth(0, 768)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 101, 0, 256);
    test.expect_data(BthOpcode::ReadResponseMiddle, 102, 256, 256);
    test.send(header(BthOpcode::ReadRequest, 102, reth(256, 512)), &[]);
    test.expect_data(BthOpcode::ReadResponseFirst, 102, 256, 256);
    test.expect_data(BthOpcode::ReadResponseLast, 103, 512, 256).expect_silence();
}
