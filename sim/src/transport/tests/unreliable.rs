//! Unreliable connections, one packet at a time.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::psn::Psn;
use proptest::prelude::*;

const FULL: [u8; MTU as usize] = [7; MTU as usize];

struct UnreliableTest {
    responder: UnreliableResponder<Range>,
    host: Host,
}

impl UnreliableTest {
    fn new() -> Self {
        Self { responder: UnreliableResponder::new(&parameters()), host: Host::new(8192) }
    }
    fn send(&mut self, opcode: BthOpcode, psn: u32, payload: &[u8]) -> &mut Self {
        let extension = match opcode.extension() {
            ExtensionKind::Immediate => Extension::Immediate(5),
            _ => Extension::None,
        };
        self.take(header(opcode, psn, extension), payload)
    }
    fn take(&mut self, header: PacketHeader, payload: &[u8]) -> &mut Self {
        self.responder.handle_request(&packet(header, payload), &mut self.host);
        self
    }
    #[track_caller]
    fn expect(&mut self, completions: &[(u64, u32)]) -> &mut Self {
        let seen: Vec<_> = self
            .host
            .completions
            .iter()
            .map(|(token, completion)| {
                assert_eq!(completion.status, ReceiveStatus::Success);
                (*token, completion.length)
            })
            .collect();
        assert_eq!(seen, completions);
        assert!(self.host.errors.is_empty());
        self
    }
}

fn request(token: u64, operation: Operation, length: u32) -> Request {
    let service_header = ServiceHeader::None;
    Request { operation, length, token, solicited: false, fence: false, service_header }
}

fn send(token: u64, length: u32) -> Request {
    request(token, Operation::Send { immediate: None, invalidate: None }, length)
}

/// Requirement: IBTA v1.4 §9.8.2.1: a requester numbers its packets consecutively, requests no acknowledgement, and
/// completes a message after it has sent the last packet.
#[test]
fn a_message_ends_with_its_last_packet() {
    let mut requester = UnreliableRequester::new(&parameters());
    requester.submit(send(7, MTU + 1)).unwrap();
    requester.submit(send(8, 0)).unwrap();
    let mut expect = |opcode, psn, done: Option<u64>| {
        let packet = requester.poll_transmit().expect("a packet");
        assert_eq!((packet.header.opcode, packet.header.psn), (opcode, Psn::new(psn)));
        assert!(!packet.header.ack_request && packet.retransmission.is_none());
        assert_eq!(requester.poll_completion().map(|c| (c.token, c.result)), done.map(|t| (t, Ok(()))));
    };
    expect(BthOpcode::SendFirst, 100, None);
    expect(BthOpcode::SendLast, 101, Some(7));
    expect(BthOpcode::SendOnly, 102, Some(8));
    assert!(!requester.has_work() && requester.poll_transmit().is_none());
}

#[test]
fn a_request_that_cannot_be_sent_fails_and_the_rest_is_flushed() {
    let mut requester = UnreliableRequester::new(&parameters());
    requester.submit(send(1, 1)).unwrap();
    requester.submit(request(2, Operation::Read { address: BASE, rkey: RKEY }, 8)).unwrap();
    requester.submit(send(3, 1)).unwrap();
    assert!(requester.poll_transmit().is_some());
    assert!(requester.poll_transmit().is_none());
    let ends: Vec<_> = core::iter::from_fn(|| requester.poll_completion()).map(|c| c.result).collect();
    assert_eq!(ends, [Ok(()), Err(RequesterError::NotOffered), Err(RequesterError::Flushed)]);
}

#[test]
fn a_message_whose_memory_is_gone_fails_in_its_place() {
    let mut requester = UnreliableRequester::new(&parameters());
    for token in 1..=3 {
        requester.submit(send(token, MTU * 2)).unwrap();
    }
    for _ in 0..3 {
        requester.poll_transmit().unwrap();
    }
    requester.fail(2, RequesterError::LocalProtection);
    assert!(!requester.has_work());
    let ends: Vec<_> = core::iter::from_fn(|| requester.poll_completion()).map(|c| c.result).collect();
    assert_eq!(ends, [Ok(()), Err(RequesterError::LocalProtection), Err(RequesterError::Flushed)]);
}

