//! The bus where memory is mapped one to one: an I/O virtual address is a physical address is a pointer.
//!
//! The device is coherent with the caches, as PCI Express devices are on both processors; there is no IOMMU, or it is off.

use crate::arena::{PAGE, PageMap};
use bareverbs_core::hal::{DmaMemory, Hal, HalError, Mmio};
use bareverbs_prm::time::Time;
use core::ptr::NonNull;
use volatile_register::RW;

/// 64-page words of the arena.
pub const ARENA_WORDS: usize = 128;
/// Bytes of the arena: 32 MiB.
pub const ARENA_SIZE: usize = PageMap::<ARENA_WORDS>::PAGES * PAGE;

/// Memory for the device.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    pages: spin::Mutex<PageMap<ARENA_WORDS>>,
}

// SAFETY: the pointer is only an address; who gets which page is decided under the lock of `pages`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena over [`ARENA_SIZE`] bytes.
    ///
    /// # Safety
    /// They must be mapped one to one, be valid for ever, begin at a page, and be used by nobody else.
    pub const unsafe fn new(start: NonNull<u8>) -> Self {
        Self { start, pages: spin::Mutex::new(PageMap::new()) }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.pages.lock().used() * PAGE
    }

    fn allocate(&'static self, length: usize, alignment: usize) -> Option<Dma> {
        let (base, count) = (self.start.as_ptr() as usize, length.div_ceil(PAGE));
        let first = (base.checked_next_multiple_of(alignment.max(PAGE))? - base) / PAGE;
        let page = self.pages.lock().take(count, first, alignment.max(PAGE) / PAGE)?;
        // SAFETY: `page` and the `count` pages from it are inside the arena, as `PageMap::take` says; `new` was promised that
        // the arena is valid.
        let start = unsafe { self.start.add(page * PAGE) };
        // SAFETY: as above, and nobody else was given these pages.
        unsafe { start.write_bytes(0, count * PAGE) };
        Some(Dma { start, length, owner: Some((self, page)) })
    }
}

/// Memory that processor and device share; its pages go back when it is dropped.
#[derive(Debug)]
pub struct Dma {
    start: NonNull<u8>,
    length: usize,
    /// The arena and the first page, unless the memory is the caller's own.
    owner: Option<(&'static Arena, usize)>,
}

// SAFETY: the bytes are owned by this value, or by its maker who keeps the promise of `Hal::map_user`.
unsafe impl Send for Dma {}
// SAFETY: nothing is read or written through a shared reference here.
unsafe impl Sync for Dma {}

// SAFETY: pages of the arena are given to one owner at a time (`PageMap::take`) and stay mapped for ever; memory of the
// caller is valid by the promise of `Hal::map_user`.
unsafe impl DmaMemory for Dma {
    fn iova(&self) -> u64 {
        self.start.as_ptr() as u64
    }
    fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }
    fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        if let Some((arena, page)) = self.owner {
            arena.pages.lock().give(page, self.length.div_ceil(PAGE));
        }
    }
}

/// BAR0.
#[derive(Debug)]
pub struct Bar {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: registers may be used by every processor; the driver orders what has an order.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

impl Bar {
    /// The window at a physical address.
    ///
    /// # Safety
    /// `length` bytes must be mapped there as device memory for ever, and be registers of an mlx5 device that nobody else
    /// drives.
    pub const unsafe fn new(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length }
    }

    /// The register at `offset`, if it is inside the window and aligned.
    #[inline(always)]
    fn register<T>(&self, offset: usize) -> Option<&RW<T>>
    where
        T: Copy,
    {
        let inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.length);
        // SAFETY: inside the window, which `new` was promised to be mapped; a volatile cell may be shared with a device.
        (inside && offset.is_multiple_of(align_of::<T>()))
            .then(|| unsafe { self.start.add(offset).cast().as_ref() })
    }

    #[inline(always)]
    fn write<T: Copy>(&self, offset: usize, value: T) {
        if let Some(register) = self.register::<T>(offset) {
            // SAFETY: a store to a register of the device; `volatile_register` calls every store unsafe.
            unsafe { register.write(value) };
        }
    }
}

