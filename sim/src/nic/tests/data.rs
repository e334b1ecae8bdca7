//! The data path between two devices: every operation, byte for byte.

use super::host::Host;
use super::pair::Pair;
use super::verbs::{Node, Sge, data, inline, operands, remote};
use crate::nic::NicConfig;
use crate::wire::FrameBuffer;
use bareverbs_prm::numbering::{CqeOpcode, WqeOpcode};
use bareverbs_prm::wqe::{completion_mode, fence_mode};

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

#[test]
fn rdma_write_of_many_packets() {
    let mut pair = Pair::new();
    let bytes = pattern(10_000, 1);
    pair.a.host.memory.put(pair.a.mr.iova + 100, &bytes);
    let segments = [remote(pair.b.mr.va + 77, pair.b.mr.key), data(pair.a.mr.sge(100, 10_000))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    let entry = pair.a.expect();
    assert_eq!((entry.opcode(), entry.wqe_counter(), entry.send_opcode()), (CqeOpcode::Requester, 0, 0x08));
    assert_eq!((entry.qpn(), entry.user_index()), (pair.a.qp.qpn, 0xabcdef));
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 77, 10_000), bytes);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 10_077, 1), [0], "not a byte more");
    pair.b.expect_none();
    assert_eq!(pair.a.host.memory.faults, []);
}

#[test]
fn rdma_read_scatters_over_several_segments() {
    let mut pair = Pair::new();
    let bytes = pattern(5000, 2);
    pair.b.host.memory.put(pair.b.mr.iova, &bytes);
    let list = [(1000, 1), (3000, 999), (9000, 1024), (20_000, 2976)];
    let mut segments = remote(pair.b.mr.va, pair.b.mr.key);
    list.iter().for_each(|&(at, length)| segments.extend(data(pair.a.mr.sge(at, length))));
    pair.a.post(WqeOpcode::RdmaRead, &segments);
    pair.run();
    assert_eq!((pair.a.expect().byte_count(), pair.a.poll()), (5000, None));
    let mut back = Vec::new();
    for (at, length) in list {
        back.extend_from_slice(pair.a.host.memory.slice(pair.a.mr.iova + at, length as usize));
    }
    assert_eq!(back, bytes);
}

#[test]
fn send_and_receive_with_gather_and_scatter() {
    let mut pair = Pair::new();
    let bytes = pattern(2500, 3);
    pair.a.host.memory.put(pair.a.mr.iova, &bytes);
    let list: Vec<Sge> = vec![pair.b.mr.sge(0, 100), pair.b.mr.sge(4000, 2000), pair.b.mr.sge(8000, 4000)];
    pair.b.post_receive(&list);
    let segments: Vec<u8> =
        [(0, 1), (1, 1023), (1024, 1), (1025, 1475)].map(|(at, n)| data(pair.a.mr.sge(at, n))).concat();
    pair.a.write_wqe(
        WqeOpcode::SendImm,
        |c| {
            c.set_immediate(0x1122_3344).set_solicited(true);
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
    pair.a.expect();
    let entry = pair.b.expect();
    assert_eq!((entry.opcode(), entry.byte_count()), (CqeOpcode::ResponderSendImmediate, 2500));
    assert_eq!((entry.immediate(), entry.solicited(), entry.wqe_counter()), (0x1122_3344, true, 0));
    let memory = &pair.b.host.memory;
    let base = pair.b.mr.iova;
    let back =
        [memory.slice(base, 100), memory.slice(base + 4000, 2000), memory.slice(base + 8000, 400)].concat();
    assert_eq!(back, bytes);
}

#[test]
fn inline_data_also_around_the_end_of_the_ring() {
    let mut pair = Pair::new();
    let ring = 1u16 << super::verbs::LOG_SQ;
    for round in 0..u32::from(ring) {
        // Each WQE takes three blocks, so every third one wraps around.
        let bytes = pattern(130, round as u8);
        let at = u64::from(round) * 256;
        let segments = [remote(pair.b.mr.va + at, pair.b.mr.key), inline(&bytes)].concat();
        pair.a.post(WqeOpcode::RdmaWrite, &segments);
        pair.run();
        assert_eq!(pair.a.expect().wqe_counter(), (round * 3) as u16);
        assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + at, 130), bytes, "round {round}");
    }
}

#[test]
fn write_with_immediate_consumes_a_receive() {
    let mut pair = Pair::new();
    pair.b.post_receive(&[]);
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), inline(b"hello")].concat();
    pair.a.write_wqe(
        WqeOpcode::RdmaWriteImm,
        |c| {
            c.set_immediate(7);
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
    pair.a.expect();
    let entry = pair.b.expect();
    assert_eq!(
        (entry.opcode(), entry.byte_count(), entry.immediate()),
        (CqeOpcode::ResponderWriteImmediate, 5, 7)
    );
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 5), b"hello");
}

