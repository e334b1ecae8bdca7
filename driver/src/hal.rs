//! The bus, as a driver sees it: one instance a device, asked by calls and never through a pointer to registers.
//!
//! VFIO compiles these calls to single stores, the simulator to function calls, vfio-user to messages.

use bareverbs_prm::time::Time;
use core::fmt;
use core::ptr::NonNull;

/// What a driver needs of the place it lives in.
pub trait Hal {
    /// The window into BAR0.
    type Mmio: Mmio;
    /// Memory that driver and device share.
    type Dma: DmaMemory;

    /// The window into BAR0 of the device.
    fn mmio(&self) -> &Self::Mmio;

    /// Gives `length` zeroed bytes, contiguous in I/O virtual address space, aligned to `alignment` (a power of two) in
    /// I/O virtual address space and for the CPU alike.
    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError>;

    /// Lets the device reach memory that the caller owns; dropping the handle takes the right away again.
    ///
    /// # Safety
    /// `start` must be valid for reads and writes of `length` bytes until the handle is dropped, and nobody may hold a
    /// reference to any of those bytes while the device may access them.
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Self::Dma, HalError>;

    /// The present.
    fn now(&self) -> Time;

    /// Orders memory accesses as `kind` says. The default is the native instruction of the processor.
    #[inline(always)]
    fn barrier(&self, kind: Barrier) {
        crate::barrier::native(kind);
    }

    /// The only place where a driver waits: returns when something may have changed, at `deadline` at the latest. It may
    /// return early, at once even; it never returns later than `deadline` by the clock of [`Hal::now`].
    ///
    /// On silicon something changes by an interrupt. An entry of a completion queue that is not armed raises none: who polls such a
    /// queue rests a little between two looks, not until the end of patience.
    fn relax(&self, deadline: Time);

    /// How often this place has noticed something. What comes later than this look is not slept over by
    /// [`Self::relax_since`], whichever thread notices it.
    fn noticed(&self) -> Noticed {
        Noticed(0)
    }

    /// As [`Self::relax`], but returns at once if something was noticed after `before`. A place that one thread at a time
    /// waits in may leave this as it is.
    fn relax_since(&self, before: Noticed, deadline: Time) {
        let _ = before;
        self.relax(deadline);
    }
}

/// How often a place has noticed something; see [`Hal::noticed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noticed(pub u64);

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
/// `as_ptr()` must be valid for reads and writes of `len()` bytes until the value is dropped, must not change, and nobody
/// but the device and the holder of this value may access those bytes.
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

/// Barriers, named by what they order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Earlier stores to DMA memory are seen by the device before later stores to DMA memory or registers.
    ToDevice,
    /// Later loads from DMA memory see at least what the device wrote before the entry whose owner bit was just read.
    FromDevice,
    /// Earlier stores to registers leave the processor now; a write-combining buffer is flushed.
    FlushMmio,
}

/// Why a place could not give what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalError {
    /// There is no memory for `length` bytes aligned to `alignment`.
    OutOfDmaMemory {
        /// Bytes that were asked for.
        length: usize,
        /// Alignment that was asked for.
        alignment: usize,
    },
    /// The alignment is not a power of two, or the length is zero.
    BadRequest {
        /// Bytes that were asked for.
        length: usize,
        /// Alignment that was asked for.
        alignment: usize,
    },
    /// Memory could not be mapped for the device.
    MapFailed {
        /// Bytes that were to be mapped.
        length: usize,
        /// What the system said, as an errno; 0 if there is none.
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
