//! User memory objects: queues within them, attempts to destroy them in use, and every invalid way to name
//! one.

use super::commands::refused;
use super::host::{CommandResult, Host};
use super::pair::Pair;
use super::verbs::{Cq, LOG_CQ, LOG_RQ, LOG_RQ_STRIDE, LOG_SQ, Node, Qp, Sge, clear_cq, data, remote};
use crate::nic::NicConfig;
use crate::nic::page_list::ENTRY_BUDGET;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::caps::{GeneralCapabilities, QueryHcaCapIn, QueryHcaCapOut};
use bareverbs_prm::command::cq::{
    CreateCqIn, CreateCqOut, DestroyCqIn, DestroyCqOut, ModifyCqIn, ModifyCqOut,
};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, DestroyMkeyOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut};
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut, DestroyQpIn, DestroyQpOut};
use bareverbs_prm::command::srq::{CreateRmpIn, CreateRmpOut, DestroyRmpIn, DestroyRmpOut};
use bareverbs_prm::command::uctx::{CreateUctxIn, CreateUctxOut, DestroyUctxIn, DestroyUctxOut};
use bareverbs_prm::command::umem::{CreateUmemIn, CreateUmemOut, DestroyUmemIn, DestroyUmemOut};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::ids::{Mkey, Qpn, UmemId};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, MkeyAccessMode, PathMigration, ServiceType, WqeOpcode,
};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a node's object, and the offset of its first byte in the first page.
const LENGTH: u64 = 64 << 10;
const LEAD: u32 = 0x40;
/// Offsets of the queues in it.
const CQ_AT: u64 = 0;
const QP_AT: u64 = 0x4000;
const RECORDS_AT: u64 = 0x8000;
/// Flags of an entry.
const READ: u64 = 1;
const BOTH: u64 = 3;

/// CREATE_UMEM on `pages` of size `1 << log_page`.
fn create(host: &mut Host, pages: &[u64], log_page: u8, lead: u32) -> CommandResult<CreateUmemOut> {
    let mut input = CreateUmemIn::new();
    input.set_log_page_size(log_page - 12).set_page_offset(lead).set_num_of_mtt(pages.len() as u64);
    let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    host.command(Op::CreateUmem, 0, input, &list, 16)
}

fn destroy(host: &mut Host, id: UmemId) -> CommandResult<DestroyUmemOut> {
    let mut input = DestroyUmemIn::new();
    input.set_umem_id(id);
    host.run(Op::DestroyUmem, 0, input)
}

/// Memory on pages of 4 KiB with these flags, and its user memory object.
fn object(host: &mut Host, flags: u64) -> (u64, UmemId) {
    let base = host.memory.allocate(LENGTH + 4096);
    let pages: Vec<u64> = (0..=LENGTH / 4096).map(|page| (base + page * 4096) | flags).collect();
    let (out, _) = create(host, &pages, 12, LEAD).unwrap();
    (base + u64::from(LEAD), out.umem_id())
}

/// A completion queue at [`CQ_AT`].
fn cq_input(node: &Node, id: UmemId) -> CreateCqIn {
    let mut input = CreateCqIn::new();
    input.set_cq_umem_valid(true).set_cq_umem_id(id.value()).set_cq_umem_offset(CQ_AT);
    let context = input.cq_context_mut();
    context.set_log_cq_size(LOG_CQ).set_uar_page(node.uar).set_c_eqn_or_apu_element(node.eq.eqn.value());
    context.set_dbr_umem_valid(true).set_dbr_umem_id(id.value()).set_dbr_addr(RECORDS_AT);
    input
}

