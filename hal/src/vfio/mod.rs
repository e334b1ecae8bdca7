//! A PCI function of this machine, driven from user space through VFIO.
//!
//! **What this is.** [`VfioHal::open`] checks for obstacles ([`Tree::preflight`]), opens the device through iommufd or
//! a type 1 container (or without an IOMMU if asked to), resets it, maps BAR0, allocates memory on its NUMA node and
//! connects MSI-X. Register accesses are single volatile loads and stores; a polling driver makes no system call.
//! [`Hal::relax`] waits for an interrupt.
//!
//! **What it may not do.** It never forms a slice of BAR0. Dropping the [`VfioHal`] disconnects the interrupts, turns
//! off bus mastering and resets the device, in this order. If the process is killed, the kernel does this, and the next
//! open resets first.
//!
//! The crate `vfio-ioctls` opens container, group and device, and maps memory. `ioctl.rs` covers its gaps: the crate
//! only logs errors of regions and resets, supports no no-IOMMU mode, and supports iommufd only with KVM.
//!
//! **Where to read first.** [`VfioHal::open`].

mod error;
mod function;
mod ioctl;
mod iommu;
mod pins;

#[cfg(test)]
mod sequences;

pub use error::VfioError;
pub use iommu::{Iommu, IommuKind};

use crate::MappedBar;
use crate::clock::Clock;
use crate::interrupts::Interrupts;
use crate::memory::{Arena, ArenaConfig, ArenaReport, HostDma};
use crate::pci::{Address, Finding, Function, Need, State, Tree};
use bareverbs_core::hal::{Hal, HalError, WakeCount};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use core::ptr::NonNull;
use function::OpenFunction;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Configuration for opening a device.
///
/// ```
/// use bareverbs_hal::memory::ArenaConfig;
/// use bareverbs_hal::vfio::VfioConfig;
///
/// // An interrupt for events, and one for each of four threads.
/// let memory = ArenaConfig { limit: 1 << 30, ..ArenaConfig::default() };
/// let config = VfioConfig { memory, vectors: 5, ..VfioConfig::default() };
/// assert!(config.iommu.is_none());
/// ```
#[derive(Debug, Clone)]
pub struct VfioConfig {
    /// IOMMU mode. `None` selects iommufd if the kernel has it, else type 1. No-IOMMU mode must be requested
    /// explicitly.
    pub iommu: Option<IommuKind>,
    /// DMA memory. Without a NUMA node it uses the device's.
    pub memory: ArenaConfig,
    /// Most MSI-X vectors to connect; the device may have fewer.
    pub vectors: usize,
    /// Location of sysfs.
    pub tree: Tree,
}

impl Default for VfioConfig {
    fn default() -> Self {
        Self { iommu: None, memory: ArenaConfig::default(), vectors: 1, tree: Tree::default() }
    }
}

/// The HAL of a PCI function in user space.
///
/// ```
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_hal::vfio::{VfioConfig, VfioHal};
/// use std::error::Error;
///
/// fn open(address: &str) -> Result<Device<VfioHal>, Box<dyn Error>> {
///     let hal = VfioHal::open(address.parse()?, VfioConfig { vectors: 2, ..VfioConfig::default() })?;
///     hal.warnings().iter().for_each(|finding| eprintln!("{finding}"));
///     Ok(Device::open(hal, DeviceConfig::default())?)
/// }
/// ```
#[derive(Debug)]
pub struct VfioHal {
    // Drop order matters: the mapping of BAR0 keeps the device's file open.
    window: MappedBar,
    interrupts: Interrupts,
    arena: Arc<Arena<Iommu>>,
    function: Function,
    vectors: usize,
    warnings: Vec<Finding>,
    resettable: bool,
    clock: Clock,
}

