//! Completion queues: resizing, moderation, entries of 128 bytes.

use super::pair::Pair;
use super::verbs::{Node, create_qp, inline, op_own, remote};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut, ModifyCqIn, ModifyCqOut};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::cqe::{CompletionEntry, MiniEntry, OP_OWN_INITIAL, OP_OWN_OFFSET};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, EventType, QpState, WqeOpcode};
use bareverbs_prm::time::Duration;
use zerocopy::IntoBytes;

fn modify(node: &mut Node, select: u32, edit: impl Fn(&mut CompletionQueueContext)) -> Result<(), Refusal> {
    let mut input = ModifyCqIn::new();
    input.set_cqn(node.cq.cqn);
    input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(select);
    edit(input.cq_context_mut());
    send(node, 0, input, &[])
}

fn send(node: &mut Node, op_mod: u16, input: ModifyCqIn, list: &[u8]) -> Result<(), Refusal> {
    let result = node.host.command::<_, ModifyCqOut>(CommandOpcode::ModifyCq, op_mod, input, list, 16);
    result.map(|_| ()).map_err(|(_, syndrome)| Refusal::by_syndrome(syndrome).unwrap())
}

/// A buffer whose entries software owns.
fn buffer(node: &mut Node, log_size: u8, stride: u64) -> (u64, Vec<u8>) {
    let pages = (stride << log_size).div_ceil(4096);
    let first = node.host.memory.allocate(pages * 4096);
    for slot in 1..=1u64 << log_size {
        node.host.memory.put(first + slot * stride - 1, &[OP_OWN_INITIAL]);
    }
    (first, (0..pages).flat_map(|page| (first + page * 4096).to_be_bytes()).collect())
}

/// The new buffer, if the device accepted it.
fn resize(node: &mut Node, log_size: u8) -> Result<u64, Refusal> {
    let (address, list) = buffer(node, log_size, 64);
    let mut input = ModifyCqIn::new();
    input.set_cqn(node.cq.cqn);
    input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(0b111);
    input.cq_context_mut().set_log_cq_size(log_size);
    send(node, 1, input, &list).map(|()| address)
}

/// Posts `count` signalled sends on the left side and runs them.
fn sends(pair: &mut Pair, count: usize) {
    for _ in 0..count {
        pair.b.post_receive(&[pair.b.mr.sge(0, 64)]);
        pair.a.post(WqeOpcode::Send, &inline(&[1]));
        pair.run();
        pair.b.expect();
    }
}

#[test]
fn a_resized_queue_ends_its_old_buffer_with_an_entry_and_goes_on_in_the_new_one() {
    let mut pair = Pair::new();
    sends(&mut pair, 3);
    pair.a.expect();
    let new = resize(&mut pair.a, 2).expect("two completions fit four slots");
    sends(&mut pair, 1);
    let kinds: Vec<_> = (0..3).map(|_| pair.a.expect().opcode()).collect();
    assert_eq!(kinds, [CqeOpcode::Requester, CqeOpcode::Requester, CqeOpcode::ResizeCq]);
    pair.a.expect_none();
    // Entry 4 of a ring of four: the second pass.
    let entry: CompletionEntry = pair.a.host.memory.load(new);
    assert_eq!((entry.opcode(), entry.owner(), entry.wqe_counter()), (CqeOpcode::Requester, true, 3));
    (pair.a.cq.buffer, pair.a.cq.log_size) = (new, 2);
    assert_eq!(pair.a.expect().wqe_counter(), 3);
    sends(&mut pair, 5);
    assert_eq!(pair.a.state(), QpState::Error, "the fifth had no room");
    assert_eq!(pair.a.poll_event().expect("an event").kind(), EventType::CqError);
}

