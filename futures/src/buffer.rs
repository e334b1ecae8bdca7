//! Buffers: equal slices of one memory region, each with a single owner.

use crate::lock::lock;
use bareverbs_core::memory_region::RegisterError;
use bareverbs_core::{
    AccessFlags, DeviceRef, MemoryRegion, MemorySlice, ProtectionDomain, RangeError, RemoteSlice,
};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex};

/// A pool of equally sized buffers in one memory region. Clones refer to the same pool. The region lives until the pool
/// and all its buffers are dropped.
///
/// ```
/// use bareverbs_core::{DeviceRef, ProtectionDomain};
/// use bareverbs_futures::{Buffer, BufferPool};
/// use std::error::Error;
///
/// /// Waits until one of 16 buffers is free.
/// async fn message<D: DeviceRef>(domain: &ProtectionDomain<D>) -> Result<Buffer<D>, Box<dyn Error>> {
///     let pool = BufferPool::allocate(domain, 16, 4096)?;
///     let mut buffer = pool.take().await;
///     buffer.fill_from(b"hello")?;
///     Ok(buffer)
/// }
/// ```
pub struct BufferPool<D: DeviceRef> {
    shared: Arc<PoolMemory<D>>,
}

struct PoolMemory<D: DeviceRef> {
    region: MemoryRegion<D>,
    /// Capacity of a buffer in bytes.
    capacity: usize,
    free: Mutex<Free>,
}

/// Free buffers, and tasks that wait for one.
#[derive(Debug, Default)]
struct Free {
    indices: Vec<u32>,
    waiting: Vec<Waker>,
}

/// Why a pool could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// Zero buffers, zero bytes, or more bytes than a work request or the processor can address.
    Size {
        /// Buffers requested.
        buffers: u32,
        /// Bytes per buffer.
        capacity: usize,
    },
    /// Allocating or registering the region failed.
    Region(RegisterError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { buffers, capacity } => write!(
                f,
                "a pool of {buffers} buffers of {capacity} bytes: ask for at least one buffer of 1 to 2^31 bytes, and for \
                 less than the address space"
            ),
            Self::Region(error) => write!(f, "a pool of buffers: {error}"),
        }
    }
}

impl core::error::Error for PoolError {}

impl<D: DeviceRef> Clone for BufferPool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<D: DeviceRef> BufferPool<D> {
    /// Allocates and registers `buffers` buffers of `capacity` bytes, with local write access and remote read, write
    /// and atomic access.
    ///
    /// # Errors
    /// The size is invalid, or the region could not be allocated or registered.
    pub fn allocate(domain: &ProtectionDomain<D>, buffers: u32, capacity: usize) -> Result<Self, PoolError> {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        Self::allocate_with(domain, buffers, capacity, access)
    }

    /// Like [`Self::allocate`], with the caller's access rights.
    ///
    /// # Errors
    /// Like [`Self::allocate`].
    pub fn allocate_with(
        domain: &ProtectionDomain<D>,
        buffers: u32,
        capacity: usize,
        access: AccessFlags,
    ) -> Result<Self, PoolError> {
        let refused = PoolError::Size { buffers, capacity };
        if buffers == 0 || capacity == 0 || capacity > 1 << 31 {
            return Err(refused);
        }
        // Aligned to cache lines, so that two owners never share one.
        let stride = capacity.next_multiple_of(64);
        let length = stride.checked_mul(buffers as usize).ok_or(refused)?;
        let region = MemoryRegion::allocate(domain, length, access).map_err(PoolError::Region)?;
        let free = Free { indices: (0..buffers).rev().collect(), waiting: Vec::new() };
        Ok(Self { shared: Arc::new(PoolMemory { region, capacity, free: Mutex::new(free) }) })
    }

    /// Takes a free buffer, if there is one. Its length is 0; its bytes are what the last owner left.
    pub fn try_take(&self) -> Option<Buffer<D>> {
        let index = lock(&self.shared.free).indices.pop()?;
        Some(Buffer { shared: self.shared.clone(), index, length: 0 })
    }

    /// Waits for a free buffer.
    pub fn take(&self) -> Take<'_, D> {
        Take { pool: self }
    }

    /// Number of free buffers.
    pub fn available(&self) -> usize {
        lock(&self.shared.free).indices.len()
    }

    /// The memory region that holds the buffers.
    pub fn region(&self) -> &MemoryRegion<D> {
        &self.shared.region
    }
}

