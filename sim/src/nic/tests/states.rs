//! States in which the send queue is idle: draining and drained, and the send queue error.

use super::pair::Pair;
use super::verbs::{Node, create_qp, data, inline, remote, vector_to};
use crate::nic::syndrome;
use crate::nic::{LinkLayer, NicConfig, Refusal, wqe};
use bareverbs_prm::command::qp::InitToRtrQpIn;
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::ErrorEntry;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, CqeSyndrome, EventType, PathMigration, QpState, ServiceType, WqeOpcode,
};
use bareverbs_prm::time::Duration;
use bareverbs_prm::wqe::AddressVector;
use zerocopy::IntoBytes;

/// Bits of `opt_param_mask`.
const ALTERNATE_PATH: u32 = 1;
const RWE: u32 = 1 << 3;
const PKEY_INDEX: u32 = 1 << 4;
const Q_KEY: u32 = 1 << 5;
const PRIMARY_PATH: u32 = 1 << 7;
const REQUESTER_READS: u32 = 1 << 8;
const RESPONDER_READS: u32 = 1 << 9;
const PATH_MIGRATION: u32 = 1 << 10;
const RETRY_COUNT: u32 = 1 << 12;
const RNR_RETRY: u32 = 1 << 13;
const ACK_TIMEOUT: u32 = 1 << 14;

fn change(
    node: &mut Node,
    opcode: Op,
    mask: u32,
    edit: impl Fn(&mut QueuePairContext),
) -> Result<(), (bareverbs_prm::numbering::CommandStatus, u32)> {
    let mut input = InitToRtrQpIn::new();
    input.set_qpn(node.qp.qpn).set_opt_param_mask(mask);
    edit(input.qpc_mut());
    node.host.run::<_, [u8; 16]>(opcode, 0, input).map(|_| ())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    result: Result<T, (bareverbs_prm::numbering::CommandStatus, u32)>,
    why: Refusal,
) {
    assert_eq!(result.map(|_| ()).unwrap_err(), (why.status, why.syndrome), "{why}");
}

fn write(pair: &Pair, offset: u64, byte: u8) -> Vec<u8> {
    [remote(pair.b.mr.va + offset, pair.b.mr.key), inline(&[byte; 8])].concat()
}

/// Requirement: IBTA v1.4 §10.3.1.5: in SQD, messages in progress finish, no other begins, and receives continue.
/// Requirement: IBTA v1.4 §11.6.3: the event "send queue drained" is raised when the last message in progress has
/// completed.
#[test]
fn a_draining_queue_finishes_messages_in_progress_only() {
    let mut pair = Pair::new();
    let long = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 3000))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &long);
    let second = write(&pair, 0x4000, 1);
    pair.a.post(WqeOpcode::RdmaWrite, &second);
    let mut frame = crate::wire::FrameBuffer::new();
    pair.a.host.nic.poll_transmit(pair.a.host.now, &mut pair.a.host.memory, &mut frame).unwrap();
    pair.a.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    assert_eq!(pair.a.state(), QpState::SqDraining);
    refused(pair.a.modify(Op::SqdToRtsQp, |_| {}), syndrome::QP_DRAINING);
    refused(change(&mut pair.a, Op::SqdToSqdQp, RETRY_COUNT, |_| {}), syndrome::QP_DRAINING);
    assert_eq!(pair.a.poll_event().map(|event| event.kind()), None);
    pair.b.host.nic.handle_frame(pair.b.host.now, &mut pair.b.host.memory, &frame);
    pair.run();
    assert_eq!(pair.a.expect().wqe_counter(), 0);
    pair.a.expect_none();
    assert_eq!(pair.a.state(), QpState::SqDrained);
    assert_eq!(pair.a.poll_event().map(|event| event.kind()), Some(EventType::SqDrained));
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 0x4000, 8), [0; 8], "the second has not begun");

    let third = write(&pair, 0x5000, 2);
    pair.a.post(WqeOpcode::RdmaWrite, &third);
    pair.a.post_receive(&[pair.a.mr.sge(0x8000, 8)]);
    pair.b.post(WqeOpcode::Send, &inline(b"received"));
    pair.run();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::ResponderSend, "receives continue");
    pair.b.expect();
    pair.a.expect_none();

    pair.a.modify(Op::SqdToRtsQp, |_| {}).unwrap();
    pair.run();
    assert_eq!([pair.a.expect().wqe_counter(), pair.a.expect().wqe_counter()], [1, 2]);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 0x4000, 8), [1; 8]);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 0x5000, 8), [2; 8]);
}

