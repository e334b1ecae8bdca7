//! Retires successful completions directly in the ledger: single ones, and those of queue pairs that take
//! turns. The `user_index` of an entry leads to the record, which says everything that a cache could know, so
//! caching a queue pair pays only for many entries in a row.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, QueuePairCache};
use super::entries::{hand_back, identity_of};
use super::fast::PathEnd;
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::cqe::{CompletionFields, CqeView};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::ledger::{
    Found, Half, Home, Poller, ReceivePoller, Receives, Record, SendPoller, Sends, UserIndex,
};
use crate::ring::synchronize;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};

/// The result for the next entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Single {
    /// Its completion was written to the place.
    Taken,
    /// There is none.
    Empty,
    /// It needs another path.
    OtherPath,
}

/// A ring entry. If its last byte says that the device has written it, the rest may be read.
#[derive(Clone, Copy)]
struct WrittenEntry<'a> {
    cqe: CqeView<'a>,
    owner: OwnerByte,
}

/// What it takes to find the queue pair of an entry: parts of the completion queue and its device.
struct Finder<'a, M> {
    ledgers: &'a Ledgers<M>,
    home: Home,
}

/// One of the two queues that belong to a queue pair.
trait DirectQueue: Half {
    /// Its place in the cache.
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Poller<Self>>;

    /// Retires the oldest request of the queue pair that was found if the entry completes it, returns its slots
    /// to the poster, and writes the completion to `place`.
    fn retire<M>(
        ledgers: &Ledgers<M>,
        found: &Found<Self, impl Record>,
        entry: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()>;
}

impl DirectQueue for Sends {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<SendPoller> {
        &mut cache.sends
    }

    #[inline(always)]
    fn retire<M>(
        ledgers: &Ledgers<M>,
        found: &Found<Sends, impl Record>,
        WrittenEntry { cqe, owner }: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        if !owner.is_requester_success() {
            return None;
        }
        let retired = found.retire_oldest(ledgers, cqe.counter())?;
        *place = sent(cqe, retired.id, WorkCompletionOpcode::from_kind(retired.posted.kind()), found.qpn());
        Some(())
    }
}

impl DirectQueue for Receives {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<ReceivePoller> {
        &mut cache.receives
    }

    #[inline(always)]
    fn retire<M>(
        ledgers: &Ledgers<M>,
        found: &Found<Receives, impl Record>,
        WrittenEntry { cqe, owner }: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let opcode = owner.responder_success()?;
        let id = found.retire_oldest(ledgers, cqe.counter())?;
        received(place, cqe, opcode, id, found.qpn());
        Some(())
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes the next entry to `place` if it is a success that completes the oldest request of its queue pair.
    #[inline(always)]
    pub(super) fn take_single(&mut self, place: &mut WorkCompletion) -> Single {
        let (hal, ledgers) = (self.device.device().hal(), self.device.device().ledgers());
        let (at, entry) = (self.consumer, self.next_entry());
        let WrittenEntry { cqe, owner } = entry;
        let taken = if owner.is_requester_success() {
            Finder { ledgers, home: self.home }.retire::<Sends>(entry, place)
        } else if owner.is_of_other_pass() {
            // In a ring of two-block entries, this looked at the wrong block.
            return if self.wide { Single::OtherPath } else { Single::Empty };
        } else if let Some(opcode) = owner.responder_success() {
            if self.cache.shared.has_number(cqe) {
                self.cache.shared.retire_one(ledgers, cqe, opcode, place)
            } else {
                Finder { ledgers, home: self.home }.retire::<Receives>(entry, place)
            }
        } else {
            return Single::OtherPath;
        };
        if taken.is_none() {
            return self.take_single_of_sibling(place);
        }
        self.consumer.follow(at);
        hand_back(hal, &self.rings, self.consumer.counter());
        Single::Taken
    }

    /// Like [`Self::take_single`], for a queue pair that receives from the same shared queue as the cached
    /// one, which it replaces.
    #[cold]
    #[inline(never)]
    fn take_single_of_sibling(&mut self, place: &mut WorkCompletion) -> Single {
        let ledgers = self.device.device().ledgers();
        let WrittenEntry { cqe, owner } = self.next_entry();
        let Some(opcode) = owner.responder_success() else { return Single::OtherPath };
        let Some(sibling) = self.cache.shared.sibling(ledgers, self.cqn, cqe) else {
            return Single::OtherPath;
        };
        if sibling.retire_one(ledgers, cqe, opcode, place).is_none() {
            return Single::OtherPath;
        }
        self.cache.shared = sibling;
        self.consume();
        Single::Taken
    }

    /// The next entry.
    #[inline(always)]
    fn next_entry(&self) -> WrittenEntry<'_> {
        let cqe = CqeView(self.rings.blocks().slot(self.consumer.index()));
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe };
        let owner = OwnerByte::read(&entry, self.consumer.phase());
        synchronize(&entry);
        WrittenEntry { cqe, owner }
    }

