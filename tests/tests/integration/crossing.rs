//! Mistakes between devices: objects of two devices, a device that is opened twice, a receive that the peer
//! never posted; and a reset while many objects exist.

use bareverbs_core::completion_queue::CompletionQueueError;
use bareverbs_core::device::OpenCause;
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::{BuildError, Suspect};
use bareverbs_core::{
    CompletionChannel, CompletionQueue, CompletionQueueConfig, ConnectOptions, CounterSet, Device,
    DeviceConfig, ProtectionDomain, QueuePair, QueuePairBuilder, SharedReceiveQueue,
    SharedReceiveQueueConfig, WorkRequest,
};
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_tests::node::{Handle, Node, NodeOptions};
use bareverbs_tests::pair::{Pair, PairOptions};
use std::rc::Rc;

fn pair() -> Pair {
    Pair::new(&PairOptions { seed: 81, depth: 32, memory: 4096, ..PairOptions::default() })
}

#[test]
fn objects_of_two_devices_do_not_mix() {
    let pair = pair();
    let (ours, theirs) = (&pair.a, &pair.b.node);
    let stranger = |object| Some(BuildError::OtherDevice { object });
    let domain = &ours.node.domain;
    let built = QueuePairBuilder::new(domain, &pair.b.sends, &ours.sends).build().err();
    assert_eq!(built, stranger("the completion queue of sends"));
    let built = QueuePairBuilder::new(domain, &ours.sends, &pair.b.sends).build().err();
    assert_eq!(built, stranger("the completion queue of receives"));
    let counters = CounterSet::create(theirs.device.clone()).unwrap();
    let built = QueuePairBuilder::new(domain, &ours.sends, &ours.sends).counter_set(&counters).build().err();
    assert_eq!(built, stranger("the counter set"));
    let shared = SharedReceiveQueue::create(&theirs.domain, SharedReceiveQueueConfig::default()).unwrap();
    let built =
        QueuePairBuilder::new(domain, &ours.sends, &ours.sends).shared_receive_queue(&shared).build().err();
    assert_eq!(built, stranger("the shared receive queue"));
    let channel = CompletionChannel::create(theirs.device.clone(), 1, 2).unwrap();
    let queue = CompletionQueue::builder(ours.node.device.clone()).channel(&channel).create().err();
    assert_eq!(queue, Some(CompletionQueueError::OtherDevice));
    assert!(built.unwrap().to_string().contains("make everything from the same handle"));
}

#[test]
fn opening_a_device_twice_is_refused() {
    let pair = pair();
    let error = Device::open(pair.a.node.device.hal().clone(), DeviceConfig::default()).unwrap_err();
    assert!(matches!(error.cause, OpenCause::AlreadyOpen(_)), "{error}");
    assert!(error.to_string().contains("the device is open already"), "{error}");
}

/// A SEND to a peer that posted no receive neither completes nor fails; the diagnosis says why.
#[test]
fn a_missing_receive_shows_in_the_diagnosis() {
    let mut pair = pair();
    assert!(pair.a.queue_pair.diagnose().unwrap().suspects().all(|suspect| !is_receive(&suspect)));
    pair.a.queue_pair.post_send(&WorkRequest::send_inline(1, &[1; 8])).unwrap();
    let deadline = pair.world.now() + Duration::from_secs(1);
    pair.a.sends.wait_one(deadline).unwrap_err();
    let diagnosis = pair.a.queue_pair.diagnose().unwrap();
    assert!(diagnosis.suspects().any(|suspect| is_receive(&suspect)), "{diagnosis}");
    assert!(diagnosis.to_string().contains("if the peer has posted no receive"), "{diagnosis}");
}

/// Requests over a cable that was never plugged in fail after their retries, and the diagnosis says why. With
/// the cable it reports nothing.
#[test]
fn a_cable_that_was_never_plugged_in_shows_in_the_diagnosis() {
    let world = SimWorld::new(83);
    let ends = [1, 2].map(|number| (number, Node::add(&world, number, NodeOptions::default())));
    let nodes = ends.map(|(number, id)| Node::open(&world, id, number, NodeOptions::default()));
    let [mut sends, receives] = [&nodes[0], &nodes[1]].map(|node| node.completion_queue(16));
    let here = QueuePairBuilder::new(&nodes[0].domain, &sends, &sends).build().unwrap();
    let there = QueuePairBuilder::new(&nodes[1].domain, &receives, &receives).build().unwrap();
    let options = ConnectOptions { retry_count: 1, ack_timeout: 8, ..ConnectOptions::default() };
    let mut queue_pair = here.connect(&there.endpoint(0).unwrap(), options).unwrap();
    let is_down = |queue_pair: &mut QueuePair<Handle>| {
        let diagnosis = queue_pair.diagnose().unwrap();
        diagnosis.suspects().any(|suspect| matches!(suspect, Suspect::PortDown(_)))
    };
    assert!(is_down(&mut queue_pair));
    queue_pair.post_send(&WorkRequest::send_inline(1, &[1; 8])).unwrap();
    let failed = sends.wait_one(world.now() + Duration::from_secs(1)).unwrap();
    assert!(failed.into_result().is_err());
    let text = queue_pair.diagnose().unwrap().to_string();
    assert!(text.contains("plug the cable in"), "{text}");
    world.connect(ends[0].1, ends[1].1, LinkConfig::gigabits(100)).unwrap();
    assert!(!is_down(&mut queue_pair));
}

fn is_receive(suspect: &Suspect) -> bool {
    matches!(suspect, Suspect::WaitsForReceive { .. })
}

/// 1,000 queue pairs, their completion queues and regions: after somebody else resets the device, dropping
/// all of them takes no time.
#[test]
fn a_thousand_queue_pairs_of_a_lost_device_are_dropped_at_once() {
    let world = SimWorld::new(82);
    let id = Node::add(&world, 1, NodeOptions::default());
    let config = DeviceConfig { queue_pairs: 1024, ledger_words: 1 << 16, ..DeviceConfig::default() };
    let device: Handle = Rc::new(Device::open(world.hal(id), config).unwrap());
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    let queues: Vec<_> = (0..100)
        .map(|_| CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 64 }).unwrap())
        .collect();
    let access = bareverbs_core::AccessFlags::LOCAL_WRITE;
    let regions: Vec<_> =
        (0..100).map(|_| bareverbs_core::MemoryRegion::allocate(&domain, 4096, access).unwrap()).collect();
    let queue_pairs: Vec<_> = (0..1000)
        .map(|number: usize| {
            let queue = &queues[number % queues.len()];
            QueuePairBuilder::new(&domain, queue, queue).send_queue(4).receive_queue(4).build().unwrap()
        })
        .collect();
    world.with(|world| world.with_device(id, |nic, _, now| nic.reset(now)));
    let start = device.hal().now();
    drop((queue_pairs, regions, queues, domain, device));
    let taken = world.now().since(start);
    assert!(taken < Duration::from_millis(100), "{taken}");
}
