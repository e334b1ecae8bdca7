//! The arena: its segments, their free ranges, and the allocations that drivers hold.

use super::report::{ArenaReport, SegmentReport};
use super::segment::Segment;
use super::{ArenaConfig, Mapper, Piece, Stretch};
use crate::ranges::FreeRanges;
use bareverbs_core::hal::{DmaMemory, HalError};
use bareverbs_prm::mutation::mutated;
use core::fmt;
use core::ptr::NonNull;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Allocation unit and smallest alignment: a cache line.
const UNIT: u64 = 64;
/// Device address of memory without one: no IOMMU maps it.
const NO_ADDRESS: u64 = u64::MAX;
/// Size of the smallest pages, also those of the application's memory.
const PAGE: usize = 4096;

/// DMA memory of one device.
///
/// ```
/// use bareverbs_core::hal::DmaMemory;
/// use bareverbs_hal::memory::{Arena, ArenaConfig, Mapper, Piece, Stretch};
/// use std::sync::Arc;
///
/// /// A device that uses the addresses of the processor.
/// struct SharedAddresses;
///
/// // SAFETY: the one stretch is the whole piece, at its own addresses.
/// unsafe impl Mapper for SharedAddresses {
///     unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
///         let iova = piece.start.as_ptr().addr() as u64;
///         Ok(vec![Stretch { offset: 0, iova, length: piece.length }])
///     }
///     fn unmap(&self, _stretch: &Stretch) {}
/// }
///
/// let config = ArenaConfig { segment: 64 << 10, huge_pages: false, ..ArenaConfig::default() };
/// let arena = Arc::new(Arena::new(SharedAddresses, config).unwrap());
/// let ring = arena.allocate(4096, 4096).unwrap();
/// assert_eq!(ring.iova(), ring.as_ptr().as_ptr().addr() as u64);
/// assert_eq!(arena.report().used, 4096);
/// ```
pub struct Arena<M: Mapper> {
    mapper: M,
    config: ArenaConfig,
    state: Mutex<ArenaState>,
}

#[derive(Default)]
struct ArenaState {
    segments: Vec<Segment>,
    runs: Vec<Run>,
    taken: usize,
    used: usize,
    peak: usize,
    user: usize,
}

/// A device-contiguous stretch of a segment, and its free ranges as device addresses.
struct Run {
    start: NonNull<u8>,
    stretch: Stretch,
    free: FreeRanges,
}

// SAFETY: `start` is an address in a segment that lives in the same state (`ArenaState::segments`) and goes where it goes. Bytes are
// touched in `Arena::allocate` only, and those are free.
unsafe impl Send for Run {}

impl<M: Mapper> fmt::Debug for Arena<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("report", &self.report()).finish_non_exhaustive()
    }
}

impl<M: Mapper> Arena<M> {
    /// Creates an arena and its first segment, so that a limit of the system shows early. Errors are those of
    /// [`Self::allocate`].
    pub fn new(mapper: M, config: ArenaConfig) -> Result<Self, HalError> {
        let arena = Self { mapper, config, state: Mutex::default() };
        arena.grow(&mut arena.lock(), config.segment.max(1))?;
        Ok(arena)
    }

    /// The mapper of this arena.
    pub fn mapper(&self) -> &M {
        &self.mapper
    }

    /// Usage and limits.
    pub fn report(&self) -> ArenaReport {
        let state = self.lock();
        let segments = state.segments.iter().map(|segment| SegmentReport {
            bytes: segment.len(),
            pages: segment.pages(),
            refused: segment.refused().to_vec(),
            numa_errno: segment.numa_errno(),
        });
        ArenaReport {
            limit: self.config.limit,
            used: state.used,
            peak: state.peak,
            user: state.user,
            segments: segments.collect(),
        }
    }

