//! Commands: the state machine, page supply, limits, and every refusal with its syndrome.

use super::host::{CommandResult, Host};
use super::verbs::{Node, create_cq, create_qp, init, rtr, rts, set_gid};
use crate::nic::mkey::RESERVED_LKEY;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{Limits, NicConfig};
use bareverbs_prm::command::cq::{DestroyCqIn, DestroyCqOut};
use bareverbs_prm::command::eq::{DestroyEqIn, DestroyEqOut};
use bareverbs_prm::command::hca::*;
use bareverbs_prm::command::mkey::{DestroyMkeyIn, DestroyMkeyOut, QueryMkeyIn, QueryMkeyOut};
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut, DeallocPdIn, DeallocPdOut};
use bareverbs_prm::command::port::*;
use bareverbs_prm::command::qp::{DestroyQpIn, DestroyQpOut, InitToRtrQpIn, QueryQpIn, QueryQpOut};
use bareverbs_prm::command::uar::{DeallocUarIn, DeallocUarOut};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CommandStatus, PathMtu, QpState, RegisterId, ServiceType,
};
use zerocopy::{FromBytes, IntoBytes};

#[track_caller]
pub fn refused<O>(result: CommandResult<O>, by: Refusal) {
    let Err(why) = result else { panic!("accepted, {by} was expected") };
    assert_eq!(why, (by.status, by.syndrome), "expected: {by}; got: {:?}", Refusal::by_syndrome(why.1));
}

#[test]
fn the_device_is_brought_up_in_one_order_only() {
    let mut host = Host::new(NicConfig::default());
    refused::<InitHcaOut>(host.run(Op::InitHca, 0, InitHcaIn::new()), syndrome::WRONG_STATE);
    refused::<QueryIssiOut>(host.run(Op::QueryIssi, 0, QueryIssiIn::new()), syndrome::WRONG_STATE);
    refused::<AllocPdOut>(host.run(Op::AllocPd, 0, AllocPdIn::new()), syndrome::WRONG_STATE);
    host.run::<_, EnableHcaOut>(Op::EnableHca, 0, EnableHcaIn::new()).unwrap();
    refused::<EnableHcaOut>(host.run(Op::EnableHca, 0, EnableHcaIn::new()), syndrome::WRONG_STATE);
    refused::<AllocPdOut>(host.run(Op::AllocPd, 0, AllocPdIn::new()), syndrome::WRONG_STATE);
    refused::<InitHcaOut>(host.run(Op::InitHca, 0, InitHcaIn::new()), syndrome::PAGES_MISSING);
    assert_eq!(host.give_pages(1).len(), 3);
    assert_eq!(host.give_pages(2).len(), 5);
    host.run::<_, InitHcaOut>(Op::InitHca, 0, InitHcaIn::new()).unwrap();
    refused::<DisableHcaOut>(host.run(Op::DisableHca, 0, DisableHcaIn::new()), syndrome::WRONG_STATE);
    host.run::<_, TeardownHcaOut>(Op::TeardownHca, 0, TeardownHcaIn::new()).unwrap();
    refused::<TeardownHcaOut>(host.run(Op::TeardownHca, 0, TeardownHcaIn::new()), syndrome::WRONG_STATE);
    host.run::<_, DisableHcaOut>(Op::DisableHca, 0, DisableHcaIn::new()).unwrap();
}

#[test]
fn issi_is_queried_and_set() {
    let mut host = Host::new(NicConfig::default());
    host.run::<_, EnableHcaOut>(Op::EnableHca, 0, EnableHcaIn::new()).unwrap();
    let (out, _): (QueryIssiOut, _) = host.run(Op::QueryIssi, 0, QueryIssiIn::new()).unwrap();
    assert_eq!((out.current_issi(), out.supported_issi_dw0()), (0, 3));
    let mut set = SetIssiIn::new();
    set.set_current_issi(1);
    host.run::<_, SetIssiOut>(Op::SetIssi, 0, set).unwrap();
    let (out, _): (QueryIssiOut, _) = host.run(Op::QueryIssi, 0, QueryIssiIn::new()).unwrap();
    assert_eq!(out.current_issi(), 1);
    set.set_current_issi(40);
    refused::<SetIssiOut>(host.run(Op::SetIssi, 0, set), syndrome::ISSI_UNSUPPORTED);
}

