//! Shared receive queues against plain memory: bytes that go to the device, completions that the test wrote, a device that
//! lies.

mod support;

use bareverbs::completion_queue::PollError;
use bareverbs::queue_pair::PostError;
use bareverbs::{MemorySlice, QueuePair, ReceiveRequest, SharedReceiveQueue};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::wqe::DataSegment;
use support::objects::{Handle, Rig, Shape};
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
        assert!(bytes[..2].iter().chain(&bytes[4..16]).all(|&byte| byte == 0), "reserved");
        let data = DataSegment::read_from_bytes(&bytes[16..]).unwrap();
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
fn what_a_device_says_of_shared_receives_is_checked() {
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
