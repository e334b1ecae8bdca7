//! Shared receive queues: receive memory pools (RMPs) and the shared receive queues of XRC.
//!
//! Entries form a linked list, because the receives of many queue pairs complete in any order. Software
//! returns an entry by linking it after the last one (Linux `drivers/infiniband/hw/mlx5/srq.c`).

use super::buffer::PagedBuffer;
use super::contexts::Slab;
use super::doorbell_record::DoorbellRecord;
use super::memory::HostMemory;
use super::receive_queue::{FetchedReceive, ReceiveAccess, ReceiveGeometry, ReceiveQueue, ScatterList};
use super::wqe;
use bareverbs_prm::command::srq::{RmpContext, XrcSrqContext};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Cqn, Pdn, Srqn, Xrcdn};
use bareverbs_prm::numbering::EventType;

/// First number of a shared receive queue. Both kinds share one number space.
pub(crate) const FIRST_SRQ: u32 = 0x10;
/// First XRC domain number.
pub(crate) const FIRST_XRCD: u32 = 1;

/// The context from the creating command.
#[derive(Debug)]
pub(crate) enum SharedContext {
    Pool(RmpContext),
    Xrc(XrcSrqContext),
}

impl SharedContext {
    /// The context, if this is an XRC queue of `domain`.
    pub(crate) fn of_domain(&self, domain: Xrcdn) -> Option<&XrcSrqContext> {
        match self {
            Self::Xrc(context) if context.xrcd() == domain => Some(context),
            _ => None,
        }
    }
}

/// Where the receives of a queue pair come from.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// It has none.
    None,
    /// A queue of its own.
    Own(ReceiveQueue),
    /// A queue that it shares with others.
    Shared(Srqn),
    /// The queues of its XRC domain: every request names one of them.
    Xrc(Xrcdn),
}

/// In the token of an XRC receive, the number of the queue is above that of the entry.
const QUEUE_SHIFT: u32 = 16;

/// The token of a receive, including the queue that the message names, if any.
pub(crate) fn token(named: Option<Srqn>, index: u16) -> u64 {
    u64::from(named.map_or(0, Srqn::value)) << QUEUE_SHIFT | u64::from(index)
}

/// The queue in a token; zero if the message named none, since no queue has the number zero.
const fn queue_of(token: u64) -> u32 {
    (token >> QUEUE_SHIFT) as u32
}

impl ReceiveSource {
    /// Takes the next receive; for XRC, from the queue that the request names. `None` if there is no such
    /// queue.
    pub(crate) fn take<M: HostMemory>(
        &mut self,
        memory: &mut M,
        queues: &mut Slab<SharedReceiveQueue>,
        named: Option<Srqn>,
        access: ReceiveAccess<'_>,
        scatter: &mut ScatterList,
    ) -> Option<FetchedReceive> {
        let shared = match self {
            Self::None => return None,
            Self::Own(queue) => return Some(queue.take(memory, access, scatter)),
            Self::Shared(number) => *number,
            Self::Xrc(_) => named?,
        };
        queues.get_mut(shared.value()).map(|queue| queue.take(memory, access, scatter))
    }
}

/// The completion queue and the `user_index` for the completion of a receive: those of the queue pair, or of
/// the XRC queue in the token if that still exists.
pub(crate) fn destination(
    queues: &Slab<SharedReceiveQueue>,
    context: &QueuePairContext,
    token: u64,
) -> Option<(Cqn, u32)> {
    match queue_of(token) {
        0 => Some((context.cqn_rcv(), context.user_index())),
        number => match &queues.get(number)?.context {
            SharedContext::Xrc(xrc) if xrc.user_index_equal_xrc_srqn() => Some((xrc.cqn(), number)),
            SharedContext::Xrc(xrc) => Some((xrc.cqn(), xrc.user_index())),
            SharedContext::Pool(_) => None,
        },
    }
}

/// The state of a shared receive queue (PRM, receive memory pool context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedState {
    /// No receive can be taken from it yet.
    Reset,
    /// It works.
    Ready,
    /// It broke; `told` says whether software has been notified.
    Failed { told: bool },
}

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) context: SharedContext,
    queue: ReceiveQueue,
    pub(crate) state: SharedState,
    /// An event is due, once, when fewer entries than this are posted. Zero disables it.
    pub(crate) limit: u16,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        context: SharedContext,
        buffer: PagedBuffer,
        geometry: ReceiveGeometry,
        record: DoorbellRecord,
        limit: u16,
    ) -> Self {
        let queue = ReceiveQueue::shared(buffer, geometry, record);
        Self { context, queue, state: SharedState::Ready, limit }
    }

    /// Takes the next receive. An inconsistent entry or doorbell record breaks the queue for all its users
    /// (IBTA v1.4 §10.2.9.5), because the entries after it cannot be found.
    pub(crate) fn take<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mut access: ReceiveAccess<'_>,
        scatter: &mut ScatterList,
    ) -> FetchedReceive {
        access.accessor.pd = self.pd();
        match self.state {
            SharedState::Reset => FetchedReceive::Empty,
            SharedState::Failed { .. } => FetchedReceive::Broken(wqe::FETCH),
            SharedState::Ready => {
                let taken = self.queue.take(memory, access, scatter);
                if matches!(taken, FetchedReceive::Broken(_)) {
                    self.state = SharedState::Failed { told: false };
                }
                taken
            }
        }
    }

    /// Returns to the initial state: entry 0 is next, and nothing is posted.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
        self.state = SharedState::Reset;
    }

    /// Whether fewer entries are posted than the limit. If so, disarms the limit.
    fn takes_limit<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> bool {
        let reached =
            self.limit > 0 && self.state == SharedState::Ready && self.queue.available(memory) < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// The event that software is owed: that the queue broke (once), or that few receives are left (if a
    /// limit is set, once until it is set again; IBTA v1.4 §10.2.9.1).
    pub(crate) fn take_event<M: HostMemory + ?Sized>(&mut self, memory: &mut M) -> Option<EventType> {
        if self.state == (SharedState::Failed { told: false }) {
            self.state = SharedState::Failed { told: true };
            Some(EventType::SrqCatasError)
        } else {
            self.takes_limit(memory).then_some(EventType::SrqRqLimit)
        }
    }

    pub(crate) fn pd(&self) -> Pdn {
        match &self.context {
            SharedContext::Pool(pool) => pool.wq().pd(),
            SharedContext::Xrc(xrc) => xrc.pd(),
        }
    }
}
