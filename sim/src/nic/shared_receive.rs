//! Shared receive queues: receive memory pools, and the shared receive queues of XRC.
//!
//! Entries are a linked list, since receives of many queue pairs end in any order: software puts an entry back by naming
//! it in the one that was last (contract §5.7).

use super::buffer::PagedBuffer;
use super::contexts::Slab;
use super::queue_pair::ReceiveGeometry;
use super::receive_queue::{Landing, ReceiveQueue, Taken, Taker};
use super::user_memory::Record;
use super::{HostMemory, Nic, wqe};
use bareverbs_prm::command::srq::{RmpContext, XrcSrqContext};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Cqn, Pdn, Qpn, Srqn, Xrcdn};
use bareverbs_prm::numbering::EventType;

/// First number of a shared receive queue; both kinds share the numbers.
pub(crate) const FIRST_SRQ: u32 = 0x10;
/// First XRC domain number.
pub(crate) const FIRST_XRCD: u32 = 1;

/// What the creating command said.
#[derive(Debug)]
pub(crate) enum SharedContext {
    Pool(RmpContext),
    Xrc(XrcSrqContext),
}

impl SharedContext {
    /// That of an XRC queue of `domain`.
    pub(crate) fn of_domain(&self, domain: Xrcdn) -> Option<&XrcSrqContext> {
        match self {
            Self::Xrc(context) if context.xrcd() == domain => Some(context),
            _ => None,
        }
    }
}

/// Where the receives of a queue pair come from.
pub(crate) enum ReceiveSource<'a> {
    /// It has none.
    None,
    /// A queue of its own.
    Own(&'a mut ReceiveQueue),
    /// A queue that it shares with others.
    Shared(&'a mut SharedReceiveQueue),
    /// The queues of its XRC domain: every request names one.
    Xrc { queues: &'a mut Slab<SharedReceiveQueue>, domain: Xrcdn, named: Option<Srqn> },
}

/// Tokens of receives of XRC hold the number of the queue above that of the entry.
const QUEUE_SHIFT: u32 = 16;

/// The token of a receive that was taken from the queue that the message names, if it names one.
pub(crate) fn token(named: Option<Srqn>, index: u16) -> u64 {
    u64::from(named.map_or(0, Srqn::value)) << QUEUE_SHIFT | u64::from(index)
}

/// The queue of a token, if the message named one: no queue has the number zero.
const fn queue_of(token: u64) -> u32 {
    (token >> QUEUE_SHIFT) as u32
}

impl ReceiveSource<'_> {
    /// Where the completion of a receive goes and whose `user_index` it carries: those of the queue pair, or of the XRC
    /// queue, if that still exists.
    pub(crate) fn destination(&self, context: &QueuePairContext, token: u64) -> Option<(Cqn, u32)> {
        match self {
            Self::Xrc { queues, .. } => destination(queues, context, token),
            _ => Some((context.cqn_rcv(), context.user_index())),
        }
    }
}

/// As [`ReceiveSource::destination`], among all queues.
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

/// How a shared receive queue is (PRM, receive memory pool context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedState {
    /// Nothing can be taken from it yet.
    Reset,
    /// It works.
    Ready,
    /// It broke, and nobody was told yet; or it broke and somebody was.
    Failed { told: bool },
}

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) context: SharedContext,
    queue: ReceiveQueue,
    pub(crate) state: SharedState,
    /// Below so many posted entries an event is due, once. Zero: never.
    pub(crate) limit: u16,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        context: SharedContext,
        buffer: PagedBuffer,
        geometry: ReceiveGeometry,
        record: Record,
        limit: u16,
    ) -> Self {
        let queue = ReceiveQueue::shared(buffer, geometry, record);
        Self { context, queue, state: SharedState::Ready, limit }
    }

    /// Takes the next receive. An entry or a doorbell record that makes no sense breaks the queue for everybody (IBTA v1.4
    /// §10.2.9.5): no entry behind it can be found.
    pub(crate) fn take<M: HostMemory>(
        &mut self,
        memory: &mut M,
        mut taker: Taker<'_>,
        landing: &mut Landing,
    ) -> Taken {
        taker.accessor.pd = self.pd();
        match self.state {
            SharedState::Reset => Taken::Empty,
            SharedState::Failed { .. } => Taken::Broken(wqe::FETCH),
            SharedState::Ready => {
                let taken = self.queue.take(memory, taker, landing);
                if matches!(taken, Taken::Broken(_)) {
                    self.state = SharedState::Failed { told: false };
                }
                taken
            }
        }
    }

    /// Entry 0 is next and nothing is posted, as when it was made.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
        self.state = SharedState::Reset;
    }

    /// Whether fewer entries are posted than was asked to be told of. This disarms.
    fn takes_limit<M: HostMemory>(&mut self, memory: &mut M) -> bool {
        let reached =
            self.limit > 0 && self.state == SharedState::Ready && self.queue.available(memory) < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    pub(crate) fn pd(&self) -> Pdn {
        match &self.context {
            SharedContext::Pool(pool) => pool.wq().pd(),
            SharedContext::Xrc(xrc) => xrc.pd(),
        }
    }
}

impl Nic {
    /// Tells software what became of a shared queue: that few receives are left, if it wants to know, once until the
    /// limit is set again (IBTA v1.4 §10.2.9.1); that it broke, once.
    pub(super) fn watch_shared<M: HostMemory>(&mut self, memory: &mut M, number: Srqn) {
        let Some(shared) = self.shared_receives.get_mut(number.value()) else { return };
        if shared.state == (SharedState::Failed { told: false }) {
            shared.state = SharedState::Failed { told: true };
            self.post_queue_event(memory, Qpn::from_low_bits(number.value()), EventType::SrqCatasError);
        } else if shared.takes_limit(memory) {
            self.post_queue_event(memory, Qpn::from_low_bits(number.value()), EventType::SrqRqLimit);
        }
    }
}