/// A queue pair at [`QP_AT`].
fn qp_input(node: &Node, id: UmemId) -> CreateQpIn {
    let mut input = CreateQpIn::new();
    input.set_wq_umem_valid(true).set_wq_umem_id(id.value()).set_wq_umem_offset(QP_AT);
    let context = input.qpc_mut();
    context.set_st(ServiceType::Rc).set_pd(node.pd).set_uar_page(node.uar);
    context.set_cqn_snd(node.cq.cqn).set_cqn_rcv(node.cq.cqn).set_pm_state(PathMigration::Migrated);
    context.set_log_sq_size(LOG_SQ).set_log_rq_size(LOG_RQ).set_log_rq_stride(LOG_RQ_STRIDE);
    context.set_dbr_umem_valid(true).set_dbr_umem_id(id.value()).set_dbr_addr(RECORDS_AT + 8);
    input
}

fn create_cq(host: &mut Host, input: CreateCqIn) -> CommandResult<CreateCqOut> {
    host.run(Op::CreateCq, 0, input)
}

fn cq_in(node: &mut Node, id: UmemId) -> CommandResult<CreateCqOut> {
    let input = cq_input(node, id);
    create_cq(&mut node.host, input)
}

fn qp_in(node: &mut Node, id: UmemId) -> CommandResult<CreateQpOut> {
    let input = qp_input(node, id);
    node.host.run(Op::CreateQp, 0, input)
}

/// Replaces the node's queues with ones in a single object.
fn move_queues(node: &mut Node) -> UmemId {
    let (base, id) = object(&mut node.host, BOTH);
    clear_cq(&mut node.host, base + CQ_AT, LOG_CQ);
    let (cq, _) = cq_in(node, id).unwrap();
    let (buffer, record) = (base + CQ_AT, base + RECORDS_AT);
    node.cq = Cq { cqn: cq.cqn(), buffer, record, consumer: 0, log_size: LOG_CQ };
    let (qp, _) = qp_in(node, id).unwrap();
    node.qp =
        Qp { qpn: qp.qpn(), buffer: base + QP_AT, record: base + RECORDS_AT + 8, posted: 0, received: 0 };
    id
}

fn node() -> Node {
    Node::new(1, NicConfig { strict: true, ..NicConfig::default() })
}

fn destroy_qp(node: &mut Node) {
    let mut input = DestroyQpIn::new();
    input.set_qpn(node.qp.qpn);
    node.host.run::<_, DestroyQpOut>(Op::DestroyQp, 0, input).unwrap();
}

fn destroy_cq(node: &mut Node) {
    let mut input = DestroyCqIn::new();
    input.set_cqn(node.cq.cqn);
    node.host.run::<_, DestroyCqOut>(Op::DestroyCq, 0, input).unwrap();
}

#[test]
fn queues_in_an_object_carry_traffic() {
    let mut pair = Pair::with(NicConfig { strict: true, ..NicConfig::default() }, |_| {});
    move_queues(&mut pair.a);
    move_queues(&mut pair.b);
    let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
    pair.a.connect(to_b, |_| {});
    pair.b.connect(to_a, |_| {});
    // Wraps around the end of all three rings.
    for round in 0..300u32 {
        let bytes: Vec<u8> = (0..1500).map(|i| (i + round) as u8).collect();
        pair.a.host.memory.put(pair.a.mr.iova, &bytes);
        pair.b.post_receive(&[pair.b.mr.sge(100, 2000)]);
        pair.a.post(WqeOpcode::Send, &data(pair.a.mr.sge(0, 1500)));
        pair.run();
        assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
        assert_eq!(pair.b.expect().byte_count(), 1500);
        assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 100, 1500), bytes, "round {round}");
    }
    let segments = [remote(pair.b.mr.va, pair.b.mr.key), data(pair.a.mr.sge(0, 1500))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
    assert_eq!((&pair.a.host.memory.faults, &pair.b.host.memory.faults), (&vec![], &vec![]));
}

#[test]
fn an_object_in_use_stays() {
    let mut node = node();
    let id = move_queues(&mut node);
    refused(destroy(&mut node.host, id), syndrome::UMEM_BUSY);
    destroy_qp(&mut node);
    refused(destroy(&mut node.host, id), syndrome::UMEM_BUSY);
    destroy_cq(&mut node);
    destroy(&mut node.host, id).unwrap();
    refused(destroy(&mut node.host, id), syndrome::UMEM_UNKNOWN);
    refused(cq_in(&mut node, id), syndrome::UMEM_UNKNOWN);
}

