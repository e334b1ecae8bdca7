//! The DMA address space of a simulated host: which addresses its device may access, and where their bytes are.
//!
//! I/O virtual addresses differ from the processor's, regions have gaps between them, and no address is ever reused: a
//! device that keeps an address too long gets a fault. Freed bytes are poisoned and quarantined before they are
//! released.

use super::block::Block;
use super::page_table::PageTable;
use super::views::Views;
use bareverbs_core::hal::{Barrier, HalError};
use bareverbs_sim::nic::DmaFault;
use core::ptr::NonNull;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use std::collections::VecDeque;

/// Behaviour of a simulated host's memory.
///
/// ```
/// use bareverbs_core::hal::HalError;
/// use bareverbs_hal_sim::{MemoryConfig, SimMemory};
/// use bareverbs_sim::run::Seed;
///
/// let config = MemoryConfig { capacity: 1 << 20, ..MemoryConfig::unforgiving() };
/// let memory = SimMemory::new(config, Seed(1).stream("memory"));
/// assert!(memory.is_unforgiving());
/// let refused = memory.allocate(2 << 20, 4096).unwrap_err();
/// assert_eq!(refused, HalError::OutOfDmaMemory { length: 2 << 20, alignment: 4096 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Most bytes that may be allocated at a time.
    pub capacity: usize,
    /// Whether processor and device have separate views that only barriers reconcile.
    ///
    /// The processor's stores reach the device at [`Barrier::ToDevice`] or when time passes, except that an occasional
    /// single word arrives early. The device's writes reach the processor at [`Barrier::FromDevice`], except for the
    /// last byte of each write; until then the other bytes read as [`STALE`](crate::STALE). Meant for tests: each
    /// barrier compares all memory.
    pub unforgiving: bool,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { capacity: 8 << 30, unforgiving: false }
    }
}

impl MemoryConfig {
    /// Memory that exposes missing barriers.
    pub fn unforgiving() -> Self {
        Self { unforgiving: true, ..Self::default() }
    }
}

/// Statistics of a host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryCounters {
    /// Mapped regions.
    pub regions: u64,
    /// Bytes of the mapped regions.
    pub bytes: u64,
    /// DMA reads.
    pub device_reads: u64,
    /// DMA writes.
    pub device_writes: u64,
    /// DMA accesses that hit no region.
    pub faults: u64,
    /// [`Barrier::ToDevice`] barriers in unforgiving mode.
    pub barriers_to_device: u64,
    /// [`Barrier::FromDevice`] barriers in unforgiving mode.
    pub barriers_from_device: u64,
    /// Bytes made visible to the device by a barrier.
    pub bytes_to_device: u64,
    /// Bytes made visible to the processor by a barrier.
    pub bytes_from_device: u64,
    /// Bytes made visible to the device by the passage of time rather than a barrier.
    pub bytes_drained: u64,
    /// Words made visible to the device before a barrier.
    pub leaked_words: u64,
}

/// Contents of freed memory.
pub const POISON: u8 = 0xdb;

const FIRST_IOVA: u64 = 0x10_0000_0000;
const GAP: u64 = 4096;
/// Processor-side alignment of a block that is shorter than the requested alignment: a cache line. Device addresses
/// always have the requested alignment. If processor addresses had it too, every 64-byte send queue would keep a page
/// resident.
const CACHE_LINE: usize = 64;
const QUARANTINE_BYTES: usize = 16 << 20;
const LEAK_ONE_IN: u32 = 4;

#[derive(Debug)]
struct Region {
    start: u64,
    block: Block,
    views: Option<Box<Views>>,
}

/// All regions of one host.
#[derive(Debug)]
pub(super) struct Arena {
    config: MemoryConfig,
    stream: ChaCha8Rng,
    regions: Vec<Option<Region>>,
    free_slots: Vec<u32>,
    pages: PageTable,
    quarantine: VecDeque<Block>,
    quarantined: usize,
    allocated: usize,
    next_iova: u64,
    counters: MemoryCounters,
}

impl Arena {
    pub(super) fn new(config: MemoryConfig, stream: ChaCha8Rng) -> Self {
        Self {
            config,
            stream,
            regions: Vec::new(),
            free_slots: Vec::new(),
            pages: PageTable::new(FIRST_IOVA),
            quarantine: VecDeque::new(),
            quarantined: 0,
            allocated: 0,
            next_iova: FIRST_IOVA,
            counters: MemoryCounters::default(),
        }
    }

    pub(super) fn allocate(
        &mut self,
        length: usize,
        alignment: usize,
    ) -> Result<(u64, NonNull<u8>), HalError> {
        if length == 0 || !alignment.is_power_of_two() {
            return Err(HalError::BadRequest { length, alignment });
        }
        let out_of_memory = HalError::OutOfDmaMemory { length, alignment };
        let fits = length <= self.config.capacity.saturating_sub(self.allocated);
        let alignment = alignment.max(CACHE_LINE);
        let iova = self.place(length, alignment).filter(|_| fits).ok_or(out_of_memory)?;
        let for_processor = if length < alignment { CACHE_LINE } else { alignment };
        let block = Block::allocate(length, for_processor).ok_or(out_of_memory)?;
        let start = block.start();
        self.allocated += length;
        self.insert(iova, block);
        Ok((iova, start))
    }

