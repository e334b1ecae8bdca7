//! Counter sets: each counter counts its cause and stays zero otherwise.

use super::pair::Pair;
use super::verbs::{Node, data, inline, operands, remote};
use crate::nic::NicConfig;
use crate::nic::syndrome::{self, Refusal};
use crate::wire::{Aeth, Extension, FrameWriter, HeaderTemplate, NakCode, PacketHeader, Syndrome, parse};
use bareverbs_prm::command::congestion::{
    NOTIFICATION_POINT, QueryCongStatisticsIn, QueryCongStatisticsOut, QueryCongStatusIn, QueryCongStatusOut,
    REACTION_POINT,
};
use bareverbs_prm::command::qp::RtsToRtsQpIn;
use bareverbs_prm::command::queue_counter::{
    AllocQueueCounterIn, AllocQueueCounterOut, DeallocQueueCounterIn, QueryQueueCounterIn,
    QueryQueueCounterOut,
};
use bareverbs_prm::field::Layout;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{CommandOpcode as Op, WqeOpcode};
use bareverbs_prm::time::Duration;
use zerocopy::IntoBytes;

const COUNTER_SET: u32 = 1 << 25;

fn alloc(node: &mut Node) -> u8 {
    let (output, _): (AllocQueueCounterOut, _) =
        node.host.run(Op::AllocQCounter, 0, AllocQueueCounterIn::new()).unwrap();
    output.counter_set_id()
}

/// Makes the queue pair count for a set.
fn join(node: &mut Node, set: u8) -> Result<(), Refusal> {
    let mut input = RtsToRtsQpIn::new();
    input.set_qpn(node.qp.qpn).set_opt_param_mask(COUNTER_SET);
    input.qpc_mut().set_counter_set_id(set);
    let result = node.host.run::<_, [u8; 16]>(Op::RtsToRtsQp, 0, input);
    result.map(|_| ()).map_err(|(_, syndrome)| Refusal::by_syndrome(syndrome).unwrap())
}

/// The nonzero counters, by name.
fn query(node: &mut Node, set: u8, clear: bool) -> Vec<(&'static str, u32)> {
    let mut input = QueryQueueCounterIn::new();
    input.set_counter_set_id(set).set_clear(clear);
    let (output, _): (QueryQueueCounterOut, _) = node.host.run(Op::QueryQCounter, 0, input).unwrap();
    let value = |bit: u32| {
        let at = bit as usize / 8;
        u32::from_be_bytes(output.as_bytes()[at..at + 4].try_into().unwrap())
    };
    let fields = QueryQueueCounterOut::INFO.fields.iter().filter(|field| field.bit_offset >= 128);
    let mut found: Vec<_> = fields.map(|field| (field.path, value(field.bit_offset))).collect();
    found.retain(|&(_, value)| value != 0);
    found.sort_unstable();
    found
}

/// A pair whose queue pairs both count for a set.
fn counting() -> (Pair, u8, u8) {
    let mut pair = Pair::new();
    let (a, b) = (alloc(&mut pair.a), alloc(&mut pair.b));
    join(&mut pair.a, a).unwrap();
    join(&mut pair.b, b).unwrap();
    (pair, a, b)
}

fn target(pair: &Pair) -> Vec<u8> {
    remote(pair.b.mr.va, pair.b.mr.key)
}

fn write(pair: &mut Pair) {
    let segments = [target(pair), inline(&[1; 8])].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
}

fn read(pair: &mut Pair) {
    let segments = [target(pair), data(pair.a.mr.sge(0, 8))].concat();
    pair.a.post(WqeOpcode::RdmaRead, &segments);
}

fn send(pair: &mut Pair, bytes: &[u8]) {
    pair.a.post(WqeOpcode::Send, &inline(bytes));
}

