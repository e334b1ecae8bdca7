//! A world that several drivers of one thread share.

use super::arena::MemoryConfig;
use super::memory::SimMemory;
use bareverbs_prm::time::Time;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::{
    Device, Latency, LinkId, NodeId, NodeOrSwitch, StallReason, Stalled, Step, TopologyError, World,
};
use std::cell::RefCell;
use std::rc::Rc;

/// A shared handle to a world whose nodes have simulated memory. Clones are the same world.
///
/// ```
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_hal_sim::{MemoryConfig, SimWorld};
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_sim::nic::{Nic, NicConfig};
/// use bareverbs_sim::run::Preset;
///
/// let world = SimWorld::new(1);
/// let nodes = [1, 2].map(|number| {
///     let nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, number])));
///     world.add_node(&format!("host {number}"), nic, Preset::STROM_100G.node, MemoryConfig::default())
/// });
/// world.connect(nodes[0], nodes[1], Preset::STROM_100G.link).unwrap();
/// let device = Device::open(world.hal(nodes[0]), DeviceConfig::default()).unwrap();
/// assert_eq!(device.port().unwrap().mac, MacAddress([2, 0, 0, 0, 0, 1]));
/// ```
#[derive(Debug)]
pub struct SimWorld<D = Nic> {
    world: Rc<RefCell<World<SimMemory, D>>>,
    /// Unforgiving memory of any node.
    unforgiving: Rc<RefCell<Vec<SimMemory>>>,
}

impl<D> Clone for SimWorld<D> {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), unforgiving: self.unforgiving.clone() }
    }
}

impl<D: Device> SimWorld<D> {
    /// An empty world. The seed decides everything that is left to chance.
    pub fn new(seed: u64) -> Self {
        Self { world: Rc::new(RefCell::new(World::new(seed))), unforgiving: Rc::default() }
    }

    /// Adds a node without a cable.
    pub fn add_node(&self, name: &str, device: D, latency: Latency, memory: MemoryConfig) -> NodeId {
        let mut world = self.world.borrow_mut();
        let memory = SimMemory::new(memory, world.seed().stream(&format!("memory of {name}")));
        if memory.is_unforgiving() {
            self.unforgiving.borrow_mut().push(memory.clone());
        }
        world.add_node(name, device, memory, latency)
    }

    /// Joins two ports with a cable.
    pub fn connect(
        &self,
        a: impl Into<NodeOrSwitch>,
        b: impl Into<NodeOrSwitch>,
        config: LinkConfig,
    ) -> Result<LinkId, TopologyError> {
        self.world.borrow_mut().connect(a, b, config)
    }

    /// Does something to the world. `work` must not use a driver or a handle of this world.
    pub fn with<R>(&self, work: impl FnOnce(&mut World<SimMemory, D>) -> R) -> R {
        work(&mut self.world.borrow_mut())
    }

    /// The present, in virtual time.
    #[inline]
    pub fn now(&self) -> Time {
        self.world.borrow().now()
    }

    /// The event digest.
    pub fn digest(&self) -> u64 {
        self.world.borrow().digest()
    }

    /// Jumps to the next event and does everything that is due then.
    pub fn step(&self) -> Step {
        let step = self.world.borrow_mut().step();
        self.drain_stores();
        step
    }

    /// Does everything that is due until `deadline` and ends there.
    pub fn run_until(&self, deadline: Time) {
        self.drain_stores();
        self.world.borrow_mut().run_until(deadline);
    }

    /// Steps while `waiting` says so; it may use drivers of this world. An idle world or a passed `deadline` is a report and
    /// not a hang.
    pub fn run_while(&self, mut waiting: impl FnMut() -> bool, deadline: Time) -> Result<(), Box<Stalled>> {
        while waiting() {
            self.step_for(deadline).map_err(|reason| self.stalled(reason))?;
            self.drain_stores();
        }
        Ok(())
    }

    fn step_for(&self, deadline: Time) -> Result<(), StallReason> {
        self.world.borrow_mut().run_next_or_stall(deadline)
    }

    fn stalled(&self, reason: StallReason) -> Box<Stalled> {
        Box::new(self.world.borrow().stalled(reason))
    }

    /// Runs the events that are due next if they are due until `deadline`; otherwise it becomes `deadline`.
    #[inline]
    pub(super) fn relax(&self, deadline: Time) {
        let mut world = self.world.borrow_mut();
        if !world.run_next(deadline) {
            world.run_until(deadline);
        }
        drop(world);
        self.drain_stores();
    }

    /// No processor keeps a store to itself for ever: what was stored before time passed is seen after it.
    #[inline]
    fn drain_stores(&self) {
        for memory in self.unforgiving.borrow().iter() {
            memory.drain_stores();
        }
    }

    #[inline]
    pub(super) fn mmio_read(&self, node: NodeId, offset: u64) -> u32 {
        self.world.borrow_mut().mmio_read(node, offset)
    }

    #[inline]
    pub(super) fn mmio_write(&self, node: NodeId, offset: u64, bytes: &[u8]) {
        self.world.borrow_mut().mmio_write(node, offset, bytes);
    }
}
