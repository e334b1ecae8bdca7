//! Reads that are done at once, for an owner whose memory is within reach of its processor.
//!
//! Such a read needs no tag and no place among those in flight, and its invocation is looked up once: nothing else
//! happens to the runtime before it has ended.

use super::Runtime;
use super::slot::DmaCompletion;
use super::slot_set::after;
use crate::grant::Checked;
use crate::host_dma::DmaFault;
use crate::kernel::{Deployment, Status};
use bareverbs_prm::time::Time;

/// A read that is due. It borrows the runtime until it has ended. One that is dropped is due again.
pub struct ReadNow<'r, D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> {
    runtime: &'r mut Runtime<D, SLOTS, CONNECTIONS>,
    index: usize,
    range: Checked,
}

/// What a slot wants in its turn.
enum Wish {
    /// To read this range.
    Read(Checked),
    /// Nothing yet, or nothing any more.
    Nothing,
    /// Something that only [`Runtime::poll_dma`] does.
    Other,
}

impl<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> Runtime<D, SLOTS, CONNECTIONS> {
    /// The next request that is due, if it is a single read and nothing else of its invocation is in flight. If this is
    /// `None`, [`Runtime::poll_dma`] may still have one. Both take the slots in the same turn.
    pub fn poll_read(&mut self, now: Time) -> Option<ReadNow<'_, D, SLOTS, CONNECTIONS>> {
        self.expire(now);
        if self.asking.is_empty() {
            return None;
        }
        for index in self.asking.from(self.cursor) {
            match self.wish(index, now) {
                Wish::Read(range) => return Some(ReadNow { runtime: self, index, range }),
                Wish::Nothing => {}
                Wish::Other => return None,
            }
        }
        None
    }

    fn wish(&mut self, index: usize, now: Time) -> Wish {
        let invocation = self.slots[index].place();
        let Some((range, at)) = invocation.lone_read() else { return Wish::Other };
        if at > now || self.connections.dma_at(invocation.origin.connection) > now {
            return Wish::Nothing;
        }
        if self.connections.region(invocation.origin.connection, invocation.origin.region).is_err() {
            invocation.end(Status::Revoked, now);
            self.file(index);
            return Wish::Nothing;
        }
        Wish::Read(range)
    }
}

impl<D: Deployment, const SLOTS: usize, const CONNECTIONS: usize> ReadNow<'_, D, SLOTS, CONNECTIONS> {
    /// What to read.
    pub const fn range(&self) -> Checked {
        self.range
    }

    /// The number of the staging buffer at whose beginning the bytes must lie until the reply was sent.
    pub const fn buffer(&self) -> usize {
        self.index
    }

    /// Hands the bytes to the kernel, which takes its next step.
    pub fn finish(self, now: Time, result: Result<&[u8], DmaFault>) {
        let Self { runtime, index, range } = self;
        let invocation = runtime.slots[index].place();
        runtime.connections.take_dma(invocation.origin.connection, now, range.length());
        runtime.counters.dma_requests += 1;
        runtime.cursor = after::<SLOTS>(index);
        let completion = DmaCompletion { now, core: &mut runtime.core, result };
        invocation.read_completed(&runtime.deployment, range.length(), completion);
        // If it asks for another one, it is filed already.
        if invocation.lone_read().is_none() {
            runtime.file(index);
        }
    }
}
