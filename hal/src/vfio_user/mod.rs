//! A device that another process serves over vfio-user: the driver runs here, the device there.
//!
//! **What this is.** [`VfioUserHal::connect`] connects to a server such as `bareverbs serve`. Register accesses are
//! messages: reads wait for the reply, writes do not. Where the server offers pages of BAR0 for mapping, accesses go to
//! shared memory instead. DMA memory is a memory file that the server maps; interrupts are event file descriptors.
//!
//! **What it may not do.** A server that disappears or violates the protocol does no harm: from then on registers read
//! as all ones, like those of an unplugged device, and [`VfioUserHal::failure`] has the reason. Memory of the
//! application cannot be registered, because the server could not map it.
//!
//! **Where to read first.** [`VfioUserHal::connect`].

mod client;
mod device;
mod error;
mod window;

pub use client::{ClientError, CommandSubject};
pub use device::RemoteMemory;
pub use error::VfioUserError;
pub use window::RemoteBar;

use crate::clock::Clock;
use crate::interrupts::Interrupts;
use crate::memory::{Arena, ArenaConfig, ArenaReport, HostDma};
use bareverbs_core::hal::{Hal, HalError, WakeCount};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use core::ptr::NonNull;
use device::RemoteDevice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Configuration for connecting to a server.
///
/// ```
/// use bareverbs_hal::vfio_user::VfioUserConfig;
/// use std::time::Duration;
///
/// let config = VfioUserConfig { answer_limit: Duration::from_secs(1), ..VfioUserConfig::default() };
/// assert_eq!(config.vectors, 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct VfioUserConfig {
    /// DMA memory. It is always shared.
    pub memory: ArenaConfig,
    /// Most MSI-X vectors to connect; the device may have fewer.
    pub vectors: usize,
    /// Longest wait for a reply.
    pub answer_limit: Duration,
}

impl Default for VfioUserConfig {
    fn default() -> Self {
        Self { memory: ArenaConfig::default(), vectors: 1, answer_limit: Duration::from_secs(10) }
    }
}

/// The HAL of a device that another process serves.
///
/// ```
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
/// use std::error::Error;
/// use std::path::Path;
///
/// /// The other side: `bareverbs serve --link eth --socket /tmp/nic0`.
/// fn open() -> Result<Device<VfioUserHal>, Box<dyn Error>> {
///     let hal = VfioUserHal::connect(Path::new("/tmp/nic0"), VfioUserConfig::default())?;
///     Ok(Device::open(hal, DeviceConfig::default())?)
/// }
/// ```
#[derive(Debug)]
pub struct VfioUserHal {
    window: RemoteBar,
    interrupts: Interrupts,
    arena: Arc<Arena<RemoteMemory>>,
    device: Arc<RemoteDevice>,
    vectors: usize,
    clock: Clock,
}

impl VfioUserHal {
    /// Connects to the server at `path` and resets its device.
    pub fn connect(path: &Path, config: VfioUserConfig) -> Result<Self, VfioUserError> {
        let device = Arc::new(RemoteDevice::connect(path, config.answer_limit)?);
        device.check_identity()?;
        device.reset()?;
        let memory = ArenaConfig { shared: true, ..config.memory };
        let arena = Arena::new(RemoteMemory::new(device.clone()), memory).map_err(VfioUserError::Memory)?;
        device.set_bus_master(true)?;
        let window = RemoteBar::open(device.clone())?;
        let vectors = config.vectors.min(device.vectors()? as usize);
        let interrupts = Interrupts::new(vectors).map_err(VfioUserError::System)?;
        for vector in 0..vectors {
            if let Some(event) = interrupts.event(vector) {
                device.connect_vector(vector as u32, event)?;
            }
        }
        Ok(Self { window, interrupts, arena: Arc::new(arena), device, vectors, clock: Clock::start() })
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
        self.interrupts.count(vector)
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

    /// Why the device is gone, if it is.
    pub fn failure(&self) -> Option<String> {
        self.device.failure()
    }

    /// Bytes of BAR0 accessed through shared pages.
    pub fn shared_register_bytes(&self) -> usize {
        self.window.shared_bytes()
    }
}

impl Hal for VfioUserHal {
    type Mmio = RemoteBar;
    type Dma = HostDma<RemoteMemory>;

    fn mmio(&self) -> &RemoteBar {
        &self.window
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<HostDma<RemoteMemory>, HalError> {
        self.arena.allocate(length, alignment)
    }

    fn allocate_private(&self, length: usize, alignment: usize) -> Result<HostDma<RemoteMemory>, HalError> {
        self.arena.allocate_private(length, alignment)
    }

    fn pci_identity(&self) -> Option<PciIdentity> {
        self.device.identity().ok()
    }

    fn interrupt_vectors(&self) -> Option<usize> {
        Some(self.vectors)
    }

    fn quiet_vector(&self, vector: u16) {
        self.drain_vector(vector);
    }

    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<HostDma<RemoteMemory>, HalError> {
        // SAFETY: the caller keeps the promises of `Hal::map_user`, which are those of `Arena::map_user`.
        unsafe { self.arena.map_user(start, length) }
    }

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

impl Drop for VfioUserHal {
    /// A server that is gone needs no cleanup; a live one resets its device when the connection closes.
    fn drop(&mut self) {
        let _ = self.device.disconnect_vectors();
        let _ = self.device.set_bus_master(false);
        let _ = self.device.reset();
    }
}

#[cfg(test)]
mod tests;