#[test]
fn requests_are_counted_by_their_kind() {
    let (mut pair, a, b) = counting();
    write(&mut pair);
    write(&mut pair);
    read(&mut pair);
    let atomic = [target(&pair), operands(1, 0), data(pair.a.mr.sge(0, 8))].concat();
    pair.a.post(WqeOpcode::AtomicFetchAdd, &atomic);
    pair.run();
    let kinds = [("rx_atomic_requests", 1), ("rx_read_requests", 1), ("rx_write_requests", 2)];
    assert_eq!(query(&mut pair.b, b, false), kinds);
    assert_eq!(query(&mut pair.a, a, false), []);
}

#[test]
fn a_lost_request_is_out_of_sequence_here_and_a_sequence_error_there() {
    let (mut pair, a, b) = counting();
    write(&mut pair);
    write(&mut pair);
    let mut first = true;
    pair.run_with(|_, _| !core::mem::take(&mut first));
    assert_eq!(query(&mut pair.b, b, false), [("out_of_sequence", 1), ("rx_write_requests", 2)]);
    assert_eq!(query(&mut pair.a, a, false), [("packet_seq_err", 1)]);
}

#[test]
fn a_lost_acknowledgement_is_a_timeout_and_a_duplicate() {
    let (mut pair, a, b) = counting();
    write(&mut pair);
    pair.run_with(|number, _| number != 2);
    pair.pass_time(Duration::from_millis(50), 4);
    assert_eq!(query(&mut pair.a, a, false), [("local_ack_timeout_err", 1)]);
    assert_eq!(query(&mut pair.b, b, false), [("duplicate_request", 1), ("rx_write_requests", 1)]);
}

#[test]
fn a_lost_read_response_is_an_implied_nak() {
    let (mut pair, a, b) = counting();
    read(&mut pair);
    read(&mut pair);
    let mut lost = false;
    // Loses the first frame with the op-code READ response only.
    pair.run_with(|_, frame| frame[42] != 0x10 || core::mem::replace(&mut lost, true));
    assert_eq!(query(&mut pair.a, a, false), [("implied_nak_seq_err", 1)]);
    assert_eq!(query(&mut pair.b, b, false), [("duplicate_request", 2), ("rx_read_requests", 2)]);
}

#[test]
fn a_receiver_that_is_not_ready_is_out_of_buffer() {
    let (mut pair, a, b) = counting();
    send(&mut pair, &[1]);
    pair.run();
    pair.b.post_receive(&[pair.b.mr.sge(0, 64)]);
    pair.pass_time(Duration::from_millis(1), 4);
    assert_eq!(query(&mut pair.b, b, false), [("out_of_buffer", 1)]);
    assert_eq!(query(&mut pair.a, a, false), [("rnr_nak_retry_err", 1)]);
}

#[test]
fn a_wrong_key_is_an_error_at_both_ends_and_what_follows_is_flushed() {
    let (mut pair, a, b) = counting();
    let wrong = [remote(pair.b.mr.va, Mkey::new(0x1234_5600)), inline(&[1; 8])].concat();
    pair.b.post_receive(&[pair.b.mr.sge(0, 64)]);
    pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &wrong);
    write(&mut pair);
    pair.run();
    let here = [("req_cqe_error", 2), ("req_cqe_flush_error", 1), ("req_remote_access_errors", 1)];
    assert_eq!(query(&mut pair.a, a, false), here);
    let there = [("resp_cqe_error", 1), ("resp_cqe_flush_error", 1), ("resp_remote_access_errors", 1)];
    assert_eq!(query(&mut pair.b, b, false), there);
}

#[test]
fn a_message_that_is_too_long_is_a_local_length_error_of_the_receiver() {
    let (mut pair, a, b) = counting();
    pair.b.post_receive(&[pair.b.mr.sge(0, 4)]);
    send(&mut pair, &[1; 8]);
    pair.run();
    assert_eq!(query(&mut pair.a, a, false), [("req_cqe_error", 1), ("req_remote_invalid_request", 1)]);
    let there = [("resp_cqe_error", 1), ("resp_local_length_error", 1), ("resp_remote_invalid_request", 1)];
    assert_eq!(query(&mut pair.b, b, false), there);
}

