//! Event queues and interrupts: arming, solicited completions, overrun, link and page events.

use super::pair::Pair;
use super::verbs::{Node, inline};
use crate::nic::NicConfig;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::command::port::PaosRegister;
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::eqe::{CompletionEvent, PageRequestEvent};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, EventType, PortChange, RegisterId, WqeOpcode};
use zerocopy::{FromBytes, IntoBytes};

fn send(pair: &mut Pair, solicited: bool) {
    pair.b.post_receive(&[pair.b.mr.sge(0, 64)]);
    pair.a.write_wqe(
        WqeOpcode::Send,
        |c| {
            c.set_solicited(solicited);
        },
        &inline(&[1]),
    );
    pair.a.ring();
    pair.run();
    pair.a.expect();
}

fn interrupts(pair: &mut Pair) -> Vec<u16> {
    core::iter::from_fn(|| pair.b.host.nic.poll_interrupt()).collect()
}

#[test]
fn an_armed_queue_raises_one_event() {
    let mut pair = Pair::new();
    send(&mut pair, false);
    assert!(pair.b.poll_event().is_none(), "not armed");
    pair.b.expect();
    pair.b.arm_eq();
    pair.b.arm_cq(false);
    assert!(interrupts(&mut pair).is_empty());
    send(&mut pair, false);
    send(&mut pair, false);
    assert_eq!(interrupts(&mut pair), [5]);
    let event = pair.b.poll_event().expect("a completion event");
    let (data, _) = CompletionEvent::read_from_prefix(&event.data()).unwrap();
    assert_eq!((event.kind(), data.cqn()), (EventType::Comp, pair.b.cq.cqn));
    assert!(pair.b.poll_event().is_none(), "one event per arming");
}

#[test]
fn arming_behind_a_completion_fires_at_once() {
    let mut pair = Pair::new();
    send(&mut pair, false);
    pair.b.arm_cq(false);
    assert!(pair.b.poll_event().is_some(), "the completion came before the arming");
    pair.b.expect();
    pair.b.arm_cq(false);
    assert!(pair.b.poll_event().is_none(), "and was consumed before this one");
}

#[test]
fn an_event_queue_that_is_armed_late_fires_at_once() {
    let mut pair = Pair::new();
    pair.b.arm_cq(false);
    send(&mut pair, false);
    assert!(interrupts(&mut pair).is_empty(), "the event queue is not armed");
    pair.b.arm_eq();
    assert_eq!(interrupts(&mut pair), [5]);
    pair.b.poll_event().unwrap();
    pair.b.arm_eq();
    assert!(interrupts(&mut pair).is_empty());
}

/// Requirement: IBTA v1.4 §11.4.2.2: a request for notification of solicited completions waits for a solicited completion
/// or an error.
#[test]
fn solicited_arming_waits_for_a_solicited_completion() {
    let mut pair = Pair::new();
    pair.b.arm_cq(true);
    send(&mut pair, false);
    assert!(pair.b.poll_event().is_none());
    send(&mut pair, true);
    assert!(pair.b.poll_event().is_some());
    pair.b.arm_cq(true);
    assert!(pair.b.poll_event().is_none(), "the solicited completion already raised an event");
    pair.b.expect();
    pair.b.expect();
    send(&mut pair, true);
    assert!(pair.b.poll_event().is_some());
}

/// Requirement: IBTA v1.4 §11.4.2.2: an event is raised for a completion that is added after the request for it. Software
/// may request the next event before it polls the completion of the last one.
#[test]
fn a_completion_raises_one_event_however_often_software_asks() {
    let mut pair = Pair::new();
    pair.b.arm_cq(false);
    send(&mut pair, false);
    assert!(pair.b.poll_event().is_some());
    pair.b.arm_cq(false);
    assert!(pair.b.poll_event().is_none(), "it already raised an event");
    send(&mut pair, false);
    assert!(pair.b.poll_event().is_some(), "the next one");
    send(&mut pair, false);
    pair.b.arm_cq(false);
    assert!(pair.b.poll_event().is_some(), "came after the last event and before the arming");
}

