//! Choice of device addresses for a piece of memory.

use super::{Piece, Stretch};
use crate::ranges::FreeRanges;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and processor addresses are congruent modulo this. So alignment for one is alignment for the other, and an
/// IOMMU can use large pages of its own.
const CONGRUENCE: u64 = 2 << 20;
/// Addresses below this stay unused, because they look like mistakes.
const FIRST_ADDRESS: u64 = 1 << 20;

/// The free device addresses.
#[derive(Debug)]
pub(crate) struct Placement(Mutex<FreeRanges>);

impl Placement {
    /// `ranges` are the addresses that the device can use, as first and last address.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let usable =
            ranges.into_iter().map(|(first, last)| (first.max(FIRST_ADDRESS), last.saturating_add(1)));
        Self(Mutex::new(FreeRanges::new(usable)))
    }

    /// Allocates device addresses for a whole piece.
    pub(crate) fn place(&self, piece: &Piece<'_>) -> Option<Stretch> {
        let within = piece.start.as_ptr().addr() as u64 % CONGRUENCE;
        let alignment = if within == 0 { CONGRUENCE.max(piece.page as u64) } else { CONGRUENCE };
        let length = (piece.length as u64).checked_add(within)?;
        let start = self.lock().take(length, alignment)?;
        Some(Stretch { offset: 0, iova: start + within, length: piece.length })
    }

    /// Releases a stretch that [`Self::place`] returned.
    pub(crate) fn give_back(&self, stretch: &Stretch) {
        let within = stretch.iova % CONGRUENCE;
        self.lock().give_back(stretch.iova - within, stretch.length as u64 + within);
    }

    fn lock(&self) -> MutexGuard<'_, FreeRanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    #[test]
    fn device_and_processor_agree_modulo_two_mebibytes() {
        let placement = Placement::new([(0, 0xfedf_ffff), (0xfef0_0000, 1 << 39)]);
        let whole = placement.lock().clone();
        let mut taken = Vec::new();
        for (start, length) in [(0x1234_5000usize, 4096), (0x4000_0000, 1 << 30), (0x7fff_f000, 1 << 31)] {
            let start = NonNull::new(core::ptr::without_provenance_mut(start)).unwrap();
            let stretch = placement.place(&Piece { start, length, page: 4096, file: None }).unwrap();
            assert_eq!(stretch.iova % CONGRUENCE, start.as_ptr().addr() as u64 % CONGRUENCE);
            assert!(stretch.iova >= FIRST_ADDRESS);
            let last = stretch.iova + length as u64 - 1;
            assert!(
                last < 0xfee0_0000 || stretch.iova >= 0xfef0_0000,
                "the window of interrupts is left out"
            );
            taken.push(stretch);
        }
        taken.iter().for_each(|stretch| placement.give_back(stretch));
        assert_eq!(*placement.lock(), whole);
    }
}
