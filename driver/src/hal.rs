//! The hardware abstraction: the bus as a driver sees it. There is one instance per device. The driver calls it and
//! never holds a pointer to registers. With VFIO such a call is a single store, in the simulator a function call, with
//! vfio-user a message.

mod either;

pub use crate::barrier::Barrier;
pub use either::Either;

use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use core::fmt;
use core::ptr::NonNull;

/// What a driver requires from its environment.
pub trait Hal {
    /// The window into BAR0.
    type Mmio: Mmio;
    /// Memory shared by driver and device.
    type Dma: DmaMemory;

    /// The window into BAR0 of the device.
    fn mmio(&self) -> &Self::Mmio;

    /// Allocates `length` zeroed bytes, contiguous in I/O virtual address space and aligned there to `alignment`, a
    /// power of two. The CPU address is aligned alike, except that 64 bytes suffice if `length` is less than
    /// `alignment`.
    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError>;

    /// Allocates `length` zeroed bytes for the driver's own bookkeeping, aligned to `alignment`, a power of two up to
    /// 4096. The device never learns their address; behind an IOMMU it cannot access them, so it cannot corrupt the
    /// driver's records. The default implementation returns DMA memory, for environments where the device can access
    /// all memory anyway.
    ///
    /// # Errors
    /// No memory is left.
    fn allocate_private(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError> {
        self.allocate_dma(length, alignment)
    }

    /// Maps memory that the caller owns for the device, until the handle is dropped.
    ///
    /// # Errors
    /// The system cannot map the memory.
    ///
    /// # Safety
    /// Until the handle is dropped:
    /// - `start` is valid for reads and writes of `length` bytes, and the 4 KiB pages that contain them stay mapped;
    /// - nobody holds a reference to any of these bytes, and other accesses to them do not race with accesses through
    ///   the handle: one thread at a time uses two handles of the same bytes;
    /// - the device may access the rest of the first and the last page, too. If it is not trusted, or its IOMMU uses
    ///   larger pages, nothing sensitive may be there.
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Self::Dma, HalError>;

    /// Identity of the PCI function from its configuration space; `None` if the environment does not know it or the device is gone.
    fn pci_identity(&self) -> Option<PciIdentity> {
        None
    }

    /// Number of interrupt vectors that can wake a waiter, numbered from zero; `None` if unknown. A completion channel
    /// on any other vector is refused, because it would wait forever.
    fn interrupt_vectors(&self) -> Option<usize> {
        None
    }

    /// Notes that interrupt `vector` has been handled. Whatever waits for it outside the driver, such as a file
    /// descriptor in an event loop, must stay quiet until the next interrupt. The default does nothing.
    fn quiet_vector(&self, vector: u16) {
        let _ = vector;
    }

    /// Current time.
    fn now(&self) -> Time;

    /// Orders memory accesses as `kind` says. The default is the native instruction of the processor.
    #[inline(always)]
    fn barrier(&self, kind: Barrier) {
        crate::barrier::native(kind);
    }

    /// Waits. This is the only place where a driver waits. Returns when something may have changed, and at the latest
    /// at `deadline` on the clock of [`Hal::now`]. May return early, even immediately.
    ///
    /// On hardware an interrupt ends the wait. A completion queue that is not armed raises none, so a caller that polls
    /// such a queue must pass a deadline in the near future, not that of its whole operation.
    fn relax(&self, deadline: Time);

    /// Number of wakeups so far. [`Self::relax_since`] does not sleep through a wakeup that follows this call, no
    /// matter which thread handles it.
    fn wake_count(&self) -> WakeCount {
        WakeCount(0)
    }

    /// Like [`Self::relax`], but returns immediately if a wakeup has occurred since `before`. The default suffices if
    /// only one thread waits at a time.
    fn relax_since(&self, before: WakeCount, deadline: Time) {
        let _ = before;
        self.relax(deadline);
    }
}

/// Number of wakeups, such as interrupts. See [`Hal::wake_count`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeCount(pub u64);

/// Registers in BAR0. Arguments and results are numbers: the implementation converts to and from the device's
/// big-endian registers.
pub trait Mmio {
    /// Reads the 32-bit register at byte `offset`.
    fn read32(&self, offset: usize) -> u32;
    /// Writes the 32-bit register at byte `offset`.
    fn write32(&self, offset: usize, value: u32);
    /// Writes 64 bits at byte `offset` in one transaction.
    fn write64(&self, offset: usize, value: u64);
    /// Writes 64 bytes in memory order to a BlueFlame register, as one burst.
    fn write_block64(&self, offset: usize, block: &[u64; 8]);
    /// Length of the window in bytes.
    fn len(&self) -> usize;
    /// Whether the window is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory shared by driver and device.
///
/// # Safety
/// * `as_ptr()` is valid for reads and writes of `len()` bytes until the value is dropped.
/// * Neither `as_ptr()` nor `len()` nor `iova()` ever changes; a move of the value moves no byte.
/// * Only the device and the holder of this value access those bytes. For application memory, the caller of
///   [`Hal::map_user`] has guaranteed this.
/// * From `iova()` on, the device accesses exactly these bytes until the value is dropped, and none of them
///   afterwards. Memory that the device cannot reach ([`Hal::allocate_private`]) has an `iova()` that is not
///   valid for the device.
pub unsafe trait DmaMemory {
    /// First address as the device sees it.
    fn iova(&self) -> u64;
    /// First address as the processor sees it.
    fn as_ptr(&self) -> NonNull<u8>;
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why memory could not be provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalError {
    /// No DMA memory is left for `length` bytes aligned to `alignment`.
    OutOfDmaMemory {
        /// Bytes requested.
        length: usize,
        /// Alignment requested.
        alignment: usize,
    },
    /// The alignment is not a power of two, or the length is zero.
    BadRequest {
        /// Bytes requested.
        length: usize,
        /// Alignment requested.
        alignment: usize,
    },
    /// Memory could not be mapped for the device.
    MapFailed {
        /// Bytes to map.
        length: usize,
        /// The system's errno, or 0 if there is none.
        errno: i32,
    },
}

impl fmt::Display for HalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfDmaMemory { length, alignment } => write!(
                f,
                "no DMA memory for {length} bytes aligned to {alignment}: give the backend a larger arena"
            ),
            Self::BadRequest { length, alignment } => write!(
                f,
                "DMA request of {length} bytes aligned to {alignment}: need a length and a power of two"
            ),
            Self::MapFailed { length, errno } => {
                write!(
                    f,
                    "mapping {length} bytes for the device failed with errno {errno}: check memlock and the IOMMU"
                )
            }
        }
    }
}

impl core::error::Error for HalError {}
