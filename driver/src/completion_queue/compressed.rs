//! Compressed runs of cached queue pairs. Requests are retired directly from the mini entries. The run is not
//! expanded in the ring; only the owner bits are written, because the next pass over the ring checks them.
//!
//! Other runs go through [`entries`](super::entries): those that exceed the room of the caller, that wrap
//! around the end of the ring, or whose queue pair is not cached.

use super::CompletionQueue;
use super::cache::CachedQueuePair;
use super::entries::hand_back;
use super::session::{CachedPoller, Session};
use crate::cqe::CqeView;
use crate::cqe::compressed::CompressedTitle;
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::device::DeviceRef;
use crate::hal::{Barrier, Hal};
use crate::ledger::shared::SharedPoller;
use crate::ledger::{ReceivePoller, SendPoller};
use crate::ring::synchronize;
use crate::work_completion::WorkCompletion;
use bareverbs_prm::cqe::MINI_CQES;
use bareverbs_prm::numbering::CqeOpcode;

/// The next run.
struct CompressedRun {
    title: CompressedTitle,
    /// The last byte of the run's entries.
    owner: OwnerByte,
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes the next run to `places` and returns how many of its completions were taken; 0 if the run needs
    /// another path.
    #[inline(always)]
    pub(super) fn take_compressed(&mut self, places: &mut [WorkCompletion]) -> usize {
        let Some(run) = self.next_run() else { return 0 };
        let Some(places) = places.get_mut(..run.title.entries() as usize) else { return 0 };
        let cqe = self.entry(self.consumer.index());
        let taken = if run.title.is_requester() {
            self.retire_run::<SendPoller>(&run, places)
        } else if self.cache.receives.has(cqe) {
            self.retire_run::<ReceivePoller>(&run, places)
        } else {
            self.retire_run::<SharedPoller>(&run, places)
        };
        if taken > 0 {
            self.consume_run(&run.title, &mut places[..taken]);
        }
        taken
    }

    /// The next run, if it ends before the end of the ring, so that all of it has the same phase.
    #[inline(always)]
    fn next_run(&self) -> Option<CompressedRun> {
        let (at, hal) = (self.consumer, self.device.device().hal());
        let entry = OwnedCqe { hal, cqe: self.entry(at.index()) };
        let owner = OwnerByte::read(&entry, at.phase()).of_run()?;
        synchronize(&entry);
        let title = CompressedTitle::read(entry.cqe);
        let is_possible = (2..=at.left()).contains(&title.entries()) && !self.wide;
        is_possible.then_some(CompressedRun { title, owner })
    }

    /// Retires requests of a run through the cached queue pair of one kind and returns their number. Out of line, so that
    /// its loop has all registers.
    #[inline(never)]
    fn retire_run<P: CachedPoller>(&mut self, run: &CompressedRun, places: &mut [WorkCompletion]) -> usize {
        let cached = *P::cached(&mut self.cache);
        let Some((taken, last)) = self.retire_through(cached, run, places) else { return 0 };
        P::follow(P::cached(&mut self.cache), &last);
        taken
    }

    /// [`Self::retire_run`] through a copy of the cached queue pair. Also returns the one that completed.
    #[inline(always)]
    fn retire_through<P: CachedPoller>(
        &self,
        cached: CachedQueuePair<P>,
        run: &CompressedRun,
        places: &mut [WorkCompletion],
    ) -> Option<(usize, CachedQueuePair<P>)> {
        let cqe = self.entry(self.consumer.index());
        let mut session = P::open(cached, self.device.device().ledgers(), self.cqn)?;
        if !session.has(cqe) && !session.follow_sibling(cqe) {
            return None;
        }
        let taken = self.retire_minis(&mut session, run, places);
        (taken > 0).then(|| (taken, session.close()))
    }

    /// Retires the requests that the mini entries name, up to the first one that is not outstanding.
    #[inline(always)]
    fn retire_minis<S: Session>(
        &self,
        session: &mut S,
        run: &CompressedRun,
        places: &mut [WorkCompletion],
    ) -> usize {
        let Some(opcode) = S::opcode(run.owner) else { return 0 };
        let is_requester = opcode == CqeOpcode::Requester.raw();
        let mut taken = 0;
        for group in places.chunks_mut(MINI_CQES) {
            let minis = self.minis(self.consumer, taken);
            for (mini, place) in minis.into_iter().zip(group) {
                let completion = run.title.completion(mini, taken, is_requester);
                if session.retire(opcode, completion, place).is_none() {
                    return taken as usize;
                }
                taken += 1;
            }
        }
        taken as usize
    }

    /// Moves past the first entries of a run, whose completions are in `taken`. Expands the others in the
    /// ring.
    #[inline(always)]
    fn consume_run(&mut self, title: &CompressedTitle, taken: &mut [WorkCompletion]) {
        let (at, hal) = (self.consumer, self.device.device().hal());
        let first = taken.len() as u32;
        if first < title.entries() {
            self.write_out(at, title, first);
        }
        let consumed = title.consumed(at.phase());
        let count = self.rings.blocks().zip(at.index(), taken, |slot, _| {
            CqeView(slot).set_last_word(consumed);
            true
        });
        // The owner bits must be visible before the doorbell record that lets the device reuse these slots.
        hal.barrier(Barrier::ToDevice);
        self.consumer = at.ahead(count as u32);
        hand_back(hal, &self.rings, self.consumer.counter());
    }
}
