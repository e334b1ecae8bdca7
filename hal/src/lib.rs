//! # bareverbs-hal: places a bareverbs driver can live in
//!
//! **What this is.** Backends of [`bareverbs::hal::Hal`]. [`sim`] is a simulated mlx5 device in the same process in virtual
//! time, [`real_time`] one in real time on a wire that leads outside. This crate is where driver and simulator meet; neither
//! knows the other.
//!
//! **What it may not do.** No `unsafe` outside `sim/memory.rs`, the one place that holds raw memory, but for the one method
//! of the `Hal` that is unsafe to call and hands its contract on. No clock and no randomness but those of the world; only
//! `real_time` follows the clock of the machine.
//!
//! **Where to read first.** [`sim::SimWorld`].
#![deny(unsafe_code)]

pub mod real_time;
pub mod sim;
