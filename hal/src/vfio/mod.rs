//! A PCI function of this machine in user space, through VFIO.
//!
//! **What this is.** [`VfioHal::open`] looks at everything that can be in the way ([`Tree::preflight`]), opens the device
//! by iommufd or a container of type 1 (or without an IOMMU, where that is asked for), resets it, maps BAR0, takes memory
//! near it and connects MSI-X. Registers are single volatile loads and stores; a driver that polls makes no system call.
//! [`Hal::relax`] waits for an interrupt.
//!
//! **What it may not do.** It never makes a slice of BAR0. Dropping the [`VfioHal`] takes the interrupts away, forbids the
//! device to reach memory and resets it, in this order; a process that is killed leaves that to the kernel, and the next
//! open resets first.
//!
//! The crate `vfio-ioctls` opens container, group and device and maps memory. Where it falls short, `ioctl.rs` is our
//! own: errors of regions and of reset are only logged by it, it knows no way without an IOMMU, and iommufd only with KVM.
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
use crate::interrupts::{Clock, Interrupts};
use crate::memory::{Arena, ArenaConfig, ArenaReport, HostDma};
use crate::pci::{Address, Finding, Function, Need, State, Tree};
use bareverbs_core::hal::{Hal, HalError, WakeCount};
use bareverbs_prm::time::Time;
use core::ptr::NonNull;
use function::OpenFunction;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How to open a device.
#[derive(Debug, Clone)]
pub struct VfioConfig {
    /// How the device reaches memory; `None` takes iommufd where the kernel has it, else type 1. To do without an IOMMU has
    /// to be asked for.
    pub iommu: Option<IommuKind>,
    /// DMA memory. The NUMA node is the device's if none is named.
    pub memory: ArenaConfig,
    /// MSI-X vectors to connect; the device may have fewer.
    pub vectors: usize,
    /// Where sysfs is.
    pub tree: Tree,
}

impl Default for VfioConfig {
    fn default() -> Self {
        Self { iommu: None, memory: ArenaConfig::default(), vectors: 1, tree: Tree::default() }
    }
}

/// The bus of a device in user space.
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
    // Dropped in this order: the mapping of BAR0 keeps the device's file open.
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
    /// Opens the function at `address`, which must be with `vfio-pci`.
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
        // Whoever had the device before may have left it in the middle of something.
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

    /// What sysfs said of the function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// What could be better, and how.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// How the device reaches memory.
    pub fn iommu(&self) -> IommuKind {
        self.arena.mapper().kind()
    }

    /// Whether the device was reset when it was opened; if not, it has no way to be.
    pub fn was_reset(&self) -> bool {
        self.resettable
    }

    /// Usage and limits of DMA memory, and which pages were chosen.
    pub fn memory(&self) -> ArenaReport {
        self.arena.report()
    }

    /// MSI-X vectors that are connected.
    pub fn vectors(&self) -> usize {
        self.vectors
    }

    /// How often MSI-X vector `vector` fired since the device was opened.
    pub fn interrupts(&self, vector: usize) -> u64 {
        if vector < self.vectors { self.interrupts.count(vector) } else { 0 }
    }

    /// A file descriptor that is readable when any interrupt has fired, whoever is meant. [`Self::interrupts`] empties it, and
    /// so does every wait of the driver: an event loop waits for [`Self::vector_fd`].
    pub fn interrupt_fd(&self) -> BorrowedFd<'_> {
        self.interrupts.any()
    }

    /// A file descriptor for epoll, `poll` and the like that is readable once interrupt `vector` has fired, until
    /// [`Self::drain_vector`] is called. Other threads that wait for this device, for the answer to a command above all, do not
    /// take it away. Ask for it before the completion channel of the vector is armed. `None` if there is no such vector.
    ///
    /// Do not read from it. The order of a loop is that of
    /// [`CompletionChannel::arm`](bareverbs_core::CompletionChannel::arm).
    pub fn vector_fd(&self, vector: u16) -> Option<BorrowedFd<'_>> {
        (usize::from(vector) < self.vectors).then(|| self.interrupts.watch(vector.into()))?
    }

    /// Makes [`Self::vector_fd`] unreadable again, until the vector fires the next time; poll the channel afterwards.
    pub fn drain_vector(&self, vector: u16) {
        self.interrupts.drain(vector.into());
    }

    /// Whether the system wants the device back: it is being unplugged or unbound, which waits until this is dropped.
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
    /// A device that is gone cannot be quietened, and need not be; its reset would be waited for in vain.
    fn drop(&mut self) {
        let function = self.open_function();
        let _ = function.disconnect_vectors();
        if function.set_bus_master(false).is_ok() {
            let _ = function.reset();
        }
    }
}
