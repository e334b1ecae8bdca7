//! Typed views of a region: values are copied in and out. No reference to device-writable memory ever exists.

use super::MemoryRegion;
use crate::device::DeviceRef;
use crate::dma::RangeError;
use crate::memory_slice::{MemorySlice, RemoteSlice};
use core::fmt;
use core::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value of type `T` in a region, loaded and stored as a whole by copying.
///
/// `T` is any type without padding for which every bit pattern is valid: integers, arrays of them, and structures that
/// derive zerocopy's `FromBytes`, `IntoBytes` and `Immutable`. The bytes are in native byte order; if the peer's may
/// differ, use the types of `zerocopy::byteorder`.
///
/// What the device wrote before a completion is visible once that completion has been polled, and what is stored before
/// a post is visible to the device. If a peer changes a value while it is loaded, the result may mix old and new
/// aligned 8-byte pieces; a version number, or a flag written last, can detect that. An aligned `u64` never tears.
///
/// ```
/// use bareverbs_core::{DeviceRef, MemoryRegion, RangeError};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Entry {
///     key: u64,
///     value: [u8; 56],
/// }
///
/// fn publish<D: DeviceRef>(table: &MemoryRegion<D>, slot: usize, entry: Entry) -> Result<(), RangeError> {
///     table.cells::<Entry>(0, 1024)?.at(slot)?.store(entry);
///     Ok(())
/// }
/// ```
///
/// A type with padding or with invalid bit patterns is rejected:
///
/// ```compile_fail
/// # use bareverbs_core::{DeviceRef, MemoryRegion};
/// fn flag<D: DeviceRef>(region: &MemoryRegion<D>) -> bool {
///     region.cell::<bool>(0).unwrap().load() // a peer may write 2
/// }
/// ```
///
/// References to the memory are impossible, since its bytes change at any time:
///
/// ```compile_fail
/// # use bareverbs_core::{DeviceRef, MemoryRegion};
/// fn word<D: DeviceRef>(region: &MemoryRegion<D>) -> &u64 {
///     &*region.cell::<u64>(0).unwrap()
/// }
/// ```
///
/// A cell cannot outlive its region, and the region keeps its keys meanwhile:
///
/// ```compile_fail,E0505
/// # use bareverbs_core::{DeviceRef, MemoryRegion};
/// fn late<D: DeviceRef>(region: MemoryRegion<D>) -> u64 {
///     let cell = region.cell::<u64>(0).unwrap();
///     drop(region);
///     cell.load()
/// }
/// ```
pub struct RegionCell<'r, D: DeviceRef, T> {
    region: &'r MemoryRegion<D>,
    /// Offset of the value. All of it lies in the region.
    offset: usize,
    value: PhantomData<fn(T) -> T>,
}

/// Consecutive values of type `T` in a region.
pub struct RegionCells<'r, D: DeviceRef, T> {
    region: &'r MemoryRegion<D>,
    /// Offset of the first value. All values lie in the region.
    offset: usize,
    count: usize,
    value: PhantomData<fn(T) -> T>,
}

impl<D: DeviceRef> MemoryRegion<D> {
    /// The value at `offset`.
    ///
    /// # Errors
    /// The value exceeds the region.
    pub fn cell<T>(&self, offset: usize) -> Result<RegionCell<'_, D, T>, RangeError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.memory.check(offset, size_of::<T>())?;
        Ok(RegionCell { region: self, offset, value: PhantomData })
    }

    /// `count` consecutive values from `offset`.
    ///
    /// # Errors
    /// The values exceed the region.
    pub fn cells<T>(&self, offset: usize, count: usize) -> Result<RegionCells<'_, D, T>, RangeError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.memory.check(offset, size_of::<T>().saturating_mul(count))?;
        Ok(RegionCells { region: self, offset, count, value: PhantomData })
    }
}

impl<'r, D: DeviceRef, T: FromBytes + IntoBytes + Immutable> RegionCell<'r, D, T> {
    /// Loads the current value.
    pub fn load(&self) -> T {
        let mut value = T::new_zeroed();
        let copied = self.region.copy_out(self.offset, value.as_mut_bytes());
        debug_assert!(
            copied.is_ok(),
            "`MemoryRegion::cell` checked the range, and a region keeps its length"
        );
        value
    }

    /// Replaces the value.
    pub fn store(&self, value: T) {
        let copied = self.region.copy_in(self.offset, value.as_bytes());
        debug_assert!(
            copied.is_ok(),
            "`MemoryRegion::cell` checked the range, and a region keeps its length"
        );
    }

    /// The value as a slice for a work request.
    ///
    /// # Errors
    /// The value is longer than 4 GiB - 1 bytes.
    pub fn slice(&self) -> Result<MemorySlice, RangeError> {
        self.region.slice(self.offset, size_of::<T>())
    }

    /// The remote slice with which a peer can access the value and nothing else.
    ///
    /// # Errors
    /// The value is longer than 4 GiB - 1 bytes.
    pub fn remote(&self) -> Result<RemoteSlice, RangeError> {
        self.region.remote(self.offset as u64).first(size_of::<T>())
    }
}

impl<'r, D: DeviceRef, T: FromBytes + IntoBytes + Immutable> RegionCells<'r, D, T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Value number `index`.
    ///
    /// # Errors
    /// `index` is out of range; the numbers in the error are in bytes.
    pub fn at(&self, index: usize) -> Result<RegionCell<'r, D, T>, RangeError> {
        let size = size_of::<T>();
        if index >= self.count {
            let (offset, region) = (index as u64 * size as u64, self.count as u64 * size as u64);
            return Err(RangeError { offset, length: size as u64, region });
        }
        Ok(RegionCell { region: self.region, offset: self.offset + index * size, value: PhantomData })
    }

    /// Iterates over the values.
    pub fn iter(&self) -> impl Iterator<Item = RegionCell<'r, D, T>> {
        let (region, offset) = (self.region, self.offset);
        (0..self.count).map(move |index| RegionCell {
            region,
            offset: offset + index * size_of::<T>(),
            value: PhantomData,
        })
    }
}

impl<D: DeviceRef, T> Clone for RegionCell<'_, D, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: DeviceRef, T> Copy for RegionCell<'_, D, T> {}

impl<D: DeviceRef, T> fmt::Debug for RegionCell<'_, D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionCell").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<D: DeviceRef, T> fmt::Debug for RegionCells<'_, D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, count) = (&self.offset, &self.count);
        f.debug_struct("RegionCells").field("offset", offset).field("count", count).finish_non_exhaustive()
    }
}
