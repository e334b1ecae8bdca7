//! An InfiniBand port: what it reports about itself, datagrams, connections inside the device, shared receive
//! queues.

use super::commands::refused;
use super::host::{CommandResult, Host};
use super::verbs::{Node, Qp, Sge, create_qp, data, vector_to};
use crate::nic::NicConfig;
use crate::nic::syndrome;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::command::ib_port::{
    ModifyHcaVportContextIn, QueryHcaVportContextIn, QueryHcaVportContextOut, QueryHcaVportGidIn,
    QueryHcaVportGidOut, QueryHcaVportPkeyIn,
};
use bareverbs_prm::command::mad::{MadIfcIn, MadIfcOut};
use bareverbs_prm::command::mkey::{QueryMkeyIn, QueryMkeyOut};
use bareverbs_prm::command::port::PtysRegister;
use bareverbs_prm::command::qp::DestroyQpIn;
use bareverbs_prm::command::srq::{
    AllocXrcdIn, AllocXrcdOut, CreateRmpIn, CreateRmpOut, CreateXrcSrqIn, CreateXrcSrqOut, DeallocXrcdIn,
    DestroyRmpIn, DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut,
};
use bareverbs_prm::context::{MkeyContext, QueuePairContext};
use bareverbs_prm::ids::{Gid, MacAddress, Srqn};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, EventType, RegisterId, ServiceType, WqeOpcode,
};
use bareverbs_prm::wqe::{AddressVector, KeyUpdateSegment, OWN_QKEY, SharedReceiveSegment};
use zerocopy::{FromBytes, IntoBytes};

const QKEY: u32 = 0x1111_1111;
const GRH: u64 = 40;
const STRIDE: u64 = 64;

fn config() -> NicConfig {
    NicConfig::infiniband(MacAddress::default())
}

/// The bytes of a mailbox command after the header, as an `N`-byte array.
fn raw<I: IntoBytes + zerocopy::Immutable + zerocopy::FromBytes>(
    host: &mut Host,
    op: Op,
    input: I,
) -> CommandResult<[u8; 16]> {
    host.run(op, 0, input)
}

#[test]
fn the_port_is_active_and_has_an_address() {
    let mut host = Host::booted(NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 7])));
    let (out, _): (QueryHcaVportContextOut, _) =
        host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
    let port = out.hca_vport_context();
    assert_eq!((port.lid(), port.sm_lid(), port.vport_state(), port.port_physical_state()), (1, 1, 4, 5));
    let mut modify = ModifyHcaVportContextIn::new();
    modify.hca_vport_context_mut().set_cap_mask1(1 << 16).set_cap_mask1_field_select(1 << 16);
    raw(&mut host, Op::ModifyHcaVportContext, modify).unwrap();
    modify.hca_vport_context_mut().set_cap_mask1_field_select(1 << 5);
    refused(raw(&mut host, Op::ModifyHcaVportContext, modify), syndrome::VPORT_FIELD);
    let (out, _): (QueryHcaVportContextOut, _) =
        host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
    assert_eq!(out.hca_vport_context().cap_mask1() & 1 << 16, 1 << 16);
    host.nic.set_link_up(false);
    let (out, _): (QueryHcaVportContextOut, _) =
        host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
    assert_eq!(
        (out.hca_vport_context().vport_state(), out.hca_vport_context().port_physical_state()),
        (1, 2)
    );
}

/// Software disables the port and enables it again. While disabled, the port reports no speed, with or without a cable.
#[test]
fn a_port_that_is_switched_off_is_disabled_and_does_not_poll() {
    let nic = NicConfig { starts_down: true, ..NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 7])) };
    let mut host = Host::booted(nic);
    let seen = |host: &mut Host| {
        let (out, _): (QueryHcaVportContextOut, _) =
            host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
        let mut register = PtysRegister::new();
        register.set_local_port(1).set_proto_mask(1);
        let mut input = AccessRegisterIn::new();
        input.set_register_id(RegisterId::Ptys);
        let (_, speeds): (AccessRegisterOut, _) = host
            .command(Op::AccessReg, 1, input, register.as_bytes(), 16 + size_of::<PtysRegister>())
            .unwrap();
        let (speeds, _) = PtysRegister::read_from_prefix(&speeds).unwrap();
        (out.hca_vport_context().port_physical_state(), speeds.ib_proto_oper() != 0)
    };
    assert_eq!(seen(&mut host), (3, false));
    host.nic.set_link_up(false);
    assert_eq!(seen(&mut host), (3, false));
    host.nic.shared.port.link.set_wanted(true);
    assert_eq!(seen(&mut host), (2, false));
    host.nic.set_link_up(true);
    assert_eq!(seen(&mut host), (5, true));
}

