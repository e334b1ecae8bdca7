//! Shared receive queues between two drivers: which queue pair gets which receive, that none is lost, and
//! what software is told.

use bareverbs_core::MemoryRegion;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::memory_region::AccessFlags;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, PostError, QueuePairBuilder};
use bareverbs_core::shared_receive_queue::{
    ModifySharedReceiveQueueError, SharedReceiveQueue, SharedReceiveQueueAttributes,
    SharedReceiveQueueConfig, SharedReceiveQueueError, SharedReceiveQueueStatus,
};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_core::work_request::ReceiveRequest;
use bareverbs_prm::numbering::{CqeSyndrome, QpState};
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_tests::node::{NodeOptions, all_access};
use bareverbs_tests::shared::{Shared, SharedOptions};

fn shared() -> Shared {
    Shared::new(&SharedOptions::default())
}

#[track_caller]
fn succeeded(completion: &WorkCompletion) {
    assert!(completion.is_success(), "{completion:?}: {}", completion.status);
}

/// Sends one message and returns the receive that it consumed.
#[track_caller]
fn deliver(shared: &mut Shared, index: usize, bytes: &[u8]) -> WorkCompletion {
    shared.send(index, 1, bytes);
    succeeded(&shared.sent());
    let received = shared.received(index);
    succeeded(&received);
    assert_eq!(shared.bytes(&received), bytes);
    received
}

/// What message `number` of a sender says.
fn message(sender: usize, number: usize) -> Vec<u8> {
    let length = 1 + (number * 997 + sender * 131) % 4000;
    (0..length).map(|i| (i * 7 + number * 31 + sender * 101) as u8).collect()
}

/// Requirement: IBTA v1.4 §10.2.9: a shared receive queue serves all of its queue pairs; each message consumes one
/// receive, which completes at the message's queue pair, in that queue pair's order.
#[test]
fn many_queue_pairs_share_receives_under_loss() {
    const EACH: usize = 40;
    let node = NodeOptions { unforgiving: true, ..NodeOptions::default() };
    let connect = ConnectOptions { rnr_retry: 7, ..ConnectOptions::default() };
    let mut shared = Shared::new(&SharedOptions { node, connect, receives: 7, ..SharedOptions::default() });
    shared.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(0.03)));
    let mut next_id = 0;
    let mut free: Vec<u64> = (0..u64::from(shared.queue.capacity())).collect();
    let (mut received, mut sent) = ([0; 3], [0; 3]);
    let mut idle = [true; 3];
    while received.iter().sum::<usize>() < 3 * EACH {
        for piece in free.drain(..) {
            next_id = piece
                + u64::from(shared.queue.capacity()) * (next_id / u64::from(shared.queue.capacity()) + 1);
            shared.post(next_id);
        }
        for index in 0..3 {
            if idle[index] && sent[index] < EACH {
                shared.send(index, index as u64, &message(index, sent[index]));
                (idle[index], sent[index]) = (false, sent[index] + 1);
            }
        }
        let (index, completion) = shared.wait(|shared| {
            let receive = |(i, queue): (usize, &mut bareverbs_core::CompletionQueue<_>)| {
                queue.poll_one().expect("a completion that can be true").map(|completion| (i, completion))
            };
            shared.receives.iter_mut().enumerate().find_map(receive)
        });
        succeeded(&completion);
        assert_eq!(completion.qpn, shared.receivers[index].qpn());
        assert_eq!(shared.bytes(&completion), message(index, received[index]), "in the queue pair's order");
        received[index] += 1;
        free.push(completion.wr_id % u64::from(shared.queue.capacity()));
        let done = shared.sent();
        succeeded(&done);
        idle[done.wr_id as usize] = true;
    }
    assert!(
        shared.world.with(|world| world.link_counters(shared.a.id, shared.b.id)).is_ok_and(|c| c.lost > 0)
    );
    assert_eq!(shared.queue.outstanding(), shared.queue.capacity() - free.len() as u32);
}

