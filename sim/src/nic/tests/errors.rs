//! How work fails: each syndrome, the flush, its order, and what the peer learns.

use super::pair::{Pair, STRANGER};
use super::verbs::{Node, Sge, create_mr, data, init, inline, operands, remote, rtr, rts};
use crate::nic::wqe::{self, WorkFault};
use crate::nic::{Counters, NicConfig};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, CqeSyndrome, EventType, QpState, WqeOpcode};
use bareverbs_prm::time::Duration;
use bareverbs_prm::wqe::InlineHeader;
use zerocopy::IntoBytes;

fn error(entry: CompletionEntry) -> (CqeOpcode, CqeSyndrome, u8, u16) {
    let entry: ErrorEntry = zerocopy::transmute!(entry);
    (entry.opcode(), entry.syndrome(), entry.vendor_syndrome(), entry.wqe_counter())
}

#[track_caller]
fn expect_send_error(node: &mut Node, fault: WorkFault, counter: u16) {
    let entry = node.expect();
    assert_eq!(
        error(entry),
        (CqeOpcode::RequesterError, fault.syndrome, fault.vendor, counter),
        "{}",
        fault.reason
    );
}

#[track_caller]
fn expect_receive_error(node: &mut Node, fault: WorkFault, counter: u16) {
    let entry = node.expect();
    assert_eq!(
        error(entry),
        (CqeOpcode::ResponderError, fault.syndrome, fault.vendor, counter),
        "{}",
        fault.reason
    );
}

fn good_write(pair: &Pair) -> Vec<u8> {
    [remote(pair.b.mr.va, pair.b.mr.key), inline(&[1; 8])].concat()
}

/// Posts a bad WQE between two good ones.
fn fails_locally(config: NicConfig, fault: WorkFault, post: impl Fn(&mut Node, &Peer)) {
    let mut pair = Pair::with(config, |_| {});
    let write = good_write(&pair);
    pair.b.post_receive(&[]);
    pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &write);
    let peer = Peer { remote: remote(pair.b.mr.va, pair.b.mr.key) };
    post(&mut pair.a, &peer);
    let bad = 1;
    pair.a.ring();
    pair.run();
    assert_eq!(pair.a.expect().wqe_counter(), 0, "earlier work succeeds");
    expect_send_error(&mut pair.a, fault, bad);
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.b.state(), QpState::Rts, "the peer learned nothing");
    pair.a.expect_none();
}

struct Peer {
    remote: Vec<u8>,
}

/// A request may have 59 segments of 2 GiB. The length check comes before the memory checks: the key of the
/// last segment does not exist, and is never looked up.
#[test]
fn the_length_of_a_message_comes_before_its_segments() {
    fails_locally(NicConfig::default(), wqe::MESSAGE, |node, peer| {
        let unknown = Sge { key: Mkey::new(0x7777_7700), ..node.mr.sge(0, 1 << 30) };
        let segments = [peer.remote.clone(), data(node.mr.sge(0, 4096)), data(unknown)].concat();
        node.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &segments);
    });
}

