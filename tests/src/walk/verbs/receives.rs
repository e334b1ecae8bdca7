//! The oracle of a receive queue, of one queue pair or shared: each receive ends once, and those of one queue
//! pair in order.

use crate::node::Handle;
use crate::walk::plan::{Dice, GUARD};
use crate::walk::slots::{Area, LONGEST, Layout, Slot};
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::work_request::ReceiveRequest;
use std::collections::VecDeque;

/// A posted receive.
#[derive(Debug, Clone)]
pub struct PostedReceive {
    /// Its `wr_id`.
    pub id: u64,
    /// Where its bytes go.
    pub buffer: Slot,
    slot: usize,
}

/// Receives that have not ended.
#[derive(Debug)]
pub struct Receives {
    layout: Layout,
    area: Area,
    free: Vec<usize>,
    posted: VecDeque<PostedReceive>,
    /// The upper half of every `wr_id`.
    name: u64,
    count: u32,
}

impl Receives {
    /// An empty oracle. Its receives will lie in an area of this layout, and `name` is the upper half of each
    /// `wr_id`.
    pub fn new(layout: Layout, area: Area, name: u64) -> Self {
        let free = (0..layout.slots).rev().collect();
        Self { layout, area, free, posted: VecDeque::new(), name, count: 0 }
    }

    /// How many have not ended.
    pub fn outstanding(&self) -> usize {
        self.posted.len()
    }

    /// Sets the upper half of the next `wr_id`.
    pub fn rename(&mut self, name: u64) {
        self.name = name;
    }

    /// Posts one receive with `post`. Returns whether there was room for it.
    ///
    /// # Panics
    /// If it is refused for any other reason.
    pub fn post(
        &mut self,
        memory: &MemoryRegion<Handle>,
        dice: &mut Dice,
        post: impl FnOnce(&ReceiveRequest<'_>) -> Result<(), PostError>,
    ) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let first = 1 + dice.below(LONGEST - GUARD);
        let pieces = if dice.percent(50) { vec![LONGEST] } else { vec![first, LONGEST - first] };
        let buffer = self.layout.slot(self.area, slot, &pieces);
        buffer.prepare(memory, &[]);
        let id = self.name << 32 | u64::from(self.count);
        match post(&ReceiveRequest::new(id, &buffer.slices(memory))) {
            Ok(()) => {
                self.count += 1;
                self.posted.push_back(PostedReceive { id, buffer, slot });
            }
            Err(PostError::QueueFull { .. }) => {
                self.free.push(slot);
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// The receive that a completion ended: the oldest.
    ///
    /// # Panics
    /// If it is not the oldest.
    #[track_caller]
    pub fn take_oldest(&mut self, id: u64) -> PostedReceive {
        let oldest = self.posted.front().map(|posted| posted.id);
        assert_eq!(oldest, Some(id), "receives of a queue pair end in the order in which they were posted");
        self.take(id)
    }

    /// The receive that a completion ended.
    ///
    /// # Panics
    /// If it is not outstanding.
    #[track_caller]
    pub fn take(&mut self, id: u64) -> PostedReceive {
        let at = self.posted.iter().position(|posted| posted.id == id);
        let at = at.unwrap_or_else(|| panic!("receive {id:#x} ended and was not outstanding"));
        let posted = self.posted.remove(at).expect("it was found");
        self.free.push(posted.slot);
        posted
    }

    /// Forgets what was posted; nothing of it will complete.
    pub fn forget(&mut self) {
        self.free.extend(self.posted.drain(..).map(|posted| posted.slot));
    }
}
