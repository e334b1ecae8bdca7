//! Several queue pairs of one host that receive from one shared receive queue, each connected with one of the other host.

use crate::node::{Handle, Node, NodeOptions, all_access};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::events::AsyncEvent;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice};
use bareverbs_core::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::{LinkId, StallReason};

/// How they are made.
#[derive(Debug, Clone, Copy)]
pub struct SharedOptions {
    /// The seed of everything random.
    pub seed: u64,
    /// Both hosts.
    pub node: NodeOptions,
    /// Queue pairs of each host.
    pub queue_pairs: usize,
    /// Receives that the shared queue holds, at least.
    pub receives: u32,
    /// Bytes of the memory of a receive.
    pub length: usize,
    /// The connections.
    pub connect: ConnectOptions,
}

impl Default for SharedOptions {
    fn default() -> Self {
        let connect = ConnectOptions::default();
        let node = NodeOptions::default();
        Self { seed: 1, node, queue_pairs: 3, receives: 15, length: 4096, connect }
    }
}

/// Both hosts. Fields are dropped in this order: queues before memory before the devices.
pub struct Shared {
    /// The queue pairs that send.
    pub senders: Vec<QueuePair<Handle>>,
    /// The queue pairs that receive.
    pub receivers: Vec<QueuePair<Handle>>,
    /// What they receive from.
    pub queue: SharedReceiveQueue<Handle>,
    /// Where sends complete.
    pub sends: CompletionQueue<Handle>,
    /// Where receives of the queue pairs complete, one of each.
    pub receives: Vec<CompletionQueue<Handle>>,
    /// Memory of the senders, a piece each.
    pub source: MemoryRegion<Handle>,
    /// Memory of the receives, a piece each.
    pub target: MemoryRegion<Handle>,
    /// Bytes of a piece.
    pub length: usize,
    /// The host of the senders.
    pub a: Node,
    /// The host of the receivers.
    pub b: Node,
    /// The cable.
    pub link: LinkId,
    /// The world.
    pub world: SimWorld<Nic>,
}

impl Shared {
    /// Boots both hosts and connects everything. No receive is posted.
    pub fn new(options: &SharedOptions) -> Self {
        let world = SimWorld::new(options.seed);
        let ids = [1, 2].map(|number| Node::add(&world, number, options.node));
        let link = world.connect(ids[0], ids[1], LinkConfig::gigabits(100)).expect("two free ports");
        let [a, b] = [0, 1].map(|i| Node::open(&world, ids[i], i as u8 + 1, options.node));
        let config = SharedReceiveQueueConfig { receives: options.receives, slices: 1 };
        let queue = SharedReceiveQueue::create(&b.domain, config).expect("a shared receive queue");
        let sends = a.completion_queue(256);
        let receives: Vec<_> = (0..options.queue_pairs).map(|_| b.completion_queue(64)).collect();
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for completions in &receives {
            let sender = QueuePairBuilder::new(&a.domain, &sends, &sends).receive_queue(0).build();
            let receiver = QueuePairBuilder::new(&b.domain, completions, completions)
                .shared_receive_queue(&queue)
                .build();
            let (sender, receiver) =
                connect(sender.expect("a sender"), receiver.expect("a receiver"), options);
            senders.push(sender);
            receivers.push(receiver);
        }
        let source = a.memory(options.length * options.queue_pairs, all_access());
        let target = b.memory(options.length * queue.capacity() as usize, all_access());
        let length = options.length;
        Self { senders, receivers, queue, sends, receives, source, target, length, a, b, link, world }
    }

    /// The memory of receive `id`: the pieces are used in turn.
    pub fn buffer(&self, id: u64) -> [MemorySlice; 1] {
        let piece = id as usize % self.queue.capacity() as usize;
        [self.target.slice(piece * self.length, self.length).expect("a piece of the memory")]
    }

    /// Posts a receive into the memory of `id`, with `id` as its `wr_id`.
    pub fn post(&mut self, id: u64) {
        let slices = self.buffer(id);
        self.queue.post_receive(&ReceiveRequest::new(id, &slices)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Sends `bytes` from the memory of sender `index`, with `id` as its `wr_id`.
    pub fn send(&mut self, index: usize, id: u64, bytes: &[u8]) {
        let at = index * self.length;
        self.source.copy_in(at, bytes).expect("a piece of the memory");
        let data = [self.source.slice(at, bytes.len()).expect("a piece of the memory")];
        self.senders[index]
            .post_send(&WorkRequest::send(id, &data))
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until `poll` finds something.
    ///
    /// # Panics
    /// With a report of the world if it finds nothing within ten simulated seconds.
    #[track_caller]
    pub fn wait<T>(&mut self, mut poll: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = self.world.now() + Duration::from_secs(10);
        loop {
            if let Some(found) = poll(self) {
                return found;
            }
            if self.world.now() >= deadline {
                panic!("{}", self.world.with(|world| world.stalled(StallReason::Deadline)));
            }
            self.a.device.hal().relax(deadline);
            self.b.device.hal().relax(self.world.now());
        }
    }

    /// The next completion of a send.
    #[track_caller]
    pub fn sent(&mut self) -> WorkCompletion {
        self.wait(|shared| shared.sends.poll_one().expect("a completion that can be true"))
    }

    /// The next completion of a receive of receiver `index`.
    #[track_caller]
    pub fn received(&mut self, index: usize) -> WorkCompletion {
        self.wait(|shared| shared.receives[index].poll_one().expect("a completion that can be true"))
    }

    /// The next event at the receiving host.
    #[track_caller]
    pub fn event(&mut self) -> AsyncEvent {
        self.wait(|shared| shared.b.device.poll_event().expect("a device that answers"))
    }

    /// The bytes that receive `completion` brought.
    pub fn bytes(&self, completion: &WorkCompletion) -> Vec<u8> {
        let mut bytes = vec![0; completion.byte_count as usize];
        let piece = completion.wr_id as usize % self.queue.capacity() as usize;
        self.target.copy_out(piece * self.length, &mut bytes).expect("a piece of the memory");
        bytes
    }
}

/// Connects two queue pairs with each other.
pub fn connect(
    a: PreparedQueuePair<Handle>,
    b: PreparedQueuePair<Handle>,
    options: &SharedOptions,
) -> (QueuePair<Handle>, QueuePair<Handle>) {
    let remote = |side: &PreparedQueuePair<Handle>| side.endpoint(0).expect("an address");
    let (of_a, of_b) = (remote(&a), remote(&b));
    let to =
        |side: PreparedQueuePair<Handle>, remote| side.connect(&remote, options.connect).expect("a path");
    (to(a, of_b), to(b, of_a))
}