    /// Allocates `length` zeroed bytes at a multiple of `alignment`.
    pub fn allocate(self: &Arc<Self>, length: usize, alignment: usize) -> Result<HostDma<M>, HalError> {
        if length == 0 || !alignment.is_power_of_two() {
            return Err(HalError::BadRequest { length, alignment });
        }
        let refused = HalError::OutOfDmaMemory { length, alignment };
        let size = (length as u64).checked_next_multiple_of(UNIT).ok_or(refused)?;
        let mut state = self.lock();
        let found = match state.take(size, alignment) {
            Some(found) => found,
            None => {
                // A segment starts at a page boundary, so smaller alignments hold anyway.
                let slack = if alignment > PAGE { alignment } else { 0 };
                self.grow(&mut state, length.checked_add(slack).ok_or(refused)?)?;
                state.take(size, alignment).ok_or(refused)?
            }
        };
        state.used += size as usize;
        state.peak = state.peak.max(state.used);
        drop(state);
        let (run, iova, start) = found;
        // SAFETY: the range was free and is now this piece's alone; it lies in a segment that outlives it, and the device
        // has not been told of it.
        unsafe { start.write_bytes(0, size as usize) };
        Ok(HostDma { arena: Arc::clone(self), iova, start, length, source: Source::Run { run, size } })
    }

    /// Allocates `length` zeroed bytes that are never mapped for the device. `alignment` may be at most a page.
    pub fn allocate_private(
        self: &Arc<Self>,
        length: usize,
        alignment: usize,
    ) -> Result<HostDma<M>, HalError> {
        if length == 0 || !alignment.is_power_of_two() || alignment > PAGE {
            return Err(HalError::BadRequest { length, alignment });
        }
        let failed =
            |error: std::io::Error| HalError::MapFailed { length, errno: error.raw_os_error().unwrap_or(0) };
        let pages = MmapOptions::new().len(length).map_anon().map_err(failed)?;
        // Best effort: a kernel without transparent huge pages uses small ones.
        let _ = pages.advise(Advice::HugePage);
        let pages = MmapRaw::from(pages);
        let start = NonNull::new(pages.as_mut_ptr()).ok_or(HalError::OutOfDmaMemory { length, alignment })?;
        Ok(HostDma {
            arena: Arc::clone(self),
            iova: NO_ADDRESS,
            start,
            length,
            source: Source::Private(pages),
        })
    }

    /// Maps memory of the application for the device. Maps whole 4 KiB pages, so the device can also access the
    /// neighbouring bytes in them.
    ///
    /// # Safety
    /// As for [`Hal::map_user`](bareverbs_core::hal::Hal::map_user).
    pub unsafe fn map_user(
        self: &Arc<Self>,
        start: NonNull<u8>,
        length: usize,
    ) -> Result<HostDma<M>, HalError> {
        if length == 0 {
            return Err(HalError::BadRequest { length, alignment: 1 });
        }
        let failed = |errno| HalError::MapFailed { length, errno };
        let in_page = start.as_ptr().addr() % PAGE;
        let whole = length.checked_add(in_page).and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let whole = whole.ok_or(failed(libc::EINVAL))?;
        // The page begins outside what the caller vouched for: its address is computed, and none of its bytes is touched.
        let page = NonNull::new(start.as_ptr().wrapping_sub(in_page)).ok_or(failed(libc::EINVAL))?;
        let piece = Piece { start: page, length: whole, page: PAGE, file: None };
        // SAFETY: the caller promises that the pages around the bytes stay mapped, that the bytes are unreferenced, and that the device may
        // reach the rest of the pages (`Hal::map_user`).
        let stretches = unsafe { self.mapper.map(&piece) }.map_err(failed)?;
        let [stretch] = stretches[..] else {
            stretches.iter().for_each(|stretch| self.mapper.unmap(stretch));
            return Err(failed(libc::ENOTSUP));
        };
        self.lock().user += length;
        let iova = stretch.iova + in_page as u64;
        Ok(HostDma { arena: Arc::clone(self), iova, start, length, source: Source::User(stretch) })
    }

