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

/// A reliable connection that has no peer yet. It takes receives.
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
    // Destroyed first: then the device uses no buffer any more.
    prepared: bareverbs_core::PreparedQueuePair<D>,
    registration: Registration<D>,
}

/// A reliable connection. Clones are the same queue pair; it is destroyed when the last clone and the last future of it are
/// gone.
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
    /// Makes a queue pair of `domain` whose work completes here. `adjust` may change what it is made with; a change of the service or the
    /// receive queue is none of that.
    ///
    /// # Errors
    /// The queue pair could not be made.
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
    /// The number that the device gave.
    pub fn qpn(&self) -> Qpn {
        self.prepared.qpn()
    }

    /// What the peer has to know: this end, at entry `gid_index` of our address table.
    ///
    /// # Errors
    /// There is no such entry, or the port could not be asked.
    pub fn endpoint(&self, gid_index: u8) -> Result<RemoteEndpoint, ConnectError> {
        self.prepared.endpoint(gid_index)
    }

    /// Posts `buffer` for the next message. Post receives before the peer learns of this end, and none of its messages comes too
    /// early.
    ///
    /// # Errors
    /// The queue is full, or the dispatcher has stopped; the buffer is in the error.
    pub fn post_receive(&mut self, buffer: Buffer<D>) -> Result<(), Failed<D>> {
        let prepared = &mut self.prepared;
        self.registration.post_receive(buffer, |request| prepared.post_receive(request))
    }

    /// Connects to the peer.
    ///
    /// # Errors
    /// The options or the peer's address are refused, or a command failed; the queue pair is gone.
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
    /// The number that the device gave.
    pub fn qpn(&self) -> Qpn {
        self.shared.registration.qpn
    }

    /// SEND of the buffer's message: the peer's next receive takes it.
    pub fn send(&self, buffer: Buffer<D>) -> Operation<D> {
        self.start(Request::Send { immediate: None }, buffer)
    }

    /// SEND with immediate data.
    pub fn send_with_immediate(&self, buffer: Buffer<D>, immediate: u32) -> Operation<D> {
        self.start(Request::Send { immediate: Some(immediate) }, buffer)
    }

    /// RDMA WRITE of the buffer's message to the beginning of `remote`.
    pub fn write(&self, buffer: Buffer<D>, remote: RemoteSlice) -> Operation<D> {
        self.start(Request::Write { remote, immediate: None }, buffer)
    }

    /// RDMA WRITE with immediate data, which uses up a receive of the peer.
    pub fn write_with_immediate(
        &self,
        buffer: Buffer<D>,
        remote: RemoteSlice,
        immediate: u32,
    ) -> Operation<D> {
        self.start(Request::Write { remote, immediate: Some(immediate) }, buffer)
    }

    /// RDMA READ of as many bytes as the buffer is long ([`Buffer::set_len`]) from the beginning of `remote`.
    pub fn read(&self, buffer: Buffer<D>, remote: RemoteSlice) -> Operation<D> {
        self.start(Request::Read { remote }, buffer)
    }

    /// Atomic fetch and add on the first 8 bytes of `remote`. The old value is the first word of the buffer
    /// ([`Buffer::load_u64`]).
    pub fn fetch_add(&self, buffer: Buffer<D>, remote: RemoteSlice, add: u64) -> Operation<D> {
        self.start(Request::FetchAdd { remote, add }, buffer)
    }

    /// Atomic compare and swap on the first 8 bytes of `remote`. The old value is the first word of the buffer; the swap took place
    /// if it is `compare`.
    pub fn compare_swap(
        &self,
        buffer: Buffer<D>,
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Operation<D> {
        self.start(Request::CompareSwap { remote, compare, swap }, buffer)
    }

    /// Posts `buffer` for a message that is not announced yet.
    ///
    /// # Errors
    /// The queue is full, or the dispatcher has stopped; the buffer is in the error.
    pub fn post_receive(&self, buffer: Buffer<D>) -> Result<(), Failed<D>> {
        let driver = &self.shared.driver;
        self.shared.registration.post_receive(buffer, |request| lock(driver).post_receive(request))
    }

    /// The next message, in the buffer that was posted for it. Messages come in the order in which they were sent. A future that is dropped
    /// takes none: it stays for the next one.
    pub fn receive(&self) -> Receive<'_, D> {
        Receive::new(&self.shared)
    }

    /// Looks for what keeps the connection from working.
    ///
    /// # Errors
    /// A command failed.
    pub fn diagnose(&self) -> Result<Diagnosis, CommandError> {
        lock(&self.shared.driver).diagnose()
    }

    /// What the device says.
    ///
    /// # Errors
    /// The command failed.
    pub fn query(&self) -> Result<QueuePairStatus, CommandError> {
        lock(&self.shared.driver).query()
    }

    /// Moves the queue pair to ERROR: everything in flight ends as flushed.
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
