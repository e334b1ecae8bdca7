//! Memory that driver and firmware share, under addresses of its own: what is freed faults, as behind an IOMMU.

use bareverbs_core::hal::DmaMemory;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::rc::Rc;

const ALIGNMENT: usize = 1 << 16;

pub fn allocate(length: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(length, ALIGNMENT).unwrap();
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap()
}

pub fn free(base: NonNull<u8>, length: usize) {
    // SAFETY: allocated by `allocate` with the same layout, and poisoned so that late readers see it.
    unsafe {
        base.as_ptr().write_bytes(0xdd, length);
        dealloc(base.as_ptr(), Layout::from_size_align(length, ALIGNMENT).unwrap());
    }
}

#[derive(Default)]
struct Regions {
    by_iova: BTreeMap<u64, (NonNull<u8>, usize)>,
    /// Lengths of what was allocated and not freed, mapped or private, by where it begins.
    live: BTreeMap<NonNull<u8>, usize>,
    next: u64,
}

impl Regions {
    fn allocate(&mut self, length: usize) -> NonNull<u8> {
        let base = allocate(length);
        self.live.insert(base, length);
        base
    }
}

/// All mapped memory.
#[derive(Default)]
pub struct Memory {
    regions: Rc<RefCell<Regions>>,
    /// Allocations that still succeed, if they are counted.
    pub allowance: Cell<Option<usize>>,
    /// Accesses of the device to what is not mapped.
    pub faults: Cell<usize>,
}

/// A piece of it.
pub struct FakeDma {
    base: NonNull<u8>,
    length: usize,
    iova: u64,
    owned: bool,
    regions: Rc<RefCell<Regions>>,
}

impl Memory {
    pub fn allocate(&self, length: usize, alignment: usize) -> Option<FakeDma> {
        if let Some(left) = self.allowance.get() {
            self.allowance.set(Some(left.checked_sub(1)?));
        }
        let base = self.regions.borrow_mut().allocate(length);
        Some(self.insert(base, length, alignment, true))
    }

    /// Memory that the device cannot reach.
    pub fn allocate_private(&self, length: usize) -> Option<FakeDma> {
        if let Some(left) = self.allowance.get() {
            self.allowance.set(Some(left.checked_sub(1)?));
        }
        Some(FakeDma {
            base: self.regions.borrow_mut().allocate(length),
            length,
            iova: u64::MAX,
            owned: true,
            regions: self.regions.clone(),
        })
    }

    pub fn map(&self, base: NonNull<u8>, length: usize) -> FakeDma {
        self.insert(base, length, 4096, false)
    }

    fn insert(&self, base: NonNull<u8>, length: usize, alignment: usize, owned: bool) -> FakeDma {
        let mut regions = self.regions.borrow_mut();
        let offset = if owned { 0 } else { base.as_ptr().addr() as u64 % 4096 };
        let iova = (regions.next.max(0x1_0000_1000) + 0x1000).next_multiple_of(alignment as u64) + offset;
        regions.next = iova + length as u64;
        regions.by_iova.insert(iova, (base, length));
        FakeDma { base, length, iova, owned, regions: self.regions.clone() }
    }

    /// Addresses and lengths of what the device can reach.
    pub fn spans(&self) -> Vec<(u64, usize)> {
        self.regions.borrow().by_iova.iter().map(|(&iova, &(_, length))| (iova, length)).collect()
    }

    /// Regions that are mapped.
    pub fn regions(&self) -> usize {
        self.regions.borrow().by_iova.len()
    }

    fn find(&self, iova: u64, length: usize) -> Option<NonNull<u8>> {
        let regions = self.regions.borrow();
        let (start, &(base, size)) = regions.by_iova.range(..=iova).next_back()?;
        let offset = (iova - start) as usize;
        // SAFETY: `offset` is inside the region.
        (offset <= size && length <= size - offset).then(|| unsafe { base.add(offset) })
    }

    /// What the device reads; zeros and a fault where nothing is mapped.
    pub fn read(&self, iova: u64, length: usize) -> Vec<u8> {
        match self.find(iova, length) {
            // SAFETY: the region has these bytes.
            Some(at) => (0..length).map(|i| unsafe { at.add(i).read_volatile() }).collect(),
            None => {
                self.faults.set(self.faults.get() + 1);
                vec![0; length]
            }
        }
    }

    /// What the device writes, the last byte last.
    pub fn write(&self, iova: u64, bytes: &[u8]) {
        match self.find(iova, bytes.len()) {
            // SAFETY: the region has these bytes.
            Some(at) => bytes.iter().enumerate().for_each(|(i, &b)| unsafe { at.add(i).write_volatile(b) }),
            None => self.faults.set(self.faults.get() + 1),
        }
    }

    /// Frees what the driver has given up without freeing it, because the device never confirmed that it was done with it.
    ///
    /// # Safety
    ///
    /// Everything that used this memory is dropped or forgotten.
    pub unsafe fn reclaim(&self) {
        for (base, length) in std::mem::take(&mut self.regions.borrow_mut().live) {
            free(base, length);
        }
    }

    pub fn is_mapped(&self, iova: u64, length: usize) -> bool {
        self.find(iova, length).is_some()
    }
}

impl Drop for FakeDma {
    fn drop(&mut self) {
        let mut regions = self.regions.borrow_mut();
        regions.by_iova.remove(&self.iova);
        if self.owned {
            regions.live.remove(&self.base);
            free(self.base, self.length);
        }
    }
}

// SAFETY: the bytes belong to the value (or to the caller of `map_user`) until it is dropped.
unsafe impl DmaMemory for FakeDma {
    fn iova(&self) -> u64 {
        self.iova
    }
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.length
    }
}
