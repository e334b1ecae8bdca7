//! Entries in the ring: of 64 or 128 bytes, single or compressed to a run.
//!
//! A run is expanded in its own slots before any of it is read. So the code that polls, discards and moves
//! entries only sees ordinary ones, and every slot has the owner bit of the current pass, as the next pass
//! requires.

use super::CompletionQueue;
use crate::cqe::CqeView;
use crate::cqe::compressed::CompressedTitle;
use crate::cqe::ownership::{OwnedCqe, is_compressed};
use crate::device::DeviceRef;
use crate::dma::Rings;
use crate::hal::{Barrier, Hal};
use crate::ledger::{Identity, UserIndex};
use crate::ring::{Consumer, take_ownership};
use bareverbs_prm::cqe::MINI_CQES;
use bareverbs_prm::ids::Cqn;

/// The length of a run, which is impossible.
pub(super) struct BadRun(pub(super) u32);

/// Lets the device reuse the consumed entries, after all loads from them.
#[inline(always)]
pub(super) fn hand_back<H: Hal>(hal: &H, rings: &Rings<H::Dma>, counter: u32) {
    hal.barrier(Barrier::FromDevice);
    rings.record().store_be32::<0>(counter);
}

/// The identity that an entry of completion queue `cqn` claims.
pub(super) fn identity_of(cqn: Cqn, cqe: CqeView<'_>) -> Identity {
    Identity::new(cqn, UserIndex::from_field(cqe.user_index()), cqe.qpn())
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// The entry in a slot: its only block, or the second of two.
    pub(super) fn entry(&self, index: u32) -> CqeView<'_> {
        let block = if self.wide { index << 1 | 1 } else { index };
        CqeView(self.rings.blocks().slot(block))
    }

    /// The last byte of the entry in a slot, if the device has written it. Expands a run that begins there.
    pub(super) fn take_entry(&self, at: Consumer) -> Result<Option<u8>, BadRun> {
        let hal = self.device.device().hal();
        let cqe = self.entry(at.index());
        let Some(op_own) = take_ownership(&OwnedCqe { hal, cqe }, at.phase()) else { return Ok(None) };
        if !is_compressed(op_own) {
            return Ok(Some(op_own));
        }
        let title = CompressedTitle::read(cqe);
        let count = title.entries();
        if count < 2 || count > at.size() || self.wide {
            return Err(BadRun(count));
        }
        self.write_out(at, &title, 0);
        Ok(Some(cqe.op_own()))
    }

    /// Expands the run that begins at `at`, from entry number `first` on.
    pub(super) fn write_out(&self, at: Consumer, title: &CompressedTitle, first: u32) {
        let mut minis = self.minis(at, first);
        for number in first..title.entries() {
            let mini = number as usize % MINI_CQES;
            if mini == 0 {
                minis = self.minis(at, number);
            }
            let place = at.ahead(number);
            title.write_entry(self.entry(place.index()), minis[mini], number, place.phase());
        }
        // These writes come before the doorbell record that lets the device reuse the slots.
        self.device.device().hal().barrier(Barrier::ToDevice);
    }

    /// The array with the mini entry of entry number `number` in the run that begins at `at`. Its slot is not
    /// overwritten before the entry is expanded.
    #[inline(always)]
    pub(super) fn minis(&self, at: Consumer, number: u32) -> [u64; MINI_CQES] {
        let array = number - number % MINI_CQES as u32;
        self.entry(at.ahead(array.max(1)).index()).load()
    }
}
