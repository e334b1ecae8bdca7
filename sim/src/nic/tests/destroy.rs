//! Destroys objects under traffic: the device stops using their memory before the command completes, and
//! nothing more is reported about them.

use super::pair::Pair;
use super::verbs::{Node, data, remote};
use bareverbs_prm::command::mkey::{DestroyMkeyIn, DestroyMkeyOut};
use bareverbs_prm::command::qp::{DestroyQpIn, DestroyQpOut};
use bareverbs_prm::cqe::ErrorEntry;
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, CqeSyndrome, EventType, QpState, WqeOpcode};
use bareverbs_prm::time::Duration;

const LENGTH: u32 = 32 << 10;

/// Delivers at most `count` frames from one side to the other.
fn carry(from: &mut Node, to: &mut Node, count: usize) {
    let mut frame = crate::wire::FrameBuffer::new();
    for _ in 0..count {
        let (now, memory) = (from.host.now, &mut from.host.memory);
        if from.host.nic.poll_transmit(now, memory, &mut frame).is_none() {
            return;
        }
        let now = to.host.now;
        to.host.nic.handle_frame(now, &mut to.host.memory, &frame);
    }
}

fn long_request(pair: &Pair) -> Vec<u8> {
    [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, LENGTH))].concat()
}

/// Destroys the memory key; the host then revokes the memory at once.
fn destroy_region(node: &mut Node) {
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(node.mr.key.index());
    node.host.run::<_, DestroyMkeyOut>(Op::DestroyMkey, 0, input).unwrap();
    let iova = node.mr.iova;
    node.host.memory.revoke(iova);
}

fn destroy_queue_pair(node: &mut Node) {
    let mut input = DestroyQpIn::new();
    input.set_qpn(node.qp.qpn);
    node.host.run::<_, DestroyQpOut>(Op::DestroyQp, 0, input).unwrap();
    let rings = node.qp.buffer;
    node.host.memory.revoke(rings);
}

#[track_caller]
fn expect_failure(node: &mut Node, syndrome: CqeSyndrome) {
    let entry: ErrorEntry = zerocopy::transmute!(node.expect());
    assert_eq!((entry.opcode(), entry.syndrome()), (CqeOpcode::RequesterError, syndrome));
}

/// Requirement: IBTA v1.4 §10.6.3: deregistered memory is no longer accessed, not even by operations in progress: the
/// peer gets a remote access error.
#[test]
fn remote_memory_goes_away_in_the_middle_of_a_message() {
    for opcode in [WqeOpcode::RdmaWrite, WqeOpcode::RdmaRead] {
        let mut pair = Pair::new();
        let request = long_request(&pair);
        pair.a.post(opcode, &request);
        carry(&mut pair.a, &mut pair.b, 4);
        carry(&mut pair.b, &mut pair.a, 4);
        destroy_region(&mut pair.b);
        pair.run();
        expect_failure(&mut pair.a, CqeSyndrome::RemoteAccess);
        assert!(pair.b.host.memory.faults.is_empty(), "{opcode}: {:?}", pair.b.host.memory.faults);
        assert_eq!(pair.b.poll_event().map(|event| event.kind()), Some(EventType::WqAccessError));
        assert_eq!((pair.a.state(), pair.b.state()), (QpState::Error, QpState::Error));
    }
}

/// Requirement: IBTA v1.4 §10.6.3: deregistered local memory is no longer sent or written.
#[test]
fn local_memory_goes_away_in_the_middle_of_a_message() {
    for opcode in [WqeOpcode::RdmaWrite, WqeOpcode::RdmaRead] {
        let mut pair = Pair::new();
        let request = long_request(&pair);
        pair.a.post(opcode, &request);
        carry(&mut pair.a, &mut pair.b, 4);
        destroy_region(&mut pair.a);
        pair.run();
        expect_failure(&mut pair.a, CqeSyndrome::LocalProtection);
        pair.a.expect_none();
        assert!(pair.a.host.memory.faults.is_empty(), "{opcode}: {:?}", pair.a.host.memory.faults);
        assert_eq!(pair.b.state(), QpState::Rts, "the peer learned nothing");
    }
}

