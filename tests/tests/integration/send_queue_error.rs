//! SQE: with a service without acknowledgements, a bad request stops only the send queue, and one command
//! returns it to RTS (IBTA v1.4 §10.3.1.6). A reliable connection breaks instead.

use bareverbs_core::memory_region::MemorySlice;
use bareverbs_core::queue_pair::transitions::TransitionError;
use bareverbs_core::queue_pair::{ModifyError, QueuePairAttributes, Uc};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus as Status};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::{CqeSyndrome, QpState};
use bareverbs_prm::time::Duration;
use bareverbs_tests::datagrams::{Datagrams, Q_KEY};
use bareverbs_tests::node::NodeOptions;
use bareverbs_tests::pair::{Pair, PairOptions};

const NODE: NodeOptions = NodeOptions { ipv6: false, unforgiving: true, version_1: false };
const PROTECTION: Status = Status::Failed(CqeSyndrome::LocalProtection);
const FLUSHED: Status = Status::Failed(CqeSyndrome::WorkRequestFlushed);

/// A slice with a key that nobody has.
fn bad(slice: MemorySlice) -> [MemorySlice; 1] {
    [MemorySlice { lkey: Mkey::new(0x00ab_cd01), ..slice }]
}

fn statuses(completions: &[WorkCompletion]) -> Vec<(u64, Status)> {
    completions.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

/// Posts sends of host 0 to host 1 with these numbers; one of them is erroneous.
fn send(world: &mut Datagrams, numbers: std::ops::RangeInclusive<u64>, mistake: u64) {
    let to = world.way(0, 1).destination(world.hosts[1].queue_pair.qpn(), Q_KEY);
    let host = &mut world.hosts[0];
    let slice = host.memory.slice(0, 64).unwrap();
    let mut batch = host.queue_pair.send_batch();
    for number in numbers {
        let data = if number == mistake { bad(slice) } else { [slice] };
        batch.post_to(&WorkRequest::send(number, &data).immediate(number as u32), &to).unwrap();
    }
    batch.ring();
}

/// Requirement: IBTA v1.4 §10.3.1.6: a failed datagram send stops only the send queue: receives continue, and the
/// transition from SQE to RTS lets it send again.
#[test]
fn datagrams_stop_sending_and_go_on() {
    let mut world = Datagrams::new(2, 1, NODE);
    (0..4).for_each(|place| world.post_receive(1, 4096 + 256 * place, 256));
    send(&mut world, 1..=4, 2);
    assert_eq!(statuses(&world.sent(0)), [(1, Status::Success), (2, PROTECTION), (3, FLUSHED), (4, FLUSHED)]);
    assert_eq!(world.hosts[0].queue_pair.query().unwrap().state, QpState::SqError);
    assert_eq!(world.hosts[0].queue_pair.sends_outstanding(), 0);
    let arrived = |world: &mut Datagrams| -> Vec<_> {
        world.received(1).iter().map(|received| received.immediate).collect()
    };
    assert_eq!(arrived(&mut world), [Some(1)], "flushed requests were never sent");

    // Sends posted meanwhile are flushed; messages that arrive are received.
    send(&mut world, 5..=5, 0);
    assert_eq!(statuses(&world.sent(0)), [(5, FLUSHED)]);
    world.post_receive(0, 8192, 256);
    let back = world.way(1, 0).destination(world.hosts[0].queue_pair.qpn(), Q_KEY);
    world.hosts[1].queue_pair.post_send_to(&WorkRequest::send_inline(1, b"still there"), &back).unwrap();
    let [received] = world.received(0)[..] else { panic!("one receive") };
    assert!(received.is_success(), "{}", received.status);
    assert_eq!(world.bytes(0, 8192 + 40, 11), b"still there");

    let key = QueuePairAttributes { q_key: Some(Q_KEY), ..QueuePairAttributes::default() };
    world.hosts[0].queue_pair.modify(QpState::Rts, &key).unwrap();
    assert_eq!(world.hosts[0].queue_pair.query().unwrap().state, QpState::Rts);
    send(&mut world, 6..=7, 0);
    assert_eq!(statuses(&world.sent(0)), [(6, Status::Success), (7, Status::Success)]);
    assert_eq!(arrived(&mut world), [Some(6), Some(7)]);
    send(&mut world, 8..=8, 8);
    assert_eq!(statuses(&world.sent(0)), [(8, PROTECTION)]);
    world.hosts[0].queue_pair.resume().unwrap();
    send(&mut world, 9..=9, 0);
    assert_eq!(statuses(&world.sent(0)), [(9, Status::Success)]);
}

/// Requirement: IBTA v1.4 §10.3.1.6: a failed send of an unreliable connection stops only the send queue: receives
/// continue, and the transition from SQE to RTS lets it send again.
#[test]
fn an_unreliable_connection_stops_sending_and_goes_on() {
    let mut pair = Pair::<Uc>::of_service(&PairOptions { node: NODE, ..PairOptions::default() });
    for id in 0..3 {
        let slice = [pair.b.memory.slice(id * 4096, 4096).unwrap()];
        pair.b.queue_pair.post_receive(&ReceiveRequest::new(id as u64, &slice)).unwrap();
    }
    // The message before the erroneous one has several packets.
    let slice = pair.a.memory.slice(0, 4000).unwrap();
    let mut batch = pair.a.queue_pair.send_batch();
    batch.post(&WorkRequest::send(1, &[slice]).signalled(false)).unwrap();
    batch.post(&WorkRequest::send(2, &bad(slice)).signalled(false)).unwrap();
    batch.post(&WorkRequest::send(3, &[slice]).signalled(false)).unwrap();
    batch.ring();
    let ends = [pair.sent(), pair.sent()];
    assert_eq!(statuses(&ends), [(2, PROTECTION), (3, FLUSHED)], "unsignalled failures complete");
    assert_eq!(pair.received().byte_count, 4000);
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::SqError);

    pair.a.queue_pair.post_receive(&ReceiveRequest::new(9, &[slice])).unwrap();
    // An unreliable sender cannot be asked to wait for the receive, so it must be visible first.
    let posted = pair.world.now() + Duration::from_micros(1);
    pair.world.run_until(posted);
    pair.b.queue_pair.post_send(&WorkRequest::send_inline(1, b"still there")).unwrap();
    let received = pair.wait(|pair| pair.a.receives.poll_one().unwrap());
    assert_eq!((received.wr_id, received.byte_count, received.is_success()), (9, 11, true));

    pair.a.queue_pair.resume().unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::send(4, &[slice])).unwrap();
    assert_eq!(statuses(&[pair.sent()]), [(4, Status::Success)]);
    let received = pair.received();
    assert_eq!((received.wr_id, received.byte_count, received.is_success()), (1, 4000, true));
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::Rts);
}

/// Requirement: IBTA v1.4 §10.3.1.6: a reliable connection is never in SQE: a failed send breaks the whole connection,
/// receives included.
#[test]
fn a_reliable_connection_breaks() {
    let mut pair = Pair::new(&PairOptions { node: NODE, ..PairOptions::default() });
    let slice = pair.a.memory.slice(0, 64).unwrap();
    pair.a.queue_pair.post_receive(&ReceiveRequest::new(9, &[slice])).unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &bad(slice))).unwrap();
    assert_eq!(pair.sent().status, PROTECTION);
    assert_eq!(pair.a.queue_pair.query().unwrap().state, QpState::Error);
    let flushed = pair.wait(|pair| pair.a.receives.poll_one().unwrap());
    assert_eq!(statuses(&[flushed]), [(9, FLUSHED)]);
    let (from, to) = (QpState::Error, QpState::Rts);
    assert_eq!(
        pair.a.queue_pair.resume(),
        Err(ModifyError::Transition(TransitionError::NoSuchTransition { from, to }))
    );
}