#[test]
fn pages_come_back_after_teardown_as_they_were_given() {
    let mut host = Host::new(NicConfig::default());
    host.run::<_, EnableHcaOut>(Op::EnableHca, 0, EnableHcaIn::new()).unwrap();
    let mut given = host.give_pages(1);
    given.extend(host.give_pages(2));
    assert!(host.give_pages(2).is_empty(), "no more pages are requested");
    host.run::<_, InitHcaOut>(Op::InitHca, 0, InitHcaIn::new()).unwrap();
    assert!(take_pages(&mut host, 100).is_empty(), "pages in use stay");
    host.run::<_, TeardownHcaOut>(Op::TeardownHca, 0, TeardownHcaIn::new()).unwrap();
    let mut back = take_pages(&mut host, 6);
    assert_eq!(back.len(), 6);
    back.extend(take_pages(&mut host, 6));
    back.sort_unstable();
    assert_eq!(back, given);
    assert_eq!(host.nic.held_pages(), 0);
    host.run::<_, DisableHcaOut>(Op::DisableHca, 0, DisableHcaIn::new()).unwrap();
    host.boot();
}

fn take_pages(host: &mut Host, count: u32) -> Vec<u64> {
    let mut input = ManagePagesIn::new();
    input.set_input_num_entries(count);
    let (out, list): (ManagePagesOut, _) =
        host.command(Op::ManagePages, 2, input, &[], 16 + count as usize * 8).unwrap();
    let list = list.chunks_exact(8).map(|page| u64::from_be_bytes(page.try_into().unwrap()));
    list.take(out.output_num_entries() as usize).collect()
}

#[test]
fn pages_are_checked() {
    let mut host = Host::new(NicConfig::default());
    host.run::<_, EnableHcaOut>(Op::EnableHca, 0, EnableHcaIn::new()).unwrap();
    let mut give = |count: u32, pages: &[u64]| {
        let mut input = ManagePagesIn::new();
        input.set_input_num_entries(count);
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        host.command::<_, ManagePagesOut>(Op::ManagePages, 1, input, &list, 16)
    };
    refused(give(1, &[0x1010]), syndrome::PAGE_MISALIGNED);
    refused(give(2, &[0x1000, 0x1000]), syndrome::PAGE_GIVEN_TWICE);
    refused(give(3, &[0x1000, 0x2000]), syndrome::LIST_TOO_SHORT);
    refused(give(u32::MAX, &[0x1000]), syndrome::LIST_TOO_SHORT);
    assert!(give(0, &[]).is_ok());
}

#[test]
fn unknown_commands_are_named_and_counted() {
    let mut host = Host::booted(NicConfig::default());
    let result = host.run::<_, NopOut>(Op::CreateDct, 0, NopIn::new());
    assert_eq!(result.unwrap_err(), (CommandStatus::BadOpcode, 0xdead_0710));
    host.run::<_, NopOut>(Op::Unknown(0x1234), 0, NopIn::new()).unwrap_err();
    host.run::<_, NopOut>(Op::CreateDct, 0, NopIn::new()).unwrap_err();
    let unknown: Vec<_> = host.nic.unknown_commands().collect();
    assert_eq!(unknown, [(Op::CreateDct, 2), (Op::Unknown(0x1234), 1)]);
    assert_eq!(host.nic.last_refusal().map(|(opcode, _)| opcode), Some(Op::CreateDct));
}

