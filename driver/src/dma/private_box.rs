//! A value in memory of its own, so that its owner is cheap to move.

use super::{BLOCK, Dma};
use crate::hal::{DmaMemory, Hal, HalError};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A value in memory that the device never learns of ([`Hal::allocate_private`]). This crate has no
/// allocator, so the HAL provides the memory.
pub(crate) struct PrivateBox<T, M> {
    /// Points into `memory`, and to a valid value until this is dropped.
    value: NonNull<T>,
    #[allow(dead_code, reason = "it is held, not read")]
    memory: Dma<M>,
}

// SAFETY: this value is the only owner of the inner value and of its memory, and both may be sent to another
// thread.
unsafe impl<T: Send, M: Send> Send for PrivateBox<T, M> {}

impl<T, M: DmaMemory> PrivateBox<T, M> {
    /// Moves `value` into memory of `hal`.
    ///
    /// # Errors
    /// The HAL has no memory left, or returned memory of another length or alignment. The value is dropped.
    pub(crate) fn new<H: Hal<Dma = M>>(hal: &H, value: T) -> Result<Self, HalError> {
        let length = size_of::<T>().next_multiple_of(BLOCK).max(BLOCK);
        let memory = Dma::allocate_private(hal, length, align_of::<T>().max(BLOCK))?;
        Self::move_into(memory, value)
    }

    fn move_into(memory: Dma<M>, value: T) -> Result<Self, HalError> {
        let place = memory.base.cast::<T>();
        if memory.length < size_of::<T>() || !place.is_aligned() {
            return Err(HalError::BadRequest { length: size_of::<T>(), alignment: align_of::<T>() });
        }
        // SAFETY: the lines above checked length and alignment. `memory` is held here as long as the value
        // is, and nobody else accesses it (`DmaMemory`).
        unsafe { place.write(value) };
        Ok(Self { value: place, memory })
    }
}

impl<T, M> Deref for PrivateBox<T, M> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `move_into` wrote a value there, and only this value points to it.
        unsafe { self.value.as_ref() }
    }
}

impl<T, M> DerefMut for PrivateBox<T, M> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { self.value.as_mut() }
    }
}

impl<T, M> Drop for PrivateBox<T, M> {
    fn drop(&mut self) {
        // SAFETY: `move_into` wrote a value there, and nobody accesses it after this. The memory is freed
        // after this function.
        unsafe { self.value.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::test_memory::Boxed;
    use std::rc::Rc;

    #[test]
    fn a_private_box_drops_its_value_once() {
        let shared = Rc::new(());
        let memory = Dma::new(Boxed::new(384));
        let mut held = PrivateBox::move_into(memory, ([7u64; 40], shared.clone())).expect("it has room");
        assert_eq!((held.0[39], Rc::strong_count(&shared)), (7, 2));
        held.0[39] = 8;
        let moved = held;
        assert_eq!(moved.0.iter().sum::<u64>(), 7 * 39 + 8);
        drop(moved);
        assert_eq!(Rc::strong_count(&shared), 1);
    }

    #[test]
    fn memory_that_is_too_short_is_refused_and_the_value_dropped() {
        let shared = Rc::new(());
        let held = PrivateBox::move_into(Dma::new(Boxed::new(64)), ([0u64; 40], shared.clone()));
        assert!(matches!(held, Err(HalError::BadRequest { length: 328, alignment: 8 })));
        assert_eq!(Rc::strong_count(&shared), 1);
    }
}
