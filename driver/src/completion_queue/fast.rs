//! The fast path of polling: successes of queue pairs that the completion queue has cached. Where the ledger of a queue pair is
//! was found out when it completed before; what an entry says of itself is checked for each.
//!
//! One queue pair is cached for each kind of queue: sends, receives, and receives of a shared queue. The loop over entries
//! is the same for all; a [`Session`] is what differs.

use super::CompletionQueue;
use super::poll::hand_back;
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::cqe::{CqeView, NOBODY};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::dma::{BLOCK, Run};
use crate::hal::Hal;
use crate::ledger::shared::{Chain, Entries, SharedPoller, SharedRecord};
use crate::ledger::{Identity, Pairs, ReceivePoller, Record, SendPoller, Singles};
use crate::ring::{Consumer, synchronize};
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::CqeOpcode;

/// Why the fast path ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FastEnd {
    /// There is no more room, or no more entry.
    Finished,
    /// The next entry needs another cached queue pair, or the general path.
    OtherPath,
}

/// A queue pair, and where one of its ledgers is.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedQueuePair<P> {
    /// The dword that holds the `user_index`, as entries have it. Its generation makes it unique.
    user_index_dword: u32,
    /// The number in memory order.
    qpn_dword: u32,
    qpn: Qpn,
    poller: P,
}

/// The queue pairs that completed last, one of each kind of queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePairCache {
    sends: CachedQueuePair<SendPoller>,
    receives: CachedQueuePair<ReceivePoller>,
    shared: CachedQueuePair<SharedPoller>,
}

/// The queue pair of one entry, to be cached.
pub(super) enum Completed {
    Send(CachedQueuePair<SendPoller>),
    Receive(CachedQueuePair<ReceivePoller>),
    SharedReceive(CachedQueuePair<SharedPoller>),
}

impl<P> CachedQueuePair<P> {
    /// The queue pair of an entry.
    pub(super) fn of(cqe: CqeView<'_>, poller: P) -> Self {
        let (user_index_dword, qpn_dword) = (cqe.user_index_dword(), cqe.qpn_dword());
        Self { user_index_dword, qpn_dword, qpn: cqe.qpn(), poller }
    }

    const fn nobody(poller: P) -> Self {
        Self { user_index_dword: NOBODY, qpn_dword: 0, qpn: Qpn::from_low_bits(0), poller }
    }

    #[inline(always)]
    fn has(&self, cqe: CqeView<'_>) -> bool {
        cqe.user_index_dword() == self.user_index_dword
    }
}

impl QueuePairCache {
    /// No queue pair.
    pub(super) const EMPTY: Self = Self {
        sends: CachedQueuePair::nobody(SendPoller::NOBODY),
        receives: CachedQueuePair::nobody(ReceivePoller::NOBODY),
        shared: CachedQueuePair::nobody(SharedPoller::NOBODY),
    };

    /// Caches the queue pair that completed just now.
    pub(super) const fn insert(&mut self, completed: Completed) {
        match completed {
            Completed::Send(cached) => self.sends = cached,
            Completed::Receive(cached) => self.receives = cached,
            Completed::SharedReceive(cached) => self.shared = cached,
        }
    }
}

/// Retiring entries of one kind of queue for as long as its cached queue pair, or one that shares its queue, completes.
trait Session {
    /// The opcode of an entry, if it is a success of this kind.
    fn opcode(owner: OwnerByte) -> Option<u8>;