#[test]
fn bad_wqes_fail_locally_and_in_order() {
    let config = NicConfig::default();
    let strict = NicConfig { strict: true, ..config };
    let nothing: &[u8] = &[];
    fails_locally(config, wqe::INDEX, |a, _| {
        a.write_wqe(
            WqeOpcode::Send,
            |c| {
                c.set_wqe_index(9);
            },
            nothing,
        )
    });
    fails_locally(config, wqe::OPCODE, |a, _| a.write_wqe(WqeOpcode::SetPsv, |_| {}, nothing));
    fails_locally(config, wqe::OPCODE, |a, _| a.write_wqe(WqeOpcode::Unknown(0x77), |_| {}, nothing));
    fails_locally(config, wqe::OPMOD, |a, _| {
        a.write_wqe(
            WqeOpcode::Send,
            |c| {
                c.set_opmod(1);
            },
            nothing,
        )
    });
    fails_locally(config, wqe::SIZE, |a, _| {
        a.write_wqe(
            WqeOpcode::Send,
            |c| {
                c.set_ds(0);
            },
            nothing,
        )
    });
    fails_locally(config, wqe::SIZE, |a, _| {
        a.write_wqe(
            WqeOpcode::Send,
            |c| {
                c.set_ds(9);
            },
            nothing,
        )
    });
    fails_locally(config, wqe::QUEUE_PAIR, |a, _| {
        a.write_wqe(
            WqeOpcode::Send,
            |c| {
                c.set_qpn(bareverbs_prm::ids::Qpn::from_low_bits(1));
            },
            nothing,
        );
    });
    fails_locally(config, wqe::SEGMENTS, |a, _| a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, nothing));
    fails_locally(config, wqe::SEGMENTS, |a, _| {
        let mut header = InlineHeader::new();
        header.set_inline(true).set_byte_count(512);
        a.write_wqe(WqeOpcode::Send, |_| {}, header.as_bytes());
    });
    fails_locally(config, wqe::INLINE, |a, p| {
        a.write_wqe(WqeOpcode::RdmaRead, |_| {}, &[p.remote.clone(), inline(&[0; 8])].concat());
    });
    fails_locally(config, wqe::MESSAGE, |a, p| {
        let segments = [p.remote.clone(), operands(1, 2), data(a.mr.sge(0, 4))].concat();
        a.write_wqe(WqeOpcode::AtomicFetchAdd, |_| {}, &segments);
    });
    fails_locally(config, wqe::OPMOD, |a, p| {
        let opmod = bareverbs_prm::wqe::strom_opmod::RPC_PARAMS;
        a.write_wqe(
            WqeOpcode::RdmaWrite,
            |c| {
                c.set_opmod(opmod);
            },
            &p.remote,
        );
    });
    fails_locally(strict, wqe::RESERVED, |a, p| {
        let mut segment = p.remote.clone();
        *segment.last_mut().unwrap() = 1;
        a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &segment);
    });
}

#[test]
fn local_keys_are_checked() {
    let config = NicConfig::default();
    fails_locally(config, wqe::DATA_KEY, |a, p| {
        let mut sge = a.mr.sge(0, 8);
        sge.key = Mkey::new(sge.key.value() ^ 1);
        a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &[p.remote.clone(), data(sge)].concat());
    });
    fails_locally(config, wqe::DATA_KEY, |a, p| {
        let beyond = a.mr.sge(super::verbs::MR_SIZE - 4, 8);
        a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &[p.remote.clone(), data(beyond)].concat());
    });
    fails_locally(config, wqe::DATA_KEY, |a, p| {
        let read_only = create_mr(&mut a.host, a.pd, [true, false, false, false, false]);
        let segments = [p.remote.clone(), data(read_only.sge(0, 8))].concat();
        a.write_wqe(WqeOpcode::RdmaRead, |_| {}, &segments);
    });
    fails_locally(config, wqe::DATA_ACCESS, |a, p| {
        let iova = a.mr.iova;
        a.host.memory.revoke(iova);
        a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &[p.remote.clone(), data(a.mr.sge(0, 8))].concat());
    });
}

#[test]
fn a_counter_beyond_the_queue_stops_it() {
    let mut pair = Pair::new();
    let record = pair.a.qp.record;
    pair.a.host.memory.put(record + 4, &1000u32.to_be_bytes());
    pair.a.ring();
    pair.run();
    expect_send_error(&mut pair.a, wqe::COUNTER, 0);
    pair.a.expect_none();
}

