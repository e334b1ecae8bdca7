//! The runner in virtual time: the world.
//!
//! **What this is.** A single-threaded event loop that runs what is due and jumps to the next event. Nodes hold a
//! device and its host's memory; links and switches connect them. All delay is charged here: devices model none.
//!
//! **What it may not do.** It reads no clock, and all randomness comes from its seed. The same seed and the same calls
//! give the same event digest. The crate `bareverbs-serve` has the real-time runners.

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
