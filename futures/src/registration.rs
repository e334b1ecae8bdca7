//! The place of a queue pair in the table of its dispatcher, and its end: when the queue pair is destroyed, the device has no buffer of it.

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
    // Destroyed before the registration ends: then the device uses no buffer any more. Locked after the operations, never before.
    pub(crate) driver: Mutex<bareverbs_core::QueuePair<D>>,
    pub(crate) registration: Registration<D>,
}

/// The place of a queue pair in the table of its dispatcher.
pub(crate) struct Registration<D: DeviceRef> {
    pub(crate) dispatcher: Dispatcher<D>,
    pub(crate) qpn: Qpn,
    /// Objects that the device had refused to destroy when the queue pair was made.
    leaked: u32,
}

impl<D: DeviceRef> Registration<D> {
    /// A queue pair has been made.
    pub(crate) fn new(dispatcher: Dispatcher<D>, qpn: Qpn) -> Self {
        let leaked = dispatcher.device().device().leaked_objects();
        dispatcher.with(|operations| operations.add_queue_pair(qpn));
        Self { dispatcher, qpn, leaked }
    }

    /// Posts a receive, as the table knows it.
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
            // A completion finds its operation in the table, because the table is locked until this is over.
            post(&ReceiveRequest::new(id, &slices)).map_err(|error| {
                let buffer = operations.take_back(id, Direction::Receive);
                Failed { error: OperationError::Post(error), buffer }
            })
        })
    }
}

impl<D: DeviceRef> Drop for Registration<D> {
    /// The queue pair has been destroyed. If the device refused, which leaves a trace, it may still use the buffers.
    fn drop(&mut self) {
        // What it completed before is in the queue; the driver throws it away.
        self.dispatcher.poll().ok();
        let refused = self.dispatcher.device().device().leaked_objects() != self.leaked;
        let released = self.dispatcher.with(|operations| operations.forget(self.qpn));
        let released = if refused { released.leak_buffers() } else { released };
        released.carry_out();
    }
}