/// Posts a request that the peer refuses, followed by another request, with receives on both sides.
fn fails_remotely(fault: WorkFault, event: Option<EventType>, post: impl Fn(&mut Pair)) {
    let mut pair = Pair::new();
    let write = good_write(&pair);
    pair.a.post_receive(&[]);
    pair.a.post_receive(&[]);
    post(&mut pair);
    let first = pair.a.qp.posted;
    pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &write);
    pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &write);
    pair.a.ring();
    pair.run();
    expect_send_error(&mut pair.a, fault, 0);
    expect_send_error(&mut pair.a, wqe::FLUSHED, first);
    expect_send_error(&mut pair.a, wqe::FLUSHED, first + 1);
    expect_receive_error(&mut pair.a, wqe::FLUSHED, 0);
    expect_receive_error(&mut pair.a, wqe::FLUSHED, 1);
    pair.a.expect_none();
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.b.state(), if event.is_some() { QpState::Error } else { QpState::Rts });
    assert_eq!(pair.b.poll_event().map(|event| event.kind()), event);
}

#[test]
fn remote_keys_are_checked() {
    let access = Some(EventType::WqAccessError);
    fails_remotely(wqe::REMOTE_ACCESS, access, |pair| {
        let wrong = Mkey::new(pair.b.mr.key.value() ^ 0x100);
        pair.a.write_wqe(
            WqeOpcode::RdmaWrite,
            |_| {},
            &[remote(pair.b.mr.va, wrong), inline(&[1; 8])].concat(),
        );
    });
    fails_remotely(wqe::REMOTE_ACCESS, access, |pair| {
        let beyond = remote(pair.b.mr.va + super::verbs::MR_SIZE - 4, pair.b.mr.key);
        pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &[beyond, inline(&[1; 8])].concat());
    });
    fails_remotely(wqe::REMOTE_ACCESS, access, |pair| {
        let local_only = create_mr(&mut pair.b.host, pair.b.pd, [true, true, false, false, false]);
        let segments = [remote(local_only.va, local_only.key), data(pair.a.mr.sge(0, 8))].concat();
        pair.a.write_wqe(WqeOpcode::RdmaRead, |_| {}, &segments);
    });
    fails_remotely(wqe::REMOTE_ACCESS, access, |pair| {
        let iova = pair.b.mr.iova;
        pair.b.host.memory.revoke(iova);
        let segments = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 8))].concat();
        pair.a.write_wqe(WqeOpcode::RdmaRead, |_| {}, &segments);
    });
}

/// Requirement: IBTA v1.4 §9.4.5: an atomic whose address is not a multiple of 8 is an invalid request
#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    fails_remotely(wqe::REMOTE_INVALID, Some(EventType::WqInvalReqError), |pair| {
        let place = remote(pair.b.mr.va + 4, pair.b.mr.key);
        let segments = [place, operands(1, 0), data(pair.a.mr.sge(0, 8))].concat();
        pair.a.write_wqe(WqeOpcode::AtomicFetchAdd, |_| {}, &segments);
    });
}

#[test]
fn a_receive_that_is_too_short() {
    let mut pair = Pair::new();
    pair.b.post_receive(&[pair.b.mr.sge(0, 100)]);
    pair.b.post_receive(&[pair.b.mr.sge(0, 100)]);
    pair.a.post(WqeOpcode::Send, &data(pair.a.mr.sge(0, 101)));
    pair.run();
    expect_send_error(&mut pair.a, wqe::REMOTE_INVALID, 0);
    expect_receive_error(&mut pair.b, wqe::RECEIVE, 0);
    expect_receive_error(&mut pair.b, wqe::FLUSHED, 1);
    pair.b.expect_none();
}

#[test]
fn a_receive_whose_key_is_wrong() {
    let mut pair = Pair::new();
    let mut sge = pair.b.mr.sge(0, 100);
    sge.key = Mkey::new(0x9999_9900);
    pair.b.post_receive(&[pair.b.mr.sge(0, 4), sge]);
    pair.a.post(WqeOpcode::Send, &data(pair.a.mr.sge(0, 50)));
    pair.run();
    expect_send_error(&mut pair.a, wqe::REMOTE_OPERATION, 0);
    expect_receive_error(&mut pair.b, wqe::DATA_KEY, 0);
    assert_eq!(pair.b.poll_event().map(|event| event.kind()), Some(EventType::WqCatasError));
}