#[test]
fn a_record_alone_holds_its_object() {
    let mut node = node();
    let (_, queue) = object(&mut node.host, BOTH);
    let (_, record) = object(&mut node.host, READ);
    let mut input = cq_input(&node, queue);
    input.cq_context_mut().set_dbr_umem_id(record.value());
    let (out, _) = create_cq(&mut node.host, input).unwrap();
    node.cq.cqn = out.cqn();
    refused(destroy(&mut node.host, record), syndrome::UMEM_BUSY);
    destroy_cq(&mut node);
    destroy(&mut node.host, record).unwrap();
    destroy(&mut node.host, queue).unwrap();
}

#[test]
fn a_completion_queue_moves_to_another_object() {
    let mut node = node();
    let old = move_queues(&mut node);
    destroy_qp(&mut node);
    let (_, new) = object(&mut node.host, BOTH);
    let mut input = ModifyCqIn::new();
    input.set_cqn(node.cq.cqn).set_cq_umem_valid(true).set_cq_umem_id(new.value()).set_cq_umem_offset(0x1000);
    input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(1 | 1 << 3);
    input.cq_context_mut().set_log_cq_size(LOG_CQ - 1);
    node.host.run::<_, ModifyCqOut>(Op::ModifyCq, 1, input).unwrap();
    refused(destroy(&mut node.host, new), syndrome::UMEM_BUSY);
    refused(destroy(&mut node.host, old), syndrome::UMEM_BUSY);
    destroy_cq(&mut node);
    destroy(&mut node.host, new).unwrap();
    destroy(&mut node.host, old).unwrap();
}

#[test]
fn a_receive_memory_pool_lies_in_an_object() {
    let mut node = node();
    let (_, id) = object(&mut node.host, BOTH);
    let mut input = CreateRmpIn::new();
    let queue = input.ctx_mut().set_state(1).wq_mut();
    queue.set_log_wq_sz(4).set_log_wq_stride(6).set_pd(node.pd);
    queue.set_wq_umem_valid(true).set_wq_umem_id(id.value()).set_wq_umem_offset(0x1000);
    queue.set_dbr_umem_valid(true).set_dbr_umem_id(id.value()).set_dbr_addr(RECORDS_AT);
    let (out, _): (CreateRmpOut, _) = node.host.run(Op::CreateRmp, 0, input).unwrap();
    refused(destroy(&mut node.host, id), syndrome::UMEM_BUSY);
    let mut gone = DestroyRmpIn::new();
    gone.set_rmpn(out.rmpn());
    node.host.run::<_, DestroyRmpOut>(Op::DestroyRmp, 0, gone).unwrap();
    destroy(&mut node.host, id).unwrap();
}

#[test]
fn ranges_beyond_an_object_are_refused() {
    let mut node = node();
    let (_, id) = object(&mut node.host, BOTH);
    let size = LENGTH + 4096 - u64::from(LEAD);
    let bytes = 64 << LOG_CQ;
    let cases: [(u64, u64, Option<Refusal>); 8] = [
        (size - bytes, RECORDS_AT, None),
        (size - bytes + 64, RECORDS_AT, Some(syndrome::UMEM_RANGE)),
        (u64::MAX, RECORDS_AT, Some(syndrome::UMEM_RANGE)),
        (8, RECORDS_AT, Some(syndrome::UMEM_QUEUE_MISALIGNED)),
        (0, size - 8, None),
        (0, size, Some(syndrome::UMEM_RANGE)),
        (0, u64::MAX - 7, Some(syndrome::UMEM_RANGE)),
        (0, RECORDS_AT + 4, Some(syndrome::DOORBELL_RECORD_MISALIGNED)),
    ];
    for (queue_at, record_at, refusal) in cases {
        let mut input = cq_input(&node, id);
        input.set_cq_umem_offset(queue_at).cq_context_mut().set_dbr_addr(record_at);
        let result = create_cq(&mut node.host, input);
        match refusal {
            Some(refusal) => refused(result, refusal),
            None => drop(result.unwrap_or_else(|why| panic!("{queue_at:#x}, {record_at:#x}: {why:?}"))),
        }
    }
}

