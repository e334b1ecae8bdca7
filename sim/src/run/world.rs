//! The world: nodes, links, switches and the events between them, in virtual time and one thread.
//!
//! The loop runs what is due, then jumps to the next event. Ties are broken by insertion order.

use super::card::Card;
use super::device::Device;
use super::digest::Digest;
use super::node::Node;
use super::records::Recording;
use super::report::{NodeReport, StallReason, Stalled};
use super::schedule::Schedule;
use super::seed::Seed;
use super::switch_node::SwitchNode;
use super::topology::{NodeId, SwitchId, Way};
use crate::net::{FrameId, FramePool, UnfiredFault};
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeSet;

/// Nodes with memory `M` and device `D`, connected by links and switches.
///
/// ```
/// use bareverbs_prm::doorbell::init_segment::INITIALIZING;
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_sim::nic::{Nic, NicConfig};
/// use bareverbs_sim::run::{Preset, World};
/// # use bareverbs_sim::nic::{DmaFault, HostMemory};
/// # struct NoMemory;
/// # impl HostMemory for NoMemory {
/// #     fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
/// #         Err(DmaFault { iova, length: buffer.len(), write: false })
/// #     }
/// #     fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
/// #         Err(DmaFault { iova, length: bytes.len(), write: true })
/// #     }
/// # }
///
/// // Hosts with memory that a driver can use are those of `bareverbs-hal-sim`; these lend their devices none.
/// let mut world = World::new(1);
/// let [a, b] = [1, 2].map(|number| {
///     let nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, number])));
///     world.add_node(&format!("host {number}"), nic, NoMemory, Preset::STROM_100G.node)
/// });
/// world.connect(a, b, Preset::STROM_100G.link).unwrap();
/// world.run_until(Time::ZERO + Duration::from_millis(2));
/// let is_initializing = world.mmio_read(a, INITIALIZING as u64) >> 31 == 1;
/// assert!(!is_initializing, "firmware is ready after 1 ms of virtual time");
/// ```
#[derive(Debug)]
pub struct World<M, D = Nic> {
    pub(super) seed: Seed,
    pub(super) now: Time,
    pub(super) schedule: Schedule<Event>,
    pub(super) frames: FramePool,
    pub(super) nodes: Vec<Node<M, D>>,
    pub(super) ways: Vec<Way>,
    pub(super) switches: Vec<SwitchNode>,
    pub(super) cards: Vec<Card>,
    /// Number of switch timer events in the schedule.
    pub(super) switch_timers: usize,
    /// When something outside last changed a device, other than by writing a register.
    last_change: Time,
    pub(super) digest: Digest,
    pub(super) recording: Option<Recording>,
    pub(super) faults: u32,
    pub(super) parses_every_frame: bool,
    /// Partitioned pairs: source, destination.
    pub(super) partitions: BTreeSet<(NodeId, NodeId)>,
}

/// A scheduled event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A frame reaches the other end, or would have.
    Arrival { way: u32, frame: FrameId },
    /// A queue has room for more of its node's frames.
    Room { way: u32 },
    /// A held frame has waited long enough for later ones.
    Release { way: u32 },
    /// The timer of a node.
    Timer { node: NodeId },
    /// The timer of a switch: its SM repeats a request or sweeps.
    SwitchTimer { switch: SwitchId },
    /// The DMA engine of a card completes a copy.
    Copy { card: u32 },
    /// A wakeup that was requested from outside.
    Wake,
}

/// Result of a step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Events ran.
    Progress,
    /// No event is left.
    Idle,
}

/// Shortest time between two timer calls, so that a device cannot stop time.
const TIMER_STEP: Duration = Duration::from_nanos(1);