#[test]
fn a_short_message_does_not_touch_a_later_bad_segment() {
    let mut pair = Pair::new();
    let mut sge = pair.b.mr.sge(0, 100);
    sge.key = Mkey::new(0x9999_9900);
    pair.b.post_receive(&[pair.b.mr.sge(0, 50), sge]);
    pair.a.post(WqeOpcode::Send, &data(pair.a.mr.sge(0, 50)));
    pair.run();
    pair.a.expect();
    assert_eq!(pair.b.expect().byte_count(), 50);
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "transport retry counter exceeded".
#[test]
fn a_missing_response_ends_in_retry_exceeded() {
    let mut pair = Pair::with(NicConfig::default(), |c| {
        c.set_retry_count(2);
    });
    let write = good_write(&pair);
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    pair.run_with(|_, _| false);
    for _ in 0..4 {
        pair.a.host.advance(Duration::from_millis(300));
        pair.run_with(|_, _| false);
    }
    expect_send_error(&mut pair.a, wqe::RETRY, 0);
    assert_eq!(pair.frames, 3, "the first attempt and two retries");
}

/// Requirement: IBTA v1.4 §11.6.2: the cause of "RNR retry counter exceeded".
#[test]
fn no_receive_is_waited_for_and_then_ends_in_rnr_retry_exceeded() {
    let mut pair = Pair::with(NicConfig::default(), |c| {
        c.set_rnr_retry(2);
    });
    pair.a.post(WqeOpcode::Send, &inline(b"first"));
    pair.run();
    pair.a.expect_none();
    pair.b.post_receive(&[pair.b.mr.sge(0, 8)]);
    pair.pass_time(Duration::from_micros(100), 2);
    pair.a.expect();
    assert_eq!(pair.b.expect().byte_count(), 5);
    pair.a.post(WqeOpcode::Send, &inline(b"second"));
    pair.run();
    pair.pass_time(Duration::from_micros(100), 5);
    expect_send_error(&mut pair.a, wqe::RNR_RETRY, 1);
}

/// Requirement: IBTA v1.4 §10.3.1: in the error state all outstanding and later work is flushed in order.
#[test]
fn a_move_to_error_flushes_outstanding_and_later_work_in_order() {
    let mut pair = Pair::new();
    let write = good_write(&pair);
    for _ in 0..3 {
        pair.a.write_wqe(
            WqeOpcode::RdmaWrite,
            |c| {
                c.set_completion_mode(0);
            },
            &write,
        );
    }
    pair.a.ring();
    let mut frame = crate::wire::FrameBuffer::new();
    let now = pair.a.host.now;
    pair.a.host.nic.poll_transmit(now, &mut pair.a.host.memory, &mut frame).unwrap();
    pair.a.write_wqe(WqeOpcode::Nop, |_| {}, &[]);
    pair.a.post_receive(&[]);
    pair.a.short(Op::ToErrorQp).unwrap();
    for i in 0..3 {
        expect_send_error(&mut pair.a, wqe::FLUSHED, i);
    }
    expect_receive_error(&mut pair.a, wqe::FLUSHED, 0);
    // The NOP has no doorbell yet, so the device does not know about it.
    pair.a.expect_none();
    pair.a.ring();
    expect_send_error(&mut pair.a, wqe::FLUSHED, 3);
    pair.a.post_receive(&[]);
    pair.a.host.advance(Duration::from_millis(1));
    expect_receive_error(&mut pair.a, wqe::FLUSHED, 1);
    pair.run();
    pair.a.expect_none();
    pair.a.host.advance(Duration::from_secs(2));
    assert_eq!(pair.a.host.nic.poll_timeout(), None, "a failed queue pair sets no more alarms");
}

/// Requirement: IBTA v1.4 §10.3.1: a reset discards outstanding work without completions.
#[test]
fn reset_completes_nothing_and_starts_again() {
    let mut pair = Pair::new();
    let write = good_write(&pair);
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    pair.a.short(Op::ToResetQp).unwrap();
    pair.run();
    pair.a.expect_none();
    pair.b.short(Op::ToResetQp).unwrap();
    for node in [&mut pair.a, &mut pair.b] {
        let record = node.qp.record;
        node.host.memory.put(record, &[0; 8]);
        (node.qp.posted, node.qp.received) = (0, 0);
    }
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    pair.a.connect(to_b, |_| {});
    pair.b.connect(to_a, |_| {});
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    pair.run();
    assert_eq!(pair.a.expect().wqe_counter(), 0);
}

/// Requirement: IBTA v1.4 §10.3.1: receives may be posted in INIT, and are there once the queue pair is connected.
#[test]
fn receives_posted_in_init_are_used() {
    let mut pair = Pair::new();
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    for node in [&mut pair.a, &mut pair.b] {
        node.short(Op::ToResetQp).unwrap();
    }
    pair.b.modify(Op::ResetToInitQp, |c| init(c, |_| {})).unwrap();
    pair.b.post_receive(&[pair.b.mr.sge(0, 8)]);
    assert_eq!(pair.b.state(), QpState::Init);
    pair.b.modify(Op::InitToRtrQp, |c| rtr(c, to_a, |_| {})).unwrap();
    pair.b.modify(Op::RtrToRtsQp, |c| rts(c, |_| {})).unwrap();
    pair.a.connect(to_b, |_| {});
    pair.a.post(WqeOpcode::Send, &inline(b"early"));
    pair.run();
    pair.a.expect();
    assert_eq!(pair.b.expect().byte_count(), 5);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 5), b"early");
}

