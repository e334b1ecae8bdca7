//! # bareverbs-hal-sim: the HAL for simulated devices
//!
//! **What this is.** The [`bareverbs_core::hal::Hal`] of a simulated host in the driver's own process. A [`SimWorld`]
//! is a shared handle to a [`World`](bareverbs_sim::run::World) in virtual time; a [`SimHal`] is the HAL of one node.
//! Register accesses are function calls, DMA memory is heap memory, and [`relax`](bareverbs_core::hal::Hal::relax) runs
//! the next events. The feature `real-time` adds a HAL for one device in real time, whose wire leaves the process.
//! Driver and simulator meet here and do not depend on each other.
//!
//! **What it may not do.** `unsafe` is limited to `block`, `memory`, and the one unsafe method of `Hal`, which passes
//! its contract on. It uses no clock and no randomness but the world's, and makes no system call. It never holds a
//! borrow of the world while a user's code runs.
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
