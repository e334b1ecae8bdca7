//! # bareverbs-serve: the simulated NIC in real time
//!
//! **What this is.** The runners of [`bareverbs_sim`] that need a clock, a thread or a socket: [`real_time`] runs one device
//! on a wire that leads outside, [`fabric`] joins several of them by switches, [`vfio_user`] serves one to a virtual
//! machine as a PCI function, and [`network`] is where the processes of `bareverbs run` find each other.
//!
//! **What it may not do.** No `unsafe`, and no device model: what a NIC answers is decided in `bareverbs-sim`. A peer, a
//! client or a wire that fails ends its own connection and nothing else.
//!
//! **Where to read first.** [`real_time::RealTime`], [`vfio_user::Server`].
#![forbid(unsafe_code)]

pub mod fabric;
pub mod network;
pub mod real_time;
pub mod vfio_user;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
