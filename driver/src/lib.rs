//! # bareverbs: RDMA verbs for mlx5-class NICs, with nothing in between
//!
//! **What this is.** A driver that brings an mlx5 device up through its command interface, owns its rings, builds work
//! queue entries, rings doorbells and reads completions.
//!
//! **What it may not do.** It knows no operating system: no std, no allocation, no thread, no clock of its own. What it
//! needs of the place it lives in goes through one [`hal::Hal`].
//!
//! **Where to read first.** [`hal`] for the contract with the place.
#![no_std]

pub mod barrier;
pub mod hal;
