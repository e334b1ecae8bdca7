//! A simulated device in real time: one device of this process, whose wire leaves the process.
//!
//! Register accesses are function calls and DMA memory is heap memory, as elsewhere in this crate. Time is the
//! machine's, and frames come from a [`FrameIo`]. Driver and device share one thread: the device makes progress
//! whenever the driver relaxes.

use crate::registers::mmio_by_bytes;
use crate::{MemoryConfig, SimDma, SimMemory};
use bareverbs_core::hal::{Barrier, Hal, HalError};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use bareverbs_serve::real_time::{FrameIo, RealTime};
use bareverbs_sim::run::{Device, Seed};
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// The HAL of one device in real time. Clones refer to the same device.
///
/// ```no_run
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_hal_sim::MemoryConfig;
/// use bareverbs_hal_sim::real_time::RealTimeHal;
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_serve::real_time::UdpIo;
/// use bareverbs_sim::nic::{Nic, NicConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1])));
/// let wire = UdpIo::bind("10.0.0.1:9000".parse()?, "10.0.0.2:9000".parse()?)?;
/// let hal = RealTimeHal::new(nic, wire, MemoryConfig::default(), 1);
/// let device = Device::open(hal.clone(), DeviceConfig::default())?;
/// assert!(hal.take_failure().is_none(), "the wire holds");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RealTimeHal<D, F> {
    mmio: RealTimeMmio<D, F>,
}

/// The BAR0 window of a device in real time. Every access is a function call.
#[derive(Debug)]
pub struct RealTimeMmio<D, F> {
    shared: Rc<Shared<D, F>>,
}

#[derive(Debug)]
struct Shared<D, F> {
    runner: RefCell<RealTime<SimMemory, D, F>>,
    memory: SimMemory,
    failure: RefCell<Option<io::Error>>,
}

impl<D, F> Clone for RealTimeHal<D, F> {
    fn clone(&self) -> Self {
        Self { mmio: RealTimeMmio { shared: Rc::clone(&self.mmio.shared) } }
    }
}

impl<D: Device, F: FrameIo> RealTimeHal<D, F> {
    /// Connects a device to the wire `io`. The seed determines the random choices of unforgiving memory.
    pub fn new(device: D, io: F, memory: MemoryConfig, seed: u64) -> Self {
        let memory = SimMemory::new(memory, Seed(seed).stream("memory"));
        let runner = RefCell::new(RealTime::new(device, memory.clone(), io));
        Self {
            mmio: RealTimeMmio { shared: Rc::new(Shared { runner, memory, failure: RefCell::new(None) }) },
        }
    }

    /// Calls `work` with the runner. `work` must not use this device's driver.
    pub fn with<R>(&self, work: impl FnOnce(&mut RealTime<SimMemory, D, F>) -> R) -> R {
        work(&mut self.mmio.shared.runner.borrow_mut())
    }

    /// Takes the error that broke the wire. After such an error the device has no wire.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.mmio.shared.failure.borrow_mut().take()
    }

    fn try_relax(&self, deadline: Time) -> io::Result<()> {
        let mut runner = self.mmio.shared.runner.borrow_mut();
        if !runner.step()? {
            runner.rest(deadline)?;
        }
        Ok(())
    }
}

impl<D: Device, F: FrameIo> Hal for RealTimeHal<D, F> {
    type Mmio = RealTimeMmio<D, F>;
    type Dma = SimDma;

    fn mmio(&self) -> &RealTimeMmio<D, F> {
        &self.mmio
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<SimDma, HalError> {
        self.mmio.shared.memory.allocate(length, alignment)
    }

    #[allow(unsafe_code, reason = "the contract of the trait is handed on to SimMemory::map")]
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<SimDma, HalError> {
        // SAFETY: the caller keeps the promises of `Hal::map_user`, which are those of `SimMemory::map`.
        unsafe { self.mmio.shared.memory.map(start, length) }
    }

    fn pci_identity(&self) -> Option<PciIdentity> {
        self.mmio.shared.runner.borrow().device().pci_identity()
    }

    fn interrupt_vectors(&self) -> Option<usize> {
        Some(self.mmio.shared.runner.borrow().device().vectors().into())
    }

    fn now(&self) -> Time {
        self.mmio.shared.runner.borrow().now()
    }

    #[inline]
    fn barrier(&self, kind: Barrier) {
        compiler_fence(Ordering::SeqCst);
        self.mmio.shared.memory.barrier(kind);
    }

    /// A broken wire does not end the wait; see [`Self::take_failure`].
    fn relax(&self, deadline: Time) {
        self.mmio.shared.memory.leak();
        if let Err(error) = self.try_relax(deadline) {
            *self.mmio.shared.failure.borrow_mut() = Some(error);
        }
    }
}

impl<D: Device, F: FrameIo> RealTimeMmio<D, F> {
    fn read_register(&self, offset: usize) -> u32 {
        self.shared.runner.borrow_mut().mmio_read(offset as u64)
    }

    fn write_bytes(&self, offset: usize, bytes: &[u8]) {
        self.shared.memory.leak();
        self.shared.runner.borrow_mut().mmio_write(offset as u64, bytes);
    }

    fn window_length(&self) -> usize {
        self.shared.runner.borrow().device().bar_length() as usize
    }
}

mmio_by_bytes!([D: Device, F: FrameIo] RealTimeMmio<D, F>);
