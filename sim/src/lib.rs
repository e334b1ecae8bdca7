//! # bareverbs-sim: a simulated mlx5 NIC, its transport and its network
//!
//! **What this is.** A model of an mlx5 device that checks what hardware checks and refuses what hardware refuses; a
//! RoCEv2 reliable transport; links, a switch, faults and captures; and a world that runs them in virtual time.
//!
//! **What it may not do.** No `unsafe`. No clock, no socket, no thread, no randomness of its own: time is an argument,
//! inputs are `handle_*`, outputs are `poll_*`. It never imports the driver. Every time it reports is simulated.
//!
//! **Where to read first.** [`nic::Nic`] for the device, [`transport`] for the protocol, [`run::World`] for the loop.
#![forbid(unsafe_code)]

pub mod net;
pub mod nic;
pub mod run;
pub mod transport;
pub mod wire;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