    /// Whether an entry is of the cached queue pair, or of another one that can take its place now.
    fn has(&mut self, cqe: CqeView<'_>) -> bool;

    /// Retires the request of an entry that is of the queue pair, if it is outstanding, and writes its completion to `place`.
    fn retire(&mut self, opcode: u8, cqe: CqeView<'_>, place: &mut WorkCompletion) -> Option<()>;

    /// Gives back to the poster what was retired.
    fn close(self);
}

/// A kind of queue whose poller can be cached.
trait CachedPoller: Copy {
    /// Whether the first entry is known to be of the cached queue pair.
    const IS_FOUND: bool = false;

    /// Its place in the cache.
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self>;

    /// Begins to retire entries, if the queue pair is still there.
    fn open<'a, M>(
        cached: &'a mut CachedQueuePair<Self>,
        ledgers: &'a Ledgers<M>,
        cqn: Cqn,
    ) -> Option<impl Session>;

    /// Takes over how far `other`, a copy of the cached queue pair, went.
    fn follow(cached: &mut CachedQueuePair<Self>, other: &CachedQueuePair<Self>);
}

struct SendSession<'a, R, S> {
    cached: &'a mut CachedQueuePair<SendPoller>,
    record: R,
    slots: S,
}

impl CachedPoller for SendPoller {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self> {
        &mut cache.sends
    }

    #[inline(always)]
    fn open<'a, M>(
        cached: &'a mut CachedQueuePair<Self>,
        ledgers: &'a Ledgers<M>,
        _: Cqn,
    ) -> Option<impl Session> {
        let record = cached.poller.record(ledgers)?;
        let slots = ledgers.send_slots(cached.poller.slots());
        cached.poller.is_current(&record).then_some(SendSession { cached, record, slots })
    }

    #[inline(always)]
    fn follow(cached: &mut CachedQueuePair<Self>, other: &CachedQueuePair<Self>) {
        cached.poller.follow(&other.poller);
    }
}

impl<R: Record, S: Pairs> Session for SendSession<'_, R, S> {
    #[inline(always)]
    fn opcode(owner: OwnerByte) -> Option<u8> {
        owner.is_requester_success().then_some(CqeOpcode::Requester.raw())
    }

    #[inline(always)]
    fn has(&mut self, cqe: CqeView<'_>) -> bool {
        self.cached.has(cqe)
    }

    #[inline(always)]
    fn retire(&mut self, _: u8, cqe: CqeView<'_>, place: &mut WorkCompletion) -> Option<()> {
        let retired = self.cached.poller.retire_next(&self.record, &self.slots, cqe.counter())?;
        let opcode = WorkCompletionOpcode::from_kind(retired.posted.kind());
        *place = sent(cqe, retired.id, opcode, self.cached.qpn);
        Some(())
    }

    #[inline(always)]
    fn close(self) {
        self.cached.poller.publish(&self.record);
    }
}

struct ReceiveSession<'a, R, S> {
    cached: &'a mut CachedQueuePair<ReceivePoller>,
    record: R,
    slots: S,
}

impl CachedPoller for ReceivePoller {
    const IS_FOUND: bool = true;

    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self> {
        &mut cache.receives
    }

    #[inline(always)]
    fn open<'a, M>(
        cached: &'a mut CachedQueuePair<Self>,
        ledgers: &'a Ledgers<M>,
        _: Cqn,
    ) -> Option<impl Session> {
        let record = cached.poller.record(ledgers)?;
        let slots = ledgers.receive_slots(cached.poller.slots());
        cached.poller.is_current(&record).then_some(ReceiveSession { cached, record, slots })
    }

    #[inline(always)]
    fn follow(cached: &mut CachedQueuePair<Self>, other: &CachedQueuePair<Self>) {
        cached.poller.follow(&other.poller);
    }
}

impl<R: Record, S: Singles> Session for ReceiveSession<'_, R, S> {
    #[inline(always)]
    fn opcode(owner: OwnerByte) -> Option<u8> {
        owner.responder_success()
    }

    #[inline(always)]
    fn has(&mut self, cqe: CqeView<'_>) -> bool {
        self.cached.has(cqe)
    }

    #[inline(always)]
    fn retire(&mut self, opcode: u8, cqe: CqeView<'_>, place: &mut WorkCompletion) -> Option<()> {
        let id = self.cached.poller.retire_next(&self.record, &self.slots, cqe.counter())?;
        received(place, cqe, opcode, id, self.cached.qpn);
        Some(())
    }

    #[inline(always)]
    fn close(self) {
        self.cached.poller.publish(&self.record);
    }
}

