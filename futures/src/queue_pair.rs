//! Queue pairs whose work requests are futures.

use crate::buffer::Buffer;
use crate::dispatcher::Dispatcher;
use crate::error::Failed;
use crate::lock::lock;
use crate::operation::{Operation, Receive, Request};
use crate::registration::{Registration, Shared};
use bareverbs_core::command::CommandError;
use bareverbs_core::queue_pair::{BuildError, ConnectError, Diagnosis, ModifyError, QueuePairStatus};
use bareverbs_core::{
    ConnectOptions, DeviceRef, ProtectionDomain, QueuePairBuilder, RemoteEndpoint, RemoteSlice,
};
use bareverbs_prm::ids::Qpn;
use core::fmt;
use std::sync::{Arc, Mutex};

/// An RC queue pair without a peer. Receives can already be posted to it.
///
/// ```
/// use bareverbs_core::{DeviceRef, ProtectionDomain};
/// use bareverbs_futures::{BufferPool, Dispatcher, PreparedQueuePair};
/// use std::error::Error;
///
/// /// Four receives wait before the peer learns of this end.
/// fn prepare<D: DeviceRef>(
///     dispatcher: &Dispatcher<D>,
///     domain: &ProtectionDomain<D>,
///     pool: &BufferPool<D>,
/// ) -> Result<PreparedQueuePair<D>, Box<dyn Error>>
/// where
///     D: 'static,
/// {
///     let mut prepared = dispatcher.prepare(domain, |builder| builder.send_queue(32))?;
///     for _ in 0..4 {
///         prepared.post_receive(pool.try_take().ok_or("no buffer is free")?)?;
///     }
///     Ok(prepared)
/// }
/// ```
pub struct PreparedQueuePair<D: DeviceRef> {
    // Dropped first: after that the device uses no buffer.
    prepared: bareverbs_core::PreparedQueuePair<D>,
    registration: Registration<D>,
}

/// An RC queue pair. Clones refer to the same queue pair; it is destroyed when the last clone and its last future are
/// dropped.
///
/// ```
/// use bareverbs_core::{DeviceRef, RemoteSlice};
/// use bareverbs_futures::{Buffer, QueuePair};
/// use std::error::Error;
///
/// /// Takes a ticket: the number that stood in the peer's memory, which is one more now.
/// async fn ticket<D: DeviceRef>(
///     peer: &QueuePair<D>,
///     buffer: Buffer<D>,
///     counter: RemoteSlice,
/// ) -> Result<u64, Box<dyn Error>>
/// where
///     D: 'static,
/// {
///     let buffer = peer.fetch_add(buffer, counter, 1).await?.buffer;
///     Ok(buffer.load_u64(0)?)
/// }
/// ```
pub struct QueuePair<D: DeviceRef> {
    shared: Arc<Shared<D>>,
}

impl<D: DeviceRef> Dispatcher<D> {
    /// Creates a queue pair in `domain` whose work completes at this dispatcher. `adjust` may change the builder's
    /// settings, except for the service type and the receive queue.
    ///
    /// # Errors
    /// Creating the queue pair failed.
    pub fn prepare(
        &self,
        domain: &ProtectionDomain<D>,
        adjust: impl FnOnce(QueuePairBuilder<'_, D>) -> QueuePairBuilder<'_, D>,
    ) -> Result<PreparedQueuePair<D>, BuildError> {
        let prepared =
            self.with_queue(|queue| adjust(QueuePairBuilder::new(domain, queue, queue)).build())?;
        let registration = Registration::new(self.clone(), prepared.qpn());
        Ok(PreparedQueuePair { prepared, registration })
    }
}

impl<D: DeviceRef> PreparedQueuePair<D> {
    /// Queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.prepared.qpn()
    }

    /// Endpoint information for the peer, with the GID at index `gid_index`.
    ///
    /// # Errors
    /// There is no such GID, or querying the port failed.
    pub fn endpoint(&self, gid_index: u8) -> Result<RemoteEndpoint, ConnectError> {
        self.prepared.endpoint(gid_index)
    }

    /// Posts `buffer` for the next message. Post receives before you send the endpoint to the peer; then none of its
    /// messages arrives too early.
    ///
    /// # Errors
    /// The queue is full, or the dispatcher has stopped. The error contains the buffer.
    pub fn post_receive(&mut self, buffer: Buffer<D>) -> Result<(), Failed<D>> {
        let prepared = &mut self.prepared;
        self.registration.post_receive(buffer, |request| prepared.post_receive(request))
    }