#[test]
fn lengths_and_reserved_bits_are_checked() {
    let mut host = Host::booted(NicConfig { strict: true, ..NicConfig::default() });
    refused::<[u8; 16]>(host.run(Op::InitToRtrQp, 0, [0u8; 64]), syndrome::INPUT_TOO_SHORT);
    let result = host.command::<_, [u8; 16]>(Op::QueryQp, 0, QueryQpIn::new(), &[], 64);
    refused(result, syndrome::OUTPUT_TOO_SHORT);
    let mut bytes = [0u8; 16];
    bytes[15] = 1;
    refused::<AllocPdOut>(host.run(Op::AllocPd, 0, bytes), syndrome::RESERVED_NOT_CLEAR);
    refused::<AllocPdOut>(host.run(Op::AllocPd, 7, AllocPdIn::new()), syndrome::BAD_OP_MOD);
    host.run::<_, AllocPdOut>(Op::AllocPd, 0, AllocPdIn::new()).unwrap();
}

#[test]
fn limits_of_objects_hold() {
    let limits = Limits { log_max_pd: 1, log_max_cq: 1, log_max_qp: 1, ..Limits::CONNECTX5 };
    let mut node = Node::new(1, NicConfig { limits, ..NicConfig::default() });
    node.host.run::<_, AllocPdOut>(Op::AllocPd, 0, AllocPdIn::new()).unwrap();
    refused::<AllocPdOut>(node.host.run(Op::AllocPd, 0, AllocPdIn::new()), syndrome::PD_LIMIT);
    create_cq(&mut node.host, node.uar, node.eq.eqn, 3).unwrap();
    let more = create_cq(&mut node.host, node.uar, node.eq.eqn, 3);
    assert_eq!(more.err(), Some(syndrome::CQ_LIMIT.syndrome));
    create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |_| {}).unwrap();
    let more = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |_| {});
    assert_eq!(more.err(), Some(syndrome::QP_LIMIT.syndrome));
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let mut node = Node::new(1, NicConfig::default());
    let mut pd = DeallocPdIn::new();
    pd.set_pd(node.pd);
    let mut cq = DestroyCqIn::new();
    cq.set_cqn(node.cq.cqn);
    let mut eq = DestroyEqIn::new();
    eq.set_eq_number(node.eq.eqn);
    let mut uar = DeallocUarIn::new();
    uar.set_uar(node.uar);
    let mut qp = DestroyQpIn::new();
    qp.set_qpn(node.qp.qpn);
    let mut mkey = DestroyMkeyIn::new();
    mkey.set_mkey_index(node.mr.key.index());
    let host = &mut node.host;
    refused::<DeallocPdOut>(host.run(Op::DeallocPd, 0, pd), syndrome::PD_BUSY);
    refused::<DestroyCqOut>(host.run(Op::DestroyCq, 0, cq), syndrome::CQ_BUSY);
    refused::<DestroyEqOut>(host.run(Op::DestroyEq, 0, eq), syndrome::EQ_BUSY);
    refused::<DeallocUarOut>(host.run(Op::DeallocUar, 0, uar), syndrome::UAR_BUSY);
    host.run::<_, DestroyQpOut>(Op::DestroyQp, 0, qp).unwrap();
    refused::<DestroyQpOut>(host.run(Op::DestroyQp, 0, qp), syndrome::QP_UNKNOWN);
    refused::<DeallocPdOut>(host.run(Op::DeallocPd, 0, pd), syndrome::PD_BUSY);
    host.run::<_, DestroyMkeyOut>(Op::DestroyMkey, 0, mkey).unwrap();
    refused::<DestroyMkeyOut>(host.run(Op::DestroyMkey, 0, mkey), syndrome::MKEY_UNKNOWN);
    host.run::<_, DeallocPdOut>(Op::DeallocPd, 0, pd).unwrap();
    refused::<DeallocPdOut>(host.run(Op::DeallocPd, 0, pd), syndrome::PD_UNKNOWN);
    host.run::<_, DestroyCqOut>(Op::DestroyCq, 0, cq).unwrap();
    refused::<DestroyCqOut>(host.run(Op::DestroyCq, 0, cq), syndrome::CQ_UNKNOWN);
    host.run::<_, DestroyEqOut>(Op::DestroyEq, 0, eq).unwrap();
    refused::<DestroyEqOut>(host.run(Op::DestroyEq, 0, eq), syndrome::EQ_UNKNOWN);
    host.run::<_, DeallocUarOut>(Op::DeallocUar, 0, uar).unwrap();
    refused::<DeallocUarOut>(host.run(Op::DeallocUar, 0, uar), syndrome::UAR_UNKNOWN);
    assert_eq!(host.nic.live_objects(), [0; 6]);
}