/// Requirement: IBTA v1.4 §10.2.9.1: the limit event is raised when fewer receives than the limit are left, once until
/// the limit is armed again.
#[test]
fn the_limit_is_reached_once() {
    let mut shared = shared();
    (0..4).for_each(|id| shared.post(id));
    shared.queue.arm(3).unwrap();
    assert_eq!(shared.queue.query().unwrap(), SharedReceiveQueueStatus { limit: 3, works: true });
    deliver(&mut shared, 0, b"three are left");
    assert_eq!(shared.b.device.poll_event().unwrap(), None);
    deliver(&mut shared, 1, b"two are left");
    let reached = AsyncEvent::SharedReceiveQueueLimit { srqn: shared.queue.number() };
    assert_eq!(shared.event(), reached);
    assert_eq!(shared.queue.query().unwrap().limit, 0, "it disarmed");
    deliver(&mut shared, 2, b"one is left");
    assert_eq!(shared.b.device.poll_event().unwrap(), None);
    shared.queue.arm(2).unwrap();
    assert_eq!(shared.event(), reached, "at once, since fewer are left already");
}

/// Requirement: IBTA v1.4 §9.7.7.2.3: a message without a receive gets an RNR NAK and continues once a receive is posted;
/// an empty shared receive queue is no error.
#[test]
fn an_empty_queue_makes_senders_wait() {
    let connect = ConnectOptions { rnr_retry: 7, ..ConnectOptions::default() };
    let mut shared = Shared::new(&SharedOptions { connect, ..SharedOptions::default() });
    shared.send(0, 10, b"first");
    shared.send(1, 11, b"second");
    let later = shared.world.now() + Duration::from_millis(20);
    shared.world.run_until(later);
    assert_eq!(shared.sends.poll_one().unwrap(), None, "both wait");
    shared.post(7);
    let who = shared.wait(|shared| {
        (0..2).find_map(|index| {
            shared.receives[index].poll_one().unwrap().map(|completion| (index, completion))
        })
    });
    assert_eq!(shared.bytes(&who.1), [b"first".as_slice(), b"second"][who.0]);
    shared.post(8);
    let other = 1 - who.0;
    let completion = shared.received(other);
    assert_eq!(
        (completion.wr_id, shared.bytes(&completion)),
        (8, [b"first".to_vec(), b"second".to_vec()][other].clone())
    );
    [shared.sent(), shared.sent()].iter().for_each(succeeded);
    assert_eq!(shared.senders[0].query().unwrap().state, QpState::Rts);
}

/// Requirement: IBTA v1.4 §10.3.1: receives stay in the shared receive queue when a queue pair enters the error state,
/// and "last WQE reached" says that it consumes no more.
#[test]
fn a_queue_pair_in_error_leaves_the_receives_to_the_others() {
    let mut shared = shared();
    (0..4).for_each(|id| shared.post(id));
    shared.receivers[0].modify_to_error().unwrap();
    assert_eq!(shared.event(), AsyncEvent::LastReceiveReached { qpn: shared.receivers[0].qpn() });
    assert_eq!(shared.receives[0].poll_one().unwrap(), None, "receives of the shared queue are not flushed");
    assert_eq!(shared.queue.outstanding(), 4);
    assert_eq!(deliver(&mut shared, 1, b"still here").wr_id, 0);
    assert_eq!(deliver(&mut shared, 2, b"here too").wr_id, 1);
}

