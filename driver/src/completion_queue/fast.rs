//! The fast path for polling many entries: successes of queue pairs that the completion queue has
//! [cached](super::cache). The contents of every entry are checked.
//!
//! The loop over entries is the same for sends, receives, and receives of a shared queue; a [`Session`]
//! contains the differences.

use super::CompletionQueue;
use super::cache::CachedQueuePair;
use super::entries::hand_back;
use super::session::{CachedPoller, Session, retire};
use crate::cqe::CqeView;
use crate::cqe::ownership::{EntryEnd, EntryKind, OwnedCqe, OwnerByte, Pass};
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
        if owner.is_requester_success() {
            let count = polling.take_first(&mut cache.sends, places);
            *consumer = consumer.ahead(count as u32);
            if count < places.len() {
                return self.take_rest::<SendPoller>(count, places);
            }
            hand_back(hal, rings, consumer.counter());
            (count, PathEnd::Finished)
        } else if owner.is_of_other_pass() {
            // A queue of two-block entries caches no queue pair, and this looked at the wrong block.
            (0, if *wide { PathEnd::OtherPath } else { PathEnd::Finished })
        } else if owner.responder_success().is_none() {
            (0, PathEnd::OtherPath)
        } else if cache.receives.has(cqe) {
            self.take_outlined::<ReceivePoller>(places)
        } else {
            self.take_outlined::<SharedPoller>(places)
        }
    }

    /// Takes entries of one kind of queue, out of line: a run of receives is long enough to be worth a call.
    #[inline(never)]
    fn take_outlined<P: CachedPoller>(&mut self, places: &mut [WorkCompletion]) -> (usize, PathEnd) {
        let Self { device, rings, cache, consumer, cqn, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let polling = Polling { hal, ledgers, entries: rings.blocks(), cqn: *cqn, at: *consumer };
        let count = polling.take_first(P::cached(cache), places);
        *consumer = consumer.ahead(count as u32);
        if count < places.len() {
            return self.take_rest::<P>(count, places);
        }
        hand_back(hal, rings, consumer.counter());
        (count, PathEnd::Finished)
    }

    /// Continues after the first `before` entries, at the end of the ring or where another queue pair
    /// completes, and hands all entries back. It opens a session of its own, so that in the most common case,
    /// which needs no more than one stretch, everything stays in registers.
    #[cold]
    #[inline(never)]
    fn take_rest<P: CachedPoller>(
        &mut self,
        before: usize,
        places: &mut [WorkCompletion],
    ) -> (usize, PathEnd) {
        let Self { device, rings, cache, consumer, cqn, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let polling = Polling { hal, ledgers, entries: rings.blocks(), cqn: *cqn, at: *consumer };
        let (more, end) = polling.take_stretches(
            P::cached(cache),
            before > 0,
            places.get_mut(before..).unwrap_or_default(),
        );
        *consumer = consumer.ahead(more as u32);
        if before + more > 0 {
            hand_back(hal, rings, consumer.counter());
        }
        (before + more, end)
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

    /// Takes entries before the end of the ring for as long as the cached queue pair completes, and returns
    /// their number.
    #[inline(always)]
    fn take_first<P: CachedPoller>(
        &self,
        cached: &mut CachedQueuePair<P>,
        places: &mut [WorkCompletion],
    ) -> usize {
        let Some(mut session) = P::open(*cached, self.ledgers, self.cqn) else { return 0 };
        let taken = self.take_stretch(&mut session, self.at, places);
        if taken > 0 {
            P::follow(cached, &session.close());
        }
        taken
    }

    /// Like [`Self::take_first`], over the end of the ring, and for all queue pairs that one session can
    /// retire. Also returns why this ended. If it `continues` a stretch and begins where the ring does, that
    /// stretch has ended for no other reason.
    fn take_stretches<P: CachedPoller>(
        &self,
        cached: &mut CachedQueuePair<P>,
        continues: bool,
        places: &mut [WorkCompletion],
    ) -> (usize, PathEnd) {
        let Some(mut session) = P::open(*cached, self.ledgers, self.cqn) else {
            return (0, PathEnd::OtherPath);
        };
        let mut count = 0;
        let mut is_wrapped = continues && self.at.left() == self.at.size();
        let end = loop {
            let Some(rest @ [_, ..]) = places.get_mut(count..) else { break PathEnd::Finished };
            if !is_wrapped && !self.follow_sibling(&mut session, count as u32) {
                break self.why_ended(count as u32);
            }
            let at = self.at.ahead(count as u32);
            let taken = self.take_stretch(&mut session, at, rest);
            is_wrapped = taken == at.left() as usize;
            count += taken;
        };
        if count > 0 {
            P::follow(cached, &session.close());
        }
        (count, end)
    }

    /// Fills `places` from entries before the end of the ring and returns their number.
    #[inline(always)]
    fn take_stretch(&self, session: &mut impl Session, at: Consumer, places: &mut [WorkCompletion]) -> usize {
        // The phase is the same up to the end of the ring.
        let pass = Pass::new(at.phase());
        self.entries.zip(at.index(), places, |slot, place| {
            let entry = OwnedCqe { hal: self.hal, cqe: CqeView(slot) };
            let end = EntryEnd::read(&entry, pass);
            synchronize(&entry);
            session.has(entry.cqe) && retire(session, end, entry.cqe, place).is_some()
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
        PathEnd::before(self.entry(number).1)
    }
}

impl PathEnd {
    /// Why a path ended before an entry with this last byte.
    pub(super) const fn before(owner: OwnerByte) -> Self {
        if owner.is_empty() { Self::Finished } else { Self::OtherPath }
    }
}
