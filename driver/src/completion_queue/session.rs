//! Sessions retire completions of one kind of queue for as long as its cached queue pair completes.
//!
//! The queue pair's own send and receive queues differ in what the ledger stores and in what a completion
//! contains. Receives of a shared queue return in any order and from several queue pairs. A session hides
//! these differences from the loop over entries.

use super::cache::{CachedQueuePair, QueuePairCache};
use super::entries::identity_of;
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{EntryEnd, EntryKind};
use crate::cqe::{CompletionFields, CqeView, Success};
use crate::device::ledgers::Ledgers;
use crate::ledger::shared::{Chain, Entries, SharedPoller, SharedRecord};
use crate::ledger::{
    Half, Pairs, Poller, ReceivePoller, Receives, Record, Retired, SendPoller, Sends, Singles,
};
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::CqeOpcode;

/// Retires completions of one kind of queue.
pub(super) trait Session {
    /// The kind.
    type Poller;

    /// The opcode of an entry, if it is a success of this kind.
    fn opcode(kind: impl EntryKind) -> Option<u8>;

    /// Whether an entry belongs to the cached queue pair.
    fn has(&self, cqe: CqeView<'_>) -> bool;

    /// Continues with the queue pair of an entry, if the session can retire that too.
    #[inline(always)]
    fn follow_sibling(&mut self, _: CqeView<'_>) -> bool {
        false
    }

    /// Retires the request that a completion of the queue pair names, if it is outstanding, and writes the
    /// completion to `place`.
    fn retire(&mut self, opcode: u8, fields: impl CompletionFields, place: &mut WorkCompletion)
    -> Option<()>;

    /// Returns the retired slots to the poster, and the queue pair that completed last.
    fn close(self) -> CachedQueuePair<Self::Poller>;
}

/// Retires an entry that ends with `end`, after the barrier, if the session handles its kind.
#[inline(always)]
pub(super) fn retire<S: Session>(
    session: &mut S,
    end: EntryEnd,
    cqe: CqeView<'_>,
    place: &mut WorkCompletion,
) -> Option<()> {
    let opcode = S::opcode(end)?;
    session.retire(opcode, end.success(cqe, opcode), place)
}

/// A kind of queue whose poller can be cached.
pub(super) trait CachedPoller: Copy {
    /// Its place in the cache.
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self>;

    /// Starts a session, if the queue pair still exists. The session has a copy of the cached queue pair.
    fn open<M>(
        cached: CachedQueuePair<Self>,
        ledgers: &Ledgers<M>,
        cqn: Cqn,
    ) -> Option<impl Session<Poller = Self>>;

    /// Continues with `other`, the queue pair that completed last in a session of the cached one. The location
    /// of a queue pair does not change, and the ledger knows how far it is, so most kinds have nothing to do.
    #[inline(always)]
    fn follow(_: &mut CachedQueuePair<Self>, _: &CachedQueuePair<Self>) {}
}

/// The differences between a queue pair's own send and receive queues. `S` is the type of the ledger slots.
trait OwnQueue<S>: Half {
    /// What the ledger stored about a request.
    type Kept;

    /// See [`Session::opcode`].
    fn opcode(kind: impl EntryKind) -> Option<u8>;

    /// Retires the oldest request, if it is the one at `counter`.
    fn retire(poller: &mut Poller<Self>, slots: &S, counter: u16) -> Option<Self::Kept>;

    /// Writes the completion of the queue pair `qpn` to `place`. `opcode` is that of the entry.
    fn complete(
        kept: Self::Kept,
        opcode: u8,
        fields: impl CompletionFields,
        qpn: Qpn,
        place: &mut WorkCompletion,
    );
}

impl<S: Pairs> OwnQueue<S> for Sends {
    type Kept = Retired;

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        kind.is_requester_success().then_some(CqeOpcode::Requester.raw())
    }

    #[inline(always)]
    fn retire(poller: &mut SendPoller, slots: &S, counter: u16) -> Option<Retired> {
        poller.retire_next(slots, counter)
    }

    #[inline(always)]
    fn complete(kept: Retired, _: u8, fields: impl CompletionFields, qpn: Qpn, place: &mut WorkCompletion) {
        let opcode = WorkCompletionOpcode::from_kind(kept.posted.kind());
        sent(place, fields, kept.id, opcode, qpn);
    }
}

impl<S: Singles> OwnQueue<S> for Receives {
    type Kept = u64;

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        kind.responder_success()
    }

    #[inline(always)]
    fn retire(poller: &mut ReceivePoller, slots: &S, counter: u16) -> Option<u64> {
        poller.retire_next(slots, counter)
    }

    #[inline(always)]
    fn complete(kept: u64, opcode: u8, fields: impl CompletionFields, qpn: Qpn, place: &mut WorkCompletion) {
        received(place, fields, opcode, kept, qpn);
    }
}

/// A session of a queue pair's own queue. It does not see what is posted while it lasts.
struct OwnSession<Q, R, S> {
    cached: CachedQueuePair<Poller<Q>>,
    record: R,
    slots: S,
}