/// Requirement: IBTA v1.4 §10.3.1: when a queue pair enters the error state, the receive in progress is flushed before
/// "last WQE reached".
#[test]
fn a_receive_under_way_is_flushed_and_can_be_posted_again() {
    let mut shared = shared();
    shared.post(0);
    shared.post(1);
    let bytes = vec![5; 4000];
    shared.send(0, 1, &bytes);
    // The first packet of four has arrived when the receive is taken.
    let b = shared.b.id;
    let taken = |shared: &Shared| shared.world.with(|world| world.device(b).counters().frames_received);
    let before = taken(&shared);
    let end = shared.world.now() + Duration::from_millis(1);
    let world = shared.world.clone();
    world.run_while(|| taken(&shared) == before, end).unwrap();
    shared.receivers[0].modify_to_error().unwrap();
    let flushed = shared.received(0);
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (0, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed))
    );
    assert_eq!(shared.event(), AsyncEvent::LastReceiveReached { qpn: shared.receivers[0].qpn() });
    assert_eq!(shared.queue.outstanding(), 1);
    (2..u64::from(shared.queue.capacity()) + 1).for_each(|id| shared.post(id));
    assert_eq!(deliver(&mut shared, 1, b"the second").wr_id, 1);
}

/// Receives whose completions a reset throws away can be posted again.
#[test]
fn a_reset_gives_receives_back_whose_completions_nobody_polled() {
    let mut shared = shared();
    let capacity = shared.queue.capacity();
    (0..u64::from(capacity)).for_each(|id| shared.post(id));
    let sent = ["one", "two"].map(|text| {
        shared.send(0, 1, text.as_bytes());
        shared.sent()
    });
    sent.iter().for_each(succeeded);
    assert_eq!(shared.queue.outstanding(), capacity, "nothing was polled yet");
    let receiver = shared.receivers.remove(0);
    let prepared = receiver.reset(&mut shared.receives[0], None, AccessFlags::REMOTE_WRITE).unwrap();
    assert_eq!(shared.queue.outstanding(), capacity - 2);
    shared.post(100);
    shared.post(101);
    assert!(matches!(
        shared.queue.post_receive(&ReceiveRequest::new(102, &shared.buffer(102))),
        Err(PostError::QueueFull { .. })
    ));
    drop(prepared);
    shared.receives.remove(0);
    shared.senders.remove(0);
    assert_eq!(deliver(&mut shared, 0, b"the third").wr_id, 2);
}

/// Receives of a destroyed queue pair can be posted again as soon as their completions are thrown away.
#[test]
fn a_queue_pair_that_is_dropped_loses_no_receive() {
    let mut shared = shared();
    let capacity = shared.queue.capacity();
    (0..u64::from(capacity)).for_each(|id| shared.post(id));
    shared.send(0, 1, b"nobody will read this");
    succeeded(&shared.sent());
    drop(shared.receivers.remove(0));
    assert_eq!(shared.queue.outstanding(), capacity);
    assert_eq!(shared.receives[0].poll_one().unwrap(), None);
    assert_eq!(shared.receives[0].discarded(), 1);
    assert_eq!(shared.queue.outstanding(), capacity - 1);
    shared.post(100);
    assert_eq!(shared.queue.outstanding(), capacity);
}

/// Requirement: IBTA v1.4 §10.2.9: the key of a receive is looked up in the protection domain of the shared receive
/// queue, not in that of the queue pair.
#[test]
fn receives_are_of_the_domain_of_their_queue() {
    let mut shared = shared();
    let foreign = ProtectionDomain::allocate(shared.b.device.clone()).unwrap();
    let region = MemoryRegion::allocate(&foreign, 4096, all_access()).unwrap();
    let slices = [region.slice(0, 64).unwrap()];
    shared.queue.post_receive(&ReceiveRequest::new(1, &slices)).unwrap();
    shared.send(0, 9, b"to a foreign domain");
    let failed = shared.received(0);
    assert_eq!(
        (failed.wr_id, failed.status),
        (1, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection))
    );
    assert_eq!(shared.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteOperation));
}

