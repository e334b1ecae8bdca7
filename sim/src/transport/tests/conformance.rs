//! Figures of the specification, one test each: timers, counts, limits, wraparound, and messages of every
//! length.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use proptest::prelude::*;

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

fn write(token: u64, length: u32) -> Request {
    let operation = Operation::Write { address: BASE, rkey: RKEY, immediate: None };
    Request { operation, length, token, solicited: false, fence: false, service_header: ServiceHeader::None }
}

fn with(operation: Operation, token: u64, length: u32) -> Request {
    Request { operation, ..write(token, length) }
}

fn requester(edit: impl FnOnce(&mut ConnectionParameters)) -> Requester {
    let mut parameters = parameters();
    edit(&mut parameters);
    Requester::new(&parameters)
}

/// Everything that a requester can send now.
fn sent(requester: &mut Requester, now: Time) -> Vec<RequestPacket> {
    core::iter::from_fn(|| requester.poll_transmit(now)).collect()
}

fn answer(requester: &mut Requester, header: PacketHeader, payload: &[u8]) -> Placement {
    requester.handle_response(at(1), &packet(header, payload))
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: the local ACK timeout is 4.096 µs · 2^n for n from 1 to 31
#[test]
fn the_timeout_doubles_with_each_step() {
    for exponent in 1..=31u8 {
        let mut requester = requester(|p| p.ack_timeout = exponent);
        requester.submit(write(1, 1)).unwrap();
        sent(&mut requester, at(0));
        let due = requester.poll_timeout().unwrap();
        assert_eq!(due, at(0) + Duration::from_picos(4_096_000 << exponent), "{exponent}");
        requester.handle_timeout(due);
        assert_eq!(requester.counters().timeouts, 1);
    }
}

/// Requirement: IBTA v1.4 §9.7.6.1.3: with a retry count of n, a packet is sent n + 1 times.
#[test]
fn retries_are_counted_exactly() {
    for retry_count in 0..=7 {
        let mut requester = requester(|p| p.retry_count = retry_count);
        requester.submit(write(1, 1)).unwrap();
        let mut times = sent(&mut requester, at(0)).len();
        while let Some(due) = requester.poll_timeout() {
            requester.handle_timeout(due);
            times += sent(&mut requester, due).len();
        }
        assert_eq!(times, usize::from(retry_count) + 1);
        let result = Err(RequesterError::RetryExceeded);
        assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 1, result }));
    }
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: an RNR retry count of n, below 7, means n retries.
#[test]
fn rnr_retries_are_counted_exactly() {
    for rnr_retry in 0..7 {
        let mut requester = requester(|p| p.rnr_retry = rnr_retry);
        requester.submit(write(1, 1)).unwrap();
        let (mut now, mut waits) = (at(0), 0);
        loop {
            sent(&mut requester, now);
            requester.handle_response(now, &packet(acknowledge(100, Syndrome::RnrNak(1)), &[]));
            let Some(due) = requester.poll_timeout() else { break };
            (now, waits) = (due, waits + 1);
            requester.handle_timeout(now);
        }
        assert_eq!(waits, u32::from(rnr_retry));
        let result = Err(RequesterError::RnrRetryExceeded);
        assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 1, result }));
    }
}

/// Requirement: IBTA v1.4 §9.7.1: the requester's PSNs wrap at 2^24, and it accepts acknowledgements from before and
/// after the wrap.
#[test]
fn a_requester_counts_over_the_end() {
    let mut requester = requester(|p| p.send_psn = Psn::new(0xff_fffe));
    for token in 0..4 {
        requester.submit(write(token, 300)).unwrap();
    }
    let psns: Vec<u32> = sent(&mut requester, at(0)).iter().map(|p| p.header.psn.value()).collect();
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1, 2, 3, 4, 5]);
    answer(&mut requester, acknowledge(0xff_ffff, Syndrome::ACK), &[]);
    assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 0, result: Ok(()) }));
    answer(&mut requester, nak(2, NakCode::SequenceError), &[]);
    assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 1, result: Ok(()) }));
    assert_eq!(sent(&mut requester, at(1)).first().map(|p| p.header.psn), Some(Psn::new(2)));
    answer(&mut requester, acknowledge(5, Syndrome::ACK), &[]);
    assert_eq!(requester.outstanding(), 2, "completions are returned one by one");
    assert_eq!(requester.next_psn(), Psn::new(6));
}