#[test]
fn an_unreachable_peer_exceeds_the_retries() {
    let (mut pair, a, _) = counting();
    write(&mut pair);
    pair.run_with(|_, _| false);
    for _ in 0..40 {
        pair.a.host.advance(Duration::from_millis(100));
        pair.run_with(|_, _| false);
    }
    let expected =
        [("local_ack_timeout_err", 8), ("req_cqe_error", 1), ("req_transport_retries_exceeded", 1)];
    assert_eq!(query(&mut pair.a, a, false), expected);
}

/// The counts of both sides after A executed one work request that fails.
fn after_failure(pair: (Pair, u8, u8), opcode: WqeOpcode, segments: &[u8]) -> [Vec<(&'static str, u32)>; 2] {
    let (mut pair, a, b) = pair;
    pair.a.post(opcode, segments);
    pair.pass_time(Duration::from_millis(10), 30);
    [query(&mut pair.a, a, false), query(&mut pair.b, b, false)]
}

#[test]
fn work_that_the_device_refuses_is_counted_by_its_reason() {
    let refused = |opcode, segments: &dyn Fn(&Pair) -> Vec<u8>| {
        let pair = counting();
        let segments = segments(&pair.0);
        let [here, there] = after_failure(pair, opcode, &segments);
        assert_eq!(there, [], "the peer learned nothing");
        here
    };
    let unknown = refused(WqeOpcode::Unknown(0x77), &|_| Vec::new());
    assert_eq!(unknown, [("local_operation_error", 1), ("req_cqe_error", 1)]);
    let short = |pair: &Pair| [target(pair), operands(1, 2), data(pair.a.mr.sge(0, 4))].concat();
    let short = refused(WqeOpcode::AtomicFetchAdd, &short);
    assert_eq!(short, [("req_cqe_error", 1), ("req_local_length_error", 1)]);
    let wrong_key = |pair: &Pair| {
        let mut sge = pair.a.mr.sge(0, 8);
        sge.key = Mkey::new(sge.key.value() ^ 1);
        [target(pair), data(sge)].concat()
    };
    let wrong_key = refused(WqeOpcode::RdmaWrite, &wrong_key);
    assert_eq!(wrong_key, [("req_cqe_error", 1), ("req_local_protection", 1)]);
    let no_such_window = refused(WqeOpcode::Umr, &|_| vec![0; 112]);
    assert_eq!(no_such_window, [("req_cqe_error", 1), ("req_mw_binding", 1)]);
}

#[test]
fn a_receive_that_cannot_be_used_is_counted_at_both_ends() {
    let here = [("req_cqe_error", 1), ("req_remote_operation_errors", 1)];
    let (mut pair, a, b) = counting();
    let mut sge = pair.b.mr.sge(0, 8);
    sge.key = Mkey::new(0x9999_9900);
    pair.b.post_receive(&[sge]);
    let found = after_failure((pair, a, b), WqeOpcode::Send, &inline(&[1; 8]));
    assert_eq!(found, [here.to_vec(), vec![("resp_cqe_error", 1), ("resp_local_protection", 1)]]);
    let (mut pair, a, b) = counting();
    pair.b.post_receive(&[pair.b.mr.sge(0, 8)]);
    let receives = pair.b.qp.buffer;
    pair.b.host.memory.revoke(receives);
    let found = after_failure((pair, a, b), WqeOpcode::Send, &inline(&[1; 8]));
    assert_eq!(found, [here.to_vec(), vec![("resp_cqe_error", 1), ("resp_local_qp_error", 1)]]);
}

#[test]
fn a_receiver_that_is_never_ready_exceeds_its_retries() {
    let mut pair = Pair::with(NicConfig::default(), |context| {
        context.set_rnr_retry(2);
    });
    let (a, b) = (alloc(&mut pair.a), alloc(&mut pair.b));
    join(&mut pair.a, a).unwrap();
    join(&mut pair.b, b).unwrap();
    let [here, there] = after_failure((pair, a, b), WqeOpcode::Send, &inline(&[1; 8]));
    assert_eq!(here, [("req_cqe_error", 1), ("req_rnr_retries_exceeded", 1), ("rnr_nak_retry_err", 3)]);
    assert_eq!(there, [("out_of_buffer", 3)]);
}

/// The same response with another syndrome.
fn with_syndrome(frame: &[u8], syndrome: Syndrome) -> Vec<u8> {
    let packet = parse(frame).unwrap();
    let Extension::Aeth(aeth) = packet.extension else { return frame.to_vec() };
    let template = HeaderTemplate::new(&packet.route, packet.bth.destination, packet.bth.partition_key);
    let header = PacketHeader {
        opcode: packet.bth.opcode,
        psn: packet.bth.psn,
        solicited: false,
        ack_request: false,
        service_header: packet.service_header,
        extension: Extension::Aeth(Aeth { syndrome, ..aeth }),
    };
    let mut result = crate::wire::FrameBuffer::new();
    FrameWriter::begin(&mut result, &template, &header, 0).unwrap().finish();
    result.into_bytes()
}

#[test]
fn a_malformed_response_is_a_bad_response() {
    let (mut pair, a, _) = counting();
    write(&mut pair);
    pair.run_with(|_, frame| {
        *frame = with_syndrome(frame, Syndrome::Nak(NakCode::InvalidRdRequest)).into();
        true
    });
    assert_eq!(query(&mut pair.a, a, false), [("req_bad_response", 1), ("req_cqe_error", 1)]);
}

#[test]
fn a_set_is_cleared_on_request_and_outlives_its_queue_pairs() {
    let (mut pair, _, b) = counting();
    write(&mut pair);
    pair.run();
    assert_eq!(query(&mut pair.b, b, true), [("rx_write_requests", 1)]);
    assert_eq!(query(&mut pair.b, b, false), []);
    write(&mut pair);
    pair.run();
    let other = alloc(&mut pair.b);
    join(&mut pair.b, other).unwrap();
    write(&mut pair);
    pair.run();
    assert_eq!(query(&mut pair.b, b, false), [("rx_write_requests", 1)], "before it joined another set");
    assert_eq!(query(&mut pair.b, other, false), [("rx_write_requests", 1)]);
    assert_eq!(dealloc(&mut pair.b, other), Err(syndrome::COUNTER_BUSY));
    pair.b.short(Op::ToResetQp).unwrap();
    let mut destroy = bareverbs_prm::command::qp::DestroyQpIn::new();
    destroy.set_qpn(pair.b.qp.qpn);
    pair.b.host.run::<_, [u8; 16]>(Op::DestroyQp, 0, destroy).unwrap();
    assert_eq!(query(&mut pair.b, other, false), [("rx_write_requests", 1)], "after its queue pair is gone");
    dealloc(&mut pair.b, other).unwrap();
    assert_eq!(dealloc(&mut pair.b, other), Err(syndrome::COUNTER_UNKNOWN));
}

fn dealloc(node: &mut Node, set: u8) -> Result<(), Refusal> {
    let mut input = DeallocQueueCounterIn::new();
    input.set_counter_set_id(set);
    let result = node.host.run::<_, [u8; 16]>(Op::DeallocQCounter, 0, input);
    result.map(|_| ()).map_err(|(_, syndrome)| Refusal::by_syndrome(syndrome).unwrap())
}

#[test]
fn a_set_that_does_not_exist_cannot_be_joined() {
    let mut pair = Pair::new();
    assert_eq!(join(&mut pair.a, 9), Err(syndrome::COUNTER_UNKNOWN));
    let ids: Vec<u8> = (0..255).map(|_| alloc(&mut pair.a)).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids[0] == 1);
    let none = pair.a.host.run::<_, AllocQueueCounterOut>(Op::AllocQCounter, 0, AllocQueueCounterIn::new());
    assert_eq!(none.unwrap_err().1, syndrome::COUNTER_LIMIT.syndrome);
}