    /// Fills `places` with successes of any queue pairs. Returns their number and why the path ended. All of
    /// them must be sends or all receives, and each must complete the oldest request.
    pub(super) fn take_turns(&mut self, places: &mut [WorkCompletion]) -> (usize, PathEnd) {
        let owner = self.next_owner();
        let count = if owner.is_requester_success() {
            self.take_turns_of::<Sends>(places)
        } else if owner.responder_success().is_some() {
            self.take_turns_of::<Receives>(places)
        } else {
            return (0, PathEnd::before(owner));
        };
        (count, if count == places.len() { PathEnd::Finished } else { PathEnd::before(self.next_owner()) })
    }

    /// The last byte of the next entry.
    fn next_owner(&self) -> OwnerByte {
        let at = self.consumer;
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe: self.entry(at.index()) };
        OwnerByte::read(&entry, at.phase())
    }

    /// Like [`Self::take_turns`], up to the end of the ring. Caches a queue pair that completes twice in a row
    /// at the end.
    #[inline(never)]
    fn take_turns_of<Q: DirectQueue>(&mut self, places: &mut [WorkCompletion]) -> usize {
        let Self { device, rings, cache, consumer, cqn, home, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let finder = Finder { ledgers, home: *home };
        let (at, phase) = (*consumer, consumer.phase());
        let count = rings.blocks().zip(at.index(), places, |slot, place| {
            let entry = OwnedCqe { hal, cqe: CqeView(slot) };
            let owner = OwnerByte::read(&entry, phase);
            synchronize(&entry);
            finder.retire::<Q>(WrittenEntry { cqe: entry.cqe, owner }, place).is_some()
        });
        if count == 0 {
            return 0;
        }
        let taken = |number: usize| CqeView(rings.blocks().slot(at.ahead(number as u32).index()));
        let last = taken(count - 1);
        // One entry does not tell whether queue pairs take turns.
        if count > 1 {
            cache.in_turns = taken(count - 2).user_index_dword() != last.user_index_dword();
            if !cache.in_turns {
                let poller = Poller::<Q>::resolve(ledgers, ledgers.records(), identity_of(*cqn, last));
                *Q::cached(cache) = CachedQueuePair::of(last, poller.unwrap_or(Poller::NOBODY));
            }
        }
        *consumer = at.ahead(count as u32);
        hand_back(hal, rings, consumer.counter());
        count
    }
}

impl<M> Finder<'_, M> {
    /// Retires the request of an entry of any queue pair, returns its slots to the poster, and writes the
    /// completion to `place`.
    #[inline(always)]
    fn retire<Q: DirectQueue>(&self, entry: WrittenEntry<'_>, place: &mut WorkCompletion) -> Option<()> {
        let &Self { ledgers, home } = self;
        let user_index = UserIndex::from_dword(entry.cqe.user_index_dword());
        let found = Poller::<Q>::find(ledgers, ledgers.records(), home, user_index)?;
        Q::retire(ledgers, &found, entry, place)
    }
}