#[test]
fn bad_queue_pairs_are_not_made() {
    type Edit = fn(&mut bareverbs_prm::context::QueuePairContext);
    let cases: &[(Edit, Refusal)] = &[
        (
            |c| {
                c.set_st(ServiceType::Dci);
            },
            syndrome::QP_SERVICE,
        ),
        (
            |c| {
                c.set_log_sq_size(15).set_log_page_size(31);
            },
            syndrome::BUFFER_PAGE_SIZE,
        ),
        (
            |c| {
                c.set_log_sq_size(10);
            },
            syndrome::LIST_TOO_SHORT,
        ),
        (
            |c| {
                c.set_log_rq_stride(7);
            },
            syndrome::QP_RECEIVE_SIZE,
        ),
        (
            |c| {
                c.set_rq_type(2);
            },
            syndrome::QP_RECEIVE_TYPE,
        ),
        (
            |c| {
                c.set_rq_type(1).set_srqn_rmpn_xrqn(0x10);
            },
            syndrome::SRQ_UNKNOWN,
        ),
        (
            |c| {
                c.set_wq_signature(true);
            },
            syndrome::QP_FEATURE,
        ),
        (
            |c| {
                c.set_dbr_addr(0x1004);
            },
            syndrome::DOORBELL_RECORD_MISALIGNED,
        ),
        (
            |c| {
                c.set_cqn_snd(bareverbs_prm::ids::Cqn::from_low_bits(9));
            },
            syndrome::CQ_UNKNOWN,
        ),
        (
            |c| {
                c.set_pd(bareverbs_prm::ids::Pdn::from_low_bits(9));
            },
            syndrome::PD_UNKNOWN,
        ),
        (
            |c| {
                c.set_uar_page(bareverbs_prm::ids::UarIndex::from_low_bits(9));
            },
            syndrome::UAR_UNKNOWN,
        ),
    ];
    let mut node = Node::new(1, NicConfig::default());
    for (edit, refusal) in cases {
        let result = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, edit);
        assert_eq!(result.err(), Some(refusal.syndrome), "{refusal}");
    }
}

/// Requirement: IBTA v1.4 §10.3.1: each transition starts from its own state and is refused from all others.
#[test]
fn every_transition_starts_from_its_state() {
    let mut node = Node::new(1, NicConfig::default());
    let peer = (Qpn::from_low_bits(0x77), Gid::from_ipv4([10, 0, 0, 2]), node.mac);
    let none = |_: &mut bareverbs_prm::context::QueuePairContext| {};
    let wrong = |node: &mut Node, opcode| refused(node.modify(opcode, |_| {}), syndrome::QP_STATE);
    let all = [
        Op::ResetToInitQp,
        Op::InitToInitQp,
        Op::InitToRtrQp,
        Op::RtrToRtsQp,
        Op::RtsToRtsQp,
        Op::SqErrorToRtsQp,
        Op::RtsToSqdQp,
        Op::SqdToSqdQp,
        Op::SqdToRtsQp,
    ];
    let expect_only = |node: &mut Node, allowed: &[Op]| {
        all.iter().filter(|op| !allowed.contains(op)).for_each(|&op| wrong(node, op));
    };
    expect_only(&mut node, &[Op::ResetToInitQp]);
    node.modify(Op::ResetToInitQp, |c| init(c, none)).unwrap();
    assert_eq!(node.state(), QpState::Init);
    expect_only(&mut node, &[Op::InitToInitQp, Op::InitToRtrQp]);
    node.modify(Op::InitToInitQp, none).unwrap();
    node.modify(Op::InitToRtrQp, |c| rtr(c, peer, none)).unwrap();
    assert_eq!(node.state(), QpState::Rtr);
    expect_only(&mut node, &[Op::RtrToRtsQp]);
    node.modify(Op::RtrToRtsQp, |c| rts(c, none)).unwrap();
    assert_eq!(node.state(), QpState::Rts);
    expect_only(&mut node, &[Op::RtsToRtsQp, Op::RtsToSqdQp]);
    node.modify(Op::RtsToRtsQp, none).unwrap();
    node.modify(Op::RtsToSqdQp, none).unwrap();
    assert_eq!(node.state(), QpState::SqDrained);
    expect_only(&mut node, &[Op::SqdToSqdQp, Op::SqdToRtsQp]);
    node.modify(Op::SqdToSqdQp, none).unwrap();
    node.modify(Op::SqdToRtsQp, none).unwrap();
    assert_eq!(node.state(), QpState::Rts);
    node.short(Op::ToErrorQp).unwrap();
    assert_eq!(node.state(), QpState::Error);
    expect_only(&mut node, &[]);
    node.short(Op::ToResetQp).unwrap();
    assert_eq!(node.state(), QpState::Reset);
}

