//! The responder, one packet at a time.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;

struct Talk {
    responder: Responder<Range>,
    host: Host,
}

impl Talk {
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
        let answer = self.responder.poll_transmit().expect("a response");
        assert_eq!(answer.header.opcode, BthOpcode::Acknowledge);
        assert_eq!(answer.header.psn, Psn::new(psn));
        assert_eq!(answer.header.extension, Extension::Aeth(Aeth { syndrome, msn }));
        self
    }
    #[track_caller]
    fn expect_data(&mut self, opcode: BthOpcode, psn: u32, offset: u32, length: u32) -> &mut Self {
        let answer = self.responder.poll_transmit().expect("a response");
        let payload = answer.payload.expect("payload");
        assert_eq!((answer.header.opcode, answer.header.psn), (opcode, Psn::new(psn)));
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
        let answer = self.responder.poll_transmit().expect("a NAK");
        let syndrome = answer.header.extension.aeth().map(|aeth| aeth.syndrome);
        assert_eq!((answer.header.psn, syndrome), (Psn::new(psn), Some(Syndrome::Nak(code))));
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

/// Requirement: IBTA v1.4 §9.4.3: packets of a WRITE follow each other in memory from the address in the RETH
#[test]
fn write_of_three_packets() {
    let mut talk = Talk::new();
    talk.send(silent(header(BthOpcode::WriteFirst, 100, reth(16, 520))), &FULL).expect_silence();
    talk.send(silent(header(BthOpcode::WriteMiddle, 101, Extension::None)), &FULL).expect_silence();
    talk.send(header(BthOpcode::WriteLast, 102, Extension::None), &[9; 8]).expect(102, Syndrome::ACK, 1);
    assert_eq!(talk.host.memory[16..16 + 512], [7; 512]);
    assert_eq!(talk.host.memory[528..537], [9, 9, 9, 9, 9, 9, 9, 9, 0]);
    assert_eq!(talk.host.checks, 1);
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: acknowledgements may be coalesced
#[test]
fn acks_that_wait_become_one() {
    let mut talk = Talk::new();
    for psn in 100..110 {
        talk.send(header(BthOpcode::WriteOnly, psn, reth(0, 1)), &[1]);
    }
    talk.expect(109, Syndrome::ACK, 10).expect_silence();
    assert_eq!(talk.responder.counters().merged_acks, 9);
}

/// Requirement: IBTA v1.4 §9.7.1: PSNs are counted modulo 2^24
#[test]
fn psn_wraps() {
    let mut talk = Talk::with(ConnectionParameters { receive_psn: Psn::new(0xff_ffff), ..parameters() });
    talk.send(header(BthOpcode::WriteOnly, 0xff_ffff, reth(0, 1)), &[1]).expect(0xff_ffff, Syndrome::ACK, 1);
    talk.send(header(BthOpcode::WriteOnly, 0, reth(1, 1)), &[2]).expect(0, Syndrome::ACK, 2);
    talk.send(header(BthOpcode::WriteOnly, 0xff_ffff, reth(0, 1)), &[3]).expect(0, Syndrome::ACK, 2);
    assert_eq!(talk.host.memory[..2], [1, 2]);
}

/// Requirement: IBTA v1.4 §9.7.5.1.1: a gap is answered by one NAK with the expected PSN; more packets behind it are dropped
#[test]
fn gap_is_complained_of_once() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::WriteOnly, 101, reth(1, 1)), &[2]);
    talk.expect(100, Syndrome::Nak(NakCode::SequenceError), 0);
    talk.send(header(BthOpcode::WriteOnly, 102, reth(2, 1)), &[3]).expect_silence();
    talk.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    talk.send(header(BthOpcode::WriteOnly, 105, reth(5, 1)), &[6]);
    talk.expect(101, Syndrome::Nak(NakCode::SequenceError), 1);
    assert_eq!(talk.host.memory[..3], [1, 0, 0]);
    assert_eq!(talk.responder.counters().out_of_sequence, 3);
}

