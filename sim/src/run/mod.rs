//! Runners: the world in virtual time.
//!
//! **What this is.** One thread that does what is due and then jumps to the earliest next event. Nodes hold a device and
//! the memory of its host; links and switches join them. All delay is charged here: devices know none.
//!
//! **What it may not do.** It reads no clock and draws no randomness but from the seed it was given. Same seed and same
//! calls, same event digest. Runners in real time are the crate `bareverbs-serve`.

mod addresses;
mod build;
mod card;
mod copying;
pub mod device;
pub mod digest;
pub mod dma;
pub mod latency;
pub mod node;
pub mod preset;
mod recording;
mod records;
pub mod report;
pub mod schedule;
pub mod seed;
mod site;
mod switch_node;
mod switching;
mod timer;
pub mod topology;
mod traffic;
pub mod world;

pub use card::CardError;
pub use device::Device;
pub use dma::{DmaClock, DmaCost};
pub use latency::{KernelCost, Latency};

pub use preset::Preset;
pub use records::{RECORDS_SUFFIX, RecordText};
pub use report::{StallReason, Stalled};
pub use seed::Seed;
pub use site::{BuiltTopology, HostPort, TopologyBuild, TopologyBuildError};
pub use topology::{LinkId, NodeId, NodeOrSwitch, SwitchId, TopologyError};
pub use world::{Step, World};

#[cfg(test)]
mod tests;
