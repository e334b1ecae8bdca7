//! DMA work requests: a queue pair that is connected with itself and copies memory, also that of another function of the card
//! ([`RemoteVhcaRegion`](crate::remote_vhca_region::RemoteVhcaRegion)). The device calls them memory-to-memory operations (MMO).

use crate::command::CommandError;
use crate::completion_queue::CompletionQueue;
use crate::device::DeviceRef;
use crate::memory_region::{AccessFlags, MemoryRegion, RegisterError};
use crate::memory_slice::MemorySlice;
use crate::post_error::PostError;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{BuildError, ConnectError, ConnectOptions, QueuePair, QueuePairBuilder, Rc};
use crate::work_request::WorkRequest;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::wqe::mmo;
use core::fmt;

/// How a queue for copies is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaQueueConfig {
    /// The least number of copies that may be outstanding.
    pub copies: u32,
    /// Index of the own address under which the queue pair is connected with itself.
    pub gid_index: u8,
}

impl Default for DmaQueueConfig {
    fn default() -> Self {
        Self { copies: 64, gid_index: 0 }
    }
}

/// Why there is no queue for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DmaQueueError {
    /// The device has no DMA work requests for queue pairs (`dma_mmo_qp`).
    NotOffered,
    /// The queue pair could not be made.
    Build(BuildError),
    /// The memory that the device uses meanwhile could not be registered.
    Register(RegisterError),
    /// Memory-to-memory operations could not be switched on.
    Enable(CommandError),
    /// The queue pair could not be connected with itself.
    Connect(ConnectError),
}

impl fmt::Display for DmaQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str(
                "the device has no DMA work requests for queue pairs (dma_mmo_qp): use a BlueField, or RDMA READ and WRITE",
            ),
            Self::Build(error) => write!(f, "queue pair for copies: {error}"),
            Self::Register(error) => write!(f, "memory for the device of {} bytes: {error}", mmo::OPAQUE),
            Self::Enable(error) => write!(f, "switching memory-to-memory operations on: {error}"),
            Self::Connect(error) => write!(f, "connecting the queue pair with itself: {error}"),
        }
    }
}

impl core::error::Error for DmaQueueError {}