    pub(super) fn map(&mut self, block: Block) -> Result<u64, HalError> {
        let length = block.len();
        let in_page = block.start().as_ptr() as usize % GAP as usize;
        let page = self.place(length.saturating_add(in_page), GAP as usize);
        let iova = page.ok_or(HalError::MapFailed { length, errno: 0 })? + in_page as u64;
        self.insert(iova, block);
        Ok(iova)
    }

    pub(super) fn release(&mut self, iova: u64) {
        let Some(slot) = self.pages.get(iova) else { return };
        let place = self.regions.get_mut(slot as usize);
        let Some(region) = place.and_then(|place| place.take_if(|region| region.start == iova)) else {
            return;
        };
        self.pages.remove(iova, region.block.len() as u64);
        self.free_slots.push(slot);
        self.counters.regions -= 1;
        self.counters.bytes -= region.block.len() as u64;
        self.retire(region);
    }

    pub(super) fn counters(&self) -> MemoryCounters {
        self.counters
    }

    #[inline]
    pub(super) fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.counters.device_reads += 1;
        let (region, offset) = self.find(iova, buffer.len(), false)?;
        match &region.views {
            None => region.block.read(offset, buffer),
            Some(views) => views.device_read(offset, buffer),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.counters.device_writes += 1;
        let (region, offset) = self.find(iova, bytes.len(), true)?;
        match &mut region.views {
            None => region.block.write(offset, bytes),
            Some(views) => views.device_write(&region.block, offset, bytes),
        }
        Ok(())
    }

    pub(super) fn barrier(&mut self, kind: Barrier) {
        let counters = &mut self.counters;
        let regions = self.regions.iter_mut().flatten();
        let views = regions.filter_map(|region| region.views.as_mut().map(|views| (views, &region.block)));
        match kind {
            Barrier::ToDevice => {
                counters.barriers_to_device += 1;
                counters.bytes_to_device += views.map(|(views, block)| views.publish(block)).sum::<u64>();
            }
            Barrier::FromDevice => {
                counters.barriers_from_device += 1;
                counters.bytes_from_device += views.map(|(views, block)| views.reveal(block)).sum::<u64>();
            }
            Barrier::FlushMmio => {}
        }
    }

    pub(super) fn drain_stores(&mut self) {
        let regions = self.regions.iter_mut().flatten();
        let views = regions.filter_map(|region| region.views.as_mut().map(|views| (views, &region.block)));
        self.counters.bytes_drained += views.map(|(views, block)| views.publish(block)).sum::<u64>();
    }

    pub(super) fn leak(&mut self) {
        if !self.stream.next_u32().is_multiple_of(LEAK_ONE_IN) || self.regions.is_empty() {
            return;
        }
        let first = self.stream.next_u32() as usize % self.regions.len();
        let from = self.stream.next_u32() as usize;
        for slot in (first..self.regions.len()).chain(0..first) {
            let Some(Region { views: Some(views), block, .. }) = &mut self.regions[slot] else { continue };
            if views.leak_word(block, from) {
                self.counters.leaked_words += 1;
                return;
            }
        }
    }

    /// Chooses addresses and leaves a gap after them.
    fn place(&mut self, length: usize, alignment: usize) -> Option<u64> {
        let iova = self.next_iova.checked_next_multiple_of(alignment as u64)?;
        self.next_iova = iova.checked_add(length as u64)?.checked_add(GAP)?;
        Some(iova)
    }

    fn insert(&mut self, start: u64, block: Block) {
        self.counters.regions += 1;
        self.counters.bytes += block.len() as u64;
        let views = self.config.unforgiving.then(|| Box::new(Views::new(&block)));
        let slot = self.free_slots.pop().unwrap_or(self.regions.len() as u32);
        self.pages.insert(start, block.len() as u64, slot);
        let region = Some(Region { start, block, views });
        match self.regions.get_mut(slot as usize) {
            Some(place) => *place = region,
            None => self.regions.push(region),
        }
    }

    /// Poisons and quarantines an allocated region. For a user's region, only brings its bytes up to date.
    fn retire(&mut self, mut region: Region) {
        if !region.block.is_owned() {
            if let Some(views) = &mut region.views {
                views.reveal(&region.block);
            }
            return;
        }
        region.block.fill(POISON);
        self.allocated -= region.block.len();
        self.quarantined += region.block.len();
        self.quarantine.push_back(region.block);
        while self.quarantined > QUARANTINE_BYTES {
            let Some(oldest) = self.quarantine.pop_front() else { return };
            self.quarantined -= oldest.len();
        }
    }

    /// Finds the region that covers an access, and the offset in it.
    #[inline]
    fn find(&mut self, iova: u64, length: usize, write: bool) -> Result<(&mut Region, usize), DmaFault> {
        let Self { pages, regions, counters, .. } = self;
        let region = pages.get(iova).and_then(|slot| regions.get_mut(slot as usize)?.as_mut());
        region.and_then(|region| region.cover(iova, length)).ok_or_else(|| {
            counters.faults += 1;
            DmaFault { iova, length, write }
        })
    }
}

impl Region {
    /// The offset of an access, if this region covers all of it.
    #[inline]
    fn cover(&mut self, iova: u64, length: usize) -> Option<(&mut Self, usize)> {
        let (offset, size) = (iova.checked_sub(self.start)?, self.block.len() as u64);
        (offset < size && length as u64 <= size - offset).then_some((self, offset as usize))
    }
}
