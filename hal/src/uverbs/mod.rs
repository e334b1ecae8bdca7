//! A device that the kernel owns: `mlx5_core` has booted it, and the driver's objects live in it beside the kernel's. This is how a program on
//! the Arm cores of a BlueField reaches its network card.
//!
//! **What this is.** [`UverbsHal::open`] opens the device file of an RDMA device (`/dev/infiniband/uverbsN`) and gets a user context of the
//! device (DEVX). To the driver it looks like a device of its own: an initialization segment, a command queue, pages of doorbells. Commands
//! that bring a device up succeed without effect, because the kernel has done that. Commands that create, change and query objects are passed to
//! the kernel, which adds the number of the user context and hands them to firmware. Page lists become user memory objects on the way. No C library
//! is involved, and the data path is the driver's own: it writes work requests and reads completions as everywhere.
//!
//! **What it may not do.** It changes nothing that is the kernel's: capabilities, RoCE addresses, port, event queues. There are no interrupts
//! and no completion channels, so completion queues are polled. Fast registration, memory windows of type 1 and XRC are refused
//! ([`UverbsHal::last_refusal`] says why). Unsafe code is in `request` (the system call) and `memory` only.
//!
//! **Where to read first.** [`UverbsHal::open`], then `firmware` for what becomes of a command.

mod context;
mod doorbells;
mod error;
mod find;
mod firmware;
#[allow(unsafe_code, reason = "memory that driver and device share")]
mod memory;
mod neighbour;
mod objects;
mod port;
mod queue;
#[allow(unsafe_code, reason = "the system call of the kernel's device files")]
mod request;
mod rewrite;
mod window;

pub use error::UverbsError;
pub use memory::KernelMemory;
pub use neighbour::resolve_neighbour;
pub use port::{KernelPort, query_capabilities, query_port};
pub use window::KernelWindow;

use crate::clock::Clock;
use crate::memory::{Arena, ArenaConfig, ArenaReport, HostDma};
use bareverbs_core::hal::{Hal, HalError};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::{Duration, Time};
use context::KernelContext;
use core::ptr::NonNull;
use std::sync::Arc;

/// The only port that a device has here.
const PORT: u8 = 1;
/// Longest sleep of a wait. Nothing wakes a waiter, so it has to look again soon.
const NAP: Duration = Duration::from_micros(50);

/// Configuration for opening a kernel's device.
///
/// ```
/// use bareverbs_hal::memory::ArenaConfig;
/// use bareverbs_hal::uverbs::UverbsConfig;
///
/// // For a user who may lock more memory: pieces of 32 MiB.
/// let config = UverbsConfig { memory: ArenaConfig::default() };
/// assert!(config.memory.segment > UverbsConfig::default().memory.segment);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct UverbsConfig {
    /// DMA memory.
    pub memory: ArenaConfig,
}

impl Default for UverbsConfig {
    /// Takes memory in pieces of 2 MiB, since a user may lock 8 MiB in many systems (`ulimit -l`).
    fn default() -> Self {
        Self { memory: ArenaConfig { segment: 2 << 20, ..ArenaConfig::default() } }
    }
}

/// The HAL of a device that the kernel owns.
///
/// ```
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_hal::uverbs::{UverbsConfig, UverbsHal};
/// use std::error::Error;
///
/// /// The device `mlx5_0`, with the RoCE addresses that the kernel has given it.
/// fn open() -> Result<Device<UverbsHal>, Box<dyn Error>> {
///     let hal = UverbsHal::open("mlx5_0", UverbsConfig::default())?;
///     let device = Device::open(hal, DeviceConfig::default())?;
///     device.adopt_gids()?;
///     Ok(device)
/// }
/// ```
#[derive(Debug)]
pub struct UverbsHal {
    window: KernelWindow,
    arena: Arc<Arena<KernelMemory>>,
    identity: Option<PciIdentity>,
    clock: Clock,
}

impl UverbsHal {
    /// Opens the device with this name, such as `mlx5_0` (`ibv_devices` or `rdma link` list them).
    ///
    /// # Errors
    /// There is no such device, its file cannot be opened, or it has no user contexts.
    pub fn open(name: &str, config: UverbsConfig) -> Result<Self, UverbsError> {
        let found = find::find(name)?;
        let context = Arc::new(KernelContext::open(&found.file)?);
        let memory = KernelMemory::new(context.clone());
        let arena = Arc::new(Arena::new(memory, config.memory).map_err(UverbsError::Memory)?);
        let window = KernelWindow::new(context, arena.clone(), found.revision);
        Ok(Self { window, arena, identity: found.identity, clock: Clock::start() })
    }

    /// Usage and limits of DMA memory, and its page sizes.
    pub fn memory(&self) -> ArenaReport {
        self.arena.report()
    }

    /// Why the last refused command was refused. The driver's error has only its status.
    pub fn last_refusal(&self) -> Option<String> {
        self.window.with_firmware(|firmware| firmware.last_refusal.clone())
    }
}

impl Hal for UverbsHal {
    type Mmio = KernelWindow;
    type Dma = HostDma<KernelMemory>;

    fn mmio(&self) -> &KernelWindow {
        &self.window
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError> {
        self.arena.allocate(length, alignment)
    }

    fn allocate_private(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError> {
        self.arena.allocate_private(length, alignment)
    }

    #[allow(unsafe_code, reason = "the trait's method is unsafe")]
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Self::Dma, HalError> {
        // SAFETY: the caller keeps the promises of `Hal::map_user`, which are those of `Arena::map_user`.
        unsafe { self.arena.map_user(start, length) }
    }

    fn pci_identity(&self) -> Option<PciIdentity> {
        self.identity
    }

    /// None: interrupts are the kernel's.
    fn interrupt_vectors(&self) -> Option<usize> {
        Some(0)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn relax(&self, deadline: Time) {
        let left = self.clock.left(deadline).min(NAP);
        if left > Duration::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
        }
    }
}
