//! Congestion control between a queue pair and the port: when which queue pair may send.

use super::pair::Pair;
use super::verbs::{Node, Qp, create_qp, data, remote, vector_to};
use crate::transport::congestion::{Controller, Fixed};
use crate::wire::FrameBuffer;
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, ServiceType, WqeOpcode};
use bareverbs_prm::time::{Duration, Time};
use std::cell::RefCell;
use std::rc::Rc;
use zerocopy::IntoBytes;

const GIGABIT: u64 = 1_000_000_000;
/// Bytes that fill ten packets of the path MTU.
const TEN_PACKETS: u32 = 10 << 10;

pub(super) const QKEY: u32 = 0x1111_1111;

/// A frame that was sent.
struct Departure {
    at: Time,
    qpn: Qpn,
    bytes: usize,
}

fn write_ten_packets(pair: &mut Pair) {
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, TEN_PACKETS))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
}

fn limit(node: &mut Node, qpn: Qpn, bits_per_second: u64) {
    let controller = Box::new(Fixed::new(bits_per_second));
    let now = node.host.now;
    assert!(node.host.nic.set_controller(now, &mut node.host.memory, qpn, Some(controller)));
}

/// Advances from deadline to deadline until `count` frames have left.
fn departures(node: &mut Node, count: usize) -> Vec<Departure> {
    let (mut departures, mut frame) = (Vec::new(), FrameBuffer::default());
    while departures.len() < count {
        let now = node.host.now;
        match node.host.nic.poll_transmit(now, &mut node.host.memory, &mut frame) {
            Some(sent) => departures.push(Departure { at: now, qpn: sent.qpn, bytes: frame.len() }),
            None => {
                let due = node.host.nic.poll_timeout().expect("frames wait for a deadline");
                assert!(due > now, "a past deadline would be polled forever");
                node.host.advance(due - now);
            }
        }
    }
    departures
}

/// Asserts that each frame leaves exactly when the rate permits it after the earlier ones.
fn assert_paced<'a>(departures: impl IntoIterator<Item = &'a Departure>, bits_per_second: u64) {
    let mut rate: Option<Fixed> = None;
    for frame in departures {
        let rate = rate.get_or_insert(Fixed::new(bits_per_second));
        assert!(rate.may_send(frame.at) <= frame.at, "a frame is early");
        assert!(
            rate.may_send(frame.at) == frame.at || rate.may_send(frame.at) == Time::ZERO,
            "a frame is late"
        );
        rate.on_sent(frame.at, frame.bytes);
    }
}

#[test]
fn a_fixed_rate_paces_frames_in_virtual_time() {
    let mut pair = Pair::new();
    let qpn = pair.a.qp.qpn;
    limit(&mut pair.a, qpn, GIGABIT);
    write_ten_packets(&mut pair);
    let (start, sent) = (pair.a.host.now, departures(&mut pair.a, 10));
    assert_eq!(sent[0].at, start, "the first frame leaves at once");
    assert_paced(&sent, GIGABIT);
    let bytes: usize = sent[..9].iter().map(|frame| frame.bytes).sum();
    assert_eq!(sent[9].at - start, Duration::from_nanos(bytes as u64 * 8));
}

#[test]
fn the_deadline_of_the_device_is_that_of_the_next_paced_frame() {
    let mut pair = Pair::new();
    let qpn = pair.a.qp.qpn;
    limit(&mut pair.a, qpn, GIGABIT);
    write_ten_packets(&mut pair);
    let first = departures(&mut pair.a, 1).remove(0);
    let due = first.at + Fixed::new(GIGABIT).duration_of(first.bytes);
    assert_eq!(pair.a.host.nic.poll_timeout(), Some(due));
    pair.a.host.advance((due - first.at).saturating_sub(Duration::from_picos(1)));
    let (now, mut frame) = (pair.a.host.now, FrameBuffer::default());
    assert!(pair.a.host.nic.poll_transmit(now, &mut pair.a.host.memory, &mut frame).is_none());
    pair.a.host.advance(Duration::from_picos(1));
    let now = pair.a.host.now;
    assert!(pair.a.host.nic.poll_transmit(now, &mut pair.a.host.memory, &mut frame).is_some());
}

/// Opens a second connection between the nodes, which replaces that of `pair`, and returns the first one.
fn second_connection(pair: &mut Pair) -> Qp {
    let [a, b] = [&mut pair.a, &mut pair.b]
        .map(|node| create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |_| {}).unwrap());
    let first = core::mem::replace(&mut pair.a.qp, a);
    pair.b.qp = b;
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    pair.a.connect(to_b, |_| {});
    pair.b.connect(to_a, |_| {});
    pair.run();
    first
}

#[test]
fn two_queue_pairs_are_paced_independently() {
    let mut pair = Pair::new();
    let first = second_connection(&mut pair);
    let (slow, fast) = (pair.a.qp.qpn, first.qpn);
    limit(&mut pair.a, slow, GIGABIT);
    limit(&mut pair.a, fast, 10 * GIGABIT);
    write_ten_packets(&mut pair);
    pair.a.qp = first;
    write_ten_packets(&mut pair);
    let sent = departures(&mut pair.a, 20);
    let of = |qpn| sent.iter().filter(move |frame| frame.qpn == qpn);
    assert_paced(of(slow), GIGABIT);
    assert_paced(of(fast), 10 * GIGABIT);
    assert_eq!((of(slow).count(), of(fast).count()), (10, 10));
    assert!(
        of(fast).next_back().unwrap().at < of(slow).nth(1).unwrap().at,
        "the slow queue pair does not delay the fast one"
    );
}