#[test]
fn tables_are_read_by_the_entry_or_as_a_whole() {
    let mut host = Host::booted(NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 7])));
    let mut input = QueryHcaVportGidIn::new();
    let (out, gid): (QueryHcaVportGidOut, _) = host.command(Op::QueryHcaVportGid, 0, input, &[], 32).unwrap();
    assert_eq!((out.gids_num(), gid.len()), (1, 16));
    assert_eq!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 7]);
    input.set_gid_index(0xffff);
    let (out, gids): (QueryHcaVportGidOut, _) =
        host.command(Op::QueryHcaVportGid, 0, input, &[], 16 + 8 * 16).unwrap();
    assert_eq!((out.gids_num(), &gids[..16], gids.len()), (8, &gid[..], 128));
    input.set_gid_index(8);
    refused(raw(&mut host, Op::QueryHcaVportGid, input), syndrome::VPORT_INDEX);
    let (_, key): ([u8; 16], _) =
        host.command(Op::QueryHcaVportPkey, 0, QueryHcaVportPkeyIn::new(), &[], 20).unwrap();
    assert_eq!(key, [0, 0, 0xff, 0xff]);
}

#[test]
fn an_ethernet_port_has_no_such_commands() {
    let mut host = Host::booted(NicConfig::default());
    refused(
        host.run::<_, QueryHcaVportContextOut>(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()),
        syndrome::LINK_LAYER,
    );
}

/// A node whose queue pair is a datagram queue pair in RTS.
fn datagram_node() -> Node {
    let mut node = Node::new(1, config());
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_st(ServiceType::Ud);
    })
    .unwrap();
    let key = |c: &mut QueuePairContext| {
        c.set_q_key(QKEY).set_log_msg_max(12);
    };
    for step in [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp] {
        node.modify(step, key).unwrap();
    }
    node
}

/// Sends eight bytes of the region to the queue pair itself.
fn send_to_itself(node: &mut Node, edit: impl Fn(&mut AddressVector)) {
    let mut vector = vector_to(node.qp.qpn, QKEY);
    edit(vector.set_rlid(1));
    let segments = [vector.as_bytes(), &data(node.mr.sge(0, 8))].concat();
    node.post(WqeOpcode::Send, &segments);
    node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut crate::wire::FrameBuffer::new());
}

/// Requirement: IBTA v1.4 §11.4.1.2: 40 bytes of each datagram receive are reserved for the global route header.
#[test]
fn a_datagram_arrives_behind_a_route_header() {
    let mut node = datagram_node();
    let gid = node.host.nic.shared.port.addresses()[0].source_l3_address();
    node.host.memory.put(node.mr.iova, b"datagram");
    node.post_receive(&[node.mr.sge(0x1000, 48)]);
    send_to_itself(&mut node, |v| {
        v.set_grh(true).set_flow_label(0x12345).set_rgid(gid).set_hop_limit(9);
    });
    assert_eq!(node.expect().opcode(), CqeOpcode::Requester);
    let entry = node.expect();
    assert_eq!(
        (entry.opcode(), entry.byte_count(), entry.grh(), entry.slid()),
        (CqeOpcode::ResponderSend, 48, 1, 1)
    );
    assert_eq!(entry.remote_qpn(), node.qp.qpn);
    let received = node.host.memory.slice(node.mr.iova + 0x1000, 48);
    assert_eq!(
        &received[..8],
        [0x60, 0x01, 0x23, 0x45, 0, 32, 0x1b, 9],
        "version, flow label, length, header, hops"
    );
    assert_eq!((&received[8..24], &received[24..40]), (&gid[..], &gid[..]));
    assert_eq!(&received[GRH as usize..], b"datagram");
    assert!(node.host.memory.faults.is_empty());
}