/// Requirement: IBTA v1.4 §9.7.5.1.4: a duplicate SEND or WRITE is acknowledged with the latest PSN and not carried out again
#[test]
fn duplicate_write_and_send_are_acknowledged_and_not_done_again() {
    let mut talk = Talk::new();
    talk.host.post(64);
    talk.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]).expect(100, Syndrome::ACK, 1);
    talk.send(header(BthOpcode::SendOnly, 101, Extension::None), &[2]).expect(101, Syndrome::ACK, 2);
    talk.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[9]).expect(101, Syndrome::ACK, 2);
    talk.send(header(BthOpcode::SendOnly, 101, Extension::None), &[9]).expect(101, Syndrome::ACK, 2);
    assert_eq!((talk.host.memory[0], talk.host.completions.len()), (1, 1));
    assert_eq!(talk.responder.counters().duplicates, 2);
    // Before the first packet there is nothing to acknowledge.
    Talk::new().send(header(BthOpcode::WriteOnly, 99, reth(0, 1)), &[9]).expect_silence();
}

/// Requirement: IBTA v1.4 §9.4.1: a SEND with invalidate invalidates the R_Key in its IETH
/// Requirement: IBTA v1.4 §9.2.3: the solicited event bit of the last packet reaches the completion
#[test]
fn send_with_immediate_invalidate_and_solicited() {
    let mut talk = Talk::new();
    talk.host.post(600);
    talk.host.post(0);
    talk.send(header(BthOpcode::SendFirst, 100, Extension::None), &FULL);
    let last = header(BthOpcode::SendLastImmediate, 101, Extension::Immediate(0xabcd));
    talk.send(PacketHeader { solicited: true, ..last }, &[1, 2]);
    talk.send(header(BthOpcode::SendOnlyInvalidate, 102, Extension::Ieth(0x77)), &[]);
    talk.expect(102, Syndrome::ACK, 2);
    assert_eq!(talk.host.received[0][256..259], [1, 2, 0]);
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
    assert_eq!(talk.host.completions, [(0, first), (1, second)]);
    assert_eq!(talk.host.invalidated, [0x77]);
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: without a receive the responder answers RNR NAK with its timer and drops what follows until the packet comes again
#[test]
fn send_without_a_receive() {
    let mut talk = Talk::new();
    let send = header(BthOpcode::SendOnly, 100, Extension::None);
    talk.send(send, &[5]).expect(100, Syndrome::RnrNak(1), 0);
    talk.send(header(BthOpcode::SendOnly, 101, Extension::None), &[6]).expect_silence();
    talk.host.post(8);
    talk.send(send, &[5]).expect(100, Syndrome::ACK, 1);
    assert_eq!(talk.host.received[0][0], 5);
    assert_eq!(talk.responder.counters().rnr_naks, 1);
}

/// Requirement: IBTA v1.4 §9.4.3: a WRITE with immediate data takes a receive when its last packet comes
#[test]
fn write_with_immediate_takes_a_receive_at_its_last_packet() {
    let mut talk = Talk::new();
    talk.send(silent(header(BthOpcode::WriteFirst, 100, reth(0, 257))), &FULL).expect_silence();
    let last = header(BthOpcode::WriteLastImmediate, 101, Extension::Immediate(3));
    talk.send(last, &[1]).expect(101, Syndrome::RnrNak(1), 0);
    talk.host.post(0);
    talk.send(last, &[1]).expect(101, Syndrome::ACK, 1);
    let (_, completion) = talk.host.completions[0];
    assert_eq!(
        (completion.kind, completion.length, completion.immediate),
        (ReceiveKind::WriteImmediate, 257, Some(3))
    );
}

/// Requirement: IBTA v1.4 §9.7.5.2.9: READ responses are first, middle and last, or only, each of the path MTU but the last
#[test]
fn read_and_its_responses() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    talk.send(header(BthOpcode::WriteOnly, 103, reth(0, 1)), &[1]);
    talk.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    talk.expect_data(BthOpcode::ReadResponseMiddle, 101, 256, 256);
    talk.expect_data(BthOpcode::ReadResponseLast, 102, 512, 88);
    talk.expect(103, Syndrome::ACK, 2).expect_silence();
    talk.send(header(BthOpcode::ReadRequest, 104, reth(0, 0)), &[]);
    talk.expect_data(BthOpcode::ReadResponseOnly, 104, 0, 0).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.1.2: a READ response is an acknowledgement of what is before it
#[test]
fn read_makes_an_earlier_ack_needless() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]);
    talk.send(header(BthOpcode::ReadRequest, 101, reth(0, 1)), &[]);
    talk.expect_data(BthOpcode::ReadResponseOnly, 101, 0, 1).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ is carried out again, after its R_Key is checked again