#[test]
fn bad_connections_are_refused_and_change_nothing() {
    type Edit = fn(&mut bareverbs_prm::context::QueuePairContext);
    let cases: &[(Edit, Refusal)] = &[
        (
            |c| {
                c.set_mtu(PathMtu::Unknown(6));
            },
            syndrome::QP_PATH_MTU,
        ),
        (
            |c| {
                c.set_mtu(PathMtu::Unknown(0));
            },
            syndrome::QP_PATH_MTU,
        ),
        (
            |c| {
                c.set_log_msg_max(31);
            },
            syndrome::QP_MESSAGE_SIZE,
        ),
        (
            |c| {
                c.set_log_rra_max(5);
            },
            syndrome::QP_RESPONDER_RESOURCES,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_src_addr_index(2);
            },
            syndrome::QP_SOURCE_ADDRESS,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_src_addr_index(200);
            },
            syndrome::QP_SOURCE_ADDRESS,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_rgid_rip([0; 16]);
            },
            syndrome::QP_REMOTE_ADDRESS,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_rgid_rip([0xfe; 16]);
            },
            syndrome::QP_REMOTE_ADDRESS,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_rmac_47_32(0x0100);
            },
            syndrome::QP_REMOTE_ADDRESS,
        ),
        (
            |c| {
                c.primary_address_path_mut().set_udp_sport(80);
            },
            syndrome::QP_SOURCE_PORT,
        ),
    ];
    let mut node = Node::new(1, NicConfig::default());
    let peer = (Qpn::from_low_bits(0x77), Gid::from_ipv4([10, 0, 0, 2]), node.mac);
    node.modify(Op::ResetToInitQp, |c| init(c, |_| {})).unwrap();
    for (edit, refusal) in cases {
        refused(node.modify(Op::InitToRtrQp, |c| rtr(c, peer, edit)), *refusal);
        assert_eq!(node.state(), QpState::Init);
    }
    let mut input = InitToRtrQpIn::new();
    input.set_qpn(node.qp.qpn).set_opt_param_mask(1 << 5);
    refused::<[u8; 16]>(node.host.run(Op::InitToRtrQp, 0, input), syndrome::QP_OPTIONAL_PARAMETER);
}

#[test]
fn query_qp_shows_what_was_set() {
    let mut node = Node::new(1, NicConfig::default());
    let peer = (Qpn::from_low_bits(0x77), Gid::from_ipv4([10, 0, 0, 2]), node.mac);
    node.connect(peer, |_| {});
    let mut input = QueryQpIn::new();
    input.set_qpn(node.qp.qpn);
    let (out, _): (QueryQpOut, _) = node.host.run(Op::QueryQp, 0, input).unwrap();
    let context = out.qpc();
    assert_eq!(
        (context.state(), context.remote_qpn(), context.mtu()),
        (QpState::Rts, peer.0, PathMtu::Mtu1024)
    );
    assert_eq!((context.retry_count(), context.rnr_retry(), context.log_rra_max()), (7, 7, 4));
    assert_eq!(context.primary_address_path().ack_timeout(), 14);
    assert_eq!(context.primary_address_path().vhca_port_num(), 1);
    assert_eq!(context.user_index(), 0xabcdef);
    assert!(context.rre() && context.rwe() && context.rae());
}

