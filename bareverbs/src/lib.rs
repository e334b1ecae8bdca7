#![doc = include_str!("../README.md")]
//!
//! # Where to read first
//!
//! **What this is.** Names only: everything in [`bareverbs_core`] at the root, the device's vocabulary in [`prm`], and
//! one module per feature for each environment that a driver can run in.
//!
//! **What it may not do.** It adds no behaviour, and without features it needs no operating system.
#![no_std]
#![forbid(unsafe_code)]

pub mod prelude;

pub use bareverbs_core::*;
pub use bareverbs_prm as prm;

#[cfg(feature = "cluster")]
pub use bareverbs_cluster as cluster;
#[cfg(feature = "exchange")]
pub use bareverbs_exchange as exchange;
#[cfg(feature = "futures")]
pub use bareverbs_futures as futures;
#[cfg(all(target_os = "linux", feature = "uverbs"))]
pub use bareverbs_hal::uverbs;
#[cfg(all(target_os = "linux", feature = "vfio"))]
pub use bareverbs_hal::vfio;
#[cfg(all(target_os = "linux", feature = "vfio-user"))]
pub use bareverbs_hal::vfio_user;
#[cfg(all(target_os = "linux", any(feature = "uverbs", feature = "vfio", feature = "vfio-user")))]
pub use bareverbs_hal::{memory, pci};
#[cfg(feature = "cluster")]
pub use bareverbs_macros::test;
/// The example of `bareverbs-macros`, compiled here because that crate does not depend on this one.
#[cfg(all(doctest, feature = "cluster"))]
#[doc = include_str!("../macros.md")]
const EXAMPLE_OF_THE_ATTRIBUTE: () = ();
#[cfg(feature = "offload")]
pub use bareverbs_offload as offload;
#[cfg(feature = "offload-native")]
pub use bareverbs_offload_native as offload_native;

/// Simulated hosts inside the program's own process, in virtual time.
#[cfg(feature = "sim")]
pub mod sim {
    pub use bareverbs_hal_sim::*;
    pub use bareverbs_sim::net::LinkConfig;
    pub use bareverbs_sim::nic::{LinkLayer, Nic, NicConfig};
    pub use bareverbs_sim::run::{Latency, LinkId, NodeId, Preset, StallReason, SwitchId};
    pub use bareverbs_sim::{net, nic, run};
}

/// Simulated NICs in real time, one per thread: a [`RealTimeHal`](real_time::RealTimeHal) at a port of a
/// [`Fabric`](real_time::Fabric), or on a wire to another process.
#[cfg(feature = "real-time")]
pub mod real_time {
    pub use bareverbs_hal_sim::real_time::{RealTimeHal, RealTimeMmio};
    pub use bareverbs_serve::fabric::{Fabric, FabricPort, Waker};
    pub use bareverbs_serve::real_time::{FrameIo, RealTime, TapIo, UdpIo, UnixDatagramIo};
}