/// Requirement: IBTA v1.4 §9.8.2.2.1: a gap in the packet sequence numbers drops the current message, and the next first
/// packet is accepted whatever its number.
#[test]
fn a_gap_costs_one_message() {
    let mut test = UnreliableTest::new();
    test.host.post(1024);
    test.send(BthOpcode::SendFirst, 100, &FULL);
    test.send(BthOpcode::SendMiddle, 102, &FULL).send(BthOpcode::SendLast, 103, &[1]).expect(&[]);
    test.send(BthOpcode::SendOnly, 300, &[2, 3]).expect(&[(0, 2)]);
    assert_eq!(test.host.received[0][..3], [2, 3, 7], "the next message used the receive of the lost one");
    assert_eq!(test.responder.expected_psn(), Psn::new(301));
}

/// Requirement: IBTA v1.4 §9.8.2.2.2: a message that begins before the previous one has ended replaces it.
#[test]
fn a_message_without_end_is_forgotten() {
    let mut test = UnreliableTest::new();
    test.host.post(1024);
    test.send(BthOpcode::SendFirst, 100, &FULL).send(BthOpcode::SendOnlyImmediate, 101, &[9]);
    test.expect(&[(0, 1)]);
    assert_eq!(test.host.completions[0].1.immediate, Some(5));
}

/// Requirement: IBTA v1.4 §9.8.2.2.2: a packet that continues no message, or one of another kind, is dropped.
#[test]
fn a_packet_of_no_message_is_dropped() {
    let mut test = UnreliableTest::new();
    test.host.post(1024);
    test.send(BthOpcode::SendLast, 100, &[1]).send(BthOpcode::WriteMiddle, 101, &FULL).expect(&[]);
    test.send(BthOpcode::SendFirst, 102, &FULL).send(BthOpcode::WriteLast, 103, &[1]);
    test.send(BthOpcode::SendLast, 104, &[1]).expect(&[]);
    test.send(BthOpcode::SendOnly, 105, &[]).expect(&[(0, 0)]);
}

/// Requirement: IBTA v1.4 §9.8.2.2.4: a message without a posted receive is silently dropped.
#[test]
fn no_receive_drops_the_message() {
    let mut test = UnreliableTest::new();
    test.send(BthOpcode::SendFirst, 100, &FULL);
    test.host.post(1024);
    test.send(BthOpcode::SendLast, 101, &[1]).expect(&[]);
    test.send(BthOpcode::SendOnly, 102, &[1]).expect(&[(0, 1)]);
}

/// Requirement: IBTA v1.4 §9.9.3.1: a message that is too long for its receive is dropped, and the receive is used for
/// the next one.
#[test]
fn a_message_that_is_too_long_is_dropped() {
    let mut test = UnreliableTest::new();
    test.host.post(100);
    test.send(BthOpcode::SendOnly, 100, &FULL).expect(&[]);
    test.send(BthOpcode::SendOnly, 101, &[1; 100]).expect(&[(0, 100)]);
}

/// Requirement: IBTA v1.4 §9.9.3.1: if the receive of a dropped message is of a shared receive queue, it completes as
/// aborted.
#[test]
fn a_shared_receive_ends_as_aborted() {
    let mut test = UnreliableTest::new();
    test.host.shared_receives = true;
    test.host.post(1024);
    test.host.post(1024);
    test.send(BthOpcode::SendFirst, 100, &FULL).send(BthOpcode::SendOnly, 105, &[1]);
    let ends: Vec<_> = test.host.completions.iter().map(|(token, c)| (*token, c.status)).collect();
    assert_eq!(ends, [(0, ReceiveStatus::Aborted), (1, ReceiveStatus::Success)]);
}

/// Requirement: IBTA v1.4 §9.8.2.2.5: an RDMA WRITE without permission, with a wrong key or with a wrong range is
/// silently dropped.
#[test]
fn a_write_without_right_is_dropped() {
    let mut test = UnreliableTest::new();
    test.host.forbidden = Some(RemoteAccess::Write);
    test.take(header(BthOpcode::WriteOnly, 100, reth(0, 2)), &[1, 2]);
    test.host.forbidden = None;
    test.take(header(BthOpcode::WriteOnly, 101, reth(8192, 2)), &[1, 2]);
    assert!(test.host.memory.iter().all(|byte| *byte == 0));
    test.take(header(BthOpcode::WriteFirst, 102, reth(4, MTU + 2)), &FULL);
    test.take(header(BthOpcode::WriteLast, 103, Extension::None), &[1, 2]).expect(&[]);
    assert_eq!(test.host.memory[4 + 254..4 + 258], [7, 7, 1, 2]);
}

