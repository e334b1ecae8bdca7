//! Caches the queue pairs that completed last, one for each kind of queue. An entry of the cache holds the
//! location of the ledger, so that the fast path does not have to look it up again.

use crate::cqe::{CqeView, NOBODY};
use crate::ledger::shared::SharedPoller;
use crate::ledger::{ReceivePoller, SendPoller};
use bareverbs_prm::ids::Qpn;

/// A queue pair, and the location of one of its ledgers.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedQueuePair<P> {
    /// The dword with the `user_index`, in memory order. It is unique, because the `user_index` contains a
    /// generation.
    user_index_dword: u32,
    /// The queue pair number in memory order.
    qpn_dword: u32,
    pub(super) qpn: Qpn,
    pub(super) poller: P,
}

/// The queue pairs that completed last, one for each kind of queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePairCache {
    pub(super) sends: CachedQueuePair<SendPoller>,
    pub(super) receives: CachedQueuePair<ReceivePoller>,
    pub(super) shared: CachedQueuePair<SharedPoller>,
    /// Whether queue pairs took turns in the last poll of several entries, so that the next one does not try
    /// the cached queue pair first.
    pub(super) turns: Turns,
}

/// Whether queue pairs take turns, and with which of their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    Never,
    Sends,
    Receives,
}

/// The queue pair of an entry, as a candidate for the cache.
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

    /// Whether an entry belongs to this queue pair, judged by its `user_index`.
    #[inline(always)]
    pub(super) fn has(&self, cqe: CqeView<'_>) -> bool {
        cqe.user_index_dword() == self.user_index_dword
    }

    /// Like [`Self::has`], but also compares the number: entries of a shared XRC queue carry the `user_index`
    /// of that queue and the numbers of all its queue pairs.
    #[inline(always)]
    pub(super) fn has_number(&self, cqe: CqeView<'_>) -> bool {
        self.has(cqe) && cqe.qpn_dword() == self.qpn_dword
    }

    /// Whether `other` is the same queue pair.
    #[inline(always)]
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.user_index_dword, self.qpn_dword) == (other.user_index_dword, other.qpn_dword)
    }
}

impl QueuePairCache {
    /// No queue pair.
    pub(super) const EMPTY: Self = Self {
        sends: CachedQueuePair::nobody(SendPoller::NOBODY),
        receives: CachedQueuePair::nobody(ReceivePoller::NOBODY),
        shared: CachedQueuePair::nobody(SharedPoller::NOBODY),
        turns: Turns::Never,
    };

    /// Caches the queue pair that has just completed.
    pub(super) const fn insert(&mut self, completed: Completed) {
        match completed {
            Completed::Send(cached) => self.sends = cached,
            Completed::Receive(cached) => self.receives = cached,
            Completed::SharedReceive(cached) => self.shared = cached,
        }
    }
}