    /// Connects to the peer and moves the queue pair to RTS.
    ///
    /// # Errors
    /// The options or the peer's address are invalid, or a command failed. The queue pair is destroyed.
    pub fn connect(
        self,
        remote: &RemoteEndpoint,
        options: ConnectOptions,
    ) -> Result<QueuePair<D>, ConnectError> {
        let Self { prepared, registration } = self;
        let driver = Mutex::new(prepared.connect(remote, options)?);
        Ok(QueuePair { shared: Arc::new(Shared { driver, registration }) })
    }
}

impl<D: DeviceRef> Clone for QueuePair<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<D: DeviceRef> QueuePair<D> {
    /// Queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.shared.registration.qpn
    }

    /// SENDs the buffer's message, which consumes a receive of the peer.
    pub fn send(&self, buffer: Buffer<D>) -> Operation<D> {
        self.start(Request::Send { immediate: None }, buffer)
    }

    /// SENDs the buffer's message with immediate data.
    pub fn send_with_immediate(&self, buffer: Buffer<D>, immediate: u32) -> Operation<D> {
        self.start(Request::Send { immediate: Some(immediate) }, buffer)
    }

    /// RDMA WRITEs the buffer's message to the start of `remote`.
    pub fn write(&self, buffer: Buffer<D>, remote: RemoteSlice) -> Operation<D> {
        self.start(Request::Write { remote, immediate: None }, buffer)
    }

    /// RDMA WRITEs with immediate data, which consumes a receive of the peer.
    pub fn write_with_immediate(
        &self,
        buffer: Buffer<D>,
        remote: RemoteSlice,
        immediate: u32,
    ) -> Operation<D> {
        self.start(Request::Write { remote, immediate: Some(immediate) }, buffer)
    }

    /// RDMA READs [`Buffer::len`] bytes from the start of `remote`; set it with [`Buffer::set_len`].
    pub fn read(&self, buffer: Buffer<D>, remote: RemoteSlice) -> Operation<D> {
        self.start(Request::Read { remote }, buffer)
    }

    /// Atomic fetch and add on the first 8 bytes of `remote`. The completed buffer holds the old value
    /// ([`Buffer::load_u64`] at 0).
    pub fn fetch_add(&self, buffer: Buffer<D>, remote: RemoteSlice, add: u64) -> Operation<D> {
        self.start(Request::FetchAdd { remote, add }, buffer)
    }

    /// Atomic compare and swap on the first 8 bytes of `remote`. The completed buffer holds the old value; the swap
    /// took place if that equals `compare`.
    pub fn compare_swap(
        &self,
        buffer: Buffer<D>,
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Operation<D> {
        self.start(Request::CompareSwap { remote, compare, swap }, buffer)
    }

    /// Posts `buffer` for a future message.
    ///
    /// # Errors
    /// The queue is full, or the dispatcher has stopped. The error contains the buffer.
    pub fn post_receive(&self, buffer: Buffer<D>) -> Result<(), Failed<D>> {
        let driver = &self.shared.driver;
        self.shared.registration.post_receive(buffer, |request| lock(driver).post_receive(request))
    }

    /// Receives the next message, in the buffer posted for it, in the order of sending. Cancel-safe: dropping the
    /// future consumes no message.
    pub fn receive(&self) -> Receive<'_, D> {
        Receive::new(&self.shared)
    }

    /// Diagnoses what keeps the connection from working.
    ///
    /// # Errors
    /// A command failed.
    pub fn diagnose(&self) -> Result<Diagnosis, CommandError> {
        lock(&self.shared.driver).diagnose()
    }

    /// Queries the device for the state of the queue pair.
    ///
    /// # Errors
    /// The command failed.
    pub fn query(&self) -> Result<QueuePairStatus, CommandError> {
        lock(&self.shared.driver).query()
    }

    /// Moves the queue pair to ERROR. Everything in flight completes as flushed.
    ///
    /// # Errors
    /// The command failed.
    pub fn modify_to_error(&self) -> Result<(), ModifyError> {
        lock(&self.shared.driver).modify_to_error()
    }

    fn start(&self, request: Request, buffer: Buffer<D>) -> Operation<D> {
        Operation::new(self.shared.clone(), request, buffer)
    }
}

impl<D: DeviceRef> fmt::Debug for PreparedQueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> fmt::Debug for QueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}