/// Requirement: IBTA v1.4 §9.7.5.2.6: responses out of order are a gap: the requester asks for the missing READ again.
#[test]
fn the_response_of_a_later_read_does_not_stand_for_the_earlier() {
    let mut requester = requester(|_| ());
    let read = Operation::Read { address: BASE, rkey: RKEY };
    requester.submit(with(read, 1, 10)).unwrap();
    requester.submit(with(read, 2, 10)).unwrap();
    sent(&mut requester, at(0));
    let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 2 });
    let placed = answer(&mut requester, header(BthOpcode::ReadResponseOnly, 101, aeth), &[1; 10]);
    assert_eq!((placed, requester.poll_completion()), (Placement::None, None));
    assert_eq!(requester.counters().implied_naks, 1);
    let again: Vec<_> = sent(&mut requester, at(1)).iter().map(|p| p.token).collect();
    assert_eq!(again, [1, 2]);
}

/// Requirement: IBTA v1.4 §9.7.3.1: atomics count as outstanding READs.
#[test]
fn atomics_count_as_reads() {
    let mut requester = requester(|p| p.max_outstanding_reads = 1);
    let atomic = fetch_add(BASE, 1);
    requester.submit(with(atomic, 1, 8)).unwrap();
    requester.submit(with(Operation::Read { address: BASE, rkey: RKEY }, 2, 8)).unwrap();
    assert_eq!(sent(&mut requester, at(0)).len(), 1);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
    answer(&mut requester, header(BthOpcode::AtomicAcknowledge, 100, Extension::AtomicAck(aeth, 5)), &[]);
    assert_eq!(sent(&mut requester, at(0)).len(), 1);
}

/// Requirement: IBTA v1.4 §9.7.4.1.4: every reserved op-code of the class is an invalid request
#[test]
fn every_reserved_opcode_is_refused() {
    let reserved: Vec<BthOpcode> =
        (0..0x20).map(BthOpcode::from_raw).filter(|opcode| matches!(opcode, BthOpcode::Unknown(_))).collect();
    assert!(!reserved.is_empty());
    for opcode in reserved {
        let mut responder = Responder::new(&parameters());
        let mut host = Host::new(64);
        responder.handle_request(&packet(header(opcode, 100, Extension::None), &[]), &mut host);
        let nak = responder.poll_transmit().and_then(|response| response.header.extension.aeth());
        assert_eq!(nak.map(|aeth| aeth.syndrome), Some(Syndrome::Nak(NakCode::InvalidRequest)), "{opcode}");
        assert_eq!(host.errors, [ResponderError::InvalidRequest]);
    }
}

/// Requirement: IBTA v1.4 §9.7.4.1.7: without resources for READs and atomics, each of them is an invalid request
#[test]
fn a_responder_without_read_resources_refuses_them() {
    let atomic = AtomicEth { address: BASE, rkey: RKEY, swap_or_add: 1, compare: 0 };
    for (opcode, extension) in
        [(BthOpcode::ReadRequest, reth(0, 8)), (BthOpcode::FetchAdd, Extension::AtomicEth(atomic))]
    {
        let mut responder = Responder::new(&ConnectionParameters { max_remembered_reads: 0, ..parameters() });
        let mut host = Host::new(64);
        responder.handle_request(&packet(header(opcode, 100, extension), &[]), &mut host);
        assert_eq!(host.errors, [ResponderError::InvalidRequest], "{opcode}");
    }
}

/// Requirement: IBTA v1.4 §9.7.7.2: a responder without end-to-end credits says so: every ACK has a credit count of 31.
#[test]
fn no_credits_are_counted() {
    let mut responder = Responder::new(&parameters());
    let mut host = Host::new(64);
    responder.handle_request(&packet(header(BthOpcode::WriteOnly, 100, reth(0, 1)), &[1]), &mut host);
    let aeth = responder.poll_transmit().and_then(|response| response.header.extension.aeth()).unwrap();
    assert_eq!((aeth.syndrome, aeth.syndrome.raw()), (Syndrome::Ack(31), 0x1f));
    // A requester accepts any credit count from a peer.
    let mut requester = requester(|_| ());
    requester.submit(write(1, 1)).unwrap();
    sent(&mut requester, at(0));
    answer(&mut requester, acknowledge(100, Syndrome::Ack(0)), &[]);
    assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 1, result: Ok(()) }));
}

/// Requirement: IBTA v1.4 §9.7.4.1.6: a message of no bytes is one packet, whatever its operation.
#[test]
fn a_message_of_no_bytes_is_one_packet() {
    let send = Operation::Send { immediate: None, invalidate: None };
    let read = Operation::Read { address: BASE, rkey: RKEY };
    for (operation, opcode) in [
        (send, BthOpcode::SendOnly),
        (write(0, 0).operation, BthOpcode::WriteOnly),
        (read, BthOpcode::ReadRequest),
    ] {
        let mut requester = requester(|_| ());
        requester.submit(with(operation, 1, 0)).unwrap();
        let packets = sent(&mut requester, at(0));
        assert_eq!(packets.iter().map(|p| p.header.opcode).collect::<Vec<_>>(), [opcode]);
        assert_eq!(requester.next_psn(), Psn::new(101));
    }
}