/// Why a copy was not posted. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyError {
    /// Source and destination have different lengths.
    Unequal {
        /// Bytes of the source.
        source: u32,
        /// Bytes of the destination.
        destination: u32,
    },
    /// The copy has no bytes, or more than the device copies at once.
    Length {
        /// Bytes.
        length: u32,
        /// The longest copy.
        limit: u64,
    },
    /// The queue refused it.
    Post(PostError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unequal { source, destination } => {
                write!(f, "copy of {source} bytes to {destination} bytes: give slices of one length")
            }
            Self::Length { length, limit } => {
                write!(f, "copy of {length} bytes: the device copies 1 to {limit} at once; post several")
            }
            Self::Post(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for CopyError {}

/// A copy: where from, where to.
///
/// ```
/// use bareverbs_core::{DmaCopy, MemorySlice};
///
/// /// Data first, then the flag that says it is there.
/// fn publish(data: (MemorySlice, MemorySlice), flag: (MemorySlice, MemorySlice)) -> [DmaCopy; 2] {
///     [DmaCopy::new(1, data.0, data.1).signalled(false), DmaCopy::new(2, flag.0, flag.1).fence()]
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaCopy {
    id: u64,
    source: MemorySlice,
    destination: MemorySlice,
    fenced: bool,
    signalled: bool,
}

impl DmaCopy {
    /// Copies `source` to `destination`; either may be a slice of a region of another function. Its completion has `id`.
    pub const fn new(id: u64, source: MemorySlice, destination: MemorySlice) -> Self {
        Self { id, source, destination, fenced: false, signalled: true }
    }

    /// Begins when every copy before it has ended. Otherwise copies may overtake each other; completions never do.
    #[must_use]
    pub const fn fence(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Whether success is reported too. The default is yes; see [`WorkRequest::signalled`].
    #[must_use]
    pub const fn signalled(mut self, signalled: bool) -> Self {
        self.signalled = signalled;
        self
    }
}

/// A queue for copies. They complete into the completion queue it was made with, in the order in which they were posted.
///
/// ```
/// use bareverbs_core::{
///     CompletionQueue, DeviceRef, DmaCopy, DmaQueue, DmaQueueConfig, MemorySlice, ProtectionDomain,
/// };
/// use std::error::Error;
///
/// /// Copies a line of the host's memory to our own: one DMA, which completes under 7.
/// fn fetch<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     completions: &CompletionQueue<D>,
///     (theirs, ours): (MemorySlice, MemorySlice),
/// ) -> Result<DmaQueue<D>, Box<dyn Error>> {
///     let mut queue = DmaQueue::create(domain, completions, DmaQueueConfig::default())?;
///     queue.post(&DmaCopy::new(7, theirs, ours))?;
///     Ok(queue)
/// }
/// ```
#[doc(alias = "mlx5dv_wr_memcpy")]
pub struct DmaQueue<D: DeviceRef> {
    queue_pair: QueuePair<D, Rc>,
    /// Bytes that the device may use while it copies.
    opaque: MemorySlice,
    /// Dropped after the queue pair.
    _memory: MemoryRegion<D>,
    limit: u64,
}

impl<D: DeviceRef> DmaQueue<D> {
    /// Makes a queue pair of `domain` that takes copies, and connects it with itself: nothing of it leaves the card.
    ///
    /// # Errors
    /// The device has no DMA work requests, or a step failed.
    pub fn create(
        domain: &ProtectionDomain<D>,
        completions: &CompletionQueue<D>,
        config: DmaQueueConfig,
    ) -> Result<Self, DmaQueueError> {
        let limit = domain.device().device().capabilities().max_dma_copy;
        if limit == 0 {
            return Err(DmaQueueError::NotOffered);
        }
        let memory = MemoryRegion::allocate(domain, mmo::OPAQUE, AccessFlags::LOCAL_WRITE)
            .map_err(DmaQueueError::Register)?;
        let opaque = MemorySlice::from_raw(memory.address(), mmo::OPAQUE as u32, memory.lkey());
        let builder = QueuePairBuilder::new(domain, completions, completions);
        let builder = builder.send_queue(config.copies).receive_queue(0).access(AccessFlags::LOCAL_READ);
        let mut prepared = builder.build().map_err(DmaQueueError::Build)?;
        prepared.enable_mmo().map_err(DmaQueueError::Enable)?;
        let itself = prepared.endpoint(config.gid_index).map_err(DmaQueueError::Connect)?;
        let options = ConnectOptions { gid_index: config.gid_index, ..ConnectOptions::DEFAULT };
        let queue_pair = prepared.connect(&itself, options).map_err(DmaQueueError::Connect)?;
        Ok(Self { queue_pair, opaque, _memory: memory, limit })
    }

    /// Number of its queue pair, as completions name it.
    pub fn qpn(&self) -> Qpn {
        self.queue_pair.qpn()
    }

    /// The longest copy in bytes.
    pub fn longest_copy(&self) -> u64 {
        self.limit
    }

    /// Copies that are not retired.
    pub fn outstanding(&self) -> u32 {
        self.queue_pair.sends_outstanding()
    }

    /// Posts a copy and rings the doorbell.
    ///
    /// # Errors
    /// The copy is refused, or the queue is full; nothing was written.
    #[inline]
    pub fn post(&mut self, copy: &DmaCopy) -> Result<(), CopyError> {
        let request = self.request(copy)?;
        self.queue_pair.post_send(&request).map_err(CopyError::Post)
    }

    /// Posts several copies with one doorbell, and says how many: all, or those before the one that was refused.
    ///
    /// # Errors
    /// The first copy is refused; nothing was written.
    pub fn post_all(&mut self, copies: &[DmaCopy]) -> Result<usize, CopyError> {
        let (opaque, limit) = (self.opaque, self.limit);
        let mut batch = self.queue_pair.send_batch();
        for (posted, copy) in copies.iter().enumerate() {
            let done = request(copy, &opaque, limit)
                .and_then(|request| batch.post(&request).map_err(CopyError::Post));
            match done {
                Ok(()) => {}
                Err(error) if posted == 0 => return Err(error),
                Err(_) => return Ok(posted),
            }
        }
        Ok(copies.len())
    }

    #[inline]
    fn request(&self, copy: &DmaCopy) -> Result<WorkRequest<'static>, CopyError> {
        request(copy, &self.opaque, self.limit)
    }
}

#[inline]
fn request(copy: &DmaCopy, opaque: &MemorySlice, limit: u64) -> Result<WorkRequest<'static>, CopyError> {
    let DmaCopy { source, destination, .. } = copy;
    if source.length != destination.length {
        return Err(CopyError::Unequal { source: source.length, destination: destination.length });
    }
    if source.length == 0 || u64::from(source.length) > limit {
        return Err(CopyError::Length { length: source.length, limit });
    }
    let request = WorkRequest::dma_copy(copy.id, opaque, source, destination).signalled(copy.signalled);
    Ok(if copy.fenced { request.fence() } else { request })
}

impl<D: DeviceRef> fmt::Debug for DmaQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaQueue").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}