/// Starts a session, if the queue pair still exists.
#[inline(always)]
fn open_own<'a, Q: OwnQueue<S>, S, M>(
    mut cached: CachedQueuePair<Poller<Q>>,
    ledgers: &'a Ledgers<M>,
    slots: S,
) -> Option<OwnSession<Q, impl Record + use<'a, Q, S, M>, S>> {
    let record = cached.poller.record(ledgers)?;
    if !cached.poller.is_current(&record) {
        return None;
    }
    cached.poller.refresh(&record);
    Some(OwnSession { cached, record, slots })
}

impl<Q: OwnQueue<S>, R: Record, S> Session for OwnSession<Q, R, S> {
    type Poller = Poller<Q>;

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        Q::opcode(kind)
    }

    #[inline(always)]
    fn has(&self, cqe: CqeView<'_>) -> bool {
        self.cached.has(cqe)
    }

    #[inline(always)]
    fn retire(
        &mut self,
        opcode: u8,
        fields: impl CompletionFields,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let poller = &mut self.cached.poller;
        let kept = Q::retire(poller, &self.slots, fields.counter())?;
        Q::complete(kept, opcode, fields, self.cached.qpn, place);
        Some(())
    }

    #[inline(always)]
    fn close(self) -> CachedQueuePair<Self::Poller> {
        self.cached.poller.publish(&self.record);
        self.cached
    }
}

impl CachedPoller for SendPoller {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self> {
        &mut cache.sends
    }

    #[inline(always)]
    fn open<M>(
        cached: CachedQueuePair<Self>,
        ledgers: &Ledgers<M>,
        _: Cqn,
    ) -> Option<impl Session<Poller = Self>> {
        let slots = ledgers.send_slots(cached.poller.slots());
        open_own(cached, ledgers, slots)
    }
}

impl CachedPoller for ReceivePoller {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Self> {
        &mut cache.receives
    }

    #[inline(always)]
    fn open<M>(
        cached: CachedQueuePair<Self>,
        ledgers: &Ledgers<M>,
        _: Cqn,
    ) -> Option<impl Session<Poller = Self>> {
        let slots = ledgers.receive_slots(cached.poller.slots());
        open_own(cached, ledgers, slots)
    }
}

/// A session of a shared receive queue.
struct SharedSession<'a, M, Q, E> {
    cached: CachedQueuePair<SharedPoller>,
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
    fn open<M>(
        cached: CachedQueuePair<Self>,
        ledgers: &Ledgers<M>,
        cqn: Cqn,
    ) -> Option<impl Session<Poller = Self>> {
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
        if !cached.is(other) {
            cached.replace(*other);
        }
    }
}

impl CachedQueuePair<SharedPoller> {
    #[cold]
    #[inline(never)]
    fn replace(&mut self, other: Self) {
        *self = other;
    }

    /// Retires the receive of one entry, if the queue pair still exists.
    #[inline(always)]
    pub(super) fn retire_one<M>(
        &self,
        ledgers: &Ledgers<M>,
        success: Success<'_>,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let record = self.poller.record(ledgers)?;
        let (queue, entries) = self.poller.queue(ledgers)?;
        if !self.poller.is_current(&record, &queue) {
            return None;
        }
        let mut chain = Chain::new(&queue);
        let id = self.poller.claim(&entries, &mut chain, success.counter)?;
        chain.put_back(&queue, &entries);
        received(place, success, success.opcode, id, self.qpn);
        Some(())
    }

    /// The queue pair of an entry, if it receives from the same shared queue: completions of a shared queue
    /// come from its queue pairs in any order. Takes `self` by value, so that the session stays in registers.
    #[inline(never)]
    pub(super) fn sibling<M>(self, ledgers: &Ledgers<M>, cqn: Cqn, cqe: CqeView<'_>) -> Option<Self> {
        let poller = SharedPoller::resolve(ledgers, ledgers.records(), identity_of(cqn, cqe))?;
        poller.shares_with(&self.poller).then(|| Self::of(cqe, poller))
    }
}

impl<M, Q: SharedRecord, E: Entries> Session for SharedSession<'_, M, Q, E> {
    type Poller = SharedPoller;

    #[inline(always)]
    fn opcode(kind: impl EntryKind) -> Option<u8> {
        kind.responder_success()
    }

    #[inline(always)]
    fn has(&self, cqe: CqeView<'_>) -> bool {
        self.cached.has_number(cqe)
    }

    #[inline(always)]
    fn follow_sibling(&mut self, cqe: CqeView<'_>) -> bool {
        let sibling = self.cached.sibling(self.ledgers, self.cqn, cqe);
        self.cached = sibling.unwrap_or(self.cached);
        sibling.is_some()
    }

    #[inline(always)]
    fn retire(
        &mut self,
        opcode: u8,
        fields: impl CompletionFields,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let id = self.cached.poller.claim(&self.entries, &mut self.chain, fields.counter())?;
        received(place, fields, opcode, id, self.cached.qpn);
        Some(())
    }

    #[inline(always)]
    fn close(self) -> CachedQueuePair<SharedPoller> {
        self.chain.put_back(&self.queue, &self.entries);
        self.cached
    }
}