#[test]
fn rights_of_an_object_are_heeded() {
    let mut node = node();
    let (_, read_only) = object(&mut node.host, READ);
    refused(cq_in(&mut node, read_only), syndrome::UMEM_RIGHT);
    qp_in(&mut node, read_only).unwrap();
    let (_, write_only) = object(&mut node.host, 2);
    refused(qp_in(&mut node, write_only), syndrome::UMEM_RIGHT);
    let mut input = cq_input(&node, write_only);
    refused(create_cq(&mut node.host, input), syndrome::UMEM_RIGHT);
    input.cq_context_mut().set_dbr_umem_id(read_only.value());
    create_cq(&mut node.host, input).unwrap();
}

#[test]
fn objects_are_checked() {
    let mut host = Host::booted(NicConfig { strict: true, ..NicConfig::default() });
    refused(create(&mut host, &[], 12, 0), syndrome::UMEM_SIZE);
    refused(create(&mut host, &[BOTH], 12, 0x1000), syndrome::UMEM_SIZE);
    refused(create(&mut host, &[0x1000 | BOTH], 13, 0), syndrome::UMEM_MISALIGNED);
    refused(create(&mut host, &[4 | BOTH], 12, 0), syndrome::UMEM_MISALIGNED);
    refused(create(&mut host, &[BOTH], 33, 0), syndrome::BUFFER_PAGE_SIZE);
    let mut input = CreateUmemIn::new();
    input.set_num_of_mtt(u64::MAX);
    refused::<CreateUmemOut>(host.command(Op::CreateUmem, 0, input, &[0; 64], 16), syndrome::LIST_TOO_SHORT);
    input.set_num_of_mtt(1).set_ats(true);
    refused::<CreateUmemOut>(host.command(Op::CreateUmem, 0, input, &[0; 8], 16), syndrome::UMEM_FEATURE);
    refused(destroy(&mut host, UmemId::from_low_bits(0)), syndrome::UMEM_UNKNOWN);
    let (out, _) = create(&mut host, &[BOTH], 12, 0xfff).unwrap();
    destroy(&mut host, out.umem_id()).unwrap();
}

#[test]
fn a_reset_forgets_objects() {
    let mut node = node();
    let id = move_queues(&mut node);
    let (now, queue) = (node.host.now, node.host.queue);
    node.host.nic.reset(now);
    node.host.advance(NicConfig::default().firmware_ready_after);
    node.host.write(init_segment::CMDQ_ADDRESS_HIGH, (queue >> 32) as u32);
    node.host.write(init_segment::CMDQ_ADDRESS_LOW, queue as u32);
    node.host.boot();
    refused(destroy(&mut node.host, id), syndrome::UMEM_UNKNOWN);
}

/// The region of a node in `id`, from `offset` on; its first byte has the address `start`.
fn key_in(node: &mut Node, id: UmemId, offset: u64, start: u64) -> CommandResult<CreateMkeyOut> {
    let mut input = CreateMkeyIn::new();
    input.set_mkey_umem_valid(true).set_mkey_umem_id(id.value()).set_mkey_umem_offset(offset);
    let context = input.memory_key_mkey_entry_mut();
    context
        .set_access_mode_1_0(MkeyAccessMode::Mtt.raw())
        .set_pd(node.pd)
        .set_qpn(Qpn::from_low_bits(0xff_ffff));
    context.set_lr(true).set_lw(true).set_start_addr(start).set_length(0x3000);
    node.host.run(Op::CreateMkey, 0, input)
}

