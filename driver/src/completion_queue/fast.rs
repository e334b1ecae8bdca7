//! The fast path of polling: successes of queue pairs that the completion queue has [cached](super::cache). What an entry says of
//! itself is checked for each.
//!
//! The loop over entries is the same for sends, receives, and receives of a shared queue; a [`Session`] is what differs.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, QueuePairCache};
use super::entries::hand_back;
use super::session::{CachedPoller, Session};
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

/// Why the fast path ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FastEnd {
    /// There is no more room, or no more entry.
    Finished,
    /// The next entry needs another cached queue pair, or the general path.
    OtherPath,
}

/// What polling needs of the completion queue and its device, out of `self`: barriers would have what is behind that written and
/// read again.
struct Polling<'a, H, M> {
    hal: &'a H,
    ledgers: &'a Ledgers<M>,
    entries: Run<'a, BLOCK>,
    cqn: Cqn,
    at: Consumer,
    /// The entry at that place, and its last byte.
    first: (CqeView<'a>, OwnerByte),
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes entries to `places` as long as one cached queue pair completes, and says how many and why it ended. `ONE` says
    /// that there is one place.
    #[inline(always)]
    pub(super) fn take_fast<const ONE: bool>(&mut self, places: &mut [WorkCompletion]) -> (usize, FastEnd) {
        let Self { device, rings, cache, consumer, cqn, wide, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let (entries, at) = (rings.blocks(), *consumer);
        let cqe = CqeView(entries.slot(at.index()));
        let owner = OwnerByte::read(&OwnedCqe { hal, cqe }, at.phase());
        let mut polling = Polling { hal, ledgers, entries, cqn: *cqn, at, first: (cqe, owner) };
        let (count, end) = if owner.is_requester_success() {
            synchronize(&OwnedCqe { hal, cqe });
            polling.take::<SendPoller, ONE>(cache, places)
        } else if owner.is_of_other_pass() {
            // Nobody is cached of a queue whose entries have two blocks: this was the wrong one.
            return (0, if *wide { FastEnd::OtherPath } else { FastEnd::Finished });
        } else if owner.responder_success().is_none() {
            return (0, FastEnd::OtherPath);
        } else {
            synchronize(&OwnedCqe { hal, cqe });
            if cache.receives.has(cqe) {
                polling.take_receives::<ReceivePoller, ONE>(cache, places)
            } else {
                polling.take_receives::<SharedPoller, ONE>(cache, places)
            }
        };
        if ONE && count > 0 {
            consumer.advance();
            hand_back(hal, rings, consumer.counter());
        } else if count > 0 {
            consumer.follow(polling.at);
            hand_back(hal, rings, consumer.counter());
        }
        (count, end)
    }
}

impl<H: Hal, M> Polling<'_, H, M> {
    /// A run of receives is long enough to be worth a call.
    #[inline(always)]
    fn take_receives<P: CachedPoller, const ONE: bool>(
        &mut self,
        cache: &mut QueuePairCache,
        places: &mut [WorkCompletion],
    ) -> (usize, FastEnd) {
        if ONE { self.take::<P, ONE>(cache, places) } else { self.take_outlined::<P>(cache, places) }
    }

    #[inline(never)]
    fn take_outlined<P: CachedPoller>(
        &mut self,
        cache: &mut QueuePairCache,
        places: &mut [WorkCompletion],
    ) -> (usize, FastEnd) {
        self.take::<P, false>(cache, places)
    }

    /// Takes entries of one kind of queue.
    #[inline(always)]
    fn take<P: CachedPoller, const ONE: bool>(
        &mut self,
        cache: &mut QueuePairCache,
        places: &mut [WorkCompletion],
    ) -> (usize, FastEnd) {
        let cached = P::cached(cache);
        if ONE {
            return self.take_one(cached, places);
        }
        let mut copy = *cached;
        let (count, end) = self.take_run(&mut copy, places);
        if count > 0 {
            P::follow(cached, &copy);
        }
        (count, end)
    }

    /// Takes the first entry.
    #[inline(always)]
    fn take_one<P: CachedPoller>(
        &mut self,
        cached: &mut CachedQueuePair<P>,
        places: &mut [WorkCompletion],
    ) -> (usize, FastEnd) {
        const OTHER: (usize, FastEnd) = (0, FastEnd::OtherPath);
        let (cqe, owner) = self.first;
        let (Some(mut session), [place]) = (P::open_one(cached, self.ledgers, self.cqn), places) else {
            return OTHER;
        };
        if !(P::IS_FOUND || session.has(cqe) || session.follow_sibling(cqe))
            || retire(&mut session, owner, cqe, place).is_none()
        {
            return OTHER;
        }
        session.close();
        (1, FastEnd::Finished)
    }

    /// Fills `places` for as long as the cached queue pair completes.
    #[inline(always)]
    fn take_run<P: CachedPoller>(
        &mut self,
        cached: &mut CachedQueuePair<P>,
        places: &mut [WorkCompletion],
    ) -> (usize, FastEnd) {
        let Some(mut session) = P::open_many(cached, self.ledgers, self.cqn) else {
            return (0, FastEnd::OtherPath);
        };
        let (mut at, room) = (self.at, places.len());
        let mut rest = places;
        while !rest.is_empty() {
            // The phase is the same up to the end of the ring.
            let stretch = rest.len().min(at.left() as usize);
            let taken = self.take_stretch(&mut session, at, &mut rest[..stretch]);
            at = at.ahead(taken as u32);
            rest = match rest.get_mut(taken..) {
                Some(later) if taken == stretch || self.follow_sibling(&mut session, at) => later,
                _ => &mut [],
            };
        }
        let count = at.index().wrapping_sub(self.at.index()) as usize;
        self.at = at;
        if count > 0 {
            session.close();
        }
        (count, if count == room { FastEnd::Finished } else { self.why_ended() })
    }

    /// Fills `places` from entries before the end of the ring, and says how many.
    #[inline(always)]
    fn take_stretch(&self, session: &mut impl Session, at: Consumer, places: &mut [WorkCompletion]) -> usize {
        let (hal, phase, room) = (self.hal, at.phase(), places.len());
        let start = self.entries.cursor(at.index());
        let mut cursor = start;
        for place in places {
            let cqe = CqeView(cursor.slot());
            let entry = OwnedCqe { hal, cqe };
            let owner = OwnerByte::read(&entry, phase);
            synchronize(&entry);
            if !session.has(cqe) || retire(session, owner, cqe, place).is_none() {
                return cursor.slots_since(start);
            }
            cursor.advance();
        }
        room
    }

    /// Goes on with the queue pair of the entry at this place, if it is another one that the session can retire.
    #[inline(always)]
    fn follow_sibling<S: Session>(&self, session: &mut S, at: Consumer) -> bool {
        let cqe = CqeView(self.entries.slot(at.index()));
        let entry = OwnedCqe { hal: self.hal, cqe };
        let owner = OwnerByte::read(&entry, at.phase());
        synchronize(&entry);
        S::opcode(owner).is_some() && !session.has(cqe) && session.follow_sibling(cqe)
    }

    /// Why the entry at this place was not taken.
    fn why_ended(&self) -> FastEnd {
        let cqe = CqeView(self.entries.slot(self.at.index()));
        match OwnerByte::read(&OwnedCqe { hal: self.hal, cqe }, self.at.phase()).is_empty() {
            true => FastEnd::Finished,
            false => FastEnd::OtherPath,
        }
    }
}

/// Retires an entry whose last byte is `owner`, after the barrier, if it is one for the session.
#[inline(always)]
fn retire<S: Session>(
    session: &mut S,
    owner: OwnerByte,
    cqe: CqeView<'_>,
    place: &mut WorkCompletion,
) -> Option<()> {
    session.retire(S::opcode(owner)?, cqe, place)
}