/// Marks a frame like a switch: congestion experienced, in the IPv4 header.
fn mark(frame: &mut [u8]) {
    frame[15] |= 3;
    frame[24..26].fill(0);
    let words = frame[14..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

/// Marked packets; CNPs sent, handled and ignored.
fn congestion(node: &mut Node, clear: bool) -> [u32; 4] {
    let mut input = QueryCongStatisticsIn::new();
    input.set_clear(clear);
    let (output, _): (QueryCongStatisticsOut, _) = node.host.run(Op::QueryCongStatistics, 0, input).unwrap();
    [
        output.np_ecn_marked_roce_packets_low(),
        output.np_cnp_sent_low(),
        output.rp_cnp_handled_low(),
        output.rp_cnp_ignored_low(),
    ]
}

/// Requirement: RoCEv2 A17.9.3: a receiver answers an ECN-marked packet with a congestion notification packet, op-code
/// 0x81 with 16 bytes of zeros and the BECN bit.
#[test]
fn marked_packets_cause_congestion_notifications_at_intervals() {
    let (mut pair, ..) = counting();
    let mut notifications = Vec::new();
    for _ in 0..3 {
        write(&mut pair);
    }
    let mut watch = |_: u64, frame: &mut crate::wire::FrameBuffer| {
        match frame[42] {
            0x0a => mark(frame),
            0x81 => notifications.push(frame.clone()),
            _ => {}
        }
        true
    };
    pair.run_with(&mut watch);
    let [notification] = notifications.try_into().expect("one, because no time has passed");
    assert_eq!((notification.len(), notification[46] & 0x40), (42 + 12 + 16 + 4, 0x40));
    assert!(notification[54..70].iter().all(|&byte| byte == 0));
    assert_eq!(notification[15] >> 2, 48, "the DSCP of CNPs");
    assert_eq!(congestion(&mut pair.b, false), [3, 1, 0, 0]);
    assert_eq!(congestion(&mut pair.a, true), [0, 0, 1, 0]);
    assert_eq!(congestion(&mut pair.a, false), [0; 4], "cleared");
    pair.b.host.advance(Duration::from_micros(5));
    write(&mut pair);
    pair.run_with(|_, frame| {
        if frame[42] == 0x0a {
            mark(frame);
        }
        true
    });
    assert_eq!(congestion(&mut pair.b, false), [4, 2, 0, 0]);
    let (now, memory) = (pair.b.host.now, &mut pair.b.host.memory);
    let mut astray = notification;
    astray[..6].copy_from_slice(&pair.b.mac.0);
    pair.b.host.nic.handle_frame(now, memory, &astray);
    assert_eq!(congestion(&mut pair.b, false), [4, 2, 0, 1], "it is not from the peer of this queue pair");
}

/// `enable` for one priority of one half of congestion control.
fn is_on(node: &mut Node, protocol: u8, priority: u8) -> Result<bool, Refusal> {
    let mut input = QueryCongStatusIn::new();
    input.set_cong_protocol(protocol).set_priority(priority);
    let result = node.host.run::<_, QueryCongStatusOut>(Op::QueryCongStatus, 0, input);
    let result = result.map(|(output, _)| output.enable());
    result.map_err(|(_, syndrome)| Refusal::by_syndrome(syndrome).unwrap())
}

/// With congestion control disabled, packets are not marked ECN-capable, but marked ones are still reported.
#[test]
fn queries_tell_whether_congestion_control_is_on() {
    for congestion_control in [false, true] {
        let mut pair = Pair::with(NicConfig { congestion_control, ..NicConfig::default() }, |_| {});
        for priority in 0..8 {
            assert_eq!(is_on(&mut pair.a, REACTION_POINT, priority), Ok(congestion_control));
            assert_eq!(is_on(&mut pair.a, NOTIFICATION_POINT, priority), Ok(true));
        }
        assert_eq!(is_on(&mut pair.a, REACTION_POINT, 8), Err(syndrome::CONGESTION_PRIORITY));
        for protocol in [0, 3] {
            assert_eq!(is_on(&mut pair.a, protocol, 0), Err(syndrome::CONGESTION_PROTOCOL));
        }
    }
}
