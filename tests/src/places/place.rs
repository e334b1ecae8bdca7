//! What a place has to offer for the list of conversations to run there.

use anyhow::Result;
use bareverbs_core::hal::Hal;

/// An environment with two devices that a wire joins.
pub trait Place {
    /// The HAL of a device.
    type Hal: Hal;
    /// Opens end 0 or 1. It is called again after an end was closed.
    fn open(&mut self, end: usize) -> Result<Self::Hal>;
    /// Interrupts that the device raised since it was opened.
    fn interrupts(hal: &Self::Hal) -> u64;
    /// Why the application's memory cannot be registered here, if it cannot.
    fn no_user_memory(&self) -> Option<&'static str>;
    /// Bytes of DMA memory that are allocated now.
    fn memory_used(hal: &Self::Hal) -> u64;
    /// A description of an open end.
    fn describe(hal: &Self::Hal) -> String;
}
