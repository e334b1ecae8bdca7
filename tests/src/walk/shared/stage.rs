//! The hosts of a walk over shared receive queues: three reliable connections, two extended ones, three queues.

use crate::node::{Handle, Node, NodeOptions, all_access};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::queue_pair::{
    ConnectOptions, Connected, PostError, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, XrcInitiator,
    XrcTarget,
};
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_core::xrc_domain::XrcDomain;
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::net::fault::{Chance, RandomFaults};
use bareverbs_sim::nic::Nic;

/// Number of reliable connections, which receive from queue 0. The lanes after them are extended connections.
const RELIABLE: usize = 3;
/// Connections.
pub const LANES: usize = RELIABLE + 2;
/// Shared receive queues: one for the reliable connections, the others for XRC.
pub const QUEUES: usize = 3;
/// Receives that a queue holds.
const RECEIVES: u32 = 15;
/// Most bytes of a message.
pub const PIECE: usize = 3000;
/// Pieces of memory of a queue and of a lane. They are reused in turn: no message is still in flight after
/// this many later ones.
const PIECES: u64 = 64;

/// Everything. Fields are dropped in order.
pub struct Stage {
    reliable: Vec<Option<(QueuePair<Handle>, QueuePair<Handle>)>>,
    extended: Vec<(QueuePair<Handle, XrcInitiator>, QueuePair<Handle, XrcTarget>)>,
    pub queues: Vec<SharedReceiveQueue<Handle>>,
    /// Of the reliable lanes, then of the queues of XRC.
    pub completions: Vec<CompletionQueue<Handle>>,
    sends: CompletionQueue<Handle>,
    source: MemoryRegion<Handle>,
    memory: Vec<MemoryRegion<Handle>>,
    _domains: [XrcDomain<Handle>; 2],
    a: Node,
    b: Node,
    /// Messages of a lane, and receives of a queue.
    sent: [u64; LANES],
    posted: [u64; QUEUES],
    pub world: SimWorld<Nic>,
}

fn connect<S: Connected, T: Connected>(
    a: PreparedQueuePair<Handle, S>,
    b: PreparedQueuePair<Handle, T>,
) -> (QueuePair<Handle, S>, QueuePair<Handle, T>) {
    let options = ConnectOptions { rnr_retry: 7, ..ConnectOptions::default() };
    let (of_a, of_b) = (a.endpoint(0).expect("an address"), b.endpoint(0).expect("an address"));
    (a.connect(&of_b, options).expect("a path"), b.connect(&of_a, options).expect("a path"))
}

impl Stage {
    pub fn new(seed: u64, loss: u32) -> Self {
        let world = SimWorld::new(seed);
        let node = NodeOptions { ipv6: seed % 2 == 1, unforgiving: false, ..NodeOptions::default() };
        let ids = [1, 2].map(|number| Node::add(&world, number, node));
        world.connect(ids[0], ids[1], LinkConfig::gigabits(100)).expect("two free ports");
        let [a, b] = [0, 1].map(|i| Node::open(&world, ids[i], i as u8 + 1, node));
        let domains = [&a, &b].map(|node| XrcDomain::allocate(node.device.clone()).expect("an XRC domain"));
        let sends = a.completion_queue(256);
        let completions: Vec<_> = (0..RELIABLE + QUEUES - 1).map(|_| b.completion_queue(64)).collect();
        let config = SharedReceiveQueueConfig { receives: RECEIVES, slices: 1 };
        let extended_queue =
            |at: usize| SharedReceiveQueue::create_xrc(&b.domain, &domains[1], &completions[at], config);
        let basic = SharedReceiveQueue::create(&b.domain, config).expect("a queue");
        let mut queues = vec![basic];
        queues.extend((RELIABLE..completions.len()).map(|at| extended_queue(at).expect("a queue of XRC")));
        // The context has to name a queue, although an initiator receives nothing.
        let named = SharedReceiveQueue::create_xrc(&a.domain, &domains[0], &sends, config).expect("a queue");
        let reliable = (0..RELIABLE).map(|lane| {
            let sender = QueuePairBuilder::new(&a.domain, &sends, &sends).receive_queue(0).build();
            let at = &completions[lane];
            let receiver = QueuePairBuilder::new(&b.domain, at, at).shared_receive_queue(&queues[0]).build();
            Some(connect(sender.expect("a sender"), receiver.expect("a receiver")))
        });
        let reliable = reliable.collect();
        let extended = (RELIABLE..LANES).map(|_| {
            let initiator = QueuePairBuilder::xrc_initiator(&a.domain, &domains[0], &named, &sends).build();
            let at = &completions[RELIABLE];
            let target = QueuePairBuilder::xrc_target(&b.domain, &domains[1], &queues[1], at).build();
            connect(initiator.expect("an initiator"), target.expect("a target"))
        });
        let extended = extended.collect();
        let source = a.memory(LANES * PIECES as usize * PIECE, all_access());
        let memory = (0..QUEUES).map(|_| b.memory(PIECES as usize * PIECE, all_access())).collect();
        world.with(|world| world.set_random_faults_everywhere(faults(loss)));
        let (_domains, sent, posted) = (domains, [0; LANES], [0; QUEUES]);
        Self {
            reliable,
            extended,
            queues,
            completions,
            sends,
            source,
            memory,
            _domains,
            a,
            b,
            sent,
            posted,
            world,
        }
    }