/// Frames that the device sends now.
fn sent_now(node: &mut Node) -> Vec<FrameBuffer> {
    let now = node.host.now;
    core::iter::from_fn(|| {
        let mut frame = FrameBuffer::new();
        node.host.nic.poll_transmit(now, &mut node.host.memory, &mut frame).map(|_| frame)
    })
    .collect()
}

fn take(node: &mut Node, frames: &[FrameBuffer]) {
    let now = node.host.now;
    frames.iter().for_each(|frame| node.host.nic.handle_buffer(now, &mut node.host.memory, frame));
}

/// Requirement: IBTA v1.4 §10.8.3.3: a WQE with the fence indicator starts after earlier READs have completed; one
/// without need not wait.
#[test]
fn a_fenced_wqe_waits_for_the_read_before_it() {
    use fence_mode::{FENCE, INITIATOR_SMALL, NONE, SMALL_AND_FENCE, STRONG_ORDERING};
    for (mode, waits) in [
        (NONE, false),
        (INITIATOR_SMALL, false),
        (FENCE, true),
        (STRONG_ORDERING, true),
        (SMALL_AND_FENCE, true),
    ] {
        let mut pair = Pair::new();
        let read = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 8))].concat();
        let write = [remote(pair.b.mr.va + 64, pair.b.mr.key), inline(&[7; 8])].concat();
        pair.a.write_wqe(WqeOpcode::RdmaRead, |_| {}, &read);
        pair.a.write_wqe(
            WqeOpcode::RdmaWrite,
            |c| {
                c.set_fence_mode(mode);
            },
            &write,
        );
        pair.a.ring();
        let first = sent_now(&mut pair.a);
        assert_eq!(first.len(), if waits { 1 } else { 2 }, "fence mode {mode}");
        take(&mut pair.b, &first);
        let response = sent_now(&mut pair.b);
        take(&mut pair.a, &response);
        pair.run();
        assert_eq!((pair.a.expect().wqe_counter(), pair.a.expect().wqe_counter()), (0, 1));
        assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 64, 8), [7; 8]);
    }
}

/// Requirement: IBTA v1.4 §9.7.4.1.5: a request of length zero is executed; it needs no R_Key.
#[test]
fn operations_without_a_byte() {
    let mut pair = Pair::new();
    pair.b.post_receive(&[]);
    let nowhere = remote(0xdead, bareverbs_prm::ids::Mkey::new(0));
    pair.a.post(WqeOpcode::RdmaWrite, &nowhere);
    pair.a.post(WqeOpcode::RdmaRead, &nowhere);
    pair.a.post(WqeOpcode::Send, &[]);
    pair.a.post(WqeOpcode::Nop, &[]);
    pair.run();
    for i in 0..4 {
        assert_eq!((pair.a.expect().wqe_counter(), i), (i, i));
    }
    assert_eq!(pair.b.expect().byte_count(), 0);
}

#[test]
fn atomics_compute_in_host_order() {
    let mut pair = Pair::new();
    pair.b.host.memory.put(pair.b.mr.iova + 8, &0x1234_5678_9abc_def0u64.to_le_bytes());
    let place = || remote(pair.b.mr.va + 8, pair.b.mr.key);
    let (va, sge) = (place(), data(pair.a.mr.sge(0, 8)));
    pair.a.post(WqeOpcode::AtomicFetchAdd, &[va.clone(), operands(0x10, 0), sge.clone()].concat());
    pair.run();
    pair.a.expect();
    let memory =
        |pair: &Pair| u64::from_le_bytes(pair.b.host.memory.slice(pair.b.mr.iova + 8, 8).try_into().unwrap());
    assert_eq!(memory(&pair), 0x1234_5678_9abc_df00);
    let old = pair.a.host.memory.slice(pair.a.mr.iova, 8);
    assert_eq!(old, 0x1234_5678_9abc_def0u64.to_be_bytes(), "mode 0: big-endian answers");
    let swap = |compare| [va.clone(), operands(5, compare), sge.clone()].concat();
    pair.a.post(WqeOpcode::AtomicCompareSwap, &swap(1));
    pair.run();
    assert_eq!(memory(&pair), 0x1234_5678_9abc_df00, "the comparison failed");
    pair.a.post(WqeOpcode::AtomicCompareSwap, &swap(0x1234_5678_9abc_df00));
    pair.run();
    assert_eq!(memory(&pair), 5);
}

