//! A host of a walk: its device, and the completion queues and shared receive queues that its queue pairs
//! share.

use super::lane::{COMPLETION_QUEUES, EXTENDED_QUEUES};
use super::receives::{PostedReceive, Receives};
use crate::node::{Handle, Node, all_access};
use crate::walk::plan::Dice;
use crate::walk::slots::{Area, Layout};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::xrc_domain::XrcDomain;
use bareverbs_prm::ids::Srqn;

/// Receives of a shared queue.
const RECEIVES: u32 = 15;
/// Completions that a queue holds: more than all queue pairs can have outstanding.
const COMPLETIONS: u32 = 1024;
/// The upper half of the `wr_id` of a receive of a shared queue.
pub const SHARED: u64 = 0x5a;

/// Receives that several queue pairs share. Fields are dropped in order.
pub struct SharedQueue {
    queue: SharedReceiveQueue<Handle>,
    /// What was posted.
    pub receives: Receives,
    /// Its memory.
    pub memory: MemoryRegion<Handle>,
}

/// A host. Fields are dropped in order: queues before memory before the device.
pub struct Host {
    /// The ordinary shared receive queue, then those of XRC.
    pub shared: Vec<SharedQueue>,
    /// Completion queues.
    pub completions: Vec<CompletionQueue<Handle>>,
    /// The XRC domain.
    pub domain: XrcDomain<Handle>,
    /// The device.
    pub node: Node,
}

impl SharedQueue {
    fn new(queue: SharedReceiveQueue<Handle>, node: &Node, number: usize) -> Self {
        let layout = Layout { slots: queue.capacity() as usize };
        let receives = Receives::new(layout, Area::Own, SHARED << 24 | (number as u64) << 16);
        Self { queue, receives, memory: node.memory(layout.bytes(1), all_access()) }
    }

    /// The queue itself.
    pub const fn queue(&self) -> &SharedReceiveQueue<Handle> {
        &self.queue
    }

    /// Its number in requests of XRC.
    pub fn number(&self) -> Srqn {
        self.queue.number()
    }

    /// Posts up to `count` receives.
    pub fn post(&mut self, dice: &mut Dice, count: usize) {
        for _ in 0..count {
            let Self { queue, receives, memory } = self;
            if !receives.post(memory, dice, |request| queue.post_receive(request)) {
                return;
            }
        }
    }

    /// Checks that no receive was lost: every one that is not outstanding can be posted.
    pub fn finish(&mut self, dice: &mut Dice) {
        assert_eq!(self.queue.outstanding() as usize, self.receives.outstanding());
        self.post(dice, usize::MAX);
        assert_eq!(self.queue.outstanding(), self.queue.capacity(), "a shared queue lost entries");
    }
}

impl Host {
    /// Creates the queues of a device.
    pub fn new(node: Node) -> Self {
        let domain = XrcDomain::allocate(node.device.clone()).expect("an XRC domain");
        let completions: Vec<_> =
            (0..COMPLETION_QUEUES).map(|_| node.completion_queue(COMPLETIONS)).collect();
        let config = SharedReceiveQueueConfig { receives: RECEIVES, slices: 2 };
        let mut queues = vec![SharedReceiveQueue::create(&node.domain, config).expect("a queue")];
        for number in 0..EXTENDED_QUEUES {
            let at = &completions[number % COMPLETION_QUEUES];
            let queue = SharedReceiveQueue::create_xrc(&node.domain, &domain, at, config);
            queues.push(queue.expect("a queue of XRC"));
        }
        let shared =
            queues.into_iter().enumerate().map(|(number, queue)| SharedQueue::new(queue, &node, number));
        let shared = shared.collect();
        Self { shared, completions, domain, node }
    }

    /// Finds the receive of a shared queue that a completion ended, and the number of the queue.
    #[track_caller]
    pub fn take_shared(&mut self, completion: &WorkCompletion) -> (PostedReceive, usize) {
        let number = (completion.wr_id >> 48) as usize & 0xff;
        (self.shared[number].receives.take(completion.wr_id), number)
    }
}
