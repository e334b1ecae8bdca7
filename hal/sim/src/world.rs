//! A simulated world shared by the drivers of one thread.

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

/// A shared handle to a world whose nodes have simulated memory. Clones refer to the same world.
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
    /// The unforgiving memories of the nodes.
    unforgiving: Rc<RefCell<Vec<SimMemory>>>,
}

impl<D> Clone for SimWorld<D> {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), unforgiving: self.unforgiving.clone() }
    }
}

impl<D: Device> SimWorld<D> {
    /// An empty world. All random choices follow from the seed.
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

    /// Connects two ports with a cable.
    pub fn connect(
        &self,
        a: impl Into<NodeOrSwitch>,
        b: impl Into<NodeOrSwitch>,
        config: LinkConfig,
    ) -> Result<LinkId, TopologyError> {
        self.world.borrow_mut().connect(a, b, config)
    }

    /// Calls `work` with the world. `work` must not use a driver or a handle of this world.
    pub fn with<R>(&self, work: impl FnOnce(&mut World<SimMemory, D>) -> R) -> R {
        work(&mut self.world.borrow_mut())
    }

    /// Current virtual time.
    #[inline]
    pub fn now(&self) -> Time {
        self.world.borrow().now()
    }

    /// The digest of all events so far.
    pub fn digest(&self) -> u64 {
        self.world.borrow().digest()
    }

    /// Advances to the next event and runs everything due at that time.
    pub fn step(&self) -> Step {
        let step = self.world.borrow_mut().step();
        self.drain_stores();
        step
    }

    /// Runs everything due until `deadline` and advances to it.
    pub fn run_until(&self, deadline: Time) {
        self.drain_stores();
        self.world.borrow_mut().run_until(deadline);
    }

    /// Steps while `waiting` returns true; `waiting` may use drivers of this world. If the world is idle or `deadline`
    /// passes, it returns a report instead of hanging.
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

    /// Runs the next events if they are due by `deadline`; otherwise advances to `deadline`.
    #[inline]
    pub(super) fn relax(&self, deadline: Time) {
        let mut world = self.world.borrow_mut();
        if !world.run_next(deadline) {
            world.run_until(deadline);
        }
        drop(world);
        self.drain_stores();
    }

    /// Makes pending stores visible when time passes: no processor delays a store forever.
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
