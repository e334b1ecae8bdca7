//! Runners: the world in virtual time.
//!
//! **What this is.** One thread that does what is due and then jumps to the earliest next event. Nodes hold a device and
//! the memory of its host; links and switches join them. All delay is charged here: devices know none.
//!
//! **What it may not do.** It reads no clock and draws no randomness but from the seed it was given. Same seed and same
//! calls, same event digest. The exceptions are [`real_time`], for one device
//! among programs of other people, [`fabric`], which joins several of them, and [`vfio_user`], which puts them into virtual
//! machines.

mod build;
pub mod device;
pub mod digest;
pub mod fabric;
pub mod latency;
pub mod node;
pub mod preset;
pub mod real_time;
pub mod report;
pub mod schedule;
pub mod seed;
pub mod topology;
mod traffic;
pub mod vfio_user;
pub mod world;

pub use device::Device;
pub use latency::{KernelCost, Latency};

pub use preset::Preset;
pub use report::{StallReason, Stalled};
pub use seed::Seed;
pub use topology::{LinkId, NodeId, Port, SwitchId, TopologyError};
pub use world::{Step, World};

#[cfg(test)]
mod tests;