/// Requirement: IBTA v1.4 §9.8.3: datagrams without a receive, or with a wrong Q_Key or P_Key, are silently dropped.
#[test]
fn datagrams_that_nobody_takes_are_counted() {
    let mut node = datagram_node();
    send_to_itself(&mut node, |_| {});
    node.post_receive(&[node.mr.sge(0x1000, 48)]);
    send_to_itself(&mut node, |v| {
        v.set_qkey(QKEY + 1);
    });
    send_to_itself(&mut node, |v| {
        v.set_rlid(2);
    });
    for _ in 0..3 {
        assert_eq!(node.expect().opcode(), CqeOpcode::Requester, "the sender does not learn of it");
    }
    node.expect_none();
    let counters = node.host.nic.counters();
    assert_eq!(
        (counters.datagrams_dropped, counters.datagrams_bad_qkey, counters.frames_without_path),
        (1, 1, 1)
    );
    send_to_itself(&mut node, |v| {
        v.set_qkey(OWN_QKEY);
    });
    assert_eq!(node.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(node.expect().opcode(), CqeOpcode::ResponderSend, "the Q_Key of the queue pair itself");
}

/// A node whose queue pair updates memory keys, including that of the node's region. It belongs to no domain.
pub(super) fn key_node() -> Node {
    let mut node = Node::new(1, config());
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_st(ServiceType::RegUmr).set_pd(bareverbs_prm::ids::Pdn::from_low_bits(0));
    })
    .unwrap();
    for step in [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp] {
        node.modify(step, |_| {}).unwrap();
    }
    node
}

/// Posts a key update and returns the opcode of its completion.
fn update_key(node: &mut Node, mask: u64, flags: u8, edit: impl Fn(&mut MkeyContext)) -> CqeOpcode {
    let mut change = KeyUpdateSegment::new();
    change.set_mkey_mask(mask).set_flags(flags);
    let mut context = MkeyContext::new();
    edit(&mut context);
    let segments = [change.as_bytes(), context.as_bytes()].concat();
    let key = node.mr.key.value();
    node.write_wqe(
        WqeOpcode::Umr,
        |c| {
            c.set_immediate(key);
        },
        &segments,
    );
    node.ring();
    node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut crate::wire::FrameBuffer::new());
    node.expect().opcode()
}

#[test]
fn keys_are_changed_by_work_requests() {
    let mut node = key_node();
    use bareverbs_prm::wqe::{mkey_mask as mask, umr_flags as flag};
    assert_eq!(
        update_key(&mut node, mask::REMOTE_READ | mask::PD, flag::FAIL_IF_FREE, |c| {
            c.set_pd(bareverbs_prm::ids::Pdn::from_low_bits(1));
        }),
        CqeOpcode::Requester,
        "as Linux reregisters"
    );
    assert_eq!(
        update_key(&mut node, mask::FREE, flag::FAIL_IF_FREE, |c| {
            c.set_free(true);
        }),
        CqeOpcode::Requester
    );
    let mut query = QueryMkeyIn::new();
    query.set_mkey_index(node.mr.key.index());
    let (out, _): (QueryMkeyOut, _) = node.host.run(Op::QueryMkey, 0, query).unwrap();
    let context = out.memory_key_mkey_entry();
    assert_eq!((context.free(), context.rr(), context.rw()), (true, false, true), "only what was selected");
    assert_eq!(
        update_key(&mut node, mask::FREE, flag::FAIL_IF_FREE, |_| {}),
        CqeOpcode::RequesterError,
        "it is free already"
    );
    let mut node = key_node();
    assert_eq!(
        update_key(&mut node, mask::FREE, flag::FAIL_IF_NOT_FREE, |_| {}),
        CqeOpcode::RequesterError,
        "it is not free"
    );
    let mut node = key_node();
    assert_eq!(update_key(&mut node, mask::PAGE_SIZE, 0, |_| {}), CqeOpcode::RequesterError, "no such size");
}

/// A pool of eight entries of 64 bytes.
struct Pool {
    number: Srqn,
    buffer: u64,
    record: u64,
    posted: u16,
}

impl Pool {
    fn new(node: &mut Node) -> Self {
        let (buffer, record) = (node.host.memory.allocate(4096), node.host.memory.allocate(8));
        let mut input = CreateRmpIn::new();
        let queue = input.ctx_mut().set_state(1).wq_mut();
        queue.set_pd(node.pd).set_dbr_addr(record).set_log_wq_stride(6).set_log_wq_sz(3);
        let (out, _): (CreateRmpOut, _) =
            node.host.command(Op::CreateRmp, 0, input, &buffer.to_be_bytes(), 16).unwrap();
        Self { number: out.rmpn(), buffer, record, posted: 0 }
    }

