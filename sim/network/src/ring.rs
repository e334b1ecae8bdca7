//! A single-producer, single-consumer ring of frames in memory that two processes share.
//!
//! **What this is.** A page with two counters, followed by a power of two of bytes. A frame is its length in 8 bytes,
//! its bytes, and padding to a multiple of 8. Only the writer changes `written` and only the reader changes `read`;
//! both only grow.
//!
//! **What it may not do.** It trusts nothing that the other process may have written: an impossible counter or length
//! is an error of the ring, never an access outside it.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::OwnedFd;

/// Bytes for frames.
const ROOM: usize = 1 << 20;
/// Bytes before them: the counters, each on its own cache line.
const CONTROL: usize = 4096;
const WRITTEN_AT: usize = 0;
const READ_AT: usize = 64;
const LENGTH: usize = 8;
/// Longest frame in bytes, a fraction of the ring.
const LONGEST_FRAME: usize = ROOM / 8;

/// The mapped memory of a ring.
#[derive(Debug)]
struct Shared(NonNull<u8>);

// SAFETY: the mapping belongs to this value alone, and its owner may be any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn map(file: &OwnedFd) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses a place where nothing is.
        let place = unsafe { rustix::mm::mmap(null_mut(), CONTROL + ROOM, protection, flags, file, 0) }?;
        NonNull::new(place.cast()).map(Self).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is a constant below CONTROL and a multiple of 8, so this is an aligned word of the mapping, which lives
        // as long as `self`; every process accesses it as an atomic.
        unsafe { self.0.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Address of byte `position` in the stream, and the number of bytes up to the ring's end.
    fn place(&self, position: u64) -> (*mut u8, usize) {
        let at = (position as usize) & (ROOM - 1);
        // SAFETY: `at` is below ROOM.
        (unsafe { self.0.add(CONTROL + at) }.as_ptr(), ROOM - at)
    }

    fn put(&mut self, position: u64, bytes: &[u8]) {
        let (place, before_end) = self.place(position);
        let (first, second) = bytes.split_at(bytes.len().min(before_end));
        // SAFETY: `first` fits before the end, `second` is at most ROOM long and begins at the start. The reader does not
        // touch what is not counted as written.
        unsafe {
            place.copy_from_nonoverlapping(first.as_ptr(), first.len());
            self.place(0).0.copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
    }

    fn take(&mut self, position: u64, bytes: &mut [u8]) {
        let (place, before_end) = self.place(position);
        let middle = bytes.len().min(before_end);
        let (first, second) = bytes.split_at_mut(middle);
        // SAFETY: as in `put`; a writer that keeps to its side does not touch what is not counted as read. One that does not
        // spoils the bytes of its own frames.
        unsafe {
            place.copy_to_nonoverlapping(first.as_mut_ptr(), first.len());
            self.place(0).0.copy_to_nonoverlapping(second.as_mut_ptr(), second.len());
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing borrowed from it is left.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), CONTROL + ROOM) };
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process has spoilt the ring of frames")
}

/// Bytes that a frame occupies in the ring.
const fn footprint(frame: usize) -> usize {
    LENGTH + frame.next_multiple_of(LENGTH)
}

/// The writing end.
#[derive(Debug)]
pub struct Producer {
    shared: Shared,
    written: u64,
}

impl Producer {
    /// Creates an empty ring, and the file for its other end.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let file =
            rustix::fs::memfd_create("bareverbs frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, (CONTROL + ROOM) as u64)?;
        // Seal the file, so that neither side can take memory away from the other.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self { shared: Shared::map(&file)?, written: 0 }, file))
    }

    /// Writes a frame; false if there is no room now.
    pub fn push(&mut self, frame: &[u8]) -> io::Result<bool> {
        if frame.len() > LONGEST_FRAME {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the frame is too long for a ring"));
        }
        let read = self.shared.counter(READ_AT).load(Ordering::Acquire);
        let used = self.written.checked_sub(read).filter(|used| *used <= ROOM as u64).ok_or_else(broken)?;
        if ROOM - (used as usize) < footprint(frame.len()) {
            return Ok(false);
        }
        self.shared.put(self.written, &(frame.len() as u64).to_ne_bytes());
        self.shared.put(self.written + LENGTH as u64, frame);
        self.written += footprint(frame.len()) as u64;
        self.shared.counter(WRITTEN_AT).store(self.written, Ordering::Release);
        Ok(true)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer {
    shared: Shared,
    read: u64,
}

impl Consumer {
    /// Opens the other end of the ring in a file.
    pub fn open(file: &OwnedFd) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let length = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if !seals.contains(SealFlags::SHRINK) || length != (CONTROL + ROOM) as u64 {
            return Err(broken());
        }
        Ok(Self { shared: Shared::map(file)?, read: 0 })
    }

    /// Whether everything written has been read.
    pub fn is_empty(&self) -> bool {
        self.shared.counter(WRITTEN_AT).load(Ordering::Acquire) == self.read
    }

    /// Moves the next frame to `frame`; false if there is none.
    pub fn pop(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let written = self.shared.counter(WRITTEN_AT).load(Ordering::Acquire);
        let there =
            written.checked_sub(self.read).filter(|there| *there <= ROOM as u64).ok_or_else(broken)?;
        if there == 0 {
            return Ok(false);
        }
        let mut length = [0; LENGTH];
        self.shared.take(self.read, &mut length);
        let length = usize::try_from(u64::from_ne_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST_FRAME || footprint(length) as u64 > there {
            return Err(broken());
        }
        frame.resize(length, 0);
        self.shared.take(self.read + LENGTH as u64, frame);
        self.read += footprint(length) as u64;
        self.shared.counter(READ_AT).store(self.read, Ordering::Release);
        Ok(true)
    }
}
