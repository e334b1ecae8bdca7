//! The HAL of one simulated node.

use super::memory::{SimDma, SimMemory};
use super::world::SimWorld;
use crate::registers::mmio_by_bytes;
use bareverbs_core::hal::{Barrier, Hal, HalError};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::{Device, NodeId};
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};
use std::rc::Rc;

/// The HAL for the driver of one node in a simulated world.
#[derive(Debug)]
pub struct SimHal<D = Nic> {
    mmio: SimMmio<D>,
    omitted: Rc<Cell<Option<Barrier>>>,
}

/// The BAR0 window of a simulated device. Every access is a function call.
#[derive(Debug)]
pub struct SimMmio<D = Nic> {
    world: SimWorld<D>,
    node: NodeId,
    memory: SimMemory,
}

impl<D> Clone for SimHal<D> {
    fn clone(&self) -> Self {
        let SimMmio { world, node, memory } = &self.mmio;
        let mmio = SimMmio { world: world.clone(), node: *node, memory: memory.clone() };
        Self { mmio, omitted: self.omitted.clone() }
    }
}

impl<D: Device> SimWorld<D> {
    /// The HAL for the driver of `node`.
    pub fn hal(&self, node: NodeId) -> SimHal<D> {
        let memory = self.with(|world| world.memory(node).clone());
        SimHal::new(self.clone(), node, memory)
    }
}

impl<D: Device> SimHal<D> {
    pub(super) fn new(world: SimWorld<D>, node: NodeId, memory: SimMemory) -> Self {
        Self { mmio: SimMmio { world, node, memory }, omitted: Rc::default() }
    }

    /// Skips all barriers of this kind from now on, to show that a driver on unforgiving memory fails without them.
    /// Applies to all clones of this handle.
    pub fn omit_barrier(&self, kind: Option<Barrier>) {
        self.omitted.set(kind);
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.mmio.node
    }

    /// The node's world.
    pub fn world(&self) -> &SimWorld<D> {
        &self.mmio.world
    }

    /// The node's memory.
    pub fn memory(&self) -> &SimMemory {
        &self.mmio.memory
    }

    /// Returns and resets the number of interrupts on `vector`.
    pub fn take_interrupts(&self, vector: u16) -> u64 {
        self.mmio.world.with(|world| world.take_interrupts(self.mmio.node, vector))
    }

    /// Vectors with untaken interrupts, and their counts.
    pub fn interrupts(&self) -> Vec<(u16, u64)> {
        self.mmio.world.with(|world| world.pending_interrupts(self.mmio.node).collect())
    }
}

impl<D: Device> Hal for SimHal<D> {
    type Mmio = SimMmio<D>;
    type Dma = SimDma;

    fn mmio(&self) -> &SimMmio<D> {
        &self.mmio
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<SimDma, HalError> {
        self.mmio.memory.allocate(length, alignment)
    }

    #[allow(unsafe_code, reason = "the contract of the trait is handed on to SimMemory::map")]
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<SimDma, HalError> {
        // SAFETY: the caller keeps the promises of `Hal::map_user`, which are those of `SimMemory::map`.
        unsafe { self.mmio.memory.map(start, length) }
    }

    fn pci_identity(&self) -> Option<PciIdentity> {
        self.mmio.world.with(|world| world.device(self.mmio.node).pci_identity())
    }

    fn interrupt_vectors(&self) -> Option<usize> {
        Some(self.mmio.world.with(|world| world.device(self.mmio.node).vectors().into()))
    }

    #[inline]
    fn now(&self) -> Time {
        self.mmio.world.now()
    }

    /// Driver and device share one thread, so only the compiler must be kept from reordering. Unforgiving memory moves
    /// bytes here.
    #[inline]
    fn barrier(&self, kind: Barrier) {
        compiler_fence(Ordering::SeqCst);
        if self.omitted.get() != Some(kind) {
            self.mmio.memory.barrier(kind);
        }
    }

    fn relax(&self, deadline: Time) {
        self.mmio.memory.leak();
        self.mmio.world.relax(deadline);
    }
}

impl<D: Device> SimMmio<D> {
    #[inline]
    fn read_register(&self, offset: usize) -> u32 {
        self.world.mmio_read(self.node, offset as u64)
    }

    #[inline]
    fn write_bytes(&self, offset: usize, bytes: &[u8]) {
        self.memory.leak();
        self.world.mmio_write(self.node, offset as u64, bytes);
    }

    fn window_length(&self) -> usize {
        self.world.with(|world| world.device(self.node).bar_length() as usize)
    }
}

mmio_by_bytes!([D: Device] SimMmio<D>);