/// Requirement: IBTA v1.4 §10.8.6: one completion covers the unsignalled requests before it.
#[test]
fn one_completion_ends_all_unsignalled_work_before_it() {
    let mut pair = Pair::new();
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), inline(&[9; 8])].concat();
    for i in 0..32 {
        let mode = if i == 31 { completion_mode::ALWAYS } else { completion_mode::ON_ERROR };
        pair.a.write_wqe(
            WqeOpcode::RdmaWrite,
            |c| {
                c.set_completion_mode(mode);
            },
            &segments,
        );
    }
    pair.a.ring();
    pair.run();
    assert_eq!(pair.a.expect().wqe_counter(), 31);
    pair.a.expect_none();
    assert_eq!(pair.a.host.nic.counters().wqes, 32);
}

#[test]
fn counters_wrap() {
    let mut pair = Pair::new();
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), inline(&[1; 4])].concat();
    for i in 0..70_000u32 {
        pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &segments);
        pair.a.ring();
        pair.run();
        assert_eq!(pair.a.expect().wqe_counter(), i as u16);
    }
}

#[test]
fn receives_wrap() {
    let mut pair = Pair::new();
    for i in 0..70_000u32 {
        pair.b.post_receive(&[pair.b.mr.sge(0, 16)]);
        pair.a.write_wqe(WqeOpcode::Send, |_| {}, &inline(&i.to_be_bytes()));
        pair.a.ring();
        pair.run();
        pair.a.expect();
        assert_eq!(pair.b.expect().wqe_counter(), i as u16);
        assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 4), i.to_be_bytes());
    }
}

#[test]
fn queue_pairs_take_turns() {
    let mut pair = Pair::new();
    let other =
        super::verbs::create_qp(&mut pair.a.host, pair.a.uar, pair.a.pd, pair.a.cq.cqn, |_| {}).unwrap();
    let other_b =
        super::verbs::create_qp(&mut pair.b.host, pair.b.uar, pair.b.pd, pair.b.cq.cqn, |_| {}).unwrap();
    let first = core::mem::replace(&mut pair.a.qp, other);
    pair.b.qp = other_b;
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    pair.a.connect(to_b, |_| {});
    pair.b.connect(to_a, |_| {});
    pair.run();
    let write = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 20_480))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    let second = core::mem::replace(&mut pair.a.qp, first);
    pair.a.post(WqeOpcode::RdmaWrite, &write);
    let mut senders = Vec::new();
    let (now, mut frame) = (pair.a.host.now, crate::wire::FrameBuffer::new());
    while let Some(sent) = pair.a.host.nic.poll_transmit(now, &mut pair.a.host.memory, &mut frame) {
        senders.push(sent.qpn);
    }
    let expected: Vec<_> = (0..20).flat_map(|_| [second.qpn, pair.a.qp.qpn]).collect();
    assert_eq!(senders, expected);
}

/// A queue pair that sends long messages to its own device does not delay others for more than a few frames
/// at a time.
#[test]
fn a_queue_pair_that_sends_to_itself_yields() {
    const LENGTH: u32 = 32 << 10;
    const FRAMES: u64 = LENGTH as u64 / 1024;
    let mut node = Node::new(1, NicConfig::default());
    let own = (node.qp.qpn, node.gid, node.mac);
    node.connect(own, |_| {});
    let write = [remote(node.mr.va + u64::from(LENGTH), node.mr.key), data(node.mr.sge(0, LENGTH))].concat();
    (0..40).for_each(|_| node.post(WqeOpcode::RdmaWrite, &write));
    let Host { nic, memory, now, .. } = &mut node.host;
    let (mut frame, mut rounds, mut before) = (crate::wire::FrameBuffer::new(), 0, 0);
    loop {
        assert!(nic.poll_transmit(*now, memory, &mut frame).is_none(), "no frame leaves the device");
        let looped = nic.counters().frames_looped_back;
        assert!(looped - before <= 16, "{} frames in one call", looped - before);
        (before, rounds) = (looped, rounds + 1);
        if !nic.has_yielded() {
            break;
        }
    }
    assert!(before >= 40 * FRAMES && rounds > 40, "{before} frames in {rounds} calls");
    (0..40).for_each(|_| assert_eq!(node.expect().opcode(), CqeOpcode::Requester));
}