#[test]
fn events_wrap_and_an_overrun_is_counted() {
    let mut pair = Pair::new();
    for round in 0..200 {
        pair.b.arm_cq(false);
        send(&mut pair, false);
        pair.b.expect();
        assert!(pair.b.poll_event().is_some(), "round {round}");
        pair.b.arm_eq();
    }
    for _ in 0..65 {
        pair.b.arm_cq(false);
        send(&mut pair, false);
        pair.b.expect();
    }
    assert_eq!(pair.b.host.nic.counters().events_lost, 1);
}

#[test]
fn link_and_page_events_reach_their_queue() {
    let mut pair = Pair::new();
    pair.b.host.nic.set_link_up(false);
    pair.b.arm_eq();
    let event = pair.b.poll_event().expect("a port event");
    assert_eq!((event.kind(), event.sub_type()), (EventType::PortChange, PortChange::Down.raw()));
    assert_eq!(event.data()[8] >> 4, 1, "port 1");
    let now = pair.b.host.now;
    pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &[0; 64]);
    assert_eq!(pair.b.host.nic.counters().frames_foreign, 1, "no frames arrive over a dead link");
    let (nic, memory) = (&mut pair.b.host.nic, &mut pair.b.host.memory);
    nic.request_pages(memory, -2);
    let event = pair.b.poll_event().expect("a page event");
    let (data, _) = PageRequestEvent::read_from_prefix(&event.data()).unwrap();
    assert_eq!((event.kind(), data.num_pages() as i32), (EventType::PageRequest, -2));
}

#[test]
fn a_port_that_software_brings_up_raises_an_event() {
    let mut node = Node::new(1, NicConfig { starts_down: true, ..NicConfig::default() });
    let mut write = |status| {
        let mut register = PaosRegister::new();
        register.set_local_port(1).set_ase(true).set_admin_status(status);
        let mut input = AccessRegisterIn::new();
        input.set_register_id(RegisterId::Paos);
        let (_, register): (AccessRegisterOut, _) =
            node.host.command(CommandOpcode::AccessReg, 0, input, register.as_bytes(), 32).unwrap();
        let (register, _) = PaosRegister::read_from_prefix(&register).unwrap();
        (register.oper_status(), node.poll_event().map(|event| (event.kind(), event.sub_type())))
    };
    let port = |change: PortChange| Some((EventType::PortChange, change.raw()));
    assert_eq!(write(2), (2, None), "the link was down");
    assert_eq!(write(1), (1, port(PortChange::Active)));
    assert_eq!(write(1), (1, None));
    assert_eq!(write(2), (2, port(PortChange::Down)));
}

#[test]
fn a_queue_may_begin_inside_a_page_and_lie_on_scattered_pages() {
    use super::verbs::create_qp;
    use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
    use bareverbs_prm::numbering::CommandOpcode;

    let mut pair = Pair::new();
    let node = &mut pair.b;
    // Two pages in reverse order; the queue of 64 entries starts 63/64 into the first one.
    let pages: [u64; 2] = core::array::from_fn(|_| node.host.memory.allocate(4096));
    let record = node.host.memory.allocate(8);
    let list = [pages[1].to_be_bytes(), pages[0].to_be_bytes()].concat();
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_log_cq_size(6).set_uar_page(node.uar).set_c_eqn_or_apu_element(node.eq.eqn.value());
    context.set_dbr_addr(record).set_page_offset(63);
    let (output, _): (CreateCqOut, _) =
        node.host.command(CommandOpcode::CreateCq, 0, input, &list, 16).unwrap();
    node.qp = create_qp(&mut node.host, node.uar, node.pd, output.cqn(), |_| {}).unwrap();
    let (number, gid, mac) = (node.qp.qpn, node.gid, node.mac);
    pair.b.connect((pair.a.qp.qpn, pair.a.gid, pair.a.mac), |_| {});
    pair.a.short(CommandOpcode::ToResetQp).unwrap();
    pair.a.connect((number, gid, mac), |_| {});
    for _ in 0..2 {
        pair.b.post_receive(&[pair.b.mr.sge(0, 64)]);
        pair.a.post(WqeOpcode::Send, &inline(&[1]));
    }
    pair.run();
    let opcode = |at: u64| pair.b.host.memory.load::<CompletionEntry>(at).opcode();
    let sent = CqeOpcode::ResponderSend;
    assert_eq!(opcode(pages[1] + 4032), sent, "the first entry ends the page that comes first");
    assert_eq!(opcode(pages[0]), sent, "the second begins the page that comes second");
}
