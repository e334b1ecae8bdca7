//! Shared receive queues: receive memory pools, and the shared receive queues of XRC.
//!
//! Entries are a linked list, since receives of many queue pairs end in any order: software puts an entry back by naming
//! it in the one that was last (contract §5.7).

use super::buffer::PagedBuffer;
use super::queue_pair::ReceiveGeometry;
use super::receive_queue::ReceiveQueue;
use super::{HostMemory, Nic};
use bareverbs_prm::command::srq::{RmpContext, XrcSrqContext};
use bareverbs_prm::eqe::QueueEvent;
use bareverbs_prm::ids::{Pdn, Qpn, Srqn};
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

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) context: SharedContext,
    pub(crate) queue: ReceiveQueue,
    /// Below so many posted entries an event is due, once. Zero: never.
    pub(crate) limit: u16,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        context: SharedContext,
        buffer: PagedBuffer,
        geometry: ReceiveGeometry,
        record: u64,
        limit: u16,
    ) -> Self {
        Self { context, queue: ReceiveQueue::shared(buffer, geometry, record), limit }
    }

    pub(crate) fn pd(&self) -> Pdn {
        match &self.context {
            SharedContext::Pool(pool) => pool.wq().pd(),
            SharedContext::Xrc(xrc) => xrc.pd(),
        }
    }
}

impl Nic {
    /// Tells software that few receives are left, if it wants to know; once until the limit is set again (IBTA v1.4
    /// §10.2.9.1).
    pub(super) fn check_limit<M: HostMemory>(&mut self, memory: &mut M, number: Srqn) {
        let Some(shared) = self.shared_receives.get_mut(number.value()).filter(|shared| shared.limit > 0)
        else {
            return;
        };
        if shared.queue.available(memory) < shared.limit {
            shared.limit = 0;
            let mut data = QueueEvent::new();
            data.set_number(Qpn::from_low_bits(number.value()));
            self.events.post(memory, EventType::SrqRqLimit, 0, &data);
        }
    }
}