/// Requirement: IBTA v1.4 §10.3.1.5: a queue with nothing in flight is drained at once.
#[test]
fn an_idle_queue_drains_at_once_and_can_be_left_to_error_and_reset() {
    let mut pair = Pair::new();
    pair.a.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    assert_eq!(pair.a.state(), QpState::SqDrained);
    assert_eq!(pair.a.poll_event().map(|event| event.kind()), Some(EventType::SqDrained));
    let waiting = write(&pair, 0, 1);
    pair.a.post(WqeOpcode::RdmaWrite, &waiting);
    pair.run();
    pair.a.expect_none();
    pair.a.short(Op::ToErrorQp).unwrap();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::RequesterError, "waiting work is flushed");
    pair.b.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    pair.b.short(Op::ToResetQp).unwrap();
    assert_eq!(pair.b.state(), QpState::Reset);
}

#[test]
fn draining_survives_loss() {
    let mut pair = Pair::new();
    let request = write(&pair, 0, 7);
    pair.a.post(WqeOpcode::RdmaWrite, &request);
    pair.a.post(WqeOpcode::RdmaWrite, &request);
    // Only the first frame was sent, without an acknowledge request, and it gets lost.
    pair.a
        .host
        .nic
        .poll_transmit(pair.a.host.now, &mut pair.a.host.memory, &mut crate::wire::FrameBuffer::new())
        .unwrap();
    pair.a.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    assert_eq!(pair.a.state(), QpState::SqDraining);
    pair.run();
    assert_eq!((pair.a.state(), pair.a.expect().wqe_counter()), (QpState::SqDrained, 0));
    pair.a.expect_none();
}

/// Requirement: IBTA v1.4 §11.2.5.2: in SQD, path, timeout, retries and outstanding READs may change.
#[test]
fn a_drained_connection_can_be_changed() {
    let mut pair = Pair::new();
    pair.a.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    let mask = RETRY_COUNT | ACK_TIMEOUT | RNR_RETRY | REQUESTER_READS | RESPONDER_READS;
    let edit = |c: &mut QueuePairContext| {
        c.set_retry_count(1).set_rnr_retry(3).set_log_sra_max(1).set_log_rra_max(2);
        c.primary_address_path_mut().set_ack_timeout(9);
    };
    change(&mut pair.a, Op::SqdToSqdQp, mask, edit).unwrap();
    refused(
        change(&mut pair.a, Op::SqdToSqdQp, REQUESTER_READS, |c| {
            c.set_log_sra_max(7);
        }),
        syndrome::QP_INITIATOR_DEPTH,
    );
    refused(change(&mut pair.a, Op::SqdToSqdQp, PRIMARY_PATH, |_| {}), syndrome::QP_REMOTE_ADDRESS);
    pair.a.modify(Op::SqdToRtsQp, |_| {}).unwrap();
    let request = write(&pair, 0, 7);
    pair.a.post(WqeOpcode::RdmaWrite, &request);
    pair.run_with(|_, _| false);
    // 4.096 µs · 2^9 is 2.1 ms: the first attempt and one retry.
    for _ in 0..3 {
        pair.a.host.advance(Duration::from_millis(3));
        pair.run_with(|_, _| false);
    }
    let entry: ErrorEntry = zerocopy::transmute!(pair.a.expect());
    assert_eq!((entry.syndrome(), pair.frames), (CqeSyndrome::TransportRetryExceeded, 2));
}

