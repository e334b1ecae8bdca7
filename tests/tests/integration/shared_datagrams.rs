//! Unreliable datagrams received from a shared receive queue, with two drivers in one world.

use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::queue_pair::{QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_tests::datagrams::{Datagrams, Q_KEY};
use bareverbs_tests::node::{Handle, NodeOptions};

/// Bytes of a receive, and of its piece of the memory.
const PIECE: usize = 512;
const RECEIVES: u32 = 7;

/// Two queue pairs of host 1 that share a receive queue, each with a completion queue. Fields are dropped in order.
struct Sharers {
    queue_pairs: Vec<QueuePair<Handle, Ud>>,
    queue: SharedReceiveQueue<Handle>,
    completions: Vec<CompletionQueue<Handle>>,
    world: Datagrams,
}

impl Sharers {
    fn new(options: NodeOptions) -> Self {
        let world = Datagrams::new(2, 1, options);
        let node = &world.hosts[1].node;
        let config = SharedReceiveQueueConfig { receives: RECEIVES, slices: 1 };
        let queue = SharedReceiveQueue::create(&node.domain, config).unwrap();
        let completions: Vec<_> = (0..2).map(|_| node.completion_queue(64)).collect();
        let build = |completions| {
            let builder = QueuePairBuilder::new(&node.domain, &world.hosts[1].sends, completions);
            let builder = builder.shared_receive_queue(&queue).service::<Ud>().q_key(Q_KEY);
            builder.build().unwrap().ready_to_send().unwrap()
        };
        let queue_pairs = completions.iter().map(build).collect();
        Self { queue_pairs, queue, completions, world }
    }

    /// Posts receives with the numbers of their pieces.
    fn post(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let slice = [self.world.hosts[1].memory.slice(number * PIECE, PIECE).unwrap()];
            self.queue.post_receive(&ReceiveRequest::new(number as u64, &slice)).unwrap();
        }
    }

    /// Host 0 sends a few bytes with the value `number` to one of them.
    fn send(&mut self, to: usize, number: u8) {
        let destination = self.world.way(0, 1).destination(self.queue_pairs[to].qpn(), Q_KEY);
        let payload = [number; 20];
        let request = WorkRequest::send_inline(1, &payload).immediate(number.into());
        self.world.hosts[0].queue_pair.post_send_to(&request, &destination).unwrap();
        assert!(self.world.sent(0)[0].is_success());
    }

    /// The receives that one of them has completed, and the numbers in them.
    fn received(&mut self, at: usize) -> Vec<(u64, u8)> {
        self.world.settle();
        let queue = &mut self.completions[at];
        let all: Vec<WorkCompletion> = std::iter::from_fn(|| queue.poll_one().unwrap()).collect();
        let look = |received: &WorkCompletion| {
            assert!(received.is_success(), "{}", received.status);
            assert_eq!(received.qpn, self.queue_pairs[at].qpn());
            assert_eq!(received.origin.qpn(), self.world.hosts[0].queue_pair.qpn());
            assert_eq!(received.byte_count as usize, ROUTE_HEADER + 20);
            let payload = self.world.bytes(1, received.wr_id as usize * PIECE + ROUTE_HEADER, 21);
            assert!(payload[..20].iter().all(|byte| *byte == payload[0]) && payload[20] == 0);
            assert_eq!(received.immediate, Some(payload[0].into()));
            (received.wr_id, payload[0])
        };
        all.iter().map(look).collect()
    }
}

const OPTIONS: [NodeOptions; 2] = [
    NodeOptions { ipv6: false, unforgiving: true, version_1: false },
    NodeOptions { ipv6: true, unforgiving: true, version_1: false },
];

/// Requirement: IBTA v1.4 §10.2.9: a shared receive queue serves datagram queue pairs; each receive has its route header
/// and its own completion.
#[test]
fn datagrams_take_receives_that_are_shared() {
    for options in OPTIONS {
        let mut sharers = Sharers::new(options);
        sharers.post(0..4);
        for (to, number) in [(0, 11), (1, 12), (1, 13), (0, 14)] {
            sharers.send(to, number);
        }
        assert_eq!(sharers.received(0), [(0, 11), (3, 14)]);
        assert_eq!(sharers.received(1), [(1, 12), (2, 13)]);
        assert_eq!(sharers.queue.outstanding(), 0);
    }
}

/// Requirement: IBTA v1.4 §9.8.3: a datagram that finds the shared receive queue empty is dropped, and later ones arrive.
#[test]
fn an_empty_shared_queue_loses_datagrams_and_tells_its_limit() {
    let mut sharers = Sharers::new(OPTIONS[0]);
    sharers.post(0..2);
    sharers.queue.arm(2).unwrap();
    for (to, number) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        sharers.send(to, number);
    }
    assert_eq!((sharers.received(0), sharers.received(1)), (vec![(0, 1)], vec![(1, 2)]));
    let event = sharers.world.hosts[1].node.device.poll_event().unwrap();
    assert_eq!(event, Some(AsyncEvent::SharedReceiveQueueLimit { srqn: sharers.queue.number() }));
    sharers.post(2..3);
    sharers.send(1, 5);
    assert_eq!((sharers.received(0), sharers.received(1)), (vec![], vec![(2, 5)]));
}

/// Requirement: IBTA v1.4 §10.2.9.5: a failing datagram queue pair leaves the shared receives to the others.
#[test]
fn a_queue_pair_of_datagrams_that_fails_leaves_receives_to_the_other() {
    let mut sharers = Sharers::new(OPTIONS[0]);
    sharers.post(0..2);
    sharers.queue_pairs[0].modify_to_error().unwrap();
    let event = sharers.world.hosts[1].node.device.poll_event().unwrap();
    assert_eq!(event, Some(AsyncEvent::LastReceiveReached { qpn: sharers.queue_pairs[0].qpn() }));
    sharers.send(0, 1);
    sharers.send(1, 2);
    assert_eq!((sharers.received(0), sharers.received(1)), (vec![], vec![(0, 2)]));
    assert_eq!(sharers.queue.outstanding(), 1);
}
