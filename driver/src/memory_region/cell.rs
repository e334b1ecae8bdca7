//! Typed views of a region: values are copied out and in, and there is never a reference to what a device may write.

use super::MemoryRegion;
use crate::device::DeviceRef;
use crate::dma::RangeError;
use crate::memory_slice::{MemorySlice, RemoteSlice};
use core::fmt;
use core::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value of type `T` in a region. It is loaded and stored as a whole, by copy.
///
/// `T` is any type whose every byte means something and for which any bytes are a value: integers, arrays of them, and structures that
/// derive zerocopy's `FromBytes`, `IntoBytes` and `Immutable`. The bytes lie in the region in the processor's order; where the peer may have
/// another one, use the types of `zerocopy::byteorder`.
///
/// What the device wrote before a completion is visible once the completion was polled, and what is stored before a post is visible to the
/// device. A value that a peer changes while it is loaded may be half old and half new, in aligned pieces of eight bytes; a peer that
/// counts versions, or a flag that is written last, tells. An aligned `u64` is never torn.
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
/// A type with padding, or for which some bytes are no value, is refused:
///
/// ```compile_fail
/// # use bareverbs_core::{DeviceRef, MemoryRegion};
/// fn flag<D: DeviceRef>(region: &MemoryRegion<D>) -> bool {
///     region.cell::<bool>(0).unwrap().load() // a peer may write 2
/// }
/// ```
///
/// There is no reference to the memory, since its bytes change under it:
///
/// ```compile_fail
/// # use bareverbs_core::{DeviceRef, MemoryRegion};
/// fn word<D: DeviceRef>(region: &MemoryRegion<D>) -> &u64 {
///     &*region.cell::<u64>(0).unwrap()
/// }
/// ```
///
/// A cell does not outlive its region, and the region keeps its keys as long:
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
    /// The value is all in the region, from here on.
    offset: usize,
    value: PhantomData<fn(T) -> T>,
}

/// Values of type `T` one after the other in a region.
pub struct RegionCells<'r, D: DeviceRef, T> {
    region: &'r MemoryRegion<D>,
    /// The values are all in the region, from here on.
    offset: usize,
    count: usize,
    value: PhantomData<fn(T) -> T>,
}

impl<D: DeviceRef> MemoryRegion<D> {
    /// The value at `offset`.
    ///
    /// # Errors
    /// It is not all in the region.
    pub fn cell<T>(&self, offset: usize) -> Result<RegionCell<'_, D, T>, RangeError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.memory.check(offset, size_of::<T>())?;
        Ok(RegionCell { region: self, offset, value: PhantomData })
    }

    /// `count` values from `offset` on.
    ///
    /// # Errors
    /// They are not all in the region.
    pub fn cells<T>(&self, offset: usize, count: usize) -> Result<RegionCells<'_, D, T>, RangeError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        self.memory.check(offset, size_of::<T>().saturating_mul(count))?;
        Ok(RegionCells { region: self, offset, count, value: PhantomData })
    }
}

impl<'r, D: DeviceRef, T: FromBytes + IntoBytes + Immutable> RegionCell<'r, D, T> {
    /// The value as it is now.
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

    /// The value, for a work request.
    ///
    /// # Errors
    /// It has more than 4 GiB - 1 bytes.
    pub fn slice(&self) -> Result<MemorySlice, RangeError> {
        self.region.slice(self.offset, size_of::<T>())
    }

    /// What a peer needs to access the value, and no more of the region.
    ///
    /// # Errors
    /// It has more than 4 GiB - 1 bytes.
    pub fn remote(&self) -> Result<RemoteSlice, RangeError> {
        self.region.remote(self.offset as u64).first(size_of::<T>())
    }
}

impl<'r, D: DeviceRef, T: FromBytes + IntoBytes + Immutable> RegionCells<'r, D, T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Value number `index`.
    ///
    /// # Errors
    /// There are no more than that; the numbers in the error are bytes.
    pub fn at(&self, index: usize) -> Result<RegionCell<'r, D, T>, RangeError> {
        let size = size_of::<T>();
        if index >= self.count {
            let (offset, region) = (index as u64 * size as u64, self.count as u64 * size as u64);
            return Err(RangeError { offset, length: size as u64, region });
        }
        Ok(RegionCell { region: self.region, offset: self.offset + index * size, value: PhantomData })
    }

    /// One after the other.
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
