//! The simulator as a place to live: in process, one thread, virtual time.
//!
//! A [`SimWorld`] is a shared handle to a [`World`](bareverbs_sim::run::World); a [`SimHal`] is what the driver of one node
//! gets. Registers are calls, DMA memory is boxed bytes, [`relax`](bareverbs::hal::Hal::relax) runs the next events.
//! The world is never borrowed while code of a user runs.

mod arena;
mod dma_engine;
mod hal;
#[allow(unsafe_code, reason = "raw memory that driver and device share lives here and nowhere else")]
mod memory;
mod views;
mod world;

pub use arena::{MemoryConfig, MemoryCounters, POISON, STALE};
pub use dma_engine::{DmaCompletion, DmaEngine, MAX_OUTSTANDING_READS, MAX_READ, SubmitError};
pub use hal::{SimHal, SimMmio};
pub use memory::{SimDma, SimMemory};
pub use world::SimWorld;

#[cfg(test)]
mod tests;
