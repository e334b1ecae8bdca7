//! What a place has to offer, so that the list of conversations runs there.

use anyhow::Result;
use bareverbs_core::hal::Hal;

/// Somewhere two devices can be had that are joined by a wire.
pub trait Place {
    /// The bus of one of them.
    type Hal: Hal;
    /// Opens end 0 or 1. It is asked again after an end was closed.
    fn open(&mut self, end: usize) -> Result<Self::Hal>;
    /// Interrupts that the device raised since it was opened.
    fn interrupts(hal: &Self::Hal) -> u64;
    /// Why memory of the application cannot be registered here, if it cannot.
    fn no_user_memory(&self) -> Option<&'static str>;
    /// Bytes of DMA memory that are handed out now.
    fn memory_used(hal: &Self::Hal) -> u64;
    /// What is worth knowing of an end that is open.
    fn describe(hal: &Self::Hal) -> String;
}