/// A packet that does not fit its message drops it (IBTA v1.4 §9.8.2.2.6).
#[test]
fn packets_of_a_wrong_length_drop_their_message() {
    let long = [7; MTU as usize + 1];
    let none = Extension::None;
    let cases: [(BthOpcode, Extension, &[u8]); 10] = [
        (BthOpcode::SendFirst, none, &[1]),
        (BthOpcode::SendFirst, none, &long),
        (BthOpcode::SendOnly, none, &long),
        (BthOpcode::WriteOnly, reth(0, 2), &[1]),
        (BthOpcode::WriteOnly, reth(0, 2), &[1, 1, 1]),
        (BthOpcode::WriteFirst, reth(0, MTU), &FULL),
        (BthOpcode::WriteFirst, reth(0, MTU - 1), &FULL),
        (BthOpcode::WriteFirst, reth(0, 600), &[1]),
        (BthOpcode::WriteOnly, reth(0, (1 << 30) + 1), &[1]),
        (BthOpcode::ReadRequest, reth(0, 1), &[]),
    ];
    for (opcode, extension, payload) in cases {
        let mut test = UnreliableTest::new();
        test.host.post(1024);
        test.take(header(opcode, 100, extension), payload).expect(&[]);
        assert_eq!(
            (test.responder.counters().dropped, test.responder.counters().packets),
            (1, 0),
            "{opcode}"
        );
        assert_eq!(test.host.memory, vec![0; 8192], "{opcode}");
    }
    let lasts: [(BthOpcode, &[u8]); 4] = [
        (BthOpcode::SendLast, &[]),
        (BthOpcode::SendLast, &long),
        (BthOpcode::WriteLast, &[1, 1]),
        (BthOpcode::WriteMiddle, &FULL),
    ];
    for (last, payload) in lasts {
        let mut test = UnreliableTest::new();
        test.host.post(1024);
        let (first, extension) = match last {
            BthOpcode::SendLast => (BthOpcode::SendFirst, none),
            _ => (BthOpcode::WriteFirst, reth(0, MTU + 1)),
        };
        test.take(header(first, 100, extension), &FULL).take(header(last, 101, none), payload).expect(&[]);
        assert_eq!((test.responder.counters().dropped, test.responder.counters().packets), (1, 1), "{last}");
    }
}

/// A WRITE may be as long as a message may be at all; its range is then checked like any other.
#[test]
fn a_longer_write_than_a_message_is_not_even_checked() {
    for (length, checks) in [(1 << 30, 1), ((1 << 30) + 1, 0)] {
        let mut test = UnreliableTest::new();
        test.take(header(BthOpcode::WriteFirst, 100, reth(0, length)), &FULL);
        assert_eq!((test.host.checks, test.responder.counters().dropped), (checks, 1), "{length}");
    }
}

#[test]
fn each_packet_is_counted_once() {
    let mut test = UnreliableTest::new();
    test.host.post(1024);
    test.send(BthOpcode::SendOnly, 100, &[1]).send(BthOpcode::SendOnly, 101, &[1]);
    test.take(header(BthOpcode::WriteOnly, 110, reth(0, 1)), &[1]);
    test.send(BthOpcode::WriteLast, 120, &[1]).take(header(BthOpcode::WriteOnly, 121, reth(0, 1)), &[1]);
    let counted = test.responder.counters();
    assert_eq!((counted.packets, counted.dropped, counted.out_of_sequence), (3, 2, 2));
    test.responder.flush();
    test.send(BthOpcode::SendOnly, 122, &[1]);
    assert_eq!(test.responder.counters(), ResponderCounters { dropped: 3, ..counted });
}