#[test]
fn work_posted_before_rts_starts_with_it() {
    let mut pair = Pair::new();
    pair.a.short(Op::ToResetQp).unwrap();
    pair.b.short(Op::ToResetQp).unwrap();
    pair.a.post(WqeOpcode::Nop, &[]);
    pair.run();
    pair.a.expect_none();
    pair.a.connect((pair.b.qp.qpn, pair.b.gid, pair.b.mac), |_| {});
    pair.run();
    pair.a.expect();
}

/// Requirement: IBTA v1.4 §9.6.1: frames for other ports, malformed frames and frames with a bad ICRC are silently
/// dropped.
#[test]
fn frames_that_are_not_ours_or_not_whole_are_dropped() {
    let mut pair = Pair::new();
    let write = good_write(&pair);
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    let mut frame = crate::wire::FrameBuffer::new();
    let now = pair.a.host.now;
    pair.a.host.nic.poll_transmit(now, &mut pair.a.host.memory, &mut frame).unwrap();
    let mut give = |bytes: &[u8]| {
        let now = pair.b.host.now;
        pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, bytes);
        pair.b.host.nic.counters()
    };
    let mut spoiled = frame.clone();
    spoiled[..6].copy_from_slice(&STRANGER.0);
    assert_eq!(give(&spoiled).frames_foreign, 1);
    assert_eq!(give(&[]).frames_foreign, 2);
    assert_eq!(give(&frame[..40]).frames_malformed, 1);
    let last = frame.len() - 1;
    spoiled = frame.clone();
    spoiled[last] ^= 1;
    assert_eq!(give(&spoiled).frames_bad_icrc, 1);
    assert_eq!(give(&frame).frames_received, 1);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 8), [1; 8]);
}

