//! Registration of a queue pair in the table of its dispatcher, and its end: once the queue pair is destroyed, the
//! device holds none of its buffers.

use crate::buffer::Buffer;
use crate::dispatcher::Dispatcher;
use crate::error::{Failed, OperationError};
use crate::operations::Direction;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{DeviceRef, ReceiveRequest};
use bareverbs_prm::ids::Qpn;
use std::sync::Mutex;

/// A connected queue pair, shared by its handles and futures.
pub(crate) struct Shared<D: DeviceRef> {
    // Dropped before the registration: after that the device uses no buffer. Lock order: after the operations, never
    // before.
    pub(crate) driver: Mutex<bareverbs_core::QueuePair<D>>,
    pub(crate) registration: Registration<D>,
}

/// A queue pair's entry in the table of its dispatcher.
pub(crate) struct Registration<D: DeviceRef> {
    pub(crate) dispatcher: Dispatcher<D>,
    pub(crate) qpn: Qpn,
    /// Number of leaked objects (those that the device refused to destroy) when the queue pair was created.
    leaked: u32,
}

impl<D: DeviceRef> Registration<D> {
    /// Registers a new queue pair.
    pub(crate) fn new(dispatcher: Dispatcher<D>, qpn: Qpn) -> Self {
        let leaked = dispatcher.device().device().leaked_objects();
        dispatcher.with(|operations| operations.add_queue_pair(qpn));
        Self { dispatcher, qpn, leaked }
    }

    /// Posts a receive and records it in the table.
    pub(crate) fn post_receive(
        &self,
        buffer: Buffer<D>,
        post: impl FnOnce(&ReceiveRequest<'_>) -> Result<(), PostError>,
    ) -> Result<(), Failed<D>> {
        let slices = [buffer.whole()];
        self.dispatcher.with(|operations| {
            if let Some(broken) = operations.broken() {
                return Err(Failed { error: OperationError::Broken(broken), buffer: Some(buffer) });
            }
            let id = operations.begin(self.qpn, buffer, Direction::Receive);
            // The table stays locked until this returns, so a completion always finds its operation.
            post(&ReceiveRequest::new(id, &slices)).map_err(|error| {
                let buffer = operations.take_back(id, Direction::Receive);
                Failed { error: OperationError::Post(error), buffer }
            })
        })
    }
}

impl<D: DeviceRef> Drop for Registration<D> {
    /// Runs after the queue pair's destruction. If the device refused to destroy it (the count of leaked objects has
    /// grown), the device may still use the buffers.
    fn drop(&mut self) {
        // Completions from before are still in the queue; polling makes the driver discard them.
        self.dispatcher.poll().ok();
        let refused = self.dispatcher.device().device().leaked_objects() != self.leaked;
        let released = self.dispatcher.with(|operations| operations.forget(self.qpn));
        let released = if refused { released.leak_buffers() } else { released };
        released.carry_out();
    }
}