#[test]
fn two_queue_pairs_of_one_device_talk_inside_it() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    let peer = super::verbs::create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |_| {}).unwrap();
    let own = super::verbs::create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |_| {}).unwrap();
    let (own_number, peer_number) = (own.qpn, peer.qpn);
    node.qp = peer;
    node.connect((own_number, node.gid, node.mac), |_| {});
    node.qp = own;
    node.connect((peer_number, node.gid, node.mac), |_| {});
    let segments = [remote(node.mr.va + 64, node.mr.key), inline(b"to myself")].concat();
    node.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    assert_eq!(pair.frames, 0, "no frame leaves the device");
    assert_eq!(pair.a.expect().qpn(), own_number);
    assert_eq!(pair.a.host.memory.slice(pair.a.mr.iova + 64, 9), b"to myself");
    assert!(pair.a.host.nic.counters().frames_looped_back >= 2);
}

#[test]
fn over_ipv6_and_in_strict_mode() {
    let mut pair = Pair::with(NicConfig { strict: true, ..NicConfig::default() }, |_| {});
    for node in [&mut pair.a, &mut pair.b] {
        let mut gid = [0xfd; 16];
        gid[15] = node.mac.0[5];
        node.gid = bareverbs_prm::ids::Gid(gid);
        super::verbs::set_gid(&mut node.host, 1, node.gid, node.mac);
        node.short(bareverbs_prm::numbering::CommandOpcode::ToResetQp).unwrap();
    }
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    pair.a.connect(to_b, |_| {});
    pair.b.connect(to_a, |_| {});
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), inline(b"six")].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run_with(|_, frame| frame[12..14] == [0x86, 0xdd]);
    pair.a.expect();
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 3), b"six");
}

#[test]
fn lost_frames_are_sent_again() {
    let mut pair = Pair::new();
    let bytes = pattern(30_000, 5);
    pair.a.host.memory.put(pair.a.mr.iova, &bytes);
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 30_000))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run_with(|number, _| number % 7 != 0);
    pair.pass_time(bareverbs_prm::time::Duration::from_millis(100), 3);
    pair.a.expect();
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 30_000), bytes);
}

/// Operands of a masked compare-and-swap: swap value and mask, compare value and mask.
fn masked(swap: u64, swap_mask: u64, compare: u64, compare_mask: u64) -> Vec<u8> {
    [swap, compare, swap_mask, compare_mask].map(u64::to_be_bytes).concat()
}

/// Posts an atomic with an `opmod` on the first word of side B and returns the old value.
fn masked_atomic(pair: &mut Pair, opcode: WqeOpcode, opmod: u8, operands: &[u8]) -> Option<u64> {
    let segments = [&remote(pair.b.mr.va, pair.b.mr.key), operands, &data(pair.a.mr.sge(0, 8))[..]].concat();
    pair.a.write_wqe(
        opcode,
        |c| {
            c.set_opmod(opmod);
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
    let good = pair.a.expect().opcode() == CqeOpcode::Requester;
    // Software did not request replies in host byte order.
    let old = pair.a.host.memory.slice(pair.a.mr.iova, 8).try_into().map(u64::from_be_bytes);
    old.ok().filter(|_| good)
}

/// Requirement: IBTA v1.4 §9.4.5: an atomic, masked or not, is executed once and returns the old value.
#[test]
fn masked_atomics_compute_in_the_byte_order_of_the_host() {
    let mut pair = Pair::new();
    pair.b.host.memory.put(pair.b.mr.iova, &0x1122_3344_5566_7788u64.to_le_bytes());
    let word =
        |pair: &Pair| u64::from_le_bytes(pair.b.host.memory.slice(pair.b.mr.iova, 8).try_into().unwrap());
    let (swap, add) = (WqeOpcode::AtomicMaskedCompareSwap, WqeOpcode::AtomicMaskedFetchAdd);
    let operands = masked(0xaa << 56, 0xff << 56, 0x88, 0xff);
    assert_eq!(masked_atomic(&mut pair, swap, 9, &operands), Some(0x1122_3344_5566_7788));
    assert_eq!(word(&pair), 0xaa22_3344_5566_7788);
    let operands = masked(0, u64::MAX, 0x89, 0xff);
    assert_eq!(masked_atomic(&mut pair, swap, 9, &operands), Some(0xaa22_3344_5566_7788));
    assert_eq!(word(&pair), 0xaa22_3344_5566_7788, "not equal in the bits that are compared");
    let bytes = super::verbs::operands(0xff00_0000_0000_0078, 0x8080_8080_8080_8080);
    assert_eq!(masked_atomic(&mut pair, add, 9, &bytes), Some(0xaa22_3344_5566_7788));
    assert_eq!(word(&pair), 0xa922_3344_5566_7700, "eight fields, no carry between them");
    assert_eq!(masked_atomic(&mut pair, add, 8, &bytes), None, "four bytes are not offered");
}
