//! # bareverbs-hal-sim: the simulator as a place to live
//!
//! **What this is.** The backend of [`bareverbs_core::hal::Hal`] for a simulated host in the driver's own process. A
//! [`SimWorld`] is a shared handle to a [`World`](bareverbs_sim::run::World) in virtual time; a [`SimHal`] is what the driver
//! of one node gets. Registers are calls, DMA memory is boxed bytes, [`relax`](bareverbs_core::hal::Hal::relax) runs the next
//! events. With the feature `real-time` there is also one device on a wire that leads outside. Driver and simulator meet here;
//! neither knows the other.
//!
//! **What it may not do.** No `unsafe` but in `block`, in `memory` and in the one method of the `Hal` that is unsafe to call and hands its
//! contract on. No clock and no randomness but those of the world, and no call of an operating system. The world is never
//! borrowed while code of a user runs.
//!
//! **Where to read first.** [`SimWorld`].
#![deny(unsafe_code)]

mod arena;
#[allow(
    unsafe_code,
    reason = "raw memory that driver and device share lives here and in `memory`, and nowhere else"
)]
mod block;
mod hal;
#[allow(unsafe_code, reason = "hands out the pointers of blocks and vouches for how long they are valid")]
mod memory;
mod page_table;
#[cfg(feature = "real-time")]
pub mod real_time;
mod registers;
mod views;
mod world;

pub use arena::{MemoryConfig, MemoryCounters, POISON};
pub use hal::{SimHal, SimMmio};
pub use memory::{SimDma, SimMemory};
pub use views::STALE;
pub use world::SimWorld;

#[cfg(test)]
mod tests;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