/// Requirement: IBTA v1.4 §11.2.5.2: an attribute that the transition does not allow is refused, and nothing changes.
#[test]
fn attributes_that_a_transition_does_not_allow_are_refused() {
    let mut pair = Pair::new();
    for mask in [PKEY_INDEX, Q_KEY, PRIMARY_PATH, RETRY_COUNT, ACK_TIMEOUT, REQUESTER_READS, 1 << 11] {
        refused(change(&mut pair.a, Op::RtsToRtsQp, mask, |_| {}), syndrome::QP_OPTIONAL_PARAMETER);
    }
    refused(change(&mut pair.a, Op::RtsToSqdQp, RWE, |_| {}), syndrome::QP_OPTIONAL_PARAMETER);
    refused(change(&mut pair.a, Op::RtsToRtsQp, ALTERNATE_PATH, |_| {}), syndrome::QP_ALTERNATE_PATH);
    let rearm = |c: &mut QueuePairContext| {
        c.set_pm_state(PathMigration::Rearm);
    };
    refused(change(&mut pair.a, Op::RtsToRtsQp, PATH_MIGRATION, rearm), syndrome::QP_ALTERNATE_PATH);
    change(&mut pair.a, Op::RtsToRtsQp, PATH_MIGRATION, |c| {
        c.set_pm_state(PathMigration::Migrated);
    })
    .unwrap();
    assert_eq!(pair.a.state(), QpState::Rts);
    // A revoked right applies from the next request on.
    change(&mut pair.b, Op::RtsToRtsQp, RWE, |c| {
        c.set_rwe(false);
    })
    .unwrap();
    let request = write(&pair, 0, 7);
    pair.a.post(WqeOpcode::RdmaWrite, &request);
    pair.run();
    let entry: ErrorEntry = zerocopy::transmute!(pair.a.expect());
    assert_eq!(entry.syndrome(), CqeSyndrome::RemoteInvalidRequest);
}

/// Requirement: IBTA v1.4 §11.6.3: the first packet in RTR raises the event "communication established", once.
#[test]
fn the_first_packet_before_rts_raises_communication_established() {
    let mut pair = Pair::new();
    let peer = (pair.a.qp.qpn, pair.a.gid, pair.a.mac);
    pair.b.short(Op::ToResetQp).unwrap();
    pair.b.modify(Op::ResetToInitQp, |c| super::verbs::init(c, |_| {})).unwrap();
    pair.b.modify(Op::InitToRtrQp, |c| super::verbs::rtr(c, peer, |_| {})).unwrap();
    for byte in 1..3 {
        let request = write(&pair, 0, byte);
        pair.a.post(WqeOpcode::RdmaWrite, &request);
        pair.run();
        pair.a.expect();
    }
    assert_eq!(pair.b.poll_event().map(|event| event.kind()), Some(EventType::CommEst));
    assert_eq!(pair.b.poll_event().map(|event| event.kind()), None);
}

const QKEY: u32 = 0x1234;

/// A node whose queue pair sends datagrams to itself.
fn datagram_node(strict: bool) -> Node {
    let config = NicConfig { link_layer: LinkLayer::InfiniBand, strict, ..NicConfig::default() };
    let mut node = Node::new(1, config);
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_st(ServiceType::Ud);
    })
    .unwrap();
    let key = |c: &mut QueuePairContext| {
        c.set_q_key(QKEY).set_log_msg_max(12).primary_address_path_mut().set_vhca_port_num(1);
    };
    for step in [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp] {
        node.modify(step, key).unwrap();
    }
    node
}

fn send_datagram(node: &mut Node, key: Mkey) {
    send_datagram_to(node, key, |_| {});
}

fn send_datagram_to(node: &mut Node, key: Mkey, edit: impl Fn(&mut AddressVector)) {
    let mut vector = vector_to(node.qp.qpn, QKEY);
    edit(vector.set_rlid(1));
    let mut sge = node.mr.sge(0, 8);
    sge.key = key;
    let segments = [vector.as_bytes(), &data(sge)].concat();
    node.post(WqeOpcode::Send, &segments);
    node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut crate::wire::FrameBuffer::new());
}