#[test]
fn a_key_covers_a_part_of_an_object() {
    let mut pair = Pair::with(NicConfig { strict: true, ..NicConfig::default() }, |_| {});
    let (base, id) = object(&mut pair.a.host, BOTH);
    let bytes: Vec<u8> = (0..0x2800u32).map(|i| (i * 7) as u8).collect();
    pair.a.host.memory.put(base + 0x1800, &bytes);
    // The first byte is 0x840 bytes into a page, by both addresses.
    let (out, _) = key_in(&mut pair.a, id, 0x1800, 0x7_0000_0840).unwrap();
    refused(destroy(&mut pair.a.host, id), syndrome::UMEM_BUSY);
    let key = Mkey::from_parts(out.mkey_index(), 0);
    pair.b.post_receive(&[pair.b.mr.sge(0, 0x2800)]);
    pair.a.post(WqeOpcode::Send, &data(Sge { address: 0x7_0000_0840, length: 0x2800, key }));
    pair.run();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova, 0x2800), bytes);
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(out.mkey_index());
    pair.a.host.run::<_, DestroyMkeyOut>(Op::DestroyMkey, 0, input).unwrap();
    destroy(&mut pair.a.host, id).unwrap();
}

#[test]
fn a_key_does_not_leave_its_object() {
    let mut node = node();
    let (_, id) = object(&mut node.host, BOTH);
    let size = LENGTH + 4096 - u64::from(LEAD);
    refused(key_in(&mut node, id, size - 0x2fff, 0x1041), syndrome::UMEM_RANGE);
    refused(key_in(&mut node, id, u64::MAX, 0x1000), syndrome::UMEM_RANGE);
    refused(key_in(&mut node, id, 0, 0x1000), syndrome::MKEY_PAGE_MISALIGNED);
    let (_, read_only) = object(&mut node.host, READ);
    refused(key_in(&mut node, read_only, 0, 0x1040), syndrome::UMEM_RIGHT);
    refused(key_in(&mut node, UmemId::from_low_bits(77), 0, 0x1040), syndrome::UMEM_UNKNOWN);
}

#[test]
fn a_command_of_a_user_context_needs_that_context() {
    let config = NicConfig { strict: true, user_contexts: true, ..NicConfig::default() };
    let mut host = Host::booted(config);
    let (page, _): (QueryHcaCapOut, _) = host.run(Op::QueryHcaCap, 1, QueryHcaCapIn::new()).unwrap();
    let (general, _) = GeneralCapabilities::read_from_prefix(&page.as_bytes()[16..]).unwrap();
    assert!(general.log_max_uctx() > 0);
    let domain_of = |host: &mut Host, uid| {
        let mut input = AllocPdIn::new();
        input.set_uid(uid);
        host.run::<_, AllocPdOut>(Op::AllocPd, 0, input)
    };
    refused(domain_of(&mut host, 1), syndrome::UID_UNKNOWN);
    let (context, _): (CreateUctxOut, _) = host.run(Op::CreateUctx, 0, CreateUctxIn::new()).unwrap();
    assert_ne!(context.uid(), 0);
    domain_of(&mut host, context.uid()).unwrap();
    let mut privileged = CreateUctxIn::new();
    privileged.set_cap(1);
    refused(host.run::<_, CreateUctxOut>(Op::CreateUctx, 0, privileged), syndrome::UCTX_RIGHT);
    let mut gone = DestroyUctxIn::new();
    gone.set_uid(context.uid());
    host.run::<_, DestroyUctxOut>(Op::DestroyUctx, 0, gone).unwrap();
    refused(host.run::<_, DestroyUctxOut>(Op::DestroyUctx, 0, gone), syndrome::UID_UNKNOWN);
    refused(domain_of(&mut host, context.uid()), syndrome::UID_UNKNOWN);
}