/// Outside the window reads give all ones and writes go nowhere, as on the bus.
impl Mmio for Bar {
    #[inline(always)]
    fn read32(&self, offset: usize) -> u32 {
        self.register::<u32>(offset).map_or(u32::MAX, |register| u32::from_be(register.read()))
    }
    #[inline(always)]
    fn write32(&self, offset: usize, value: u32) {
        self.write(offset, value.to_be());
    }
    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        self.write(offset, value.to_be());
    }
    #[inline(always)]
    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        for (word, at) in block.iter().zip((offset..).step_by(8)) {
            self.write(at, *word);
        }
    }
    fn len(&self) -> usize {
        self.length
    }
}

/// The bus.
#[derive(Debug)]
pub struct BareHal {
    bar: Bar,
    arena: &'static Arena,
    clock: fn() -> Time,
}

impl BareHal {
    /// The bus of the device behind `bar`.
    pub const fn new(bar: Bar, arena: &'static Arena, clock: fn() -> Time) -> Self {
        Self { bar, arena, clock }
    }
}

// ANCHOR: hal
impl Hal for BareHal {
    type Mmio = Bar;
    type Dma = Dma;

    fn mmio(&self) -> &Bar {
        &self.bar
    }

    fn allocate_dma(&self, length: usize, alignment: usize) -> Result<Dma, HalError> {
        if length == 0 || !alignment.is_power_of_two() {
            return Err(HalError::BadRequest { length, alignment });
        }
        self.arena.allocate(length, alignment).ok_or(HalError::OutOfDmaMemory { length, alignment })
    }

    unsafe fn map_user(&self, start: NonNull<u8>, length: usize) -> Result<Dma, HalError> {
        Ok(Dma { start, length, owner: None })
    }

    fn now(&self) -> Time {
        (self.clock)()
    }

    /// There is nobody to give the processor to: waiting is looking again.
    fn relax(&self, _deadline: Time) {
        core::hint::spin_loop();
    }
}
// ANCHOR_END: hal

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    fn hal() -> (BareHal, &'static Arena, &'static [u8; 64]) {
        let layout = Layout::from_size_align(ARENA_SIZE, 1 << 21).expect("a layout");
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        // SAFETY: leaked, aligned, and nobody else's.
        let arena = Box::leak(Box::new(unsafe { Arena::new(start) }));
        let registers: &'static mut [u8; 64] = Box::leak(Box::new([0; 64]));
        let start = NonNull::from(&mut *registers).cast();
        // SAFETY: leaked, and read by the test through volatile loads only after the stores.
        let bar = unsafe { Bar::new(start, 64) };
        (BareHal::new(bar, arena, || Time::ZERO), arena, registers)
    }

    #[test]
    fn memory_is_aligned_zeroed_and_comes_back() {
        let (hal, arena, _) = hal();
        let one = hal.allocate_dma(5000, 64).expect("room");
        let large = hal.allocate_dma(1 << 21, 1 << 21).expect("room");
        assert_eq!((one.len(), large.iova() % (1 << 21)), (5000, 0));
        assert_eq!(arena.used(), 2 * PAGE + (1 << 21));
        drop((one, large));
        assert_eq!(arena.used(), 0);
        let refused = hal.allocate_dma(ARENA_SIZE + 1, 4096).map(drop);
        assert_eq!(refused, Err(HalError::OutOfDmaMemory { length: ARENA_SIZE + 1, alignment: 4096 }));
        assert!(matches!(hal.allocate_dma(0, 1), Err(HalError::BadRequest { .. })));
    }

    #[test]
    fn registers_are_big_endian_and_have_an_end() {
        let (hal, _, _) = hal();
        let bar = hal.mmio();
        bar.write32(4, 0x0102_0304);
        bar.write64(8, 0x1112_1314_1516_1718);
        assert_eq!((bar.read32(4), bar.read32(8)), (0x0102_0304, 0x1112_1314));
        assert_eq!((bar.read32(64), bar.read32(usize::MAX), bar.read32(2)), (u32::MAX, u32::MAX, u32::MAX));
        bar.write64(60, 1);
        assert_eq!(bar.read32(60), 0);
    }
}
