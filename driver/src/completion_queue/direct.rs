//! Retires successful completions directly in the ledger: single ones, and those of queue pairs that take
//! turns. The `user_index` of an entry leads to the record, which says everything that a cache could know, so
//! caching a queue pair pays only for many entries in a row.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, QueuePairCache, Turns};
use super::entries::{hand_back, identity_of};
use super::fast::PathEnd;
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{EntryEnd, EntryKind, OwnedCqe, OwnerByte, Pass};
use crate::cqe::{CqeView, Success};
use crate::device::DeviceRef;
use crate::ledger::{
    Found, Half, Home, Poller, ReceivePoller, Receives, Record, SendPoller, Sends, UserIndex, Words,
};
use crate::ring::{Consumer, synchronize};
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::numbering::CqeOpcode;

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

/// What it takes to find the queue pair of an entry: parts of the completion queue and its device.
struct Finder<'a, W> {
    ledgers: &'a W,
    /// The number of records.
    records: usize,
    home: Home,
}

/// One of the two queues that belong to a queue pair.
trait DirectQueue: Half {
    /// That queue pairs take turns with it.
    const TURNS: Turns;

    /// Its place in the cache.
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Poller<Self>>;

    /// The opcode of an entry, if it is a success of this kind of queue.
    fn opcode(kind: impl EntryKind) -> Option<u8>;

    /// Retires the oldest request of the queue pair that was found if the entry completes it, returns its slots
    /// to the poster, and writes the completion to `place`.
    fn retire(
        ledgers: &impl Words,
        found: &Found<Self, impl Record>,
        success: Success<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()>;
}

impl DirectQueue for Sends {
    const TURNS: Turns = Turns::Sends;

    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<SendPoller> {
        &mut cache.sends
    }

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        kind.is_requester_success().then_some(CqeOpcode::Requester.raw())
    }

    #[inline(always)]
    fn retire(
        ledgers: &impl Words,
        found: &Found<Sends, impl Record>,
        success: Success<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let retired = found.retire_oldest(ledgers, success.counter)?;
        let opcode = WorkCompletionOpcode::from_kind(retired.posted.kind());
        sent(place, success, retired.id, opcode, found.qpn());
        Some(())
    }
}

