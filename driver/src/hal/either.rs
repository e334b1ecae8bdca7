//! One of two places, chosen while a program runs.

use super::{Barrier, DmaMemory, Hal, HalError, Mmio, WakeCount};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;
use core::ptr::NonNull;

/// A place that is one of two, and a program finds out which while it runs. Code that is generic over [`Hal`] is
/// compiled once for both of them. Each access to a register takes one more branch, which is always the same one.
///
/// More than two places are an `Either` within an `Either`, with the one whose speed counts outside.
///
/// ```
/// use bareverbs_core::hal::{Either, Hal};
///
/// /// The first place if there is one, or else the second.
/// fn choose<A: Hal, B: Hal>(card: Option<A>, simulated: impl FnOnce() -> B) -> Either<A, B> {
///     card.map_or_else(|| Either::Right(simulated()), Either::Left)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one.
    Left(A),
    /// The second one.
    Right(B),
}

/// Evaluates an expression about whichever place it is.
macro_rules! either {
    ($which:expr, $place:ident => $result:expr) => {
        match $which {
            Either::Left($place) => $result,
            Either::Right($place) => $result,
        }
    };
}

impl<A: Hal, B: Hal> Hal for Either<A, B> {
    type Mmio = Self;
    type Dma = Either<A::Dma, B::Dma>;

    #[inline(always)]
    fn mmio(&self) -> &Self {
        self
    }
    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError> {
        match self {
            Self::Left(place) => place.allocate_dma(length, alignment).map(Either::Left),
            Self::Right(place) => place.allocate_dma(length, alignment).map(Either::Right),
        }
    }
    fn allocate_private(&self, length: usize, alignment: usize) -> Result<Self::Dma, HalError> {
        match self {
            Self::Left(place) => place.allocate_private(length, alignment).map(Either::Left),
            Self::Right(place) => place.allocate_private(length, alignment).map(Either::Right),
        }
    }
    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Self::Dma, HalError> {
        match self {
            // SAFETY: the caller promises of this memory what the place demands.
            Self::Left(place) => unsafe { place.map_user(start, length) }.map(Either::Left),
            // SAFETY: as above.
            Self::Right(place) => unsafe { place.map_user(start, length) }.map(Either::Right),
        }
    }
    fn pci_identity(&self) -> Option<PciIdentity> {
        either!(self, place => place.pci_identity())
    }
    fn interrupt_vectors(&self) -> Option<usize> {
        either!(self, place => place.interrupt_vectors())
    }
    fn quiet_vector(&self, vector: u16) {
        either!(self, place => place.quiet_vector(vector));
    }
    fn now(&self) -> Time {
        either!(self, place => place.now())
    }
    #[inline(always)]
    fn barrier(&self, kind: Barrier) {
        either!(self, place => place.barrier(kind));
    }
    fn relax(&self, deadline: Time) {
        either!(self, place => place.relax(deadline));
    }
    fn wake_count(&self) -> WakeCount {
        either!(self, place => place.wake_count())
    }
    fn relax_since(&self, before: WakeCount, deadline: Time) {
        either!(self, place => place.relax_since(before, deadline));
    }
}

impl<A: Hal, B: Hal> Mmio for Either<A, B> {
    #[inline(always)]
    fn read32(&self, offset: usize) -> u32 {
        either!(self, place => place.mmio().read32(offset))
    }
    #[inline(always)]
    fn write32(&self, offset: usize, value: u32) {
        either!(self, place => place.mmio().write32(offset, value));
    }
    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        either!(self, place => place.mmio().write64(offset, value));
    }
    #[inline(always)]
    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        either!(self, place => place.mmio().write_block64(offset, block));
    }
    fn len(&self) -> usize {
        either!(self, place => place.mmio().len())
    }
}

// SAFETY: each of the two keeps the promises itself, and this value always is the same one of them.
unsafe impl<A: DmaMemory, B: DmaMemory> DmaMemory for Either<A, B> {
    fn iova(&self) -> u64 {
        either!(self, memory => memory.iova())
    }
    fn as_ptr(&self) -> NonNull<u8> {
        either!(self, memory => memory.as_ptr())
    }
    fn len(&self) -> usize {
        either!(self, memory => memory.len())
    }
}