    pub const fn is_extended(lane: usize) -> bool {
        lane >= RELIABLE
    }

    /// The queue whose receives complete into completion queue `at`.
    pub const fn queue_of(at: usize) -> usize {
        if at < RELIABLE { 0 } else { at - RELIABLE + 1 }
    }

    pub fn lane_of(&self, receiver: Qpn) -> Option<usize> {
        let reliable = self.reliable.iter().flatten().position(|(_, qp)| qp.qpn() == receiver);
        let extended = self.extended.iter().position(|(_, qp)| qp.qpn() == receiver);
        reliable.or(extended.map(|index| index + RELIABLE))
    }

    /// Sends a message with the lane's number.
    pub fn send(&mut self, lane: usize, queue: usize, data: &[u8]) {
        self.sent[lane] += 1;
        let at = (lane as u64 * PIECES + self.sent[lane] % PIECES) as usize * PIECE;
        self.source.copy_in(at, data).expect("a piece of the memory");
        let slices = [self.source.slice(at, data.len()).expect("a piece of the memory")];
        let request = WorkRequest::send(lane as u64, &slices);
        let posted = match lane.checked_sub(RELIABLE) {
            Some(index) => {
                let to = self.queues[queue].number();
                self.extended[index].0.post_send(&request.for_shared_queue(to))
            }
            None => self.reliable[lane].as_mut().map_or(Ok(()), |(qp, _)| qp.post_send(&request)),
        };
        posted.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Posts a receive and returns its identifier.
    pub fn post(&mut self, queue: usize) -> Result<u64, PostError> {
        let id = self.posted[queue] + 1;
        let at = (id % PIECES) as usize * PIECE;
        let slices = [self.memory[queue].slice(at, PIECE).expect("a piece of the memory")];
        self.queues[queue].post_receive(&ReceiveRequest::new(id, &slices))?;
        self.posted[queue] = id;
        Ok(id)
    }

    pub fn bytes(&self, queue: usize, completion: &WorkCompletion) -> Vec<u8> {
        let mut bytes = vec![0; completion.byte_count as usize];
        let at = (completion.wr_id % PIECES) as usize * PIECE;
        self.memory[queue].copy_out(at, &mut bytes).expect("a piece of the memory");
        bytes
    }

    pub fn poll_send(&mut self) -> Option<WorkCompletion> {
        self.sends.poll_one().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn poll_receive(&mut self, at: usize) -> Option<WorkCompletion> {
        self.completions[at].poll_one().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether another limit event has come. Any others that may follow are from queue pairs that failed.
    pub fn limit_event(&mut self) -> bool {
        match self.b.device.poll_event().expect("a device that answers") {
            Some(AsyncEvent::SharedReceiveQueueLimit { .. }) => true,
            Some(event) => panic!("{event:?}"),
            None => false,
        }
    }

    /// Moves both ends of a reliable connection to the error state and waits until nothing more happens.
    /// Returns the number of limit events.
    pub fn kill(&mut self, lane: usize) -> u64 {
        let Some((sender, receiver)) = &mut self.reliable[lane] else { return 0 };
        sender.modify_to_error().expect("the error state");
        receiver.modify_to_error().expect("the error state");
        let last = AsyncEvent::LastReceiveReached { qpn: receiver.qpn() };
        let mut limits = 0;
        loop {
            match self.b.device.poll_event().expect("a device that answers") {
                Some(AsyncEvent::SharedReceiveQueueLimit { .. }) => limits += 1,
                event => {
                    assert_eq!(event, Some(last));
                    break;
                }
            }
        }
        // Packets that are still on the cable must not reach a new connection that starts with the same
        // numbers.
        let quiet = self.world.now() + Duration::from_millis(1);
        self.world.run_until(quiet);
        limits
    }

    /// Resets both ends and connects them again.
    pub fn make_again(&mut self, lane: usize) {
        let Some((sender, receiver)) = self.reliable[lane].take() else { return };
        let rights = AccessFlags::REMOTE_WRITE;
        let sender: PreparedQueuePair<_, Rc> = sender.reset(&mut self.sends, None, rights).expect("a reset");
        let receiver = receiver.reset(&mut self.completions[lane], None, rights).expect("a reset");
        self.reliable[lane] = Some(connect(sender, receiver));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        assert_eq!((self.a.device.leaked_objects(), self.b.device.leaked_objects()), (0, 0));
    }
}

fn faults(loss: u32) -> RandomFaults {
    let chance = |percent: f64| Chance::from_ratio(percent / 100.0);
    let disturbed = if loss > 0 { 1.0 } else { 0.0 };
    RandomFaults {
        loss: chance(f64::from(loss)),
        duplicate: chance(disturbed),
        reorder: chance(disturbed),
        reorder_by: Duration::from_micros(5),
        corrupt: chance(disturbed / 5.0),
        jitter: Duration::ZERO,
    }
}
