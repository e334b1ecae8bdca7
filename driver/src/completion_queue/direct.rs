//! Retires successful completions directly in the ledger when their queue pair is not cached: single ones,
//! and those of queue pairs that alternate. Caching a queue pair for one entry costs more than it saves.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, Completed, QueuePairCache};
use super::entries::hand_back;
use super::session::{CachedPoller, Session, retire};
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::cqe::{CompletionFields, CqeView};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::ledger::{Half, Home, Identity, Poller, ReceivePoller, Receives, SendPoller, Sends};
use crate::ring::synchronize;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::Cqn;

/// How many consecutive entries may repeat their queue pair before that queue pair is cached.
const MOST_REPEATS: u32 = 3;

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

    /// Retires the oldest request of the poller's queue pair if the entry completes it, and writes the
    /// completion to `place`. The poller was just looked up, so it knows how far the poster is.
    fn retire<M>(
        ledgers: &Ledgers<M>,
        poller: &mut Poller<Self>,
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
        poller: &mut SendPoller,
        WrittenEntry { cqe, owner }: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        if !owner.is_requester_success() {
            return None;
        }
        let retired = poller.retire_next(&poller.pairs(ledgers), cqe.counter())?;
        *place = sent(cqe, retired.id, WorkCompletionOpcode::from_kind(retired.posted.kind()), poller.qpn());
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
        poller: &mut ReceivePoller,
        WrittenEntry { cqe, owner }: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let opcode = owner.responder_success()?;
        let id = poller.retire_next(&poller.singles(ledgers), cqe.counter())?;
        received(place, cqe, opcode, id, poller.qpn());
        Some(())
    }
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Takes the next entry to `place` if it is a success: of the cached queue pair first, otherwise of any.
    #[inline(always)]
    pub(super) fn take_single(&mut self, place: &mut WorkCompletion) -> Single {
        let (hal, ledgers) = (self.device.device().hal(), self.device.device().ledgers());
        let (cache, entry) = (&self.cache, self.next_entry());
        let WrittenEntry { cqe, owner } = entry;
        let taken = if owner.is_requester_success() {
            if cache.sends.has(cqe) {
                retire_cached(&cache.sends, ledgers, self.cqn, entry, place)
            } else {
                None
            }
        } else if owner.is_of_other_pass() {
            // In a ring of two-block entries, this looked at the wrong block.
            return if self.wide { Single::OtherPath } else { Single::Empty };
        } else if owner.responder_success().is_none() {
            return Single::OtherPath;
        } else if cache.receives.has(cqe) {
            retire_cached(&cache.receives, ledgers, self.cqn, entry, place)
        } else if cache.shared.has_number(cqe) {
            retire_cached(&cache.shared, ledgers, self.cqn, entry, place)
        } else {
            None
        };
        if taken.is_none() {
            return self.take_single_of_any(place);
        }
        self.consumer.advance();
        hand_back(hal, &self.rings, self.consumer.counter());
        Single::Taken
    }

    /// Like [`Self::take_single`], for any queue pair. Caches one that completes twice in a row.
    #[inline(never)]
    fn take_single_of_any(&mut self, place: &mut WorkCompletion) -> Single {
        let ledgers = self.device.device().ledgers();
        let finder = Finder { ledgers, home: self.home };
        let entry = self.next_entry();
        let user_index = entry.cqe.user_index_dword();
        let is_again = user_index == self.cache.last_single;
        let taken = if entry.owner.is_requester_success() {
            let poller = finder.retire::<Sends>(entry, place);
            poller.map(|poller| is_again.then(|| Completed::Send(CachedQueuePair::of(entry.cqe, poller))))
        } else {
            let poller = finder.retire::<Receives>(entry, place);
            poller.map(|poller| is_again.then(|| Completed::Receive(CachedQueuePair::of(entry.cqe, poller))))
        };
        let Some(to_cache) = taken else { return self.take_single_of_sibling(place) };
        if let Some(completed) = to_cache {
            self.cache.insert(completed);
        }
        self.cache.last_single = user_index;
        self.consume();
        Single::Taken
    }

    /// Like [`Self::take_single`], for a queue pair that receives from the same shared queue as the cached
    /// one, which it replaces.
    fn take_single_of_sibling(&mut self, place: &mut WorkCompletion) -> Single {
        let ledgers = self.device.device().ledgers();
        let entry = self.next_entry();
        let Some(sibling) = self.cache.shared.sibling(ledgers, self.cqn, entry.cqe) else {
            return Single::OtherPath;
        };
        if retire_cached(&sibling, ledgers, self.cqn, entry, place).is_none() {
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

    /// Fills `places` with successes of any queue pairs and returns their number. All of them must be sends
    /// or all receives, and each must complete the oldest request. Stops when one queue pair continues alone,
    /// and caches it.
    pub(super) fn take_turns(&mut self, places: &mut [WorkCompletion]) -> usize {
        let at = self.consumer;
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe: self.entry(at.index()) };
        let owner = OwnerByte::read(&entry, at.phase());
        if owner.is_requester_success() {
            self.take_turns_of::<Sends>(places)
        } else if owner.responder_success().is_some() {
            self.take_turns_of::<Receives>(places)
        } else {
            0
        }
    }

    /// Like [`Self::take_turns`], up to the end of the ring.
    fn take_turns_of<Q: DirectQueue>(&mut self, places: &mut [WorkCompletion]) -> usize {
        let Self { device, rings, cache, consumer, cqn, home, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let finder = Finder { ledgers, home: *home };
        let (at, phase) = (*consumer, consumer.phase());
        let (mut last, mut repeats) = (None, 0);
        let count = rings.blocks().zip(at.index(), places, |slot, place| {
            let entry = OwnedCqe { hal, cqe: CqeView(slot) };
            let owner = OwnerByte::read(&entry, phase);
            synchronize(&entry);
            let user_index = Some(entry.cqe.user_index_dword());
            if user_index == last {
                repeats += 1;
                if repeats > MOST_REPEATS {
                    return false;
                }
            }
            last = user_index;
            finder.retire::<Q>(WrittenEntry { cqe: entry.cqe, owner }, place).is_some()
        });
        if count > 0 {
            if repeats > MOST_REPEATS {
                let next = CqeView(rings.blocks().slot(at.ahead(count as u32).index()));
                let identity = Identity::new(*cqn, next.user_index(), next.qpn());
                let poller = Poller::<Q>::resolve(ledgers, ledgers.records(), identity);
                *Q::cached(cache) = CachedQueuePair::of(next, poller.unwrap_or(Poller::NOBODY));
            }
            *consumer = at.ahead(count as u32);
            hand_back(hal, rings, consumer.counter());
        }
        count
    }
}

/// Retires the request of an entry of a cached queue pair.
#[inline(always)]
fn retire_cached<P: CachedPoller, M>(
    cached: &CachedQueuePair<P>,
    ledgers: &Ledgers<M>,
    cqn: Cqn,
    WrittenEntry { cqe, owner }: WrittenEntry<'_>,
    place: &mut WorkCompletion,
) -> Option<()> {
    let mut copy = *cached;
    let mut session = P::open(&mut copy, ledgers, cqn)?;
    retire(&mut session, owner, cqe, place)?;
    session.close();
    Some(())
}

impl<M> Finder<'_, M> {
    /// Retires the request of an entry of any queue pair, returns its slots to the poster, and writes the
    /// completion to `place`.
    #[inline(always)]
    fn retire<Q: DirectQueue>(
        &self,
        entry: WrittenEntry<'_>,
        place: &mut WorkCompletion,
    ) -> Option<Poller<Q>> {
        let &Self { ledgers, home } = self;
        let (mut poller, record) =
            Poller::<Q>::find(ledgers, ledgers.records(), home, entry.cqe.user_index())?;
        Q::retire(ledgers, &mut poller, entry, place)?;
        poller.publish(&record);
        Some(poller)
    }
}