#[test]
fn a_size_that_is_too_small_is_refused_and_changes_nothing() {
    let mut pair = Pair::new();
    sends(&mut pair, 5);
    assert_eq!(resize(&mut pair.a, 2), Err(syndrome::CQ_OUTSTANDING));
    (0..5).for_each(|_| assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester));
    sends(&mut pair, 1);
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester, "the kept buffer got no final entry");
    let mut nameless = ModifyCqIn::new();
    nameless.set_cqn(pair.a.cq.cqn);
    let mut large = nameless;
    large.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(1);
    large.cq_context_mut().set_log_cq_size(23);
    assert_eq!(send(&mut pair.a, 1, large, &[0; 8]), Err(syndrome::CQ_SIZE));
    assert_eq!(send(&mut pair.a, 1, nameless, &[0; 8]), Err(syndrome::CQ_FIELD_SELECT));
    assert_eq!(send(&mut pair.a, 2, nameless, &[]), Err(syndrome::BAD_OP_MOD));
}

#[test]
fn a_moderated_queue_raises_its_event_after_so_many_completions() {
    let mut pair = Pair::new();
    modify(&mut pair.a, 0b11, |c| {
        c.set_cq_max_count(3);
    })
    .unwrap();
    pair.a.arm_cq(false);
    sends(&mut pair, 2);
    assert!(pair.a.poll_event().is_none(), "two of three completions");
    sends(&mut pair, 1);
    assert_eq!(pair.a.poll_event().expect("an event").kind(), EventType::Comp);
    sends(&mut pair, 1);
    assert!(pair.a.poll_event().is_none(), "one event per arming");
}

#[test]
fn a_moderated_queue_raises_its_event_after_its_period() {
    let mut pair = Pair::new();
    modify(&mut pair.a, 0b1_0011, |c| {
        c.set_cq_max_count(100).set_cq_period(50).set_cq_period_mode(1);
    })
    .unwrap();
    pair.a.arm_cq(false);
    sends(&mut pair, 1);
    pair.a.host.advance(Duration::from_micros(40));
    assert!(pair.a.poll_event().is_none(), "not yet");
    sends(&mut pair, 1);
    pair.a.host.advance(Duration::from_micros(40));
    assert!(pair.a.poll_event().is_none(), "the second completion restarted the period");
    pair.a.host.advance(Duration::from_micros(10));
    assert!(pair.a.poll_event().is_some());
    let unknown_mode = |context: &mut CompletionQueueContext| {
        context.set_cq_period_mode(2);
    };
    assert_eq!(modify(&mut pair.a, 1 << 4, unknown_mode), Err(syndrome::CQ_FEATURE));
    assert_eq!(modify(&mut pair.a, 1 << 5, |_| {}), Err(syndrome::CQ_FIELD_SELECT));
}

#[test]
fn a_queue_that_is_destroyed_raises_nothing_any_more() {
    let mut pair = Pair::new();
    modify(&mut pair.a, 0b11, |c| {
        c.set_cq_max_count(100).set_cq_period(50);
    })
    .unwrap();
    pair.a.arm_cq(false);
    sends(&mut pair, 1);
    pair.a.host.advance(Duration::ZERO);
    assert!(pair.a.poll_event().is_some(), "no event before: the period is over");
    pair.a.expect();
    pair.a.arm_cq(false);
    sends(&mut pair, 1);
    assert!(pair.a.poll_event().is_none(), "the event waits");
    pair.a.short(CommandOpcode::ToResetQp).unwrap();
    let mut destroy = bareverbs_prm::command::qp::DestroyQpIn::new();
    destroy.set_qpn(pair.a.qp.qpn);
    pair.a.host.run::<_, [u8; 16]>(CommandOpcode::DestroyQp, 0, destroy).unwrap();
    let mut destroy = bareverbs_prm::command::cq::DestroyCqIn::new();
    destroy.set_cqn(pair.a.cq.cqn);
    pair.a.host.run::<_, [u8; 16]>(CommandOpcode::DestroyCq, 0, destroy).unwrap();
    pair.a.host.advance(Duration::from_millis(1));
    assert!(pair.a.poll_event().is_none());
}

