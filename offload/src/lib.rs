//! # bareverbs-offload: kernels that run near the memory they read
//!
//! **What this is.** Small state machines, *kernels*, that walk remote data structures where a hop costs a PCIe read
//! and not a network round trip; the [`runtime`] that feeds them, bounds them and sends their answers; the wire format
//! of requests and replies; kernels that a stream passes through; a hash table that can change and grow while it is
//! read, and the client that looks keys up in it.
//!
//! **What it may not do.** No allocation, no clock, no socket, no `unsafe`. A pointer found in memory is untrusted:
//! only [`grant::Grant::check`] turns it into something that can be read.
//!
//! **Where to read first.** [`kernel`] for the contract, [`runtime`] for who calls whom, [`kernels::kv_lookup`] for the
//! kernel that matters, [`wire`] for the bytes.
//!
//! ```text
//! client ── wire ──> dpu / NIC model ──> runtime ──> kernel
//!   └───────────── table <── writer         └── grant ──> DMA
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod budget;
pub mod card;
pub mod client;
pub mod cost;
pub mod dpu;
pub mod endpoint;
pub mod grant;
pub mod host_dma;
pub mod kernel;
pub mod kernels;
pub mod local;
pub mod own_memory;
pub mod program;
pub mod runtime;
pub mod status;
pub mod streams;
pub mod table;
pub mod verbs;
pub mod wire;

#[cfg(test)]
mod deployment_tests;
#[cfg(test)]
mod loopback_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tenant_tests;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
