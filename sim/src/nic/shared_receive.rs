//! Shared receive queues: receive memory pools, and the shared receive queues of XRC.

use super::buffer::PagedBuffer;
use super::queue_pair::ReceiveGeometry;
use bareverbs_prm::command::srq::{RmpContext, XrcSrqContext};
use bareverbs_prm::ids::Pdn;

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
    pub(crate) buffer: PagedBuffer,
    pub(crate) geometry: ReceiveGeometry,
    pub(crate) record: u64,
    /// Below so many posted entries an event is due, once. Zero: never.
    pub(crate) limit: u16,
}

impl SharedReceiveQueue {
    pub(crate) const fn new(
        context: SharedContext,
        buffer: PagedBuffer,
        geometry: ReceiveGeometry,
        record: u64,
        limit: u16,
    ) -> Self {
        Self { context, buffer, geometry, record, limit }
    }

    pub(crate) fn pd(&self) -> Pdn {
        match &self.context {
            SharedContext::Pool(pool) => pool.wq().pd(),
            SharedContext::Xrc(xrc) => xrc.pd(),
        }
    }
}