struct SharedSession<'a, M, Q, E> {
    cached: &'a mut CachedQueuePair<SharedPoller>,
    ledgers: &'a Ledgers<M>,
    cqn: Cqn,
    /// Record and slots of the shared queue.
    queue: Q,
    entries: E,
    /// What was retired.
    chain: Chain,
}

impl CachedPoller for SharedPoller {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self> {
        &mut cache.shared
    }

    #[inline(always)]
    fn open<'a, M>(
        cached: &'a mut CachedQueuePair<Self>,
        ledgers: &'a Ledgers<M>,
        cqn: Cqn,
    ) -> Option<impl Session> {
        let record = cached.poller.record(ledgers)?;
        let (queue, entries) = cached.poller.queue(ledgers)?;
        if !cached.poller.is_current(&record, &queue) {
            return None;
        }
        let chain = Chain::new(&queue);
        Some(SharedSession { cached, ledgers, cqn, queue, entries, chain })
    }

    #[inline(always)]
    fn follow(cached: &mut CachedQueuePair<Self>, other: &CachedQueuePair<Self>) {
        *cached = *other;
    }
}

impl CachedQueuePair<SharedPoller> {
    /// The queue pair of an entry, if it receives from the same shared queue: completions of one come from all its queue pairs
    /// in turn. By value, so that the session stays in registers.
    #[inline(never)]
    fn sibling<M>(self, ledgers: &Ledgers<M>, cqn: Cqn, cqe: CqeView<'_>) -> Option<Self> {
        let identity = Identity::new(cqn, cqe.user_index(), cqe.qpn());
        let poller = SharedPoller::resolve(ledgers, ledgers.records(), identity)?;
        poller.shares_with(&self.poller).then(|| Self::of(cqe, poller))
    }
}

impl<M, Q: SharedRecord, E: Entries> Session for SharedSession<'_, M, Q, E> {
    #[inline(always)]
    fn opcode(owner: OwnerByte) -> Option<u8> {
        owner.responder_success()
    }

    #[inline(always)]
    fn has(&mut self, cqe: CqeView<'_>) -> bool {
        // The number too: entries of a shared queue of XRC have the `user_index` of the queue and the numbers of all its queue pairs.
        if self.cached.has(cqe) && cqe.qpn_dword() == self.cached.qpn_dword {
            return true;
        }
        let sibling = self.cached.sibling(self.ledgers, self.cqn, cqe);
        *self.cached = sibling.unwrap_or(*self.cached);
        sibling.is_some()
    }

    #[inline(always)]
    fn retire(&mut self, opcode: u8, cqe: CqeView<'_>, place: &mut WorkCompletion) -> Option<()> {
        let id = self.cached.poller.claim(&self.entries, &mut self.chain, cqe.counter())?;
        received(place, cqe, opcode, id, self.cached.qpn);
        Some(())
    }

    #[inline(always)]
    fn close(self) {
        self.chain.put_back(&self.queue, &self.entries);
    }
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
        let (Some(mut session), [place]) = (P::open(cached, self.ledgers, self.cqn), places) else {
            return OTHER;
        };
        if !(P::IS_FOUND || session.has(cqe)) || retire(&mut session, owner, cqe, place).is_none() {
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
        let Some(mut session) = P::open(cached, self.ledgers, self.cqn) else {
            return (0, FastEnd::OtherPath);
        };
        let (mut at, room) = (self.at, places.len());
        let mut rest = places;
        while !rest.is_empty() {
            // The phase is the same up to the end of the ring.
            let (now, later) = rest.split_at_mut(rest.len().min(at.left() as usize));
            let wanted = now.len();
            let taken = self.take_stretch(&mut session, at, now);
            at = at.ahead(taken as u32);
            rest = if taken == wanted { later } else { &mut [] };
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
