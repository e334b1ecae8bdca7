//! Shared receive queues against plain memory: bytes that go to the device, completions that the test wrote, a device that
//! lies.

use crate::support::objects::{Handle, Rig, Shape, rights};
use bareverbs_core::completion_queue::PollError;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{
    MemorySlice, QueuePair, QueuePairBuilder, ReceiveRequest, SharedReceiveQueue, WorkCompletion,
};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::wqe::{DataSegment, SharedReceiveSegment};
use zerocopy::FromBytes;

/// A queue of three receives and its queue pair.
fn rig() -> (SharedReceiveQueue<Handle>, QueuePair<Handle>, Rig) {
    let rig = Rig::new(Shape::default());
    let (queue, pair) = rig.share(3);
    (queue, pair, rig)
}

/// A completion of `entry` at the queue pair.
fn completion(rig: &Rig, pair: &QueuePair<Handle>, entry: u16) -> CompletionEntry {
    let user_index = rig.hal.firmware().pairs[&pair.qpn().value()].context.user_index();
    let mut completion = rig.entry(CqeOpcode::ResponderSend, entry);
    completion.set_qpn(pair.qpn()).set_user_index(user_index).set_byte_count(5);
    completion
}

fn slice(at: u64) -> [MemorySlice; 1] {
    [MemorySlice::from_raw(at, 64, bareverbs_prm::ids::Mkey::new(0x1234))]
}

#[test]
fn an_entry_names_the_next_one_and_then_its_slices() {
    let (mut queue, _pair, rig) = rig();
    for id in 0..3u64 {
        queue.post_receive(&ReceiveRequest::new(id, &slice(0x1000 * (id + 1)))).unwrap();
        let (bytes, next) = rig.shared_bytes(&queue, id as u16);
        assert_eq!((bytes.len(), next), (32, id as u16 + 1));
        let (link, data) = SharedReceiveSegment::ref_from_prefix(&bytes).unwrap();
        assert_eq!(link, SharedReceiveSegment::new().set_next_wqe_index(next), "all else is reserved");
        let data = DataSegment::read_from_bytes(data).unwrap();
        assert_eq!((data.byte_count(), data.lkey().value(), data.address()), (64, 0x1234, 0x1000 * (id + 1)));
        let firmware = rig.hal.firmware();
        let record = firmware.pools[&queue.number().value()].context.wq().dbr_addr();
        assert_eq!(rig.hal.world.memory.read(record, 4), (id as u32 + 1).to_be_bytes());
    }
    let full = queue.post_receive(&ReceiveRequest::new(9, &slice(0)));
    assert_eq!(full, Err(PostError::QueueFull { needed: 1, size: 3 }));
}

#[test]
fn entries_come_back_in_any_order() {
    let (mut queue, pair, mut rig) = rig();
    (0..3).for_each(|id| queue.post_receive(&ReceiveRequest::new(id, &slice(0x1000))).unwrap());
    rig.complete_receive(completion(&rig, &pair, 1));
    let found = rig.receive.poll_one().unwrap().unwrap();
    assert_eq!((found.wr_id, found.byte_count, found.qpn), (1, 5, pair.qpn()));
    // The last one that was posted names entry 3; behind it comes the one that came back.
    queue.post_receive(&ReceiveRequest::new(7, &slice(0x2000))).unwrap();
    assert_eq!(rig.shared_bytes(&queue, 3).1, 1);
    for (entry, id) in [(3, 7), (0, 0), (2, 2)] {
        rig.complete_receive(completion(&rig, &pair, entry));
        assert_eq!(rig.receive.poll_one().unwrap().map(|found| found.wr_id), Some(id));
    }
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn the_devices_reports_of_shared_receives_are_checked() {
    let (mut queue, pair, mut rig) = rig();
    queue.post_receive(&ReceiveRequest::new(4, &slice(0x1000))).unwrap();
    for entry in [1, 4, 0xffff] {
        rig.complete_receive(completion(&rig, &pair, entry));
        let refused = rig.receive.poll_one();
        assert_eq!(refused, Err(PollError::NotOutstanding { qpn: pair.qpn(), counter: entry }));
    }
    let elsewhere = completion(&rig, &pair, 0);
    rig.complete_send(elsewhere);
    assert_eq!(rig.send.poll_one(), Ok(None), "not the completion queue of its receives");
    assert_eq!((rig.send.discarded(), rig.send.number() == Cqn::default()), (1, false));
    rig.complete_receive(completion(&rig, &pair, 0));
    rig.complete_receive(completion(&rig, &pair, 0));
    assert_eq!(rig.receive.poll_one().unwrap().map(|found| found.wr_id), Some(4));
    let twice = rig.receive.poll_one();
    assert_eq!(twice, Err(PollError::NotOutstanding { qpn: pair.qpn(), counter: 0 }));
}

#[test]
fn many_completions_of_several_pairs_in_one_call() {
    let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
    let (mut queue, first) = rig.share(31);
    let second = attached(&rig, &queue);
    post_own(&mut rig);
    let mut head = 0;
    for round in 0..5u64 {
        // The device takes entries in the order of the list; completions are in the order of the messages.
        let mut posted = vec![];
        for id in 0..20 {
            queue.post_receive(&ReceiveRequest::new(100 * round + id, &slice(0x1000))).unwrap();
            posted.push((100 * round + id, head));
            head = rig.shared_bytes(&queue, head).1;
        }
        posted.rotate_left(round as usize);
        posted.swap(3, 17);
        for (index, &(_, entry)) in posted.iter().enumerate() {
            let pair = if index % 7 < 4 { &first } else { &second };
            rig.complete_receive(completion(&rig, pair, entry));
        }
        // One of a queue of its own in between.
        rig.complete_receive(rig.entry(CqeOpcode::ResponderSend, round as u16));
        let mut found = [WorkCompletion::EMPTY; 32];
        let alone = rig.receive.poll(&mut found[..1]).unwrap();
        let count = alone + rig.receive.poll(&mut found[1..]).unwrap();
        let ids: Vec<u64> = found[..count].iter().map(|done| done.wr_id).collect();
        let wanted: Vec<u64> = posted.iter().map(|&(id, _)| id).chain([7000 + round]).collect();
        assert_eq!(ids, wanted);
        for (index, done) in found[..20].iter().enumerate() {
            assert_eq!(done.qpn, if index % 7 < 4 { first.qpn() } else { second.qpn() });
        }
        assert_eq!((found[20].qpn, queue.outstanding()), (rig.pair.qpn(), 0));
    }
}

/// Another queue pair that receives from `queue`.
fn attached(rig: &Rig, queue: &SharedReceiveQueue<Handle>) -> QueuePair<Handle> {
    QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive)
        .shared_receive_queue(queue)
        .build()
        .unwrap()
        .connect(&crate::support::objects::peer(), Default::default())
        .unwrap()
}

