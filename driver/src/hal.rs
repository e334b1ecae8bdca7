//! The bus as a driver sees it. There is one instance for each device. The driver calls it, and never holds a pointer to
//! registers: with VFIO such a call is a single store, in the simulator a function call, with vfio-user a message.

pub use crate::barrier::Barrier;

use bareverbs_prm::time::Time;
use core::fmt;
use core::ptr::NonNull;

/// What a driver needs of the place it runs in.
pub trait Hal {
    /// The window into BAR0.
    type Mmio: Mmio;
    /// Memory that driver and device share.
    type Dma: DmaMemory;

    /// The window into BAR0 of the device.
    fn mmio(&self) -> &Self::Mmio;

    /// Gives `length` zeroed bytes, contiguous in I/O virtual address space and aligned there to `alignment`, a power of two.
    /// The CPU's address is aligned alike; to no more than 64 bytes where `length` is less than `alignment`.
    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError>;

    /// Gives `length` zeroed bytes for the driver's own books, aligned to `alignment`, a power of two up to 4096. The device is never told their address; where
    /// it has an IOMMU before it, it cannot reach them either, so that nothing it writes changes what the driver remembers. The default, for places
    /// in which the device reaches all memory anyway, gives DMA memory.
    ///
    /// # Errors
    /// The place has no memory left.
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
    /// * `start` is valid for reads and writes of `length` bytes, and the pages of 4 KiB that hold them stay mapped;
    /// * nobody holds a reference to any of those bytes, and other accesses to them do not race with those through the handle: two
    ///   handles of the same bytes are used by one thread at a time;
    /// * the device may reach the rest of the first and the last page too. Where it is not trusted, or its IOMMU works in larger pages,
    ///   nothing lies there that matters.
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Self::Dma, HalError>;

    /// Number of interrupt vectors that can wake somebody here, numbered from zero; `None` if the place does not know. A
    /// completion channel on another vector would wait for ever, so it is refused.
    fn interrupt_vectors(&self) -> Option<usize> {
        None
    }

    /// Interrupt `vector` was noticed: what waits for it outside of the driver, such as a file descriptor in an event loop, rests until it fires
    /// again. A place without such has nothing to do.
    fn quiet_vector(&self, vector: u16) {
        let _ = vector;
    }

    /// The time now.
    fn now(&self) -> Time;

    /// Orders memory accesses as `kind` says. The default is the native instruction of the processor.
    #[inline(always)]
    fn barrier(&self, kind: Barrier) {
        crate::barrier::native(kind);
    }

    /// The only point where a driver waits. Returns when something may have changed, and at `deadline` at the latest by the
    /// clock of [`Hal::now`]. It may return early, even at once.
    ///
    /// On silicon an interrupt ends the wait. A completion queue that is not armed raises none, so a caller that polls such a
    /// queue must pass a deadline shortly ahead, not the one of its whole operation.
    fn relax(&self, deadline: Time);

    /// Number of wake-ups so far. [`Self::relax_since`] does not sleep through a wake-up that comes after this call,
    /// whichever thread handles it.
    fn wake_count(&self) -> WakeCount {
        WakeCount(0)
    }

    /// As [`Self::relax`], but returns at once if a wake-up came after `before`. A place in which only one thread at a time
    /// waits may keep the default.
    fn relax_since(&self, before: WakeCount, deadline: Time) {
        let _ = before;
        self.relax(deadline);
    }
}

/// Number of wake-ups of a place, such as interrupts. See [`Hal::wake_count`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeCount(pub u64);

/// Registers of BAR0. Values are numbers: an implementation converts from and to the big-endian registers of the device.
pub trait Mmio {
    /// Reads the 32-bit register at byte `offset`.
    fn read32(&self, offset: usize) -> u32;
    /// Writes the 32-bit register at byte `offset`.
    fn write32(&self, offset: usize, value: u32);
    /// Writes 64 bits at byte `offset` in one transaction.
    fn write64(&self, offset: usize, value: u64);
    /// Writes a BlueFlame register: 64 bytes in memory order, one burst.
    fn write_block64(&self, offset: usize, block: &[u64; 8]);
    /// Bytes of the window.
    fn len(&self) -> usize;
    /// Whether the window is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that driver and device share.
///
/// # Safety
/// * `as_ptr()` is valid for reads and writes of `len()` bytes until the value is dropped.
/// * Neither `as_ptr()` nor `len()` nor `iova()` ever changes; a move of the value moves no byte.
/// * Nobody but the device and the holder of this value accesses those bytes. Memory of the application is what the caller of
///   [`Hal::map_user`] promised.
/// * What the device reads and writes from `iova()` on are these bytes and no others, until the value is dropped; then it reaches them no
///   more. Memory that the device cannot reach ([`Hal::allocate_private`]) has an `iova()` that is no address for the device.
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

/// Why a place could not provide memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalError {
    /// The place has no DMA memory left for `length` bytes aligned to `alignment`.
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