impl DirectQueue for Receives {
    const TURNS: Turns = Turns::Receives;

    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<ReceivePoller> {
        &mut cache.receives
    }

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        kind.responder_success()
    }

    #[inline(always)]
    fn retire(
        ledgers: &impl Words,
        found: &Found<Receives, impl Record>,
        success: Success<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let id = found.retire_oldest(ledgers, success.counter)?;
        received(place, success, success.opcode, id, found.qpn());
        Some(())
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes the next entry to `place` if it is a success that completes the oldest request of its queue pair.
    #[inline(always)]
    pub(super) fn take_single(&mut self, place: &mut WorkCompletion) -> Single {
        let at = self.consumer;
        let (cqe, owner) = self.next_entry();
        if owner.is_requester_success() {
            let taken = self.finder().retire::<Sends>(cqe.success(CqeOpcode::Requester.raw()), place);
            return self.finish_single(at, taken, place);
        }
        let taken = if owner.is_of_other_pass() {
            // In a ring of two-block entries, this looked at the wrong block.
            return if self.wide { Single::OtherPath } else { Single::Empty };
        } else if owner.is_plain_receive() {
            self.retire_received(cqe.success(CqeOpcode::ResponderSend.raw()), place)
        } else if let Some(opcode) = owner.responder_success() {
            return self.take_single_with_data(opcode, place);
        } else {
            return Single::OtherPath;
        };
        self.finish_single(at, taken, place)
    }

    /// Like [`Self::take_single`], for a receive with immediate data or an invalidated key.
    #[inline(never)]
    fn take_single_with_data(&mut self, opcode: u8, place: &mut WorkCompletion) -> Single {
        let at = self.consumer;
        let (cqe, _) = self.next_entry();
        let taken = self.retire_received(cqe.success(opcode), place);
        self.finish_single(at, taken, place)
    }

    /// Retires the receive of an entry, of the cached queue pair with a shared queue or of any other one with its own.
    #[inline(always)]
    fn retire_received(&self, success: Success<'_>, place: &mut WorkCompletion) -> Option<()> {
        if self.cache.shared.has_number(success.cqe) {
            self.cache.shared.retire_one(self.device.device().ledgers(), success, place)
        } else {
            self.finder().retire::<Receives>(success, place)
        }
    }

    #[inline(always)]
    fn finder(&self) -> Finder<'_, impl Words> {
        let ledgers = self.device.device().ledgers();
        Finder { ledgers, records: ledgers.records(), home: self.home }
    }

    /// Moves past the entry at `at` if it was taken; otherwise tries whether it is of a sibling.
    #[inline(always)]
    fn finish_single(&mut self, at: Consumer, taken: Option<()>, place: &mut WorkCompletion) -> Single {
        if taken.is_none() {
            return self.take_single_of_sibling(place);
        }
        self.consumer.follow(at, 1);
        hand_back(self.device.device().hal(), &self.rings, self.consumer.counter());
        Single::Taken
    }

    /// Like [`Self::take_single`], for a queue pair that receives from the same shared queue as the cached
    /// one, which it replaces.
    #[cold]
    #[inline(never)]
    fn take_single_of_sibling(&mut self, place: &mut WorkCompletion) -> Single {
        let ledgers = self.device.device().ledgers();
        let (cqe, owner) = self.next_entry();
        let Some(opcode) = owner.responder_success() else { return Single::OtherPath };
        let Some(sibling) = self.cache.shared.sibling(ledgers, self.cqn, cqe) else {
            return Single::OtherPath;
        };
        if sibling.retire_one(ledgers, cqe.success(opcode), place).is_none() {
            return Single::OtherPath;
        }
        self.cache.shared = sibling;
        self.consume();
        Single::Taken
    }

    /// The next entry, and its last byte. If that says that the device has written it, the rest may be read.
    #[inline(always)]
    fn next_entry(&self) -> (CqeView<'_>, OwnerByte) {
        let cqe = CqeView(self.rings.blocks().slot(self.consumer.index()));
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe };
        let owner = OwnerByte::read(&entry, self.consumer.phase());
        synchronize(&entry);
        (cqe, owner)
    }

    /// Fills `places` with successes of any queue pairs. Returns their number and why the path ended. All of
    /// them must be sends or all receives, and each must complete the oldest request. Begins with what the last
    /// call ended with.
    #[inline(never)]
    pub(super) fn take_turns(&mut self, places: &mut [WorkCompletion]) -> (usize, PathEnd) {
        let count = match self.cache.turns {
            Turns::Sends => self.take_turns_of::<Sends>(places),
            Turns::Receives => self.take_receives_in_turn(places),
            Turns::Never => 0,
        };
        self.end_of_turns(count, places)
    }

    /// [`Self::take_turns`], but begins with whatever comes next.
    #[inline(always)]
    pub(super) fn take_other_turns(&mut self, places: &mut [WorkCompletion]) -> (usize, PathEnd) {
        let owner = self.next_owner();
        let count = if owner.is_requester_success() {
            self.take_sends_in_turn(places)
        } else if owner.responder_success().is_some() {
            self.take_receives_in_turn(places)
        } else {
            return (0, PathEnd::before(owner));
        };
        self.end_of_turns(count, places)
    }

    /// What a path returns that filled the first `count` places.
    #[inline(always)]
    fn end_of_turns(&self, count: usize, places: &[WorkCompletion]) -> (usize, PathEnd) {
        (count, if count == places.len() { PathEnd::Finished } else { PathEnd::before(self.next_owner()) })
    }

    /// The last byte of the next entry.
    fn next_owner(&self) -> OwnerByte {
        let at = self.consumer;
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe: self.entry(at.index()) };
        OwnerByte::read(&entry, at.phase())
    }

    #[cold]
    #[inline(never)]
    fn take_sends_in_turn(&mut self, places: &mut [WorkCompletion]) -> usize {
        self.take_turns_of::<Sends>(places)
    }

    #[inline(never)]
    fn take_receives_in_turn(&mut self, places: &mut [WorkCompletion]) -> usize {
        self.take_turns_of::<Receives>(places)
    }

    /// Like [`Self::take_turns`], up to the end of the ring. Caches a queue pair that completes twice in a row
    /// at the end.
    #[inline(always)]
    fn take_turns_of<Q: DirectQueue>(&mut self, places: &mut [WorkCompletion]) -> usize {
        let Self { device, rings, cache, consumer, home, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let finder = Finder { ledgers: &ledgers.view(), records: ledgers.records(), home: *home };
        let (at, pass) = (*consumer, Pass::new(consumer.phase()));
        let count = rings.blocks().zip(at.index(), places, |slot, place| {
            let entry = OwnedCqe { hal, cqe: CqeView(slot) };
            let end = EntryEnd::read(&entry, pass);
            synchronize(&entry);
            let Some(opcode) = Q::opcode(end) else { return false };
            finder.retire::<Q>(end.success(entry.cqe, opcode), place).is_some()
        });
        if count == 0 {
            return 0;
        }
        consumer.follow(at, count as u32);
        hand_back(hal, rings, consumer.counter());
        // One entry does not tell whether queue pairs take turns.
        if let Some([.., before, last]) = places.get(..count) {
            if before.qpn != last.qpn {
                cache.turns = Q::TURNS;
            } else {
                self.end_turns::<Q>(at.ahead(count as u32 - 1));
            }
        }
        count
    }

    /// Caches the queue pair of the entry at `at`, which was taken.
    #[cold]
    #[inline(never)]
    fn end_turns<Q: DirectQueue>(&mut self, at: Consumer) {
        let (ledgers, cqe) = (self.device.device().ledgers(), CqeView(self.rings.blocks().slot(at.index())));
        let poller = Poller::<Q>::resolve(ledgers, ledgers.records(), identity_of(self.cqn, cqe));
        *Q::cached(&mut self.cache) = CachedQueuePair::of(cqe, poller.unwrap_or(Poller::NOBODY));
        self.cache.turns = Turns::Never;
    }
}

impl<W: Words> Finder<'_, W> {
    /// Retires the request of an entry of any queue pair, returns its slots to the poster, and writes the
    /// completion to `place`.
    #[inline(always)]
    fn retire<Q: DirectQueue>(&self, success: Success<'_>, place: &mut WorkCompletion) -> Option<()> {
        let &Self { ledgers, records, home } = self;
        let user_index = UserIndex::from_dword(success.cqe.user_index_dword());
        let found = Poller::<Q>::find(ledgers, records, home, user_index)?;
        Q::retire(ledgers, &found, success, place)
    }
}