/// Strict mode refuses reserved bits beside the fields of an address vector. UCX does not clear what it does not use, and
/// sends all the same.
#[test]
fn reserved_bits_of_an_address_are_refused_in_strict_mode() {
    for field in [AddressVector::FIELDS.extended, AddressVector::FIELDS.grh] {
        let beside = |vector: &mut AddressVector| {
            vector.as_mut_bytes()[field.offset()] |= 1 << (field.shift() - 1);
        };
        let mut tolerant = datagram_node(false);
        let key = tolerant.mr.key;
        send_datagram_to(&mut tolerant, key, beside);
        assert_eq!(tolerant.expect().opcode(), CqeOpcode::Requester);
        let mut node = datagram_node(true);
        send_datagram_to(&mut node, key, |vector| {
            vector.set_qkey_reserved(u32::MAX).set_reserved0(u32::MAX);
        });
        assert_eq!(node.expect().opcode(), CqeOpcode::Requester);
        send_datagram_to(&mut node, key, beside);
        let entry: ErrorEntry = zerocopy::transmute!(node.expect());
        assert_eq!(entry.opcode(), CqeOpcode::RequesterError);
        assert_eq!(entry.vendor_syndrome(), wqe::RESERVED.vendor, "beside {field:?}");
    }
}

/// On RoCE the address vector also has an Ethernet address, which is no field because it straddles two dwords.
#[test]
fn strict_mode_accepts_the_ethernet_address_of_a_datagram() {
    let mut node = Node::new(1, NicConfig { strict: true, ..NicConfig::default() });
    super::pacing::make_datagram(&mut node);
    let mut vector = vector_to(node.qp.qpn, super::pacing::QKEY);
    vector.set_grh(true).set_sgid_index(1).set_rgid(node.gid.0).set_remote_mac(node.mac);
    let segments = [vector.as_bytes(), &data(node.mr.sge(0, 8))].concat();
    node.post(WqeOpcode::Send, &segments);
    node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut crate::wire::FrameBuffer::new());
    assert_eq!(node.expect().opcode(), CqeOpcode::Requester);
}

/// Requirement: IBTA v1.4 §10.3.1.6: a failed datagram send moves only the send queue to SQE: later sends are flushed,
/// receives continue.
/// Requirement: IBTA v1.4 §10.3.1.6: after the transition from SQE to RTS, sending continues.
#[test]
fn a_failed_datagram_stops_the_send_queue_alone() {
    let mut node = datagram_node(false);
    let key = node.mr.key;
    send_datagram(&mut node, Mkey::new(0x9999_9900));
    send_datagram(&mut node, key);
    let syndromes: Vec<_> = core::iter::from_fn(|| node.poll())
        .map(|entry| {
            let entry: ErrorEntry = zerocopy::transmute!(entry);
            (entry.wqe_counter(), entry.syndrome())
        })
        .collect();
    assert_eq!(syndromes, [(0, CqeSyndrome::LocalProtection), (2, CqeSyndrome::WorkRequestFlushed)]);
    assert_eq!(node.state(), QpState::SqError);
    assert!(node.poll_event().is_none(), "the completion reports it, so there is no event");
    change(&mut node, Op::SqErrorToRtsQp, Q_KEY, |c| {
        c.set_q_key(QKEY);
    })
    .unwrap();
    node.post_receive(&[node.mr.sge(0x1000, 48)]);
    send_datagram(&mut node, key);
    assert_eq!(node.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(node.expect().opcode(), CqeOpcode::ResponderSend);
    node.modify(Op::RtsToSqdQp, |_| {}).unwrap();
    assert_eq!(node.state(), QpState::SqDrained);
    node.modify(Op::SqdToRtsQp, |_| {}).unwrap();
    assert_eq!(node.state(), QpState::Rts);
}

/// Requirement: IBTA v1.4 §10.3.1.7: a queue pair can be moved to ERROR from SQE, as from every state, and everything is
/// flushed.
#[test]
fn a_stopped_send_queue_can_be_moved_to_error() {
    let mut node = datagram_node(false);
    send_datagram(&mut node, Mkey::new(0x9999_9900));
    node.expect();
    node.post_receive(&[node.mr.sge(0x1000, 48)]);
    node.expect_none();
    node.short(Op::ToErrorQp).unwrap();
    assert_eq!(node.expect().opcode(), CqeOpcode::ResponderError);
    assert_eq!(node.state(), QpState::Error);
}
