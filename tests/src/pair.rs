//! Two hosts, a cable, and a connected queue pair on each: the setting of most tests.

use crate::node::{Handle, Node, NodeOptions, all_access};
use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::queue_pair::{
    ConnectOptions, Connected, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, Service,
};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::{LinkId, StallReason};

/// How a pair is made.
#[derive(Debug, Clone, Copy)]
pub struct PairOptions {
    /// The seed of everything random.
    pub seed: u64,
    /// Both hosts.
    pub node: NodeOptions,
    /// The connection.
    pub connect: ConnectOptions,
    /// Sends and receives that may be outstanding.
    pub depth: u32,
    /// Pieces of a request.
    pub slices: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Rights of both queue pairs.
    pub queue_pair_access: AccessFlags,
    /// Rights of both memory regions.
    pub memory_access: AccessFlags,
    /// Bytes of each memory region.
    pub memory: usize,
    /// The form of completions in memory.
    pub completions: CompletionForm,
    /// Whether completions of receives raise events of a channel.
    pub channels: bool,
}

/// The form of completions in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionForm {
    /// 64 bytes each.
    #[default]
    Common,
    /// 128 bytes each.
    Wide,
    /// 64 bytes each, or compressed into mini CQEs.
    Compressed,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            node: NodeOptions::default(),
            connect: ConnectOptions::default(),
            depth: 64,
            slices: 4,
            inline: 96,
            queue_pair_access: all_access(),
            memory_access: all_access(),
            memory: 1 << 16,
            completions: CompletionForm::Common,
            channels: false,
        }
    }
}

/// One side. Fields are dropped in this order: queues before memory before the device.
pub struct Side<S: Service = Rc> {
    /// The queue pair.
    pub queue_pair: QueuePair<Handle, S>,
    /// Where its sends complete.
    pub sends: CompletionQueue<Handle>,
    /// Where its receives complete.
    pub receives: CompletionQueue<Handle>,
    /// Where events of `receives` arrive, if the options ask for a channel.
    pub channel: Option<CompletionChannel<Handle>>,
    /// Memory with the rights of the options.
    pub memory: MemoryRegion<Handle>,
    /// The host.
    pub node: Node,
}

/// Both sides and the world that they are in.
pub struct Pair<S: Service = Rc> {
    /// The side that is usually the requester.
    pub a: Side<S>,
    /// The side that is usually the responder.
    pub b: Side<S>,
    /// The cable.
    pub link: LinkId,
    /// The world.
    pub world: SimWorld<Nic>,
}

/// A side before it is connected.
struct Prepared<S: Service> {
    queue_pair: PreparedQueuePair<Handle, S>,
    sends: CompletionQueue<Handle>,
    receives: CompletionQueue<Handle>,
    channel: Option<CompletionChannel<Handle>>,
    memory: MemoryRegion<Handle>,
    node: Node,
}

impl Pair {
    /// Boots both hosts and connects them with a reliable connection.
    pub fn new(options: &PairOptions) -> Self {
        Self::of_service(options)
    }
}

impl<S: Connected> Pair<S> {
    /// Boots both hosts and connects them with this service.
    pub fn of_service(options: &PairOptions) -> Self {
        let world = SimWorld::new(options.seed);
        let ids = [1, 2].map(|number| Node::add(&world, number, options.node));
        let link = world.connect(ids[0], ids[1], LinkConfig::gigabits(100)).expect("two free ports");
        let open = |index: usize| {
            Prepared::new(Node::open(&world, ids[index], index as u8 + 1, options.node), options)
        };
        let (a, b) = (open(0), open(1));
        let (a, b) = connect(a, b, options.connect);
        Self { a, b, link, world }
    }

    /// Waits until `poll` finds a completion. Both processors wait, which is when their stores become
    /// visible.
    ///
    /// # Panics
    /// With a report of the world if there is none within ten simulated seconds.
    #[track_caller]
    pub fn wait(&mut self, mut poll: impl FnMut(&mut Self) -> Option<WorkCompletion>) -> WorkCompletion {
        let deadline = self.world.now() + Duration::from_secs(10);
        loop {
            if let Some(completion) = poll(self) {
                return completion;
            }
            if self.world.now() >= deadline {
                panic!("{}", self.world.with(|world| world.stalled(StallReason::Deadline)));
            }
            self.a.node.device.hal().relax(deadline);
            self.b.node.device.hal().relax(self.world.now());
        }
    }

    /// Frames that the cable has lost, both directions.
    pub fn frames_lost(&self) -> u64 {
        let (a, b) = (self.a.node.id, self.b.node.id);
        let lost =
            |from, to| self.world.with(|world| world.link_counters(from, to)).map_or(0, |count| count.lost);
        lost(a, b) + lost(b, a)
    }

    /// The next completion of a send of side A.
    #[track_caller]
    pub fn sent(&mut self) -> WorkCompletion {
        self.wait(|pair| pair.a.sends.poll_one().expect("a completion that can be true"))
    }

    /// The next completion of a receive of side B.
    #[track_caller]
    pub fn received(&mut self) -> WorkCompletion {
        self.wait(|pair| pair.b.receives.poll_one().expect("a completion that can be true"))
    }
}

impl<S: Connected> Prepared<S> {
    fn new(node: Node, options: &PairOptions) -> Self {
        let channel = options
            .channels
            .then(|| CompletionChannel::create(node.device.clone(), 1, 16).expect("a completion channel"));
        let sends = completion_queue(&node, options, None);
        let receives = completion_queue(&node, options, channel.as_ref());
        let queue_pair = QueuePairBuilder::new(&node.domain, &sends, &receives)
            .service::<S>()
            .send_queue(options.depth)
            .receive_queue(options.depth)
            .max_send_sge(options.slices)
            .max_receive_sge(options.slices)
            .max_inline(options.inline)
            .access(options.queue_pair_access)
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let memory = node.memory(options.memory, options.memory_access);
        Self { queue_pair, sends, receives, channel, memory, node }
    }

    fn connected(
        self,
        queue_pair: impl FnOnce(PreparedQueuePair<Handle, S>) -> QueuePair<Handle, S>,
    ) -> Side<S> {
        let Self { queue_pair: prepared, sends, receives, channel, memory, node } = self;
        Side { queue_pair: queue_pair(prepared), sends, receives, channel, memory, node }
    }
}

fn completion_queue(
    node: &Node,
    options: &PairOptions,
    channel: Option<&CompletionChannel<Handle>>,
) -> CompletionQueue<Handle> {
    let builder = CompletionQueue::builder(node.device.clone()).entries(4 * options.depth);
    let builder = match options.completions {
        CompletionForm::Common => builder,
        CompletionForm::Wide => builder.wide_entries(),
        CompletionForm::Compressed => builder.compressed(),
    };
    let builder = match channel {
        Some(channel) => builder.channel(channel),
        None => builder,
    };
    builder.create().unwrap_or_else(|error| panic!("{error}"))
}

fn connect<S: Connected>(a: Prepared<S>, b: Prepared<S>, options: ConnectOptions) -> (Side<S>, Side<S>) {
    let remote = |side: &Prepared<S>| side.queue_pair.endpoint(options.gid_index).expect("an address");
    let (of_a, of_b) = (remote(&a), remote(&b));
    let to = |remote| {
        move |queue_pair: PreparedQueuePair<_, S>| queue_pair.connect(&remote, options).expect("a path")
    };
    (a.connected(to(of_b)), b.connected(to(of_a)))
}