    /// Writes an entry and links it to the next one.
    fn post(&mut self, node: &mut Node, entry: u16, next: u16, sge: Sge) {
        let mut link = SharedReceiveSegment::new();
        let mut bytes = link.set_next_wqe_index(next).as_bytes().to_vec();
        bytes.extend(data(sge));
        bytes.extend(data(Sge { address: 0, length: 0, key: bareverbs_prm::wqe::INVALID_LKEY }));
        node.host.memory.put(self.buffer + u64::from(entry) * STRIDE, &bytes);
        self.posted += 1;
        node.host.memory.put(self.record, &u32::from(self.posted).to_be_bytes());
    }

    fn set_limit(&self, node: &mut Node, limit: u16) {
        let mut input = ModifyRmpIn::new();
        input.set_rmpn(self.number).set_bitmask_lwm(true).set_rmp_state(1);
        input.ctx_mut().set_state(1).wq_mut().set_lwm(limit);
        raw(&mut node.host, Op::ModifyRmp, input).unwrap();
    }
}

/// A node whose queue pair receives from a pool and is connected to itself.
fn shared_node() -> (Node, Pool) {
    let mut node = Node::new(1, config());
    let pool = Pool::new(&mut node);
    let number = pool.number.value();
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_rq_type(1).set_srqn_rmpn_xrqn(number);
    })
    .unwrap();
    let itself = (node.qp.qpn, Gid::default(), node.mac);
    node.connect(itself, |c| {
        c.primary_address_path_mut().set_rlid(1);
    });
    (node, pool)
}

fn send(node: &mut Node, bytes: &[u8]) {
    node.host.memory.put(node.mr.iova, bytes);
    // Without a receive queue of its own, the buffer holds only the send queue.
    let Qp { qpn, record, .. } = node.qp;
    let mut control = bareverbs_prm::wqe::ControlSegment::new();
    control
        .set_opcode(WqeOpcode::Send)
        .set_wqe_index(node.qp.posted)
        .set_qpn(qpn)
        .set_ds(2)
        .set_completion_mode(2);
    let wqe = [control.as_bytes(), &data(node.mr.sge(0, bytes.len() as u32))].concat();
    node.host.memory.put(node.qp.buffer + u64::from(node.qp.posted) * STRIDE, &wqe);
    node.qp.posted += 1;
    node.host.memory.put(record + 4, &u32::from(node.qp.posted).to_be_bytes());
    node.ring();
    while node.host.nic.has_transmit() {
        node.host.nic.poll_transmit(
            node.host.now,
            &mut node.host.memory,
            &mut crate::wire::FrameBuffer::new(),
        );
    }
}

#[test]
fn entries_of_a_pool_are_taken_in_the_order_of_their_links() {
    let (mut node, mut pool) = shared_node();
    for (entry, next, at) in [(0, 5, 0x1000), (5, 2, 0x2000), (2, 3, 0x3000)] {
        let sge = node.mr.sge(at, 16);
        pool.post(&mut node, entry, next, sge);
    }
    for (entry, at, text) in [(0, 0x1000, b"one.."), (5, 0x2000, b"two.."), (2, 0x3000, b"three")] {
        send(&mut node, text);
        let completions = [node.expect(), node.expect()];
        let receive = completions.iter().find(|c| c.opcode() == CqeOpcode::ResponderSend).expect("a receive");
        assert_eq!((receive.wqe_counter(), receive.byte_count()), (entry, 5));
        assert_eq!(node.host.memory.slice(node.mr.iova + at, 5), text);
    }
    assert!(node.host.memory.faults.is_empty());
}

/// Requirement: IBTA v1.4 §10.2.9: a shared receive queue raises its limit event once, until the limit is set again.
#[test]
fn a_pool_below_its_limit_raises_one_event() {
    let (mut node, mut pool) = shared_node();
    for entry in 0..4 {
        let sge = node.mr.sge(0x1000, 16);
        pool.post(&mut node, entry, entry + 1, sge);
    }
    while node.poll_event().is_some() {}
    pool.set_limit(&mut node, 3);
    assert!(node.poll_event().is_none(), "four receives are posted");
    send(&mut node, b"a");
    assert!(node.poll_event().is_none(), "three are not below three");
    send(&mut node, b"b");
    assert_eq!(node.poll_event().map(|event| event.kind()), Some(EventType::SrqRqLimit));
    send(&mut node, b"c");
    assert!(node.poll_event().is_none(), "once");
    node.short(Op::ToErrorQp).unwrap();
    assert_eq!(node.poll_event().map(|event| event.kind()), Some(EventType::SrqLastWqe));
    let mut destroy = DestroyRmpIn::new();
    destroy.set_rmpn(pool.number);
    refused(raw(&mut node.host, Op::DestroyRmp, destroy), syndrome::SRQ_BUSY);
}