/// A host with the addresses of `number` and a queue pair connected to B of the pair sends B a WRITE. Returns
/// what B counted.
#[track_caller]
fn write_of_a_stranger(
    pair: &mut Pair,
    number: u8,
    target: Qpn,
    edit: impl Fn(&mut QueuePairContext) + Copy,
) -> Counters {
    let mut stranger = Node::new(number, NicConfig::default());
    stranger.connect((target, pair.b.gid, pair.b.mac), edit);
    stranger.post(WqeOpcode::RdmaWrite, &[remote(pair.b.mr.va, pair.b.mr.key), inline(&[9; 8])].concat());
    let mut frame = crate::wire::FrameBuffer::new();
    let (now, before) = (stranger.host.now, pair.b.host.nic.counters());
    stranger.host.nic.poll_transmit(now, &mut stranger.host.memory, &mut frame).expect("a frame");
    pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &frame);
    assert!(pair.b.host.nic.poll_transmit(now, &mut pair.b.host.memory, &mut frame).is_none(), "an answer");
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 8), [0; 8]);
    assert_eq!((pair.b.state(), pair.b.poll()), (QpState::Rts, None));
    let after = pair.b.host.nic.counters();
    assert_eq!(after.frames_received, before.frames_received);
    after
}

/// Everything else about the packets is right: PSN, key and address would permit the write.
/// Requirement: IBTA v1.4 §9.6.1: packets of other paths and other partitions, and packets for unknown queue pairs, are
/// silently dropped.
#[test]
fn packets_of_strangers_are_dropped() {
    let mut pair = Pair::new();
    let (peer, stranger, target) = (1, 3, pair.b.qp.qpn);
    let unknown = Qpn::from_low_bits(target.value() + 100);
    assert_eq!(write_of_a_stranger(&mut pair, stranger, target, |_| {}).frames_unknown_qp, 1, "another path");
    assert_eq!(
        write_of_a_stranger(&mut pair, peer, unknown, |_| {}).frames_unknown_qp,
        2,
        "no such queue pair"
    );
    let other_partition = |c: &mut QueuePairContext| {
        c.primary_address_path_mut().set_pkey_index(1);
    };
    assert_eq!(write_of_a_stranger(&mut pair, peer, target, other_partition).frames_bad_pkey, 1);
    let write = good_write(&pair);
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    pair.run();
    pair.a.expect();
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 8), [1; 8], "packets of the real peer are accepted");
}

/// Requirement: IBTA v1.4 §11.6.3: a completion queue overrun is an asynchronous error of the queue and of its queue
/// pairs.
#[test]
fn a_full_completion_queue_kills_its_queue_pairs() {
    let mut pair = Pair::new();
    let write = good_write(&pair);
    for _ in 0..(1 << super::verbs::LOG_CQ) + 1 {
        pair.a.post(WqeOpcode::RdmaWrite, &write);
        pair.run();
    }
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.a.host.nic.counters().completion_overruns, 1);
    let kinds: Vec<_> = core::iter::from_fn(|| pair.a.poll_event().map(|event| event.kind())).collect();
    assert_eq!(kinds, [EventType::CqError, EventType::WqCatasError]);
}

#[test]
fn the_rnr_timer_can_be_changed_while_sending() {
    let mut pair = Pair::new();
    let mut input = bareverbs_prm::command::qp::InitToRtrQpIn::new();
    input.set_qpn(pair.b.qp.qpn).set_opt_param_mask(1 << 6).qpc_mut().set_min_rnr_nak(20);
    pair.b.host.run::<_, [u8; 16]>(Op::RtsToRtsQp, 0, input).unwrap();
    pair.a.post(WqeOpcode::Send, &inline(b"early"));
    pair.run();
    pair.b.post_receive(&[pair.b.mr.sge(0, 8)]);
    pair.pass_time(Duration::from_micros(100), 2);
    pair.a.expect_none();
    // Code 20 is 10.24 ms (IBTA v1.4 table 45).
    pair.pass_time(Duration::from_millis(11), 1);
    pair.a.expect();
}