#[test]
fn entries_of_128_bytes_stand_in_the_second_half() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    let (address, list) = buffer(node, 6, 128);
    let record = node.host.memory.allocate(8);
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_log_cq_size(6).set_uar_page(node.uar).set_c_eqn_or_apu_element(node.eq.eqn.value());
    context.set_dbr_addr(record).set_cqe_sz(1);
    let (output, _): (CreateCqOut, _) =
        node.host.command(CommandOpcode::CreateCq, 0, input, &list, 16).unwrap();
    node.qp = create_qp(&mut node.host, node.uar, node.pd, output.cqn(), |_| {}).unwrap();
    let (number, gid, mac) = (node.qp.qpn, node.gid, node.mac);
    pair.a.connect((pair.b.qp.qpn, pair.b.gid, pair.b.mac), |_| {});
    pair.b.short(CommandOpcode::ToResetQp).unwrap();
    pair.b.connect((number, gid, mac), |_| {});
    pair.b.qp.received = 0;
    sends(&mut pair, 2);
    for index in 0..2u64 {
        let entry: CompletionEntry = pair.a.host.memory.load(address + index * 128 + 64);
        assert_eq!((entry.opcode(), u64::from(entry.wqe_counter())), (CqeOpcode::Requester, index));
    }
}

/// Gives the left side's queue pair a compressed queue of size `log_size`. Returns the address of its entries
/// and of its doorbell record.
fn compressed(pair: &mut Pair, log_size: u8) -> (u64, u64) {
    with_queue(pair, log_size, |context| _ = context.set_cqe_comp_en(true))
}

/// Makes the left side's queue pair complete into a queue with this context.
fn with_queue(pair: &mut Pair, log_size: u8, edit: fn(&mut CompletionQueueContext)) -> (u64, u64) {
    let node = &mut pair.a;
    let (address, list) = buffer(node, log_size, 64);
    let record = node.host.memory.allocate(8);
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_log_cq_size(log_size).set_uar_page(node.uar);
    context.set_c_eqn_or_apu_element(node.eq.eqn.value()).set_dbr_addr(record);
    edit(context);
    let (output, _): (CreateCqOut, _) =
        node.host.command(CommandOpcode::CreateCq, 0, input, &list, 16).unwrap();
    node.qp = create_qp(&mut node.host, node.uar, node.pd, output.cqn(), |_| {}).unwrap();
    let (number, gid, mac) = (node.qp.qpn, node.gid, node.mac);
    pair.a.connect((pair.b.qp.qpn, pair.b.gid, pair.b.mac), |_| {});
    pair.b.short(CommandOpcode::ToResetQp).unwrap();
    pair.b.connect((number, gid, mac), |_| {});
    (address, record)
}

#[test]
fn entries_of_a_collapsed_queue_are_the_first() {
    let mut pair = Pair::new();
    let (address, _) = with_queue(&mut pair, 4, |context| _ = context.set_cc(true).set_oi(true));
    sends(&mut pair, 20);
    let entry = |at: u64| pair.a.host.memory.load::<CompletionEntry>(address + at * 64);
    assert_eq!(
        (entry(0).opcode(), entry(0).wqe_counter(), entry(0).owner()),
        (CqeOpcode::Requester, 19, true)
    );
    assert_eq!(entry(1).as_bytes()[OP_OWN_OFFSET], OP_OWN_INITIAL, "nothing is written behind it");
}