#[test]
fn a_memory_key_shows_its_context() {
    let mut node = Node::new(1, NicConfig::default());
    let mut input = QueryMkeyIn::new();
    input.set_mkey_index(node.mr.key.index());
    let (out, _): (QueryMkeyOut, _) = node.host.run(Op::QueryMkey, 0, input).unwrap();
    assert_eq!(out.memory_key_mkey_entry().start_addr(), node.mr.va);
    assert_eq!(out.memory_key_mkey_entry().mkey_7_0(), node.mr.key.variant());
}

#[test]
fn a_short_output_still_returns_the_reserved_key() {
    let mut host = Host::booted(NicConfig::default());
    let ask = QuerySpecialContextsIn::new;
    let (out, _): (QuerySpecialContextsOut, _) = host.run(Op::QuerySpecialContexts, 0, ask()).unwrap();
    assert_eq!((out.resd_lkey(), out.null_mkey()), (RESERVED_LKEY.value(), 0));
    let (out, _): ([u8; 16], _) = host.run(Op::QuerySpecialContexts, 0, ask()).unwrap();
    assert_eq!(out[12..], RESERVED_LKEY.value().to_be_bytes());
    let short = host.run::<_, [u8; 12]>(Op::QuerySpecialContexts, 0, ask()).unwrap_err();
    assert_eq!(short.1, syndrome::OUTPUT_TOO_SHORT.syndrome);
}

#[test]
fn registers_of_the_port() {
    let mut host = Host::booted(NicConfig::default());
    let mut access = |id, op_mod, register: &[u8]| {
        let mut input = AccessRegisterIn::new();
        input.set_register_id(id);
        let result = host.command::<_, AccessRegisterOut>(Op::AccessReg, op_mod, input, register, 16 + 64);
        result.map(|(_, register)| register)
    };
    let mut pmtu = PmtuRegister::new();
    pmtu.set_local_port(1).set_admin_mtu(1500);
    let out = access(RegisterId::Pmtu, 0, pmtu.as_bytes()).unwrap();
    let (out, _) = PmtuRegister::read_from_prefix(&out).unwrap();
    assert_eq!((out.max_mtu(), out.oper_mtu()), (10_218, 1500));
    pmtu.set_admin_mtu(10_219);
    assert_eq!(
        access(RegisterId::Pmtu, 0, pmtu.as_bytes()).unwrap_err().1,
        syndrome::REGISTER_VALUE.syndrome
    );
    pmtu.set_local_port(2);
    assert_eq!(access(RegisterId::Pmtu, 1, pmtu.as_bytes()).unwrap_err().1, syndrome::REGISTER_PORT.syndrome);
    let mut ptys = PtysRegister::new();
    ptys.set_local_port(1).set_proto_mask(4);
    let out = access(RegisterId::Ptys, 1, ptys.as_bytes()).unwrap();
    assert_eq!(PtysRegister::read_from_prefix(&out).unwrap().0.eth_proto_oper(), 1 << 20);
    assert!(access(RegisterId::HostEndianness, 0, &[0; 16]).is_ok());
    assert_eq!(
        access(RegisterId::HostEndianness, 0, &[0x80; 16]).unwrap_err().1,
        syndrome::REGISTER_VALUE.syndrome
    );
    let description = [7u8; 64];
    access(RegisterId::NodeDesc, 0, &description).unwrap();
    assert_eq!(access(RegisterId::NodeDesc, 1, &[0; 64]).unwrap(), description);
    assert_eq!(access(RegisterId::Mtmp, 1, &[0; 16]).unwrap_err().1, syndrome::REGISTER_UNKNOWN.syndrome);
    for id in [RegisterId::Pmtu, RegisterId::Pfcc] {
        assert_eq!(access(id, 0, &[0, 1, 0, 0]).unwrap_err().1, syndrome::REGISTER_LENGTH.syndrome);
        assert_eq!(access(id, 1, &[0, 1, 0]).unwrap_err().1, syndrome::REGISTER_LENGTH.syndrome);
        assert!(
            access(id, 1, &[0, 1, 0, 0]).is_ok(),
            "a read sends the bytes that select the part of the register"
        );
    }
    let mut flow_control = [0; 12];
    flow_control[1] = 1;
    assert!(access(RegisterId::Pfcc, 0, &flow_control).is_ok(), "in the shorter form of older drivers");
    flow_control[8] = 0x80;
    let out = access(RegisterId::Pfcc, 0, &flow_control).unwrap();
    assert_eq!(
        (out[8], access(RegisterId::Pfcc, 1, &[0, 1, 0, 0]).unwrap()[8]),
        (0x80, 0x80),
        "pause frames"
    );
    flow_control[9] = 1 << 3;
    assert_eq!(
        access(RegisterId::Pfcc, 0, &flow_control).unwrap_err().1,
        syndrome::REGISTER_VALUE.syndrome,
        "priority flow control is not supported"
    );
}

