//! The fast path for polling many entries: successes of queue pairs that the completion queue has
//! [cached](super::cache). The contents of every entry are checked.
//!
//! The loop over entries is the same for sends, receives, and receives of a shared queue; a [`Session`]
//! contains the differences.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, QueuePairCache};
use super::entries::hand_back;
use super::session::{CachedPoller, Session, retire};
use crate::cqe::CqeView;
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::dma::{BLOCK, Run};
use crate::hal::Hal;
use crate::ledger::shared::SharedPoller;
use crate::ledger::{ReceivePoller, SendPoller};
use crate::ring::{Consumer, synchronize};
use crate::work_completion::WorkCompletion;
use bareverbs_prm::ids::Cqn;

/// Why a path ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathEnd {
    /// There is no more room, or no further entry.
    Finished,
    /// The next entry needs another cached queue pair, or another path.
    OtherPath,
}

/// The parts of the completion queue and its device that polling needs, copied out of `self`: otherwise every
/// barrier would force the compiler to store and reload them.
struct Polling<'a, H, M> {
    hal: &'a H,
    ledgers: &'a Ledgers<M>,
    entries: Run<'a, BLOCK>,
    cqn: Cqn,
    at: Consumer,
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes entries to `places` as long as one cached queue pair completes. Returns their number and why the
    /// path ended.
    #[inline(always)]
    pub(super) fn take_fast(&mut self, places: &mut [WorkCompletion]) -> (usize, PathEnd) {
        let Self { device, rings, cache, consumer, cqn, wide, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let polling = Polling { hal, ledgers, entries: rings.blocks(), cqn: *cqn, at: *consumer };
        let (cqe, owner) = polling.entry(0);
        let (count, end) = if owner.is_requester_success() {
            polling.take::<SendPoller>(cache, places)
        } else if owner.is_of_other_pass() {
            // A queue of two-block entries caches no queue pair, and this looked at the wrong block.
            return (0, if *wide { PathEnd::OtherPath } else { PathEnd::Finished });
        } else if owner.responder_success().is_none() {
            return (0, PathEnd::OtherPath);
        } else if cache.receives.has(cqe) {
            polling.take_outlined::<ReceivePoller>(cache, places)
        } else {
            polling.take_outlined::<SharedPoller>(cache, places)
        };
        if count > 0 {
            *consumer = consumer.ahead(count as u32);
            hand_back(hal, rings, consumer.counter());
        }
        (count, end)
    }
}

impl<'a, H: Hal, M> Polling<'a, H, M> {
    /// The entry `number` slots ahead, and its last byte; the rest may be read if that byte says so.
    #[inline(always)]
    fn entry(&self, number: u32) -> (CqeView<'a>, OwnerByte) {
        let at = self.at.ahead(number);
        let entry = OwnedCqe { hal: self.hal, cqe: CqeView(self.entries.slot(at.index())) };
        let owner = OwnerByte::read(&entry, at.phase());
        synchronize(&entry);
        (entry.cqe, owner)
    }

    /// Like [`Self::take`], out of line: a run of receives is long enough to be worth a call.
    #[inline(never)]
    fn take_outlined<P: CachedPoller>(
        &self,
        cache: &mut QueuePairCache,
        places: &mut [WorkCompletion],
    ) -> (usize, PathEnd) {
        self.take::<P>(cache, places)
    }

    /// Takes entries of one kind of queue.
    #[inline(always)]
    fn take<P: CachedPoller>(
        &self,
        cache: &mut QueuePairCache,
        places: &mut [WorkCompletion],
    ) -> (usize, PathEnd) {
        let cached = P::cached(cache);
        let mut copy = *cached;
        let (count, end) = self.take_run(&mut copy, places);
        if count > 0 {
            P::follow(cached, &copy);
        }
        (count, end)
    }

    /// Fills `places` for as long as the cached queue pair completes.
    #[inline(always)]
    fn take_run<P: CachedPoller>(
        &self,
        cached: &mut CachedQueuePair<P>,
        places: &mut [WorkCompletion],
    ) -> (usize, PathEnd) {
        let Some(mut session) = P::open(cached, self.ledgers, self.cqn) else {
            return (0, PathEnd::OtherPath);
        };
        let mut count = 0;
        while let Some(rest @ [_, ..]) = places.get_mut(count..) {
            let at = self.at.ahead(count as u32);
            let stretch = rest.len().min(at.left() as usize);
            let taken = self.take_stretch(&mut session, at, rest);
            count += taken;
            if taken < stretch && !self.follow_sibling(&mut session, count as u32) {
                break;
            }
        }
        if count == 0 {
            return (0, self.why_ended(0));
        }
        session.close();
        (count, if count == places.len() { PathEnd::Finished } else { self.why_ended(count as u32) })
    }

    /// Fills `places` from entries before the end of the ring and returns their number.
    #[inline(always)]
    fn take_stretch(&self, session: &mut impl Session, at: Consumer, places: &mut [WorkCompletion]) -> usize {
        // The phase is the same up to the end of the ring.
        let phase = at.phase();
        self.entries.zip(at.index(), places, |slot, place| {
            let entry = OwnedCqe { hal: self.hal, cqe: CqeView(slot) };
            let owner = OwnerByte::read(&entry, phase);
            synchronize(&entry);
            session.has(entry.cqe) && retire(session, owner, entry.cqe, place).is_some()
        })
    }

    /// Continues with the queue pair of the entry `number` slots ahead, if it is a different one that the
    /// session can retire.
    #[inline(always)]
    fn follow_sibling<S: Session>(&self, session: &mut S, number: u32) -> bool {
        let (cqe, owner) = self.entry(number);
        S::opcode(owner).is_some() && !session.has(cqe) && session.follow_sibling(cqe)
    }

    /// Why the entry `number` slots ahead was not taken.
    fn why_ended(&self, number: u32) -> PathEnd {
        match self.entry(number).1.is_empty() {
            true => PathEnd::Finished,
            false => PathEnd::OtherPath,
        }
    }
}