impl VfioHal {
    /// Opens the function at `address`, which must be bound to `vfio-pci`.
    pub fn open(address: Address, config: VfioConfig) -> Result<Self, VfioError> {
        let VfioConfig { iommu, mut memory, vectors, tree } = config;
        let function = tree.function(address)?;
        let need = Need::of_this_process(memory.segment, iommu == Some(IommuKind::None));
        let findings = tree.preflight(address, &need)?;
        let (obstacles, rest): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|found| found.state == State::Bad);
        if !obstacles.is_empty() {
            return Err(VfioError::Preflight { address, obstacles });
        }
        memory.numa_node = memory.numa_node.or(function.numa_node);
        let iommu = Iommu::open(&tree, &function, iommu)?;
        // The previous user may have left the device in any state.
        let resettable = OpenFunction { file: iommu.device(), address }.reset()?;
        let arena = Arena::new(iommu, memory).map_err(|error| VfioError::Memory { address, error })?;
        let arena = Arc::new(arena);
        let open = OpenFunction { file: arena.mapper().device(), address };
        open.set_bus_master(true)?;
        let window = open.map_bar()?;
        let vectors = vectors.min(open.vectors()? as usize);
        let failed = |error| VfioError::System { what: "making event file descriptors", address, error };
        let interrupts = Interrupts::new(vectors + 1).map_err(failed)?;
        open.connect_vectors(&interrupts, vectors)?;
        if let Some(event) = interrupts.event(vectors) {
            open.connect_request(event);
        }
        let warnings = rest.into_iter().filter(|found| found.state == State::Warning).collect();
        let clock = Clock::start();
        Ok(Self { window, interrupts, arena, function, vectors, warnings, resettable, clock })
    }

    /// The function as sysfs describes it.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Findings of the preflight that are not fatal, with remedies.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// The IOMMU mode in use.
    pub fn iommu(&self) -> IommuKind {
        self.arena.mapper().kind()
    }

    /// Whether the device was reset when it was opened. If not, it has no reset method.
    pub fn was_reset(&self) -> bool {
        self.resettable
    }

    /// Usage and limits of DMA memory, and its page sizes.
    pub fn memory(&self) -> ArenaReport {
        self.arena.report()
    }

    /// Number of connected MSI-X vectors.
    pub fn vectors(&self) -> usize {
        self.vectors
    }

    /// Number of times MSI-X vector `vector` has fired since the device was opened.
    pub fn interrupts(&self, vector: usize) -> u64 {
        if vector < self.vectors { self.interrupts.count(vector) } else { 0 }
    }

    /// A file descriptor that is readable when any interrupt has fired. [`Self::interrupts`] and every wait of the
    /// driver empty it, so an event loop should use [`Self::vector_fd`].
    pub fn interrupt_fd(&self) -> BorrowedFd<'_> {
        self.interrupts.any()
    }

    /// A file descriptor for epoll or `poll`. It becomes readable when interrupt `vector` fires, and stays so until
    /// [`Self::drain_vector`]. Other threads that wait on this device, such as for a command's completion, do not
    /// consume it. Get it before arming the vector's completion channel. `None` if there is no such vector.
    ///
    /// Do not read from it. For the order of steps in an event loop see
    /// [`CompletionChannel::arm`](bareverbs_core::CompletionChannel::arm).
    pub fn vector_fd(&self, vector: u16) -> Option<BorrowedFd<'_>> {
        (usize::from(vector) < self.vectors).then(|| self.interrupts.watch(vector.into()))?
    }

    /// Makes [`Self::vector_fd`] unreadable until the vector fires again. Poll the channel afterwards.
    pub fn drain_vector(&self, vector: u16) {
        self.interrupts.drain(vector.into());
    }

    /// Whether the kernel wants the device back: an unplug or unbind is waiting for this value to be dropped.
    pub fn is_wanted_back(&self) -> bool {
        self.interrupts.count(self.vectors) > 0
    }

    fn open_function(&self) -> OpenFunction<'_> {
        OpenFunction { file: self.arena.mapper().device(), address: self.function.address }
    }
}

impl Hal for VfioHal {
    type Mmio = MappedBar;
    type Dma = HostDma<Iommu>;

    #[inline(always)]
    fn mmio(&self) -> &MappedBar {
        &self.window
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<HostDma<Iommu>, HalError> {
        self.arena.allocate(length, alignment)
    }

    fn allocate_private(&self, length: usize, alignment: usize) -> Result<HostDma<Iommu>, HalError> {
        self.arena.allocate_private(length, alignment)
    }

    fn pci_identity(&self) -> Option<PciIdentity> {
        self.open_function().identity().ok()
    }

    fn interrupt_vectors(&self) -> Option<usize> {
        Some(self.vectors)
    }

    fn quiet_vector(&self, vector: u16) {
        self.drain_vector(vector);
    }

    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<HostDma<Iommu>, HalError> {
        // SAFETY: the caller keeps the promises of `Hal::map_user`, which are those of `Arena::map_user`.
        unsafe { self.arena.map_user(start, length) }
    }

    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits for an interrupt. A signal ends the wait early.
    fn relax(&self, deadline: Time) {
        self.interrupts.wait(self.interrupts.noticed(), self.clock.left(deadline));
    }

    fn wake_count(&self) -> WakeCount {
        WakeCount(self.interrupts.noticed())
    }

    fn relax_since(&self, before: WakeCount, deadline: Time) {
        self.interrupts.wait(before.0, self.clock.left(deadline));
    }
}

impl Drop for VfioHal {
    /// A device that is gone needs no cleanup, and waiting for its reset would be futile.
    fn drop(&mut self) {
        let function = self.open_function();
        let _ = function.disconnect_vectors();
        if function.set_bus_master(false).is_ok() {
            let _ = function.reset();
        }
    }
}