/// The local fault of a receive breaks the connection; that of a WRITE only loses the message, and its receive is kept.
#[test]
fn local_faults_end_as_the_memory_demands() {
    let mut test = UnreliableTest::new();
    test.host.post(8);
    test.host.scatter_fails = true;
    test.send(BthOpcode::SendOnly, 100, &[]);
    assert_eq!(test.host.completions[0].1.status, ReceiveStatus::Success, "no byte needs no memory");
    test.host.post(8);
    test.send(BthOpcode::SendOnly, 101, &[1]).send(BthOpcode::SendOnly, 102, &[1]);
    assert_eq!(test.host.errors, [ResponderError::Operational]);
    let ends: Vec<_> = test.host.completions.iter().map(|(token, end)| (*token, end.status)).collect();
    assert_eq!(ends[1..], [(1, ReceiveStatus::Protection)]);

    let mut test = UnreliableTest::new();
    test.host.post(8);
    test.host.memory_fails = true;
    let reth = |length| Extension::RethImmediate(Reth { address: BASE, rkey: RKEY, length }, 3);
    test.take(header(BthOpcode::WriteOnlyImmediate, 100, reth(1)), &[1]).expect(&[]);
    assert_eq!(test.responder.counters().dropped, 1);
    test.take(header(BthOpcode::WriteOnlyImmediate, 101, reth(0)), &[]).expect(&[(0, 0)]);
}

#[test]
fn a_write_with_immediate_takes_a_receive_at_its_end() {
    let mut test = UnreliableTest::new();
    test.host.post(0);
    test.take(header(BthOpcode::WriteFirst, 100, reth(0, MTU + 1)), &FULL).expect(&[]);
    test.take(header(BthOpcode::WriteLastImmediate, 101, Extension::Immediate(3)), &[1]).expect(&[(0, 257)]);
}

#[test]
fn a_broken_receive_queue_breaks_the_connection() {
    let mut test = UnreliableTest::new();
    test.host.queue_fails = true;
    test.send(BthOpcode::SendOnly, 100, &[1]).send(BthOpcode::SendOnly, 101, &[1]);
    assert_eq!(test.host.errors, [ResponderError::Operational]);
}

#[test]
fn the_receive_that_is_kept_comes_back_when_the_queue_pair_dies() {
    let mut test = UnreliableTest::new();
    test.host.post(10);
    test.send(BthOpcode::SendOnly, 100, &FULL);
    assert_eq!(test.responder.flush().map(|buffer| buffer.token), Some(0));
    assert_eq!(test.responder.flush(), None);
}

proptest! {
    /// However the wire drops, reorders or duplicates packets, every message that completes was sent, and
    /// completes whole.
    #[test]
    fn messages_arrive_whole_or_not_at_all(
        lengths in proptest::collection::vec(0..4 * MTU, 1..20),
        fates in proptest::collection::vec(0..8u8, 100),
    ) {
        let mut requester = UnreliableRequester::new(&parameters());
        for (token, length) in lengths.iter().enumerate() {
            requester.submit(send(token as u64, *length)).unwrap();
        }
        let mut wire = Vec::new();
        while let Some(p) = requester.poll_transmit() {
            let bytes = pattern(lengths[p.token as usize] as usize, p.token);
            let start = p.payload_offset as usize;
            wire.push((p.header, bytes[start..start + p.payload_length as usize].to_vec()));
        }
        let ended: Vec<_> = core::iter::from_fn(|| requester.poll_completion()).collect();
        prop_assert!(ended.len() == lengths.len() && ended.iter().all(|end| end.result.is_ok()));
        let mut test = UnreliableTest::new();
        (0..100).for_each(|_| test.host.post(4096));
        let mut at = 0usize;
        for fate in fates {
            match fate {
                0 => at += 1,
                1 => at = at.saturating_sub(1),
                2 if at + 1 < wire.len() => wire.swap(at, at + 1),
                _ => {
                    let Some((header, payload)) = wire.get(at) else { break };
                    test.take(*header, payload);
                    at += 1;
                }
            }
        }
        prop_assert!(test.host.errors.is_empty());
        for (token, completion) in &test.host.completions {
            let got = &test.host.received[*token as usize][..completion.length as usize];
            let sent = lengths.iter().enumerate().any(|(n, l)| pattern(*l as usize, n as u64) == got);
            prop_assert!(sent, "{completion:?}");
        }
    }
}