/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ that asks for more than the first asked is dropped
#[test]
fn duplicate_read_is_carried_out_again_within_its_range() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    while talk.responder.poll_transmit().is_some() {}
    talk.send(header(BthOpcode::ReadRequest, 101, reth(256, 344)), &[]);
    talk.expect_data(BthOpcode::ReadResponseFirst, 101, 0, 256);
    talk.expect_data(BthOpcode::ReadResponseLast, 102, 256, 88).expect_silence();
    talk.send(header(BthOpcode::ReadRequest, 101, reth(256, 345)), &[]).expect_silence();
    talk.send(header(BthOpcode::ReadRequest, 102, reth(256, 344)), &[]).expect_silence();
    assert_eq!(talk.responder.counters().dropped, 2);
    talk.host.key_revoked = true;
    talk.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    talk.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate READ restarts the responses that are being sent
#[test]
fn duplicate_read_whose_responses_are_still_being_sent_begins_again() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::ReadRequest, 100, reth(0, 1024)), &[]);
    talk.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    talk.expect_data(BthOpcode::ReadResponseMiddle, 101, 256, 256);
    talk.send(header(BthOpcode::ReadRequest, 101, reth(256, 768)), &[]);
    talk.send(header(BthOpcode::ReadRequest, 102, reth(512, 512)), &[]);
    talk.expect_data(BthOpcode::ReadResponseFirst, 101, 256, 256);
    talk.expect_data(BthOpcode::ReadResponseMiddle, 102, 512, 256);
    talk.expect_data(BthOpcode::ReadResponseLast, 103, 768, 256).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.4.1.7: READs beyond the agreed number are answered by a NAK for an invalid request
#[test]
fn more_reads_than_agreed() {
    let mut talk = Talk::new();
    for psn in 100..103 {
        talk.send(header(BthOpcode::ReadRequest, psn, reth(0, 1)), &[]);
    }
    talk.expect_data(BthOpcode::ReadResponseOnly, 100, 0, 1);
    talk.expect_data(BthOpcode::ReadResponseOnly, 101, 0, 1);
    talk.expect_invalid(102);
}

/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate atomic is answered from the replay resources, not carried out again
/// Requirement: IBTA v1.4 §9.7.5.1.5: a duplicate atomic that is not remembered any more is dropped
/// Requirement: IBTA v1.4 §9.4.5: an atomic whose address is not a multiple of 8 is an invalid request
#[test]
fn atomics_and_their_duplicates() {
    let mut talk = Talk::new();
    let atomic = |address, swap_or_add, compare| {
        Extension::AtomicEth(AtomicEth { address, rkey: RKEY, swap_or_add, compare })
    };
    let olds = |talk: &mut Talk| match talk.responder.poll_transmit().map(|p| p.header.extension) {
        Some(Extension::AtomicAck(aeth, old)) => (aeth.msn, old),
        other => panic!("{other:?}"),
    };
    talk.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]);
    talk.send(header(BthOpcode::CompareSwap, 101, atomic(BASE, 9, 5)), &[]);
    assert_eq!((olds(&mut talk), olds(&mut talk)), ((1, 0), (2, 5)));
    talk.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]);
    assert_eq!((olds(&mut talk), talk.host.memory[7]), ((2, 0), 9));
    // The responder remembers only two.
    talk.send(header(BthOpcode::FetchAdd, 102, atomic(BASE, 1, 0)), &[]);
    assert_eq!(olds(&mut talk), (3, 9));
    talk.send(header(BthOpcode::FetchAdd, 100, atomic(BASE, 5, 0)), &[]).expect_silence();
    talk.send(header(BthOpcode::FetchAdd, 103, atomic(BASE + 4, 1, 0)), &[]).expect_invalid(103);
}