#[test]
fn operations_that_mlx5_lacks_are_refused_with_the_reason() {
    let mut shared = shared();
    let capacity = shared.queue.capacity();
    assert_eq!(capacity, 15);
    let resize = SharedReceiveQueueAttributes { receives: Some(100), limit: Some(3) };
    assert_eq!(
        shared.queue.modify(&resize),
        Err(ModifySharedReceiveQueueError::Resize { asked: 100, capacity })
    );
    assert_eq!(shared.queue.query().unwrap().limit, 0, "nothing was changed");
    assert_eq!(shared.queue.arm(16), Err(ModifySharedReceiveQueueError::Limit { asked: 16, capacity }));
    let limit = SharedReceiveQueueAttributes { limit: Some(3), ..SharedReceiveQueueAttributes::default() };
    (0..4).for_each(|id| shared.post(id));
    shared.queue.modify(&limit).unwrap();
    assert_eq!(shared.queue.query().unwrap().limit, 3);
    let receive = shared.buffer(0);
    let refused = shared.receivers[0].post_receive(&ReceiveRequest::new(1, &receive));
    assert_eq!(refused, Err(PostError::NoReceiveQueue));
    for (receives, slices, name) in
        [(0, 1, "receives"), (1 << 15, 1, "receives"), (1, 0, "slices"), (1, 32, "slices")]
    {
        let config = SharedReceiveQueueConfig { receives, slices };
        let error = SharedReceiveQueue::create(&shared.b.domain, config).unwrap_err();
        assert!(matches!(error, SharedReceiveQueueError::Limit { name: n, .. } if n == name), "{error}");
    }
}

/// Entries of several slices, shorter ones and empty ones, over many laps of the ring.
#[test]
fn receives_of_several_slices() {
    let mut shared = shared();
    let config = SharedReceiveQueueConfig { receives: 3, slices: 3 };
    let queue = SharedReceiveQueue::create(&shared.b.domain, config).unwrap();
    shared.queue = queue;
    let completions = &shared.receives[0];
    let receiver = QueuePairBuilder::new(&shared.b.domain, completions, completions)
        .shared_receive_queue(&shared.queue)
        .build()
        .unwrap();
    let sender = QueuePairBuilder::new(&shared.a.domain, &shared.sends, &shared.sends).build().unwrap();
    let (sender, receiver) = bareverbs_tests::shared::connect(sender, receiver, &SharedOptions::default());
    (shared.senders[0], shared.receivers[0]) = (sender, receiver);
    for round in 0..20u64 {
        let slices = [3, 2, 1, 0].map(|count| -> Vec<_> {
            (0..count).map(|i| shared.target.slice(i * 100, 5).unwrap()).collect()
        });
        let slices = &slices[round as usize % 4];
        let mut batch = shared.queue.receive_batch();
        batch.post(&ReceiveRequest::new(round, slices)).unwrap();
        batch.ring();
        let bytes: Vec<u8> = (0..slices.len() * 5).map(|i| (i as u64 + round) as u8).collect();
        match bytes.len() {
            0 => shared.senders[0].post_send(&bareverbs_core::WorkRequest::send(1, &[])).unwrap(),
            _ => shared.send(0, 1, &bytes),
        }
        succeeded(&shared.sent());
        let received = shared.received(0);
        assert_eq!((received.wr_id, received.byte_count as usize), (round, bytes.len()));
        for (i, wanted) in bytes.chunks(5).enumerate() {
            let mut found = [0; 5];
            shared.target.copy_out(i * 100, &mut found).unwrap();
            assert_eq!(found, wanted);
        }
    }
}

/// A queue that is dropped before its queue pairs is destroyed after them.
#[test]
fn a_queue_outlives_its_queue_pairs_at_the_device() {
    let mut shared = shared();
    let device = shared.b.device.clone();
    let replacement = SharedReceiveQueueConfig::default();
    shared.queue = SharedReceiveQueue::create(&shared.b.domain, replacement).unwrap();
    assert_eq!(device.leaked_objects(), 0);
    drop(shared);
    assert_eq!(device.leaked_objects(), 0);
}
