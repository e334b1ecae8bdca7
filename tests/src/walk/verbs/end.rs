//! One side of a lane: its queue pair, its memory, what it posts, and how it checks what arrives.

use super::inbox::Inbox;
use super::lane::LaneService;
use super::queue::Queue;
use super::receives::{PostedReceive, Receives};
use super::remote_key::{RemoteKey, Target};
use super::request::PlannedRequest;
use super::sends::{PostedSend, Sends};
use crate::node::Handle;
use crate::walk::plan::Dice;
use crate::walk::slots::{Area, Layout, Rest};
use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_prm::time::Time;
use std::collections::VecDeque;

/// Requests of a side that may be outstanding.
pub const SLOTS: usize = 16;
/// Where they lie.
pub const LAYOUT: Layout = Layout { slots: SLOTS };

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// It sends and receives.
    Running,
    /// It completes what it has begun to send.
    Draining,
    /// It sends nothing.
    Drained,
    /// Its send queue failed; it receives.
    SendError,
    /// It failed.
    Dead,
}

/// One side of a lane. Fields are dropped in order: queue pair before remote keys before memory.
pub struct End {
    /// The queue pair; `None` while it is recreated.
    pub queue: Option<Queue>,
    /// Its number.
    pub qpn: Qpn,
    /// Its state.
    pub state: EndState,
    /// Its own remote keys.
    pub remote_keys: Vec<RemoteKey>,
    /// Its memory.
    pub memory: MemoryRegion<Handle>,
    /// What it posted.
    pub sends: Sends,
    /// What it has to receive.
    pub inbox: Inbox,
    /// Its own receives.
    pub receives: Receives,
    /// Slots that no request uses.
    pub free: Vec<usize>,
    /// Requests that ended without an answer: their packets may still be in flight.
    pub echoes: VecDeque<(Time, PostedSend)>,
    /// Its service.
    pub service: LaneService,
    name: u64,
    count: u32,
    /// Requests that ended.
    pub ended: u64,
    /// Remote keys that were opened.
    pub opened: u64,
    /// Whether the device has reported that the last receive of the shared queue was consumed.
    pub took_last: bool,
}

impl End {
    /// A side with nothing posted. `name` is the upper half of each `wr_id`.
    pub fn new(
        queue: Queue,
        memory: MemoryRegion<Handle>,
        service: LaneService,
        name: u64,
        inbox: Inbox,
    ) -> Self {
        Self {
            qpn: queue.qpn(),
            queue: Some(queue),
            state: EndState::Running,
            remote_keys: Vec::new(),
            memory,
            sends: Sends::default(),
            inbox,
            receives: Receives::new(LAYOUT, Area::Receive, name),
            free: (0..SLOTS).rev().collect(),
            echoes: VecDeque::new(),
            service,
            name,
            count: 0,
            ended: 0,
            opened: 0,
            took_last: false,
        }
    }

    /// The queue pair.
    #[track_caller]
    pub fn queue(&mut self) -> &mut Queue {
        self.queue.as_mut().expect("a queue pair that is not being made again")
    }

    /// The next `wr_id`.
    pub fn id(&mut self) -> u64 {
        self.count += 1;
        self.name << 32 | u64::from(self.count)
    }

    /// Posts up to `count` receives of its own.
    pub fn post_receives(&mut self, dice: &mut Dice, count: usize) {
        let Self { queue: Some(queue), receives, memory, .. } = self else { return };
        for _ in 0..count {
            if !receives.post(memory, dice, |request| queue.post_receive(request)) {
                return;
            }
        }
    }

    /// Whether its receives may be flushed. The failure of a send may still be in a completion queue that
    /// nobody has polled.
    fn may_be_dead(&self) -> bool {
        let fails = self.sends.deserted || self.sends.has_mistake();
        self.state == EndState::Dead || self.service.is_reliable() && fails
    }

    /// Checks that a completion belongs to its present incarnation, and not to one before a reset.
    #[track_caller]
    pub fn check_name(&self, completion: &WorkCompletion) {
        assert_eq!(completion.wr_id >> 32, self.name, "{completion:?} is of a queue pair that was reset");
    }

    /// Takes the completion of a receive of its own.
    #[track_caller]
    pub fn end_own_receive(&mut self, completion: &WorkCompletion, posted: &PostedReceive) {
        let received = self.inspect(completion, posted, &self.memory);
        self.accept(completion, received, None);
    }

    /// Takes the completion of a receive of shared queue number `queue`.
    #[track_caller]
    pub fn end_shared_receive(
        &mut self,
        completion: &WorkCompletion,
        posted: &PostedReceive,
        memory: &MemoryRegion<Handle>,
        queue: usize,
    ) {
        let received = self.inspect(completion, posted, memory);
        let named = matches!(self.service, LaneService::Extended(_));
        self.accept(completion, received, named.then_some(queue));
    }

    /// The bytes of the message in a receive, if it succeeded. Checks that everything else in the slot is
    /// untouched.
    #[track_caller]
    fn inspect(
        &self,
        completion: &WorkCompletion,
        posted: &PostedReceive,
        memory: &MemoryRegion<Handle>,
    ) -> Option<Vec<u8>> {
        let what = format!("receive {:#x} of queue pair {}", posted.id, self.qpn);
        if let WorkCompletionStatus::Failed(syndrome) = completion.status {
            posted.buffer.check(memory, &[], Rest::Anything, &what);
            let aborted = self.service == LaneService::Unreliable && syndrome == CqeSyndrome::RemoteAborted;
            let flushed = self.may_be_dead() && syndrome == CqeSyndrome::WorkRequestFlushed;
            assert!(aborted || flushed, "{what} failed: {completion:?}");
            return None;
        }
        let mut received = posted.buffer.read(memory);
        let head = if self.service == LaneService::Datagram { ROUTE_HEADER } else { 0 };
        let length = completion.byte_count as usize;
        assert!((head..=received.len()).contains(&length), "{what}: {completion:?}");
        let written = completion.opcode != WorkCompletionOpcode::ReceiveRdmaWithImmediate;
        // An unreliable connection leaves the bytes of a message that it began to write and then dropped.
        let rest = if self.service == LaneService::Unreliable { Rest::Anything } else { Rest::Untouched };
        posted.buffer.check(memory, &received[..if written { length } else { 0 }], rest, &what);
        received.truncate(length);
        Some(received.split_off(head))
    }

    #[track_caller]
    fn accept(&mut self, completion: &WorkCompletion, received: Option<Vec<u8>>, queue: Option<usize>) {
        let Some(received) = received else { return };
        let message = self.inbox.take(completion, queue, &received);
        if let Some(key) = message.invalidates() {
            let known = self.remote_keys.iter_mut().any(|remote_key| remote_key.closed_by_peer(key));
            assert!(known, "{completion:?} closes a remote key that is not open");
        }
    }

    /// Takes a new name after a reset, so that its completions differ from older ones.
    pub fn rename(&mut self) {
        self.name += 1;
        self.receives.rename(self.name);
    }

    /// Starts over with a connected queue pair.
    pub fn begin_again(&mut self, queue: Queue) {
        self.queue = Some(queue);
        self.state = EndState::Running;
    }

    /// The memory that a request of the peer reaches.
    pub fn target_of(&self, item: &PlannedRequest) -> Target<'_> {
        match item.remote_key {
            Some(remote_key) => self.remote_keys[remote_key].target(&self.memory),
            None => Target::Region(&self.memory),
        }
    }
}