/// Requirement: IBTA v1.4 §9.7.4.1.3: op-codes out of sequence are an invalid request
/// Requirement: IBTA v1.4 §9.7.4.1.4: reserved op-codes are an invalid request
/// Requirement: IBTA v1.4 §9.7.4.1.6: payloads that do not fit op-code, path MTU or RETH are an invalid request
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
        let mut talk = Talk::new();
        talk.host.post(4096);
        talk.send(header(opcode, 100, extension), payload).expect_invalid(100);
        assert_eq!(talk.host.memory, vec![0; 8192], "{opcode}");
    }
    for (opcode, payload) in
        [(WriteLast, &[1; 2][..]), (WriteLast, &[]), (WriteMiddle, full), (SendOnly, &[])]
    {
        let mut talk = Talk::new();
        talk.send(silent(header(WriteFirst, 100, reth(0, 257))), full);
        talk.send(header(opcode, 101, none), payload).expect_invalid(101);
    }
}

/// Requirement: IBTA v1.4 §9.7.4.1.6: the last packet of a SEND or WRITE of several packets carries at least one byte
#[test]
fn the_last_packet_of_a_message_is_not_empty() {
    let mut talk = Talk::new();
    talk.host.post(1000);
    talk.send(header(BthOpcode::SendFirst, 100, Extension::None), &[1; MTU as usize]).expect(
        100,
        Syndrome::ACK,
        0,
    );
    talk.send(header(BthOpcode::SendLast, 101, Extension::None), &[]).expect_invalid(101);
    assert!(talk.host.completions.iter().all(|(_, completion)| completion.status != ReceiveStatus::Success));
}

/// Requirement: IBTA v1.4 §9.9.3: a SEND that breaks in its middle ends its receive with an error
#[test]
fn a_broken_send_gives_its_receive_back() {
    let mut talk = Talk::new();
    talk.host.post(4096);
    talk.send(silent(header(BthOpcode::SendFirst, 100, Extension::None)), &FULL);
    talk.send(header(BthOpcode::WriteOnly, 101, reth(0, 1)), &[1]).expect_invalid(101);
    assert_eq!(talk.host.completions[0].1.status, ReceiveStatus::QpOperation);

    let mut talk = Talk::new();
    talk.host.post(4096);
    talk.send(silent(header(BthOpcode::SendFirst, 100, Extension::None)), &FULL);
    assert_eq!(talk.responder.flush().map(|buffer| buffer.token), Some(0));
    talk.send(header(BthOpcode::SendLast, 101, Extension::None), &[1]).expect_silence();
}

/// Requirement: IBTA v1.4 §9.7.4.1.5: a wrong R_Key or a range outside of its region is answered by a NAK for a remote access error
#[test]
fn keys_and_ranges_are_checked() {
    let wrong = Extension::Reth(Reth { address: BASE, rkey: RKEY + 1, length: 1 });
    let beyond = reth(8190, 3);
    for extension in [wrong, beyond] {
        let mut talk = Talk::new();
        let length = extension.reth().map_or(0, |reth| reth.length as usize);
        talk.send(header(BthOpcode::WriteOnly, 100, extension), &[1, 1, 1][..length]);
        talk.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
        let mut talk = Talk::new();
        talk.send(header(BthOpcode::ReadRequest, 100, extension), &[]);
        talk.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
    }
}

/// Requirement: IBTA v1.4 §9.9.3: a SEND longer than its receive is an invalid request to the peer and a local length error here
/// Requirement: IBTA v1.4 §9.9.3: a fault of a receive of the responder itself is a remote operational error to the peer
#[test]
fn local_faults_of_a_receive() {
    let mut talk = Talk::new();
    talk.host.post(1);
    talk.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1, 2]).expect_invalid(100);
    assert_eq!(talk.host.completions[0].1.status, ReceiveStatus::Length);

    let mut talk = Talk::new();
    talk.host.post(8);
    talk.host.scatter_fails = true;
    talk.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1, 2]);
    talk.expect_break(100, NakCode::RemoteOperational, ResponderError::Operational);
    assert_eq!(talk.host.completions[0].1.status, ReceiveStatus::Protection);

    let mut talk = Talk::new();
    talk.host.queue_fails = true;
    talk.send(header(BthOpcode::SendOnly, 100, Extension::None), &[1]);
    talk.expect_break(100, NakCode::RemoteOperational, ResponderError::Operational);
}