    fn lock(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a segment of at least `length` bytes.
    fn grow(&self, state: &mut ArenaState, length: usize) -> Result<(), HalError> {
        let refused = HalError::OutOfDmaMemory { length, alignment: 1 };
        let room = self.config.limit.saturating_sub(state.taken);
        if length > room {
            return Err(refused);
        }
        let wanted = self.config.segment.clamp(length, room);
        let segment = Segment::acquire(wanted, &self.config).map_err(|error| HalError::MapFailed {
            length: wanted,
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        let piece = Piece {
            start: segment.start(),
            length: segment.len(),
            page: segment.pages().bytes(),
            file: segment.file(),
        };
        // SAFETY: the segment is kept until it is unmapped when the arena is dropped, and nobody refers to its bytes.
        let stretches = unsafe { self.mapper.map(&piece) }
            .map_err(|errno| HalError::MapFailed { length: piece.length, errno })?;
        state.taken += segment.len();
        for stretch in stretches {
            // SAFETY: a stretch lies inside the piece it was made for (contract of `Mapper`), which is the segment.
            let start = unsafe { segment.start().add(stretch.offset) };
            let free = FreeRanges::new([(stretch.iova, stretch.iova + stretch.length as u64)]);
            state.runs.push(Run { start, stretch, free });
        }
        state.segments.push(segment);
        Ok(())
    }
}

impl ArenaState {
    /// Allocates from a free range: the index of the run, its device address and its processor address.
    fn take(&mut self, size: u64, alignment: usize) -> Option<(usize, u64, NonNull<u8>)> {
        let align = UNIT.max(alignment as u64);
        self.runs.iter_mut().enumerate().find_map(|(index, run)| {
            let iova = run.free.take(size, align)?;
            // SAFETY: the address lies in the stretch, which begins at `start`.
            let start = unsafe { run.start.add((iova - run.stretch.iova) as usize) };
            if !start.as_ptr().addr().is_multiple_of(alignment) && !mutated("crooked_piece") {
                run.free.give_back(iova, size);
                return None;
            }
            Some((index, iova, start))
        })
    }
}

impl<M: Mapper> Drop for Arena<M> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.runs.drain(..).for_each(|run| self.mapper.unmap(&run.stretch));
        state.segments.clear();
    }
}

enum Source {
    Run {
        run: usize,
        size: u64,
    },
    User(Stretch),
    /// Kept until the allocation is dropped.
    Private(#[allow(dead_code, reason = "it is held, not read")] MmapRaw),
}

/// Memory shared by device and driver. Returns to its arena when dropped.
pub struct HostDma<M: Mapper> {
    arena: Arc<Arena<M>>,
    iova: u64,
    start: NonNull<u8>,
    length: usize,
    source: Source,
}

impl<M: Mapper> fmt::Debug for HostDma<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDma")
            .field("iova", &self.iova)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

// SAFETY: the piece belongs to one holder, wherever that is; the arena is behind a lock.
unsafe impl<M: Mapper> Send for HostDma<M> {}
// SAFETY: a shared piece gives nothing but addresses and lengths.
unsafe impl<M: Mapper> Sync for HostDma<M> {}

// SAFETY: the bytes are a range that the arena gave to this value alone, a mapping that it owns, or what the caller of `map_user` vouched for;
// both stay valid until drop, and neither the address nor the length ever changes.
unsafe impl<M: Mapper> DmaMemory for HostDma<M> {
    fn iova(&self) -> u64 {
        self.iova
    }

    fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.length
    }
}

impl<M: Mapper> Drop for HostDma<M> {
    fn drop(&mut self) {
        match &self.source {
            &Source::Run { run, size } => {
                let mut state = self.arena.lock();
                state.used -= size as usize;
                if let Some(run) = state.runs.get_mut(run) {
                    run.free.give_back(self.iova, size);
                }
            }
            Source::User(stretch) => {
                self.arena.mapper.unmap(stretch);
                self.arena.lock().user -= self.length;
            }
            Source::Private(_) => {}
        }
    }
}