/// The state of a pool according to the device.
fn pool_state(node: &mut Node, pool: &Pool) -> u8 {
    let mut input = QueryRmpIn::new();
    input.set_rmpn(pool.number);
    let (out, _): (QueryRmpOut, _) = node.host.run(Op::QueryRmp, 0, input).unwrap();
    out.rmp_context().state()
}

/// MODIFY_RMP from one state to another.
fn move_pool(node: &mut Node, pool: &Pool, from: u8, to: u8) -> CommandResult<[u8; 16]> {
    let mut input = ModifyRmpIn::new();
    input.set_rmpn(pool.number).set_rmp_state(from);
    input.ctx_mut().set_state(to);
    raw(&mut node.host, Op::ModifyRmp, input)
}

#[test]
fn a_pool_goes_from_state_to_state() {
    let (reset, ready, error) = (0, 1, 3);
    let (mut node, mut pool) = shared_node();
    assert_eq!(pool_state(&mut node, &pool), ready);
    refused(move_pool(&mut node, &pool, reset, ready), syndrome::SRQ_STATE);
    refused(move_pool(&mut node, &pool, ready, 2), syndrome::SRQ_STATE);
    move_pool(&mut node, &pool, ready, error).unwrap();
    refused(move_pool(&mut node, &pool, error, ready), syndrome::SRQ_STATE);
    move_pool(&mut node, &pool, error, reset).unwrap();
    assert_eq!(pool_state(&mut node, &pool), reset);
    move_pool(&mut node, &pool, reset, ready).unwrap();
    let sge = node.mr.sge(0x1000, 16);
    pool.post(&mut node, 0, 1, sge);
    send(&mut node, b"works");
    assert!([node.expect(), node.expect()].iter().any(|c| c.opcode() == CqeOpcode::ResponderSend));
}

/// Requirement: IBTA v1.4 §10.2.9.5: a shared receive queue that cannot be read fails; software learns of it once, and
/// its queue pairs fail when they need a receive.
#[test]
fn a_pool_whose_record_makes_no_sense_breaks() {
    let (mut node, mut pool) = shared_node();
    let sge = node.mr.sge(0x1000, 16);
    pool.post(&mut node, 0, 1, sge);
    // More than its eight entries.
    node.host.memory.put(pool.record, &9u32.to_be_bytes());
    while node.poll_event().is_some() {}
    send(&mut node, b"nothing of this arrives");
    let kinds: Vec<_> = core::iter::from_fn(|| node.poll_event()).map(|event| event.kind()).collect();
    assert_eq!(kinds, [EventType::SrqCatasError, EventType::WqCatasError, EventType::SrqLastWqe]);
    assert_eq!(pool_state(&mut node, &pool), 3);
    assert_eq!(node.expect().opcode(), CqeOpcode::RequesterError);
}

#[test]
fn queue_pairs_of_xrc_need_a_domain_and_a_queue_of_their_kind() {
    let (mut node, pool) = shared_node();
    let (out, _): (AllocXrcdOut, _) = node.host.run(Op::AllocXrcd, 0, AllocXrcdIn::new()).unwrap();
    let (buffer, record) = (node.host.memory.allocate(4096), node.host.memory.allocate(8));
    let mut input = CreateXrcSrqIn::new();
    let context = input.xrc_srq_context_entry_mut();
    context.set_pd(node.pd).set_cqn(node.cq.cqn).set_log_rq_stride(1).set_log_xrc_srq_size(3);
    context.set_db_record_addr_h((record >> 32) as u32).set_db_record_addr_l(record as u32 >> 2);
    context.set_xrcd(out.xrcd());
    let (made, _): (CreateXrcSrqOut, _) =
        node.host.command(Op::CreateXrcSrq, 0, input, &buffer.to_be_bytes(), 16).unwrap();
    // As Linux creates a target: no queue of its own, no doorbell record, no UAR.
    let mut target = |xrcd, queue: Srqn| {
        create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
            c.set_st(ServiceType::Xrc).set_no_sq(true).set_rq_type(1).set_dbr_addr(0).set_xrcd(xrcd);
            c.set_uar_page(bareverbs_prm::ids::UarIndex::default()).set_srqn_rmpn_xrqn(queue.value());
        })
    };
    let unknown = bareverbs_prm::ids::Xrcdn::from_low_bits(0x77);
    assert_eq!(target(unknown, made.xrc_srqn()).err(), Some(syndrome::XRCD_UNKNOWN.syndrome));
    assert_eq!(target(out.xrcd(), pool.number).err(), Some(syndrome::SRQ_UNKNOWN.syndrome));
    let target = target(out.xrcd(), made.xrc_srqn()).unwrap();
    let mut destroy = DestroyXrcSrqIn::new();
    destroy.set_xrc_srqn(made.xrc_srqn());
    raw(&mut node.host, Op::DestroyXrcSrq, destroy).unwrap();
    let mut free = DeallocXrcdIn::new();
    free.set_xrcd(out.xrcd());
    refused(raw(&mut node.host, Op::DeallocXrcd, free), syndrome::XRCD_BUSY);
    let mut gone = DestroyQpIn::new();
    gone.set_qpn(target.qpn);
    raw(&mut node.host, Op::DestroyQp, gone).unwrap();
    raw(&mut node.host, Op::DeallocXrcd, free).unwrap();
}

