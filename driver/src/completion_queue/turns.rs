//! Successes of queue pairs that take turns: each is retired straight in the ledger, because caching a queue pair for one entry
//! costs more than it saves.

use super::CompletionQueue;
use super::cache::{CachedQueuePair, QueuePairCache};
use super::entries::hand_back;
use crate::cqe::completion::{received, sent};
use crate::cqe::ownership::{OwnedCqe, OwnerByte};
use crate::cqe::{CompletionFields, CqeView};
use crate::device::DeviceRef;
use crate::device::ledgers::Ledgers;
use crate::ledger::{Half, Identity, Poller, ReceivePoller, Receives, Record, SendPoller, Sends};
use crate::ring::synchronize;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_prm::ids::Cqn;

/// A queue pair that completes more often than this in a row does not take turns.
const MOST_IN_A_ROW: u32 = 3;

/// A queue that a queue pair has of its own.
trait TurnQueue: Half {
    /// Its place in the cache.
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<Poller<Self>>;

    /// Retires the oldest request of the queue pair whose poller and record these are, if it is that of the entry, and writes
    /// the completion to `place`. The poller was found just now: it knows how far the poster is.
    fn retire<M>(
        entry: &TurnEntry<'_, M>,
        poller: &mut Poller<Self>,
        record: &impl Record,
        place: &mut WorkCompletion,
    ) -> Option<()>;
}

/// An entry, and what finding its queue pair needs.
struct TurnEntry<'a, M> {
    ledgers: &'a Ledgers<M>,
    cqn: Cqn,
    owner: OwnerByte,
    cqe: CqeView<'a>,
}

impl TurnQueue for Sends {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<SendPoller> {
        &mut cache.sends
    }

    #[inline(always)]
    fn retire<M>(
        entry: &TurnEntry<'_, M>,
        poller: &mut SendPoller,
        record: &impl Record,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let &TurnEntry { ledgers, owner, cqe, .. } = entry;
        if !owner.is_requester_success() {
            return None;
        }
        let pairs = poller.pairs(ledgers);
        let retired = poller.retire_next::<false>(record, &pairs, cqe.counter())?;
        *place = sent(cqe, retired.id, WorkCompletionOpcode::from_kind(retired.posted.kind()), cqe.qpn());
        Some(())
    }
}

impl TurnQueue for Receives {
    #[inline(always)]
    fn cached(cache: &mut QueuePairCache) -> &mut CachedQueuePair<ReceivePoller> {
        &mut cache.receives
    }

    #[inline(always)]
    fn retire<M>(
        entry: &TurnEntry<'_, M>,
        poller: &mut ReceivePoller,
        record: &impl Record,
        place: &mut WorkCompletion,
    ) -> Option<()> {
        let &TurnEntry { ledgers, owner, cqe, .. } = entry;
        let opcode = owner.responder_success()?;
        let singles = poller.singles(ledgers);
        let id = poller.retire_next::<false>(record, &singles, cqe.counter())?;
        received(place, cqe, opcode, id, cqe.qpn());
        Some(())
    }
}

/// Retires the request of an entry of any queue pair, gives it back to the poster, and writes the completion to `place`.
#[inline(always)]
fn retire<Q: TurnQueue, M>(entry: &TurnEntry<'_, M>, place: &mut WorkCompletion) -> Option<()> {
    let &TurnEntry { ledgers, cqn, cqe, .. } = entry;
    let identity = Identity::new(cqn, cqe.user_index(), cqe.qpn());
    let (mut poller, record) = Poller::<Q>::find(ledgers, ledgers.records(), identity)?;
    Q::retire(entry, &mut poller, &record, place)?;
    poller.publish(&record);
    Some(())
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Fills `places` with successes of any queue pairs, as long as they are all of sends or all of receives and each is of the
    /// oldest request, and says how many. Ends where one queue pair goes on alone: it is cached then.
    pub(super) fn take_turns(&mut self, places: &mut [WorkCompletion]) -> usize {
        // Entries of two blocks have the general path alone.
        if self.wide {
            return 0;
        }
        let at = self.consumer;
        let cqe = self.entry(at.index());
        let entry = OwnedCqe { hal: self.device.device().hal(), cqe };
        let owner = OwnerByte::read(&entry, at.phase());
        if owner.is_requester_success() {
            self.take_turns_of::<Sends>(places)
        } else if owner.responder_success().is_some() {
            self.take_turns_of::<Receives>(places)
        } else {
            0
        }
    }

    fn take_turns_of<Q: TurnQueue>(&mut self, places: &mut [WorkCompletion]) -> usize {
        let Self { device, rings, cache, consumer, cqn, .. } = self;
        let (hal, ledgers) = (device.device().hal(), device.device().ledgers());
        let (entries, mut at, mut count) = (rings.blocks(), *consumer, 0);
        let (mut user_index, mut in_a_row) = (None, 0);
        for place in places {
            let cqe = CqeView(entries.slot(at.index()));
            in_a_row = if user_index == Some(cqe.user_index_dword()) { in_a_row + 1 } else { 1 };
            user_index = Some(cqe.user_index_dword());
            if in_a_row > MOST_IN_A_ROW {
                break;
            }
            let entry = OwnedCqe { hal, cqe };
            let owner = OwnerByte::read(&entry, at.phase());
            synchronize(&entry);
            if retire::<Q, _>(&TurnEntry { ledgers, cqn: *cqn, owner, cqe }, place).is_none() {
                break;
            }
            at.advance();
            count += 1;
        }
        if count > 0 {
            // What is cached may be of a queue pair that completed just now, and behind its ledger. The one that completed last
            // is cached instead.
            let last = CqeView(entries.slot(at.index().wrapping_sub(1)));
            let identity = Identity::new(*cqn, last.user_index(), last.qpn());
            let poller = Poller::<Q>::resolve(ledgers, ledgers.records(), identity).unwrap_or(Poller::NOBODY);
            *Q::cached(cache) = CachedQueuePair::of(last, poller);
            consumer.follow(at);
            hand_back(hal, rings, at.counter());
        }
        count
    }
}
