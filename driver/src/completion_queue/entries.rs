//! Entries in the ring: of 64 or 128 bytes, alone or compressed to a run.
//!
//! A run is written out in its own places before anything of it is read: what polls, throws away and moves entries then
//! sees none but ordinary ones, and the owner of every place is that of the pass, as the next pass wants it.

use super::CompletionQueue;
use crate::cqe::CqeView;
use crate::cqe::compressed::CompressedTitle;
use crate::cqe::ownership::{OwnedCqe, is_compressed};
use crate::device::DeviceRef;
use crate::hal::{Barrier, Hal};
use crate::ring::{Consumer, take_ownership};
use bareverbs_prm::cqe::MINI_CQES;

/// The number of entries a run is said to have, which cannot be.
pub(super) struct BadRun(pub(super) u32);

impl<D: DeviceRef> CompletionQueue<D> {
    /// The entry at a place: the block, or the second of two.
    pub(super) fn entry(&self, index: u32) -> CqeView<'_> {
        let block = if self.wide { index << 1 | 1 } else { index };
        CqeView(self.rings.blocks().slot(block))
    }

    /// The last byte of the entry at a place, if the device has written it; runs that begin there are written out.
    pub(super) fn take_entry(&self, at: Consumer) -> Result<Option<u8>, BadRun> {
        let hal = self.device.device().hal();
        let cqe = self.entry(at.index());
        let Some(op_own) = take_ownership(&OwnedCqe { hal, cqe }, at.phase()) else { return Ok(None) };
        if !is_compressed(op_own) {
            return Ok(Some(op_own));
        }
        self.write_out(at, &CompressedTitle::read(cqe))?;
        Ok(Some(cqe.op_own()))
    }

    /// Writes out the run that begins at `at`.
    fn write_out(&self, at: Consumer, title: &CompressedTitle) -> Result<(), BadRun> {
        let count = title.entries();
        if count < 2 || count > at.size() || self.wide {
            return Err(BadRun(count));
        }
        let mut minis = [0; MINI_CQES];
        for number in 0..count {
            let mini = number as usize % MINI_CQES;
            if mini == 0 {
                // The array lies in a place of the run that was not written out yet.
                minis = self.entry(at.ahead(number.max(1)).index()).load();
            }
            let place = at.ahead(number);
            title.write_entry(self.entry(place.index()), minis[mini], number, place.phase());
        }
        // Before the device may write these places again; the doorbell record says when.
        self.device.device().hal().barrier(Barrier::ToDevice);
        Ok(())
    }
}