#[test]
fn roce_addresses_are_checked_and_kept() {
    let mut node = Node::new(1, NicConfig::default());
    let mut query = QueryRoceAddressIn::new();
    query.set_roce_address_index(1);
    let (out, _): (QueryRoceAddressOut, _) = node.host.run(Op::QueryRoceAddress, 0, query).unwrap();
    assert_eq!(out.roce_address().source_l3_address(), node.gid.0);
    let mut set = SetRoceAddressIn::new();
    set.set_roce_address_index(128).roce_address_mut().clone_from(out.roce_address());
    refused::<SetRoceAddressOut>(node.host.run(Op::SetRoceAddress, 0, set), syndrome::ROCE_ADDRESS_INDEX);
    set.set_roce_address_index(2).roce_address_mut().set_vlan_valid(true).set_vlan_id(0xfff);
    refused::<SetRoceAddressOut>(node.host.run(Op::SetRoceAddress, 0, set), syndrome::ROCE_ADDRESS_VLAN);
    set.roce_address_mut().set_vlan_valid(false).set_roce_l3_type(bareverbs_prm::numbering::RoceL3Type::Ipv6);
    refused::<SetRoceAddressOut>(node.host.run(Op::SetRoceAddress, 0, set), syndrome::ROCE_ADDRESS_TYPE);
    set_gid(&mut node.host, 1, Gid::default(), node.mac);
    let (out, _): (QueryRoceAddressOut, _) = node.host.run(Op::QueryRoceAddress, 0, query).unwrap();
    assert_eq!(out.as_bytes()[16..], [0; 32], "a zero address empties the entry");
}

#[test]
fn the_virtual_port_shows_its_address() {
    let mut node = Node::new(9, NicConfig::default());
    let (out, list): (QueryNicVportContextOut, _) =
        node.host.command(Op::QueryNicVportContext, 0, QueryNicVportContextIn::new(), &[], 280).unwrap();
    assert_eq!(out.nic_vport_context().permanent_address().mac_addr_31_0(), node.mac.low());
    assert_eq!(list[2..8], node.mac.0, "the unicast list holds the one address");
    let (state, _): (QueryVportStateOut, _) =
        node.host.run(Op::QueryVportState, 0, QueryVportStateIn::new()).unwrap();
    assert_eq!((state.admin_state(), state.state()), (1, 1));
    let mut modify = ModifyNicVportContextIn::new();
    modify.set_field_select_roce_en(true).nic_vport_context_mut().set_roce_en(true);
    node.host.run::<_, ModifyNicVportContextOut>(Op::ModifyNicVportContext, 0, modify).unwrap();
    modify.set_field_select_min_inline(true);
    let result = node.host.run::<_, ModifyNicVportContextOut>(Op::ModifyNicVportContext, 0, modify);
    refused(result, syndrome::VPORT_FIELD);
    let (out, _): (QueryNicVportContextOut, _) =
        node.host.run(Op::QueryNicVportContext, 0, QueryNicVportContextIn::new()).unwrap();
    assert!(out.nic_vport_context().roce_en());
}