/// Transfers one message of many thousand packets end to end at the smallest path MTU.
/// Requirement: IBTA v1.4 §9.7.2: a message has exactly as many packets as its length needs.
#[test]
fn a_long_message_arrives_whole() {
    const LENGTH: u32 = (1 << 22) + 3;
    let mut requester = requester(|p| p.ack_timeout = 0);
    let mut responder = Responder::new(&parameters());
    let mut host = Host::new(LENGTH as usize);
    let bytes = pattern(LENGTH as usize, 7);
    requester.submit(write(1, LENGTH)).unwrap();
    let mut packets = 0;
    while let Some(out) = requester.poll_transmit(at(0)) {
        let (start, length) = (out.payload_offset as usize, out.payload_length as usize);
        responder.handle_request(&packet(out.header, &bytes[start..start + length]), &mut host);
        packets += 1;
        while let Some(back) = responder.poll_transmit() {
            requester.handle_response(at(0), &packet(back.header, &[]));
        }
    }
    assert_eq!(packets, LENGTH.div_ceil(MTU));
    assert_eq!(requester.poll_completion(), Some(RequestCompletion { token: 1, result: Ok(()) }));
    assert!(host.memory == bytes, "bytes differ");
}

/// Requirement: IBTA v1.4 §10.3.1.5: draining finishes messages in progress, even after losses, and holds back everything
/// else.
#[test]
fn draining_waits_for_messages_in_progress() {
    let mut requester = requester(|_| ());
    assert!(!requester.is_drained());
    for token in 1..=3 {
        requester.submit(write(token, 600)).unwrap();
    }
    for _ in 0..4 {
        requester.poll_transmit(at(0)).unwrap();
    }
    requester.drain();
    assert_eq!(sent(&mut requester, at(0)).len(), 2, "the rest of the second message");
    assert!(!requester.is_drained());
    let due = requester.poll_timeout().unwrap();
    requester.handle_timeout(due);
    assert_eq!(sent(&mut requester, due).len(), 6, "both messages are retransmitted");
    answer(&mut requester, acknowledge(105, Syndrome::ACK), &[]);
    assert!(!requester.is_drained(), "completions have not been polled");
    assert_eq!(core::iter::from_fn(|| requester.poll_completion()).count(), 2);
    assert!(requester.is_drained() && !requester.has_work());
    requester.resume();
    assert_eq!(sent(&mut requester, due).len(), 3);
}

proptest! {
    /// The test reads no payload, so a message of 2^30 bytes is cheap.
    /// Requirement: IBTA v1.4 §9.7.2: every packet of a message except the last fills the path MTU, for messages of up to
    /// 2^30 bytes.
    #[test]
    fn messages_of_every_length_are_cut_whole(
        mtu in proptest::sample::select(&MTUS[..]),
        length in prop_oneof![0u32..20_000, (1u32 << 30) - 5_000..=1 << 30, Just(1u32 << 30)],
        at_packet in any::<u32>(),
    ) {
        let mtu_bytes = segment::PathMtu::new(mtu);
        let request = write(1, length);
        let span = segment::span(&request, mtu_bytes).unwrap();
        prop_assert_eq!(u64::from(span), u64::from(length).div_ceil(mtu.into()).max(1));
        let message = outstanding::Message::new(request, 0, span.into(), 0);
        for index in [0, span - 1, at_packet % span] {
            let packet = segment::packet(&message, index.into(), Psn::new(0), mtu_bytes);
            prop_assert_eq!(packet.payload_offset, index * mtu);
            let last = index == span - 1;
            let expected = if last { length - index * mtu } else { mtu };
            prop_assert_eq!(packet.payload_length, expected);
            prop_assert_eq!(packet.header.opcode.position(), Position::new(index == 0, last));
        }
        prop_assert_eq!(segment::span(&write(1, (1 << 30) + 1), mtu_bytes), None);
    }
}

/// Requirement: IBTA v1.4 §9.7.5.2.8: the timer field encodes 0.01 ms to 655.36 ms (table 45).
#[test]
fn rnr_timer_table() {
    assert_eq!(rnr_timer(0).as_nanos(), 655_360_000);
    assert_eq!(rnr_timer(1).as_nanos(), 10_000);
    assert_eq!(rnr_timer(14).as_nanos(), 1_280_000);
    assert_eq!(rnr_timer(31).as_nanos(), 491_520_000);
    assert_eq!(rnr_timer(33), rnr_timer(1));
}
