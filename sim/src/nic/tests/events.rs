//! Event queues and interrupts: arming, solicited completions, overrun, link and page events.

use super::pair::Pair;
use super::verbs::inline;
use bareverbs_prm::eqe::{CompletionEvent, PageRequestEvent};
use bareverbs_prm::numbering::{EventType, PortChange, WqeOpcode};
use zerocopy::FromBytes;

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
    assert_eq!(interrupts(&mut pair), []);
    send(&mut pair, false);
    send(&mut pair, false);
    assert_eq!(interrupts(&mut pair), [5]);
    let event = pair.b.poll_event().expect("a completion event");
    let (data, _) = CompletionEvent::read_from_prefix(&event.data()).unwrap();
    assert_eq!((event.kind(), data.cqn()), (EventType::Comp, pair.b.cq.cqn));
    assert!(pair.b.poll_event().is_none(), "one event an arming");
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
    assert_eq!(interrupts(&mut pair), [], "the event queue is not armed");
    pair.b.arm_eq();
    assert_eq!(interrupts(&mut pair), [5]);
    pair.b.poll_event().unwrap();
    pair.b.arm_eq();
    assert_eq!(interrupts(&mut pair), []);
}

#[test]
fn solicited_arming_waits_for_a_solicited_completion() {
    let mut pair = Pair::new();
    pair.b.arm_cq(true);
    send(&mut pair, false);
    assert!(pair.b.poll_event().is_none());
    send(&mut pair, true);
    assert!(pair.b.poll_event().is_some());
    pair.b.arm_cq(true);
    assert!(pair.b.poll_event().is_some(), "the solicited completion is not yet consumed");
    pair.b.expect();
    pair.b.expect();
    pair.b.arm_cq(true);
    assert!(pair.b.poll_event().is_none());
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
    assert_eq!(pair.b.host.nic.counters().frames_foreign, 1, "nothing is heard over a dead link");
    let (nic, memory) = (&mut pair.b.host.nic, &mut pair.b.host.memory);
    nic.request_pages(memory, -2);
    let event = pair.b.poll_event().expect("a page event");
    let (data, _) = PageRequestEvent::read_from_prefix(&event.data()).unwrap();
    assert_eq!((event.kind(), data.num_pages() as i32), (EventType::PageRequest, -2));
}
