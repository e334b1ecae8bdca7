//! # bareverbs-serve: the simulated NIC in real time
//!
//! **What this is.** The runners of [`bareverbs_sim`] that need a clock, threads or sockets. [`real_time`] runs one
//! device on a wire that leaves the process; [`fabric`] connects several devices by switches; [`vfio_user`] serves a
//! device to a virtual machine as a PCI function; [`network`] is where the processes of `bareverbs run` find each
//! other.
//!
//! **What it may not do.** It contains no `unsafe` and no device model: `bareverbs-sim` decides how a NIC behaves. A
//! failing peer, client or wire ends its own connection and nothing else.
//!
//! **Where to read first.** [`real_time::RealTime`], [`vfio_user::Server`].
#![forbid(unsafe_code)]

pub mod fabric;
mod listening;
pub mod network;
pub mod real_time;
pub mod vfio_user;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