/// Linux gives this number to its event queues for completions and its queue counters as soon as a device has user
/// contexts.
#[test]
fn shared_resources_need_no_context_of_their_own() {
    let mut input = AllocPdIn::new();
    input.set_uid(0xffff); // MLX5_SHARED_RESOURCE_UID
    let mut host = Host::booted(NicConfig { user_contexts: true, ..NicConfig::default() });
    host.run::<_, AllocPdOut>(Op::AllocPd, 0, input).unwrap();
    let mut without = Host::booted(NicConfig::default());
    refused(without.run::<_, AllocPdOut>(Op::AllocPd, 0, input), syndrome::UID_UNKNOWN);
}

#[test]
fn a_device_need_not_have_user_contexts() {
    let mut host = Host::booted(NicConfig::default());
    let mut input = AllocPdIn::new();
    input.set_uid(1);
    refused::<AllocPdOut>(host.run(Op::AllocPd, 0, input), syndrome::UID_UNKNOWN);
    let (page, _): (QueryHcaCapOut, _) = host.run(Op::QueryHcaCap, 1, QueryHcaCapIn::new()).unwrap();
    let (general, _) = GeneralCapabilities::read_from_prefix(&page.as_bytes()[16..]).unwrap();
    assert!(general.umem_uid_0() && general.log_max_umem() > 0);
    assert_eq!(general.log_max_uctx(), 0);
    let result = host.run::<_, CreateUctxOut>(Op::CreateUctx, 0, CreateUctxIn::new());
    refused(result, Refusal::unknown_opcode(Op::CreateUctx));
}

#[test]
fn entries_of_all_page_lists_have_a_budget() {
    const ENTRIES: usize = 1 << 14;
    let mut node = Node::new(1, NicConfig::default());
    let pages = vec![BOTH; ENTRIES];
    // Creates whole objects while there is room, then halves, and so on, until no entry is left.
    let mut ids = Vec::new();
    for entries in (0..=ENTRIES.ilog2()).rev().map(|log| 1 << log) {
        while let Ok((output, _)) = create(&mut node.host, &pages[..entries], 12, 0) {
            ids.push(output.umem_id());
        }
    }
    assert_eq!(ids.len() / (ENTRY_BUDGET / ENTRIES - 1), 1);
    let refused = Some((syndrome::PAGE_BUDGET.status, syndrome::PAGE_BUDGET.syndrome));
    assert_eq!(create(&mut node.host, &pages[..1], 12, 0).err(), refused);
    destroy(&mut node.host, ids[0]).unwrap();
    create(&mut node.host, &pages, 12, 0).unwrap();
    assert_eq!(create(&mut node.host, &pages[..1], 12, 0).err(), refused);
    // Queues count against the same budget, unless their memory is contiguous.
    assert_eq!(queue_on(&mut node, [0x4000, 0x4000]).err(), refused);
    queue_on(&mut node, [0x4000, 0x5000]).unwrap();
    destroy(&mut node.host, ids[1]).unwrap();
    let cq = queue_on(&mut node, [0x4000, 0x4000]).unwrap().0;
    assert_eq!(create(&mut node.host, &pages, 12, 0).err(), refused, "two entries are in use");
    let mut destroy_cq = DestroyCqIn::new();
    destroy_cq.set_cqn(cq.cqn());
    node.host.run::<_, DestroyCqOut>(Op::DestroyCq, 0, destroy_cq).unwrap();
    create(&mut node.host, &pages, 12, 0).unwrap();
}

/// CREATE_CQ with 128 entries on two pages.
fn queue_on(node: &mut Node, pages: [u64; 2]) -> CommandResult<CreateCqOut> {
    let record = node.host.memory.allocate(8);
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_log_cq_size(7).set_uar_page(node.uar).set_c_eqn_or_apu_element(node.eq.eqn.value());
    context.set_dbr_addr(record);
    let list = pages.map(u64::to_be_bytes).concat();
    node.host.command(Op::CreateCq, 0, input, &list, 16)
}
