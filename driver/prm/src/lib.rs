//! # bareverbs-prm: the vocabulary of an mlx5 device
//!
//! **What this is.** The layouts, numberings and identifiers on which both sides of the PCIe bus agree:
//! command mailboxes, contexts, work queue entries, completion and event queue entries, doorbells. The driver
//! encodes with these types and the simulated NIC decodes with the very same ones.
//!
//! **What it may not do.** No behaviour, no I/O, no clock, no allocation, no `unsafe`. It is a leaf: it depends on no
//! other crate of this repository.
//!
//! **Where to read first.** [`layout!`](crate::layout) declares a structure in the coordinates of the
//! Programmer's Reference Manual (big-endian dword, high bit, low bit); [`command`] has one module per family of
//! commands; [`wqe`], [`cqe`] and [`eqe`] are the data path; [`numbering`] has opcodes, statuses and syndromes.
//! Every declared field is compared with tables generated from the headers of Linux and rdma-core by the test
//! `prm_oracle` of `bareverbs-tests`.
#![no_std]
#![forbid(unsafe_code)]

pub mod command;
pub mod context;
pub mod cqe;
pub mod doorbell;
pub mod eqe;
pub mod field;
pub mod ids;
pub mod init_segment;
pub mod mutation;
pub mod numbering;
pub mod pci;
pub mod psn;
mod registry;
pub mod time;
pub mod wqe;

pub use registry::LAYOUTS;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