#[test]
fn xrc_queues_need_their_domain() {
    let mut node = Node::new(1, config());
    let (out, _): (AllocXrcdOut, _) = node.host.run(Op::AllocXrcd, 0, AllocXrcdIn::new()).unwrap();
    let (buffer, record) = (node.host.memory.allocate(4096), node.host.memory.allocate(8));
    let mut input = CreateXrcSrqIn::new();
    let context = input.xrc_srq_context_entry_mut();
    context.set_pd(node.pd).set_cqn(node.cq.cqn).set_log_rq_stride(1).set_log_xrc_srq_size(3);
    context.set_db_record_addr_h((record >> 32) as u32).set_db_record_addr_l(record as u32 >> 2);
    let list = buffer.to_be_bytes();
    let made: CommandResult<[u8; 16]> = node.host.command(Op::CreateXrcSrq, 0, input, &list, 16);
    refused(made, syndrome::XRCD_UNKNOWN);
    input.xrc_srq_context_entry_mut().set_xrcd(out.xrcd());
    let made: CommandResult<[u8; 16]> = node.host.command(Op::CreateXrcSrq, 0, input, &list, 16);
    made.unwrap();
    let mut free = DeallocXrcdIn::new();
    free.set_xrcd(out.xrcd());
    refused(raw(&mut node.host, Op::DeallocXrcd, free), syndrome::XRCD_BUSY);
}

/// A LID-routed subnet management packet with a method and an attribute.
fn request(class: u8, method: u8, attribute: u16) -> MadIfcIn {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, class, 1, method]);
    mad[8..16].copy_from_slice(&77u64.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&1u32.to_be_bytes());
    let mut input = MadIfcIn::new();
    input.set_port(1).set_mad(mad);
    input
}

fn ask(host: &mut Host, input: MadIfcIn) -> CommandResult<MadIfcOut> {
    host.run(Op::MadIfc, 3, input)
}

/// Requirement: IBTA v1.4 §14.2.5.6: PortInfo has the state of the port, also for the port's own host.
#[test]
fn the_agent_answers_its_own_host() {
    const PORT_INFO: u16 = 0x15;
    let mut host = Host::booted(NicConfig { strict: true, ..config() });
    for (up, state) in [(true, 4), (false, 1)] {
        host.nic.set_link_up(up);
        let (out, _) = ask(&mut host, request(1, 1, PORT_INFO)).unwrap();
        let response = out.response_mad_packet();
        assert_eq!((response[3], &response[4..6], response[15]), (0x81, &[0, 0][..], 77));
        assert_eq!(response[64 + 32] & 0xf, state);
    }
    let (out, _) = ask(&mut host, request(1, 1, 0x7777)).unwrap();
    assert_eq!(out.response_mad_packet()[4..6], [0, 3 << 2], "the attribute is not supported");
}

#[test]
fn only_the_agents_of_an_infiniband_port_are_asked() {
    let mut host = Host::booted(config());
    let mut elsewhere = request(1, 1, 0x15);
    elsewhere.set_port(2);
    refused(ask(&mut host, elsewhere), syndrome::MAD_PORT);
    refused(host.run::<_, MadIfcOut>(Op::MadIfc, 8, request(1, 1, 0x15)), syndrome::BAD_OP_MOD);
    let mut ethernet = Host::booted(NicConfig::default());
    refused(ask(&mut ethernet, request(1, 1, 0x15)), syndrome::LINK_LAYER);
}