/// Waits for a free buffer; see [`BufferPool::take`]. Cancel-safe.
#[must_use = "a future does nothing until it is polled"]
pub struct Take<'a, D: DeviceRef> {
    pool: &'a BufferPool<D>,
}

impl<D: DeviceRef> Future for Take<'_, D> {
    type Output = Buffer<D>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Buffer<D>> {
        let mut free = lock(&self.pool.shared.free);
        match free.indices.pop() {
            Some(index) => Poll::Ready(Buffer { shared: self.pool.shared.clone(), index, length: 0 }),
            None => {
                // A returned buffer wakes all waiters, so a dropped waiter loses nobody's turn.
                if !free.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    free.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// A slice of registered memory with a single owner, apart from peers that know its [`remote`](Self::remote) slice.
/// Returns to its pool when dropped.
pub struct Buffer<D: DeviceRef> {
    shared: Arc<PoolMemory<D>>,
    index: u32,
    length: u32,
}

impl<D: DeviceRef> Buffer<D> {
    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Length of its message in bytes: how many bytes a work request sends or reads.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sets the length, such as the number of bytes that a READ fetches.
    ///
    /// # Errors
    /// `length` exceeds the capacity.
    pub fn set_len(&mut self, length: usize) -> Result<(), RangeError> {
        self.check(0, length)?;
        self.length = length as u32;
        Ok(())
    }

    /// Copies `bytes` to the start and sets the length to theirs.
    ///
    /// # Errors
    /// `bytes` exceeds the capacity.
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(), RangeError> {
        self.copy_in(0, bytes)?;
        self.set_len(bytes.len())
    }

    /// Copies `bytes` to `offset`. Does not change the length.
    ///
    /// # Errors
    /// The range exceeds the capacity.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        self.shared.region.copy_in(self.start() + offset, bytes)
    }

    /// Copies bytes from `offset`.
    ///
    /// # Errors
    /// The range exceeds the capacity.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        self.shared.region.copy_out(self.start() + offset, bytes)
    }

    /// Copies the message.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        match self.copy_out(0, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => unreachable!("the length is at most the capacity"),
        }
    }

    /// Loads 64 bits at `offset`, in native byte order.
    ///
    /// # Errors
    /// The range exceeds the capacity.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        self.check(offset, 8)?;
        self.shared.region.load_u64(self.start() + offset)
    }

    /// Stores 64 bits at `offset`, in native byte order.
    ///
    /// # Errors
    /// The range exceeds the capacity.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        self.check(offset, 8)?;
        self.shared.region.store_u64(self.start() + offset, value)
    }

    /// The message, as a slice for a work request.
    pub fn slice(&self) -> MemorySlice {
        self.slice_of(self.length)
    }

    /// Address and key with which a peer accesses the buffer, while somebody owns it.
    pub fn remote(&self) -> RemoteSlice {
        self.shared.region.remote(self.start() as u64)
    }

    /// The entire buffer, for a receive.
    pub(crate) fn whole(&self) -> MemorySlice {
        self.slice_of(self.shared.capacity as u32)
    }

    /// Sets the length of a received message, limited to the capacity whatever the device reports.
    pub(crate) fn set_received(&mut self, length: u32) {
        self.length = length.min(self.shared.capacity as u32);
    }

    fn slice_of(&self, length: u32) -> MemorySlice {
        let region = &self.shared.region;
        MemorySlice::from_raw(region.address() + self.start() as u64, length, region.lkey())
    }

    fn start(&self) -> usize {
        self.index as usize * self.shared.capacity.next_multiple_of(64)
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), RangeError> {
        let region = self.shared.capacity;
        if offset <= region && length <= region - offset {
            return Ok(());
        }
        Err(RangeError { offset: offset as u64, length: length as u64, region: region as u64 })
    }
}

impl<D: DeviceRef> Drop for Buffer<D> {
    fn drop(&mut self) {
        let mut free = lock(&self.shared.free);
        free.indices.push(self.index);
        let waiting = core::mem::take(&mut free.waiting);
        drop(free);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<D: DeviceRef> fmt::Debug for Buffer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, length) = (self.index, self.length);
        f.debug_struct("Buffer").field("index", &index).field("length", &length).finish_non_exhaustive()
    }
}

impl<D: DeviceRef> fmt::Debug for BufferPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("available", &self.available()).finish_non_exhaustive()
    }
}
