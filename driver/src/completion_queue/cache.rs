//! The queue pairs that completed last, one of each kind of queue. Where the ledger of a queue pair is was found out when it
//! completed before, so that the fast path does not look it up again.

use crate::cqe::{CqeView, NOBODY};
use crate::ledger::shared::SharedPoller;
use crate::ledger::{ReceivePoller, SendPoller};
use bareverbs_prm::ids::Qpn;

/// A queue pair, and where one of its ledgers is.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedQueuePair<P> {
    /// The dword that holds the `user_index`, as entries have it. Its generation makes it unique.
    user_index_dword: u32,
    /// The number in memory order.
    qpn_dword: u32,
    pub(super) qpn: Qpn,
    pub(super) poller: P,
}

/// The queue pairs that completed last, one of each kind of queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePairCache {
    pub(super) sends: CachedQueuePair<SendPoller>,
    pub(super) receives: CachedQueuePair<ReceivePoller>,
    pub(super) shared: CachedQueuePair<SharedPoller>,
    /// The dword with the `user_index` of the queue pair that completed last by itself and is not cached.
    pub(super) last_single: u32,
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

    /// Whether an entry is of this queue pair: its `user_index` is.
    #[inline(always)]
    pub(super) fn has(&self, cqe: CqeView<'_>) -> bool {
        cqe.user_index_dword() == self.user_index_dword
    }

    /// [`Self::has`] by the number too: entries of a shared queue of XRC have the `user_index` of the queue and the numbers of all its
    /// queue pairs.
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
        last_single: NOBODY,
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