impl<M: HostMemory, D: Device> World<M, D> {
    /// An empty world. All random choices follow from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            seed: Seed(seed),
            now: Time::ZERO,
            schedule: Schedule::default(),
            frames: FramePool::default(),
            nodes: Vec::new(),
            ways: Vec::new(),
            switches: Vec::new(),
            cards: Vec::new(),
            switch_timers: 0,
            last_change: Time::ZERO,
            digest: Digest::new(seed),
            recording: None,
            faults: 0,
            parses_every_frame: false,
            partitions: BTreeSet::new(),
        }
    }

    /// Current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The seed. Print it with a failure.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Digest of every frame on every link so far: time, direction, length, headers, CRC and fate.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Makes every receiver parse frames and verify checksums, as if they came from another machine. By default a
    /// receiver reuses the parsed packet of an unmodified frame, which has the same result and is faster.
    pub fn set_parses_every_frame(&mut self, every: bool) {
        self.parses_every_frame = every;
    }

    /// The memory of the host of `node`.
    pub fn memory(&self, node: NodeId) -> &M {
        &self.nodes[node.index()].memory
    }

    /// The memory of the host of `node`, mutable, to access it as a device does.
    pub fn memory_mut(&mut self, node: NodeId) -> &mut M {
        &mut self.nodes[node.index()].memory
    }

    /// The device of `node`.
    pub fn device(&self, node: NodeId) -> &D {
        &self.nodes[node.index()].device
    }

    /// Applies a change to the device of `node` that is not one of its inputs, then collects its outputs.
    pub fn with_device<R>(&mut self, node: NodeId, change: impl FnOnce(&mut D, &mut M, Time) -> R) -> R {
        let Node { device, memory, .. } = &mut self.nodes[node.index()];
        let result = change(device, memory, self.now);
        self.last_change = self.now;
        self.look_after(node);
        result
    }

    /// Reads a 32-bit register of the device of `node`.
    pub fn mmio_read(&mut self, node: NodeId, offset: u64) -> u32 {
        self.nodes[node.index()].device.handle_mmio_read(self.now, offset)
    }

    /// Writes 4, 8 or 64 bytes to the registers of `node`, in bus byte order.
    #[inline]
    pub fn mmio_write(&mut self, node: NodeId, offset: u64, bytes: &[u8]) {
        let entry = &mut self.nodes[node.index()];
        entry.last_doorbell = self.now;
        entry.device.handle_mmio_write(self.now, &mut entry.memory, offset, bytes);
        self.look_after(node);
    }

    /// Returns and resets the number of interrupts on `vector` of `node`.
    pub fn take_interrupts(&mut self, node: NodeId, vector: u16) -> u64 {
        self.nodes[node.index()].interrupts.remove(&vector).unwrap_or(0)
    }

    /// Vectors of `node` with untaken interrupts, and their counts.
    pub fn pending_interrupts(&self, node: NodeId) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.nodes[node.index()].interrupts.iter().map(|(&vector, &count)| (vector, count))
    }

    /// Makes the world stop at `time`, so that a caller who waits with [`Self::step`] regains control.
    pub fn wake_at(&mut self, time: Time) {
        self.schedule.push(time.max(self.now), Event::Wake);
    }

    /// When the next event is due.
    pub fn next_event(&mut self) -> Option<Time> {
        self.settle_timers();
        self.schedule.peek().map(|(due, _)| due)
    }

    /// Whether no event is left except sweeps of subnet managers over unchanged neighbours.
    pub fn is_idle(&self) -> bool {
        self.schedule.len() == self.switch_timers && self.are_subnets_settled()
    }

    /// Advances to the next event and runs everything due at that time.
    pub fn step(&mut self) -> Step {
        if !self.is_idle() && self.run_next(Time::MAX) { Step::Progress } else { Step::Idle }
    }

    /// Advances to the next event if it is due by `deadline`, and runs everything due at that time. False if there is
    /// none.
    #[inline]
    pub fn run_next(&mut self, deadline: Time) -> bool {
        let (mut limit, mut any) = (deadline, false);
        while let Some(event) = self.take_due(limit) {
            self.dispatch(event);
            (limit, any) = (self.now, true);
        }
        any
    }

    /// Runs everything due until `deadline` and advances to it. With [`Time::MAX`], ends when the world is idle.
    pub fn run_until(&mut self, deadline: Time) {
        let ends_when_idle = deadline == Time::MAX;
        while !(ends_when_idle && self.is_idle()) {
            let Some(event) = self.take_due(deadline) else { break };
            self.dispatch(event);
        }
        self.now = self.now.max(deadline);
    }

    /// Steps while `waiting` returns true. If the world is idle or `deadline` passes, it returns a report instead of
    /// hanging.
    pub fn run_while(
        &mut self,
        mut waiting: impl FnMut(&mut Self) -> bool,
        deadline: Time,
    ) -> Result<(), Box<Stalled>> {
        while waiting(self) {
            self.run_next_or_stall(deadline).map_err(|reason| Box::new(self.stalled(reason)))?;
        }
        Ok(())
    }

    /// Like [`Self::run_next`], but reports why there is no event by `deadline`, or none that changes anything.
    pub fn run_next_or_stall(&mut self, deadline: Time) -> Result<(), StallReason> {
        if self.is_idle() {
            return Err(StallReason::Idle);
        }
        match self.run_next(deadline) {
            true => Ok(()),
            false if self.next_event().is_none() => Err(StallReason::Idle),
            false => Err(StallReason::Deadline),
        }
    }

    /// Runs until no event is left or `deadline` passes.
    pub fn run_until_idle(&mut self, deadline: Time) -> Step {
        loop {
            match self.run_next_or_stall(deadline) {
                Ok(()) => {}
                Err(StallReason::Idle) => return Step::Idle,
                Err(StallReason::Deadline) => return Step::Progress,
            }
        }
    }

    /// The report of a wait that ends now.
    pub fn stalled(&self, reason: StallReason) -> Stalled {
        Stalled {
            reason,
            at: self.now,
            seed: self.seed.0,
            events: self.schedule.len(),
            frames: self.frames.in_use(),
            nodes: self.nodes.iter().map(report_node).collect(),
            faults: self.unfired_faults(),
        }
    }

    /// Armed scripted faults that have not fired.
    pub fn unfired_faults(&self) -> Vec<UnfiredFault> {
        let mut unfired: Vec<_> = self.ways.iter().flat_map(unfired_on).collect();
        unfired.sort_unstable_by_key(|fault| fault.id);
        unfired
    }

    /// Fails if a scripted fault has not fired: a test that injected nothing proved nothing.
    pub fn check_faults_fired(&self) -> Result<(), Vec<UnfiredFault>> {
        let unfired = self.unfired_faults();
        if unfired.is_empty() { Ok(()) } else { Err(unfired) }
    }

    /// Takes the next event if it is due by `deadline`, and advances time to it.
    #[inline(always)] // Before every event.
    fn take_due(&mut self, deadline: Time) -> Option<Event> {
        loop {
            let (due, event) = self.schedule.pop_until(deadline)?;
            if self.is_wanted(due, event) {
                self.now = self.now.max(due);
                return Some(event);
            }
        }
    }

    /// Whether an event that was taken should run. A timer that has moved or been cancelled should not, so that time
    /// does not stop for it; it is scheduled anew.
    #[inline]
    fn is_wanted(&mut self, due: Time, event: Event) -> bool {
        match event {
            Event::Timer { .. } | Event::SwitchTimer { .. } => self.is_timer_wanted(due, event),
            _ => true,
        }
    }

    fn is_timer_wanted(&mut self, due: Time, event: Event) -> bool {
        let is_stale = self.is_stale(due, event);
        match event {
            Event::Timer { node } => self.nodes[node.index()].timer.expire(due),
            Event::SwitchTimer { switch } => {
                self.switches[switch.index()].timer.expire(due);
                self.switch_timers -= 1;
            }
            _ => {}
        }
        if is_stale {
            self.rearm(event);
        }
        !is_stale
    }

    fn is_stale(&self, due: Time, event: Event) -> bool {
        match event {
            Event::Timer { node } => {
                let Node { timer, device, .. } = &self.nodes[node.index()];
                !timer.is_current(due, device.poll_timeout())
            }
            Event::SwitchTimer { switch } => {
                let SwitchNode { timer, switch, .. } = &self.switches[switch.index()];
                !timer.is_current(due, switch.poll_timeout())
            }
            _ => false,
        }
    }

    fn rearm(&mut self, event: Event) {
        match event {
            Event::Timer { node } => self.poll_timer(node),
            Event::SwitchTimer { switch } => self.poll_switch_timer(switch),
            _ => {}
        }
    }

    #[inline(always)] // Once for every event.
    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Arrival { way, frame } => self.arrive(way as usize, frame),
            Event::Room { way } => self.make_room(way as usize),
            Event::Release { way } => self.release_expired(way as usize),
            Event::Timer { node } => self.fire_timer(node),
            Event::SwitchTimer { switch } => self.fire_switch_timer(switch),
            Event::Copy { card } => self.end_due_copy(card),
            Event::Wake => {}
        }
    }

    fn fire_timer(&mut self, node: NodeId) {
        let now = self.now;
        let Node { device, memory, timer_floor, .. } = &mut self.nodes[node.index()];
        *timer_floor = now + TIMER_STEP;
        device.handle_timeout(now, memory);
        self.look_after(node);
    }

    /// Removes stale timers from the front of the schedule, so that the front is the next real event.
    fn settle_timers(&mut self) {
        while let Some((due, event)) = self.schedule.peek().filter(|(due, event)| self.is_stale(*due, *event))
        {
            self.schedule.pop();
            self.is_timer_wanted(due, event);
        }
    }

    /// Whether every SM has swept its neighbours since the last change from outside.
    fn are_subnets_settled(&self) -> bool {
        let doorbells = self.nodes.iter().map(|node| node.last_doorbell);
        let last_input = doorbells.fold(self.last_change, Time::max);
        self.switches.iter().all(|entry| entry.switch.is_settled_since(last_input))
    }

    /// Schedules the timer of a node if its device's deadline is earlier than any scheduled one.
    pub(super) fn poll_timer(&mut self, node: NodeId) {
        if let Some(due) = self.nodes[node.index()].arm_timer(self.now) {
            self.schedule.push(due, Event::Timer { node });
        }
    }
}

fn report_node<M: HostMemory, D: Device>(node: &Node<M, D>) -> NodeReport {
    NodeReport {
        name: node.name.clone(),
        has_transmit: node.device.has_transmit(),
        connected: node.egress.is_some(),
        timer: node.device.poll_timeout(),
        interrupts: node.interrupts.values().sum(),
    }
}

fn unfired_on(way: &Way) -> Vec<UnfiredFault> {
    let of = |(id, fault, frames_seen)| UnfiredFault { id, direction: way.name.clone(), fault, frames_seen };
    way.faults.iter().flat_map(|faults| faults.unfired()).map(of).collect()
}
