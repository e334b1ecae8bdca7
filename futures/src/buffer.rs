//! Buffers: equal pieces of one memory region, each with one owner at a time.

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

/// Buffers of one size, in one memory region. Clones are the same pool. The region lives until the pool and all its buffers
/// are gone.
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
    /// Bytes of a buffer.
    capacity: usize,
    free: Mutex<Free>,
}

/// Buffers that nobody has.
#[derive(Debug, Default)]
struct Free {
    indices: Vec<u32>,
    waiting: Vec<Waker>,
}

/// Why a pool could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// No buffers, buffers without bytes, or more bytes than a work request or the processor can address.
    Size {
        /// Buffers asked for.
        buffers: u32,
        /// Bytes of each.
        capacity: usize,
    },
    /// The region could not be made.
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
    /// Allocates and registers `buffers` of `capacity` bytes each, for local use and for peers that read, write and do atomics.
    ///
    /// # Errors
    /// The size is refused, or the region could not be made.
    pub fn allocate(domain: &ProtectionDomain<D>, buffers: u32, capacity: usize) -> Result<Self, PoolError> {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        Self::allocate_with(domain, buffers, capacity, access)
    }

    /// As [`Self::allocate`], with access rights that the caller chooses.
    ///
    /// # Errors
    /// As [`Self::allocate`].
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
        // A cache line each, so that two owners do not share one.
        let stride = capacity.next_multiple_of(64);
        let length = stride.checked_mul(buffers as usize).ok_or(refused)?;
        let region = MemoryRegion::allocate(domain, length, access).map_err(PoolError::Region)?;
        let free = Free { indices: (0..buffers).rev().collect(), waiting: Vec::new() };
        Ok(Self { shared: Arc::new(PoolMemory { region, capacity, free: Mutex::new(free) }) })
    }

    /// A buffer of length 0, if there is one that nobody has. Its bytes are those that the last owner left.
    pub fn try_take(&self) -> Option<Buffer<D>> {
        let index = lock(&self.shared.free).indices.pop()?;
        Some(Buffer { shared: self.shared.clone(), index, length: 0 })
    }

    /// A buffer, as soon as there is one that nobody has.
    pub fn take(&self) -> Take<'_, D> {
        Take { pool: self }
    }

    /// Buffers that nobody has.
    pub fn available(&self) -> usize {
        lock(&self.shared.free).indices.len()
    }

    /// The region that the buffers are pieces of.
    pub fn region(&self) -> &MemoryRegion<D> {
        &self.shared.region
    }
}

/// Waits for a buffer; see [`BufferPool::take`]. It may be dropped at any time.
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
                // All are woken when a buffer comes back, so one that is dropped takes nobody's turn.
                if !free.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    free.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// A piece of registered memory that its owner alone uses, but for peers that were given its [`remote`](Self::remote) slice. It goes
/// back to its pool when it is dropped.
pub struct Buffer<D: DeviceRef> {
    shared: Arc<PoolMemory<D>>,
    index: u32,
    length: u32,
}

impl<D: DeviceRef> Buffer<D> {
    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Bytes that a work request uses of it: those of the message that it holds or asks for.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether its message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes it `length` bytes long: how much a READ fetches, for example.
    ///
    /// # Errors
    /// It cannot hold so many.
    pub fn set_len(&mut self, length: usize) -> Result<(), RangeError> {
        self.check(0, length)?;
        self.length = length as u32;
        Ok(())
    }

    /// Copies `bytes` to its beginning and makes it as long as they are.
    ///
    /// # Errors
    /// It cannot hold so many.
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(), RangeError> {
        self.copy_in(0, bytes)?;
        self.set_len(bytes.len())
    }

    /// Copies `bytes` in at `offset`; the length stays.
    ///
    /// # Errors
    /// They leave the buffer.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        self.shared.region.copy_in(self.start() + offset, bytes)
    }

    /// Copies bytes at `offset` out.
    ///
    /// # Errors
    /// They leave the buffer.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, bytes.len())?;
        self.shared.region.copy_out(self.start() + offset, bytes)
    }

    /// A copy of its message.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        match self.copy_out(0, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => unreachable!("the length is at most the capacity"),
        }
    }

    /// Loads 64 bits at `offset`, in the processor's byte order.
    ///
    /// # Errors
    /// They leave the buffer.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RangeError> {
        self.check(offset, 8)?;
        self.shared.region.load_u64(self.start() + offset)
    }

    /// Stores 64 bits at `offset`, in the processor's byte order.
    ///
    /// # Errors
    /// They leave the buffer.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        self.check(offset, 8)?;
        self.shared.region.store_u64(self.start() + offset, value)
    }

    /// Its message as a slice of a work request.
    pub fn slice(&self) -> MemorySlice {
        self.slice_of(self.length)
    }

    /// What a peer needs to reach it, as long as somebody owns it.
    pub fn remote(&self) -> RemoteSlice {
        self.shared.region.remote(self.start() as u64)
    }

    /// All of it, for a receive.
    pub(crate) fn whole(&self) -> MemorySlice {
        self.slice_of(self.shared.capacity as u32)
    }

    /// What was received; never more than the capacity, whatever the device says.
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