#[test]
fn a_write_that_cannot_reach_memory_ends_its_receive() {
    let mut talk = Talk::new();
    talk.host.post(0);
    talk.host.memory_fails = true;
    let reth = Reth { address: BASE, rkey: RKEY, length: 1 };
    talk.send(header(BthOpcode::WriteOnlyImmediate, 100, Extension::RethImmediate(reth, 1)), &[1]);
    talk.expect_break(100, NakCode::RemoteAccess, ResponderError::RemoteAccess);
    assert_eq!(talk.host.completions[0].1.status, ReceiveStatus::Access);
}

/// Requirement: IBTA v1.4 §9.7.4.1.7: a responder that cannot go on answers with a NAK for a remote operational error
#[test]
fn a_read_that_cannot_reach_memory_is_refused_after_all() {
    let mut talk = Talk::new();
    talk.send(header(BthOpcode::ReadRequest, 100, reth(0, 600)), &[]);
    talk.send(header(BthOpcode::WriteOnly, 103, reth(0, 1)), &[1]);
    talk.expect_data(BthOpcode::ReadResponseFirst, 100, 0, 256);
    talk.responder.fail_read(Psn::new(101), ResponderError::Operational, &mut talk.host);
    talk.expect_break(101, NakCode::RemoteOperational, ResponderError::Operational);
}

#[test]
fn rpc_of_strom() {
    let mut talk = Talk::new();
    let rpc = |length| Extension::Reth(Reth { address: 0xabc, rkey: 7, length });
    talk.send(header(BthOpcode::RpcParams, 100, rpc(3)), &[1, 2, 3]).expect(100, Syndrome::ACK, 1);
    talk.send(silent(header(BthOpcode::RpcWriteFirst, 101, rpc(258))), &FULL);
    talk.send(header(BthOpcode::RpcWriteLast, 102, Extension::None), &[8, 9]).expect(102, Syndrome::ACK, 2);
    talk.send(header(BthOpcode::RpcParams, 100, rpc(3)), &[1, 2, 3]).expect(102, Syndrome::ACK, 2);
    let expected = [
        (0xabc, 7, true, 3, 0, vec![1, 2, 3]),
        (0xabc, 7, false, 258, 0, FULL.to_vec()),
        (0xabc, 7, false, 258, 256, vec![8, 9]),
    ];
    assert_eq!(talk.host.rpc, expected);
    talk.host.accepts_rpc = false;
    talk.send(header(BthOpcode::RpcWriteOnly, 103, rpc(1)), &[1]).expect_invalid(103);
}

/// Requirement: IBTA v1.4 §9.7.4.1.4: READ, WRITE and atomics that the queue pair does not permit are invalid requests
#[test]
fn operations_that_the_queue_pair_does_not_permit_are_invalid() {
    let reth = Extension::Reth(Reth { address: BASE, rkey: RKEY, length: 1 });
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    for (access, opcode, extension, payload) in [
        (RemoteAccess::Write, BthOpcode::WriteOnly, reth, &[1][..]),
        (RemoteAccess::Read, BthOpcode::ReadRequest, reth, &[]),
        (RemoteAccess::Atomic, BthOpcode::FetchAdd, atomic, &[]),
    ] {
        let mut talk = Talk::new();
        talk.host.forbidden = Some(access);
        talk.send(header(opcode, 100, extension), payload).expect_invalid(100);
    }
}

#[test]
fn a_storm_of_duplicates_is_bounded() {
    let mut talk = Talk::new();
    let atomic = Extension::AtomicEth(AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 });
    for _ in 0..1000 {
        talk.send(header(BthOpcode::FetchAdd, 100, atomic), &[]);
    }
    let mut answers = 0;
    while talk.responder.poll_transmit().is_some() {
        answers += 1;
    }
    assert!((1..=12).contains(&answers), "{answers}");
    assert_eq!(talk.host.memory[7], 1);
}
