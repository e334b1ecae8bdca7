//! The three places: in process, vfio-user and VFIO.

use super::Place;
use anyhow::Result;
use bareverbs_core::hal::Hal;
use bareverbs_hal::memory::ArenaConfig;
use bareverbs_hal::pci::Address;
use bareverbs_hal::vfio::{VfioConfig, VfioHal};
use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{NodeId, Preset};
use std::path::PathBuf;

/// MSI-X vectors that are connected.
const VECTORS: usize = 4;

/// Two simulated devices in this process, in virtual time.
pub struct InProcess {
    world: SimWorld,
    nodes: [NodeId; 2],
}

impl InProcess {
    /// A world with two devices and a cable.
    pub fn new(seed: u64, memory: MemoryConfig) -> Self {
        let world = SimWorld::new(seed);
        let nodes = [1, 2].map(|number| {
            let nic = Nic::new(NicConfig::new(crate::node::mac(number)));
            world.add_node(&format!("end {number}"), nic, Preset::STROM_100G.node, memory)
        });
        world.connect(nodes[0], nodes[1], Preset::STROM_100G.link).expect("two free ports");
        Self { world, nodes }
    }
}

impl Place for InProcess {
    type Hal = SimHal;

    fn open(&mut self, end: usize) -> Result<SimHal> {
        Ok(self.world.hal(self.nodes[end]))
    }

    fn interrupts(hal: &SimHal) -> u64 {
        hal.interrupts().iter().map(|(_, count)| count).sum()
    }

    fn no_user_memory(&self) -> Option<&'static str> {
        None
    }

    fn memory_used(hal: &SimHal) -> u64 {
        hal.memory().counters().bytes
    }

    fn describe(hal: &SimHal) -> String {
        format!("simulated at {}", hal.now())
    }
}

/// Two devices that other processes, or threads, serve.
pub struct OverVfioUser {
    /// Their sockets.
    pub sockets: [PathBuf; 2],
    /// DMA memory.
    pub memory: ArenaConfig,
}

impl Place for OverVfioUser {
    type Hal = VfioUserHal;

    fn open(&mut self, end: usize) -> Result<VfioUserHal> {
        let config = VfioUserConfig { memory: self.memory, vectors: VECTORS, ..VfioUserConfig::default() };
        Ok(VfioUserHal::connect(&self.sockets[end], config)?)
    }

    fn interrupts(hal: &VfioUserHal) -> u64 {
        (0..hal.vectors()).map(|vector| hal.interrupts(vector)).sum()
    }

    fn no_user_memory(&self) -> Option<&'static str> {
        Some("another process cannot map memory of the application")
    }

    fn memory_used(hal: &VfioUserHal) -> u64 {
        hal.memory().used as u64
    }

    fn describe(hal: &VfioUserHal) -> String {
        hal.memory().segments.iter().map(|segment| format!("served, {segment}")).collect()
    }
}

/// Two PCI functions of this machine.
pub struct OverVfio {
    /// Their PCI addresses.
    pub addresses: [Address; 2],
    /// How they are opened.
    pub config: VfioConfig,
}

impl OverVfio {
    /// Functions that are bound to vfio-pci.
    pub fn new(addresses: [Address; 2], memory: ArenaConfig) -> Self {
        Self { addresses, config: VfioConfig { memory, vectors: VECTORS, ..VfioConfig::default() } }
    }
}

impl Place for OverVfio {
    type Hal = VfioHal;

    fn open(&mut self, end: usize) -> Result<VfioHal> {
        Ok(VfioHal::open(self.addresses[end], self.config.clone())?)
    }

    fn interrupts(hal: &VfioHal) -> u64 {
        (0..hal.vectors()).map(|vector| hal.interrupts(vector)).sum()
    }

    fn no_user_memory(&self) -> Option<&'static str> {
        None
    }

    fn memory_used(hal: &VfioHal) -> u64 {
        let report = hal.memory();
        (report.used + report.user) as u64
    }

    fn describe(hal: &VfioHal) -> String {
        let memory: Vec<String> = hal.memory().segments.iter().map(ToString::to_string).collect();
        format!("{} by {}, {}", hal.function().address, hal.iommu(), memory.join(", "))
    }
}