/// Receives in the queue of the pair that has one of its own.
fn post_own(rig: &mut Rig) {
    (7000..7008).for_each(|id| rig.pair.post_receive(&ReceiveRequest::new(id, &slice(0x1000))).unwrap());
}

#[test]
fn invalid_completions_among_many_are_reported_and_the_others_retire() {
    let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
    let (mut queue, pair) = rig.share(7);
    (0..7).for_each(|id| queue.post_receive(&ReceiveRequest::new(id, &slice(0x1000))).unwrap());
    for entry in [2, 0, 2, 1, 7, 3] {
        rig.complete_receive(completion(&rig, &pair, entry));
    }
    let mut liar = completion(&rig, &pair, 4);
    liar.set_qpn(bareverbs_prm::ids::Qpn::from_low_bits(0x77));
    rig.complete_receive(liar);
    rig.complete_receive(completion(&rig, &pair, 4));
    let mut found = [WorkCompletion::EMPTY; 16];
    let refused = |counter| Err(PollError::NotOutstanding { qpn: pair.qpn(), counter });
    assert_eq!(rig.receive.poll(&mut found), Ok(2));
    assert_eq!(rig.receive.poll(&mut found), refused(2));
    assert_eq!(rig.receive.poll(&mut found), Ok(1));
    assert_eq!(rig.receive.poll(&mut found), refused(7));
    assert_eq!(rig.receive.poll(&mut found), Ok(2), "a number of another queue pair is a stranger's");
    assert_eq!((found[0].wr_id, found[1].wr_id, rig.receive.discarded()), (3, 4, 1));
    assert_eq!(queue.outstanding(), 2);
    // Five came back.
    let again =
        (10..).take_while(|&id| queue.post_receive(&ReceiveRequest::new(id, &slice(0))).is_ok()).count();
    assert_eq!(again, 5);
}

#[test]
fn completions_of_a_closed_queue_pair_are_discarded_among_others() {
    let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
    let (mut queue, first) = rig.share(7);
    let second = attached(&rig, &queue);
    (0..6).for_each(|id| queue.post_receive(&ReceiveRequest::new(id, &slice(0x1000))).unwrap());
    for (pair, entry) in [(&first, 0), (&second, 1)] {
        rig.complete_receive(completion(&rig, pair, entry));
        assert_eq!(rig.receive.poll_one().unwrap().map(|done| done.wr_id), Some(entry as u64));
    }
    for (pair, entry) in [(&second, 2), (&first, 3), (&second, 4), (&first, 5)] {
        rig.complete_receive(completion(&rig, pair, entry));
    }
    drop(second);
    let mut found = [WorkCompletion::EMPTY; 8];
    assert_eq!(rig.receive.poll(&mut found), Ok(2));
    assert_eq!((found[0].wr_id, found[1].wr_id, rig.receive.discarded()), (3, 5, 2));
    assert_eq!(queue.outstanding(), 0, "their entries came back");
}

/// The completions of a queue pair that is reset are thrown away, and the receives that they took come back. Those of others
/// stay.
#[test]
fn a_reset_gives_shared_receives_back() {
    let (mut queue, first, mut rig) = rig();
    let second = attached(&rig, &queue);
    (0..3).for_each(|id| queue.post_receive(&ReceiveRequest::new(id, &slice(0x1000))).unwrap());
    for (entry, pair) in [(0, &first), (1, &second), (2, &first)] {
        rig.complete_receive(completion(&rig, pair, entry));
    }
    assert_eq!(queue.outstanding(), 3);
    let _first = first.reset(&mut rig.send, Some(&mut rig.receive), rights()).unwrap();
    assert_eq!(queue.outstanding(), 1);
    let mut found = [WorkCompletion::EMPTY; 4];
    assert_eq!(rig.receive.poll(&mut found), Ok(1));
    assert_eq!((found[0].wr_id, found[0].qpn, rig.receive.discarded()), (1, second.qpn(), 2));
    assert_eq!(queue.outstanding(), 0);
}