/// Requirement: IBTA v1.4 §10.2.4.5: a destroyed queue pair completes and receives nothing more, and releases its memory.
#[test]
fn a_queue_pair_goes_away_in_the_middle_of_a_message() {
    for reset_first in [true, false] {
        let mut pair = Pair::new();
        for _ in 0..4 {
            let request = long_request(&pair);
            pair.a.post(WqeOpcode::RdmaWrite, &request);
            pair.b.post_receive(&[pair.b.mr.sge(0, 8)]);
        }
        carry(&mut pair.a, &mut pair.b, 10);
        if reset_first {
            pair.b.short(Op::ToResetQp).unwrap();
        }
        destroy_queue_pair(&mut pair.b);
        let heard = pair.b.host.nic.counters().frames_unknown_qp;
        pair.run();
        pair.pass_time(Duration::from_millis(300), 40);
        pair.b.expect_none();
        assert_eq!(pair.b.poll_event().map(|event| event.kind()), None);
        assert!(pair.b.host.memory.faults.is_empty(), "{:?}", pair.b.host.memory.faults);
        assert!(pair.b.host.nic.counters().frames_unknown_qp > heard);
        expect_failure(&mut pair.a, CqeSyndrome::TransportRetryExceeded);
        for _ in 0..3 {
            expect_failure(&mut pair.a, CqeSyndrome::WorkRequestFlushed);
        }
        pair.a.expect_none();
    }
}

/// Requirement: IBTA v1.4 §10.3.1.1: a reset during traffic completes nothing, and afterwards the rings are free.
#[test]
fn a_reset_lets_go_of_rings_and_memory() {
    let mut pair = Pair::new();
    for opcode in [WqeOpcode::RdmaWrite, WqeOpcode::RdmaRead, WqeOpcode::RdmaWrite] {
        let request = long_request(&pair);
        pair.a.post(opcode, &request);
    }
    carry(&mut pair.a, &mut pair.b, 20);
    pair.a.short(Op::ToResetQp).unwrap();
    let (rings, memory) = (pair.a.qp.buffer, pair.a.mr.iova);
    pair.a.host.memory.revoke(rings);
    pair.a.host.memory.revoke(memory);
    pair.run();
    pair.pass_time(Duration::from_millis(300), 10);
    pair.a.expect_none();
    assert!(pair.a.host.memory.faults.is_empty(), "{:?}", pair.a.host.memory.faults);
    assert_eq!((pair.a.state(), pair.b.state()), (QpState::Reset, QpState::Rts));
}

/// Requirement: IBTA v1.4 §11.6.2: after an error in the middle of a queue, earlier requests have succeeded, that one
/// fails, later ones are flushed, in order; then receives.
#[test]
fn the_order_of_an_error_and_its_flush() {
    let mut pair = Pair::new();
    let good = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 8))].concat();
    let bad = [remote(pair.b.mr.va - 1, pair.b.mr.key), data(pair.a.mr.sge(0, 8))].concat();
    for _ in 0..2 {
        pair.a.post_receive(&[pair.a.mr.sge(0, 8)]);
    }
    for request in [&good, &good, &bad, &good, &good] {
        pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, request);
    }
    pair.a.ring();
    pair.run();
    let entries: Vec<_> = core::iter::from_fn(|| pair.a.poll())
        .map(|entry| {
            let error: ErrorEntry = zerocopy::transmute!(entry);
            // In a successful entry, these bits are the time stamp.
            let syndrome = if error.opcode() == CqeOpcode::Requester { 0 } else { error.syndrome().raw() };
            (error.opcode(), error.wqe_counter(), syndrome)
        })
        .collect();
    let (ok, failed, receive) = (CqeOpcode::Requester, CqeOpcode::RequesterError, CqeOpcode::ResponderError);
    let flushed = CqeSyndrome::WorkRequestFlushed.raw();
    assert_eq!(entries[..2], [(ok, 0, 0), (ok, 1, 0)]);
    assert_eq!(
        entries[2..],
        [
            (failed, 2, CqeSyndrome::RemoteAccess.raw()),
            (failed, 3, flushed),
            (failed, 4, flushed),
            (receive, 0, flushed),
            (receive, 1, flushed),
        ]
    );
}