#[test]
fn without_a_controller_nothing_waits_even_beside_a_paced_queue_pair() {
    let mut pair = Pair::new();
    let first = second_connection(&mut pair);
    let (paced, free) = (pair.a.qp.qpn, first.qpn);
    limit(&mut pair.a, paced, 1_000_000);
    write_ten_packets(&mut pair);
    pair.a.qp = first;
    write_ten_packets(&mut pair);
    let start = pair.a.host.now;
    let sent = departures(&mut pair.a, 11);
    assert!(sent.iter().all(|frame| frame.at == start));
    assert_eq!(sent.iter().filter(|frame| frame.qpn == free).count(), 10);
}

#[test]
fn removing_a_controller_releases_paced_frames_at_once() {
    let mut pair = Pair::new();
    let qpn = pair.a.qp.qpn;
    limit(&mut pair.a, qpn, 1);
    write_ten_packets(&mut pair);
    let start = departures(&mut pair.a, 1).remove(0).at;
    assert!(pair.a.host.nic.set_controller(start, &mut pair.a.host.memory, qpn, None));
    assert!(departures(&mut pair.a, 9).iter().all(|frame| frame.at == start));
    assert!(!pair.a.host.nic.set_controller(
        start,
        &mut pair.a.host.memory,
        Qpn::from_low_bits(0x1234),
        None
    ));
}

#[test]
fn responses_are_not_paced() {
    let mut pair = Pair::new();
    let qpn = pair.b.qp.qpn;
    limit(&mut pair.b, qpn, 1);
    write_ten_packets(&mut pair);
    pair.run();
    pair.a.expect();
}

/// Turns the queue pair of a node into a datagram queue pair.
pub(super) fn make_datagram(node: &mut Node) {
    let service = |context: &mut QueuePairContext| {
        context.set_st(ServiceType::Ud);
    };
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, service).unwrap();
    let attributes = |context: &mut QueuePairContext| {
        context.set_q_key(QKEY).set_log_msg_max(12).primary_address_path_mut().set_vhca_port_num(1);
    };
    for step in [CommandOpcode::ResetToInitQp, CommandOpcode::InitToRtrQp, CommandOpcode::RtrToRtsQp] {
        node.modify(step, attributes).unwrap();
    }
}

/// Sends ten datagrams of one kilobyte from `a` to `b`.
fn send_ten_datagrams(pair: &mut Pair) {
    let mut vector = vector_to(pair.b.qp.qpn, QKEY);
    vector.set_grh(true).set_sgid_index(1).set_rgid(pair.b.gid.0).set_remote_mac(pair.b.mac);
    let segments = [vector.as_bytes(), &data(pair.a.mr.sge(0, 1 << 10))].concat();
    (0..10).for_each(|_| pair.a.post(WqeOpcode::Send, &segments));
}

#[test]
fn a_fixed_rate_holds_datagrams_back() {
    let mut pair = Pair::new();
    make_datagram(&mut pair.a);
    make_datagram(&mut pair.b);
    let qpn = pair.a.qp.qpn;
    limit(&mut pair.a, qpn, GIGABIT);
    send_ten_datagrams(&mut pair);
    let start = pair.a.host.now;
    let mut sent = departures(&mut pair.a, 1);
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester, "the first datagram has left");
    pair.a.expect_none();
    sent.extend(departures(&mut pair.a, 9));
    assert_eq!(sent[0].at, start, "the first frame leaves at once");
    assert_paced(&sent, GIGABIT);
    assert!(sent[9].at > start);
}

#[test]
fn datagrams_without_a_controller_leave_at_once() {
    let mut pair = Pair::new();
    make_datagram(&mut pair.a);
    make_datagram(&mut pair.b);
    send_ten_datagrams(&mut pair);
    let start = pair.a.host.now;
    assert!(departures(&mut pair.a, 10).iter().all(|frame| frame.at == start && frame.qpn == pair.a.qp.qpn));
}

/// Records every call.
#[derive(Debug, Default)]
struct Listener(Rc<RefCell<(usize, u32)>>);

impl Controller for Listener {
    fn may_send(&self, _: Time) -> Time {
        Time::ZERO
    }

    fn on_sent(&mut self, _: Time, bytes: usize) {
        self.0.borrow_mut().0 += bytes;
    }

    fn on_ack(&mut self, _: Time) {
        self.0.borrow_mut().1 += 1;
    }
}

#[test]
fn a_controller_hears_of_frames_and_acknowledgements() {
    let mut pair = Pair::new();
    let (told, qpn) = (Rc::default(), pair.a.qp.qpn);
    let now = pair.a.host.now;
    let listener = Box::new(Listener(Rc::clone(&told)));
    assert!(pair.a.host.nic.set_controller(now, &mut pair.a.host.memory, qpn, Some(listener)));
    let before = pair.a.host.nic.counters().bytes_sent;
    write_ten_packets(&mut pair);
    pair.run();
    pair.a.expect();
    let bytes = pair.a.host.nic.counters().bytes_sent - before;
    assert_eq!(*told.borrow(), (bytes as usize, 1));
}