#[test]
fn a_run_is_a_title_and_arrays_of_eight() {
    let mut pair = Pair::new();
    let (address, _) = compressed(&mut pair, 5);
    let target = remote(pair.b.mr.va, pair.b.mr.key);
    for length in 1..=12usize {
        let segments = [target.clone(), inline(&vec![7; length])].concat();
        pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &segments);
    }
    pair.a.ring();
    pair.run();
    let title: CompletionEntry = pair.a.host.memory.load(address);
    assert_eq!((title.format(), title.byte_count(), title.owner()), (3, 12, false));
    assert_eq!((title.opcode(), title.qpn()), (CqeOpcode::Requester, pair.a.qp.qpn));
    for number in 0..12u64 {
        let array = if number < 8 { 1 } else { 8 };
        let mini: MiniEntry = pair.a.host.memory.load(address + array * 64 + number % 8 * 8);
        assert_eq!(u64::from(mini.byte_count()), number + 1, "entry {number}");
        assert_eq!((u64::from(mini.wqe_counter()), mini.send_opcode()), (number, 0x08));
    }
    assert_eq!(pair.a.host.memory.slice(op_own(address, 2), 1), [OP_OWN_INITIAL], "not written");
    assert_eq!(pair.a.host.nic.counters().completions_compressed, 12);
    // A single entry is written uncompressed, after the run.
    pair.a.post(WqeOpcode::RdmaWrite, &[target, inline(&[7])].concat());
    pair.run();
    let single: CompletionEntry = pair.a.host.memory.load(address + 12 * 64);
    assert_eq!((single.format(), single.byte_count(), single.wqe_counter()), (0, 1, 12));
}

/// DPDK's vectorized receive reads the arrays of a run from its title on without checking for the end of the
/// ring.
#[test]
fn a_run_ends_with_the_ring() {
    let mut pair = Pair::new();
    let (address, record) = compressed(&mut pair, 4);
    let target = remote(pair.b.mr.va, pair.b.mr.key);
    let write = |pair: &mut Pair, count: usize| {
        for _ in 0..count {
            pair.a.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &[target.clone(), inline(&[7])].concat());
        }
        pair.a.ring();
        pair.run();
    };
    let titles = |pair: &Pair, places: [u64; 2]| {
        places.map(|place| {
            let title: CompletionEntry = pair.a.host.memory.load(address + place * 64);
            (title.format(), title.byte_count(), title.wqe_counter())
        })
    };
    write(&mut pair, 11);
    pair.a.host.memory.put(record, &11u32.to_be_bytes());
    write(&mut pair, 9);
    assert_eq!(titles(&pair, [11, 0]), [(3, 5, 11), (3, 4, 16)], "five slots up to the end, and the rest");
}

#[test]
fn options_that_exclude_compression_are_refused() {
    let mut pair = Pair::new();
    let create_with = |node: &mut Node, edit: fn(&mut CompletionQueueContext)| {
        let (_, list) = buffer(node, 4, 128);
        let mut input = CreateCqIn::new();
        let context = input.cq_context_mut();
        context.set_log_cq_size(4).set_uar_page(node.uar).set_c_eqn_or_apu_element(node.eq.eqn.value());
        context.set_dbr_addr(node.cq.record).set_cqe_comp_en(true);
        edit(context);
        let result = node.host.command::<_, CreateCqOut>(CommandOpcode::CreateCq, 0, input, &list, 16);
        result.map(|_| ()).map_err(|(_, syndrome)| Refusal::by_syndrome(syndrome).unwrap())
    };
    assert_eq!(create_with(&mut pair.a, |c| _ = c.set_cc(true)), Err(syndrome::CQ_FEATURE));
    assert_eq!(create_with(&mut pair.a, |c| _ = c.set_cqe_sz(1)), Err(syndrome::CQ_FEATURE));
    assert_eq!(create_with(&mut pair.a, |c| _ = c.set_mini_cqe_res_format(3)), Err(syndrome::CQ_FEATURE));
    assert_eq!(create_with(&mut pair.a, |c| _ = c.set_cqe_compression_layout(1)), Err(syndrome::CQ_FEATURE));
    assert_eq!(create_with(&mut pair.a, |c| _ = c.set_mini_cqe_res_format(1)), Ok(()));
}
