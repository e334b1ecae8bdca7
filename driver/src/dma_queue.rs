//! DMA work requests: a queue pair connected to itself that copies memory, including memory of another function of the
//! card ([`RemoteVhcaRegion`](crate::remote_vhca_region::RemoteVhcaRegion)). The PRM calls them memory-to-memory
//! operations (MMO).

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

/// Configuration of a copy queue.
///
/// ```
/// use bareverbs_core::DmaQueueConfig;
///
/// // A DPU that reads 256 pieces of its host's memory at a time.
/// let config = DmaQueueConfig { copies: 256, ..DmaQueueConfig::default() };
/// assert_eq!(config.gid_index, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaQueueConfig {
    /// Minimum number of outstanding copies.
    pub copies: u32,
    /// GID index of the own address that the queue pair connects to.
    pub gid_index: u8,
}

impl Default for DmaQueueConfig {
    fn default() -> Self {
        Self { copies: 64, gid_index: 0 }
    }
}

/// Why a copy queue could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DmaQueueError {
    /// The device does not support DMA work requests on queue pairs (`dma_mmo_qp`).
    NotOffered,
    /// Creating the queue pair failed.
    Build(BuildError),
    /// Registering the memory that the device uses for its operation failed.
    Register(RegisterError),
    /// Enabling memory-to-memory operations failed.
    Enable(CommandError),
    /// Connecting the queue pair to itself failed.
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

/// Why a copy was not posted. The queue is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyError {
    /// Source and destination have different lengths.
    Unequal {
        /// Length of the source in bytes.
        source: u32,
        /// Length of the destination in bytes.
        destination: u32,
    },
    /// The copy is empty, or longer than the device supports.
    Length {
        /// Length in bytes.
        length: u32,
        /// Longest copy in bytes.
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

/// A copy from one slice to another.
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
    /// Copies `source` to `destination`. Either may be a slice of another function's region. The completion has ID
    /// `id`.
    pub const fn new(id: u64, source: MemorySlice, destination: MemorySlice) -> Self {
        Self { id, source, destination, fenced: false, signalled: true }
    }

    /// Starts after all earlier copies have finished. Without a fence, copies may overtake each other; completions
    /// never do.
    #[must_use]
    pub const fn fence(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Whether success is reported, too. Default: true. See [`WorkRequest::signalled`].
    #[must_use]
    pub const fn signalled(mut self, signalled: bool) -> Self {
        self.signalled = signalled;
        self
    }
}

/// A copy queue. Copies complete into its completion queue, in posting order.
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
    /// Memory that the device may use while it copies.
    opaque: MemorySlice,
    /// Dropped after the queue pair.
    _memory: MemoryRegion<D>,
    limit: u64,
}

impl<D: DeviceRef> DmaQueue<D> {
    /// Creates a queue pair in `domain` for copies and connects it to itself. None of its traffic leaves the card.
    ///
    /// # Errors
    /// The device does not support DMA work requests, or a step failed.
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

    /// Number of its queue pair, as completions report it.
    pub fn qpn(&self) -> Qpn {
        self.queue_pair.qpn()
    }

    /// Longest copy in bytes.
    pub fn longest_copy(&self) -> u64 {
        self.limit
    }

    /// Number of copies that have not been retired.
    pub fn outstanding(&self) -> u32 {
        self.queue_pair.sends_outstanding()
    }

    /// Posts a copy and rings the doorbell.
    ///
    /// # Errors
    /// The copy is invalid, or the queue is full. The queue is unchanged.
    #[inline]
    pub fn post(&mut self, copy: &DmaCopy) -> Result<(), CopyError> {
        let request = self.request(copy)?;
        self.queue_pair.post_send(&request).map_err(CopyError::Post)
    }

    /// Posts several copies with one doorbell. Returns how many were posted: all, or those before the first refused
    /// one.
    ///
    /// # Errors
    /// The first copy is refused. The queue is unchanged.
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
