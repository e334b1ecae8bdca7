//! # bareverbs-uapi: structures and numbers of the kernel's RDMA headers
//!
//! **What this is.** The requests and answers of `/dev/infiniband/uverbsN` and `rdma_cm`, under the names that they have in the headers: the
//! vocabulary of both sides, of a program that asks the kernel (`bareverbs-hal`) and of the simulated kernel that answers
//! (`bareverbs-uverbs`).
//!
//! **What it may not do.** It has no behaviour. Every structure describes its field offsets ([`STRUCTURES`]) and every number its value
//! ([`NUMBERS`]); `tests/integration/uapi_oracle.rs` of `bareverbs-uverbs` compares both with the C compiler's view of the headers.
//!
//! ```
//! use bareverbs_uapi::{IoctlHeader, RDMA_DRIVER_MLX5, UVERBS_METHOD_GET_CONTEXT, UVERBS_OBJECT_DEVICE};
//! use zerocopy::FromZeros;
//!
//! let header = IoctlHeader {
//!     length: size_of::<IoctlHeader>() as u16,
//!     object_id: UVERBS_OBJECT_DEVICE,
//!     method_id: UVERBS_METHOD_GET_CONTEXT,
//!     driver_id: RDMA_DRIVER_MLX5,
//!     ..IoctlHeader::new_zeroed()
//! };
//! assert_eq!(header.length, 24);
//! ```
#![forbid(unsafe_code)]
#![no_std]
#![allow(missing_docs, reason = "the names are those of the kernel's headers, which explain them")]

#[macro_use]
mod structure;
#[macro_use]
mod numbers;
mod core_verbs;
mod frame;
mod mlx5;
mod mlx5_objects;
mod objects;
mod rdma_cm;

pub use core_verbs::*;
pub use frame::*;
pub use mlx5::*;
pub use mlx5_objects::*;
pub use numbers::*;
pub use objects::*;
pub use rdma_cm::*;
pub use structure::{FieldPlace, Structure, read_extended};

/// All structures, by header.
pub const STRUCTURES: [&[Structure]; 6] = [
    frame::STRUCTURES,
    core_verbs::STRUCTURES,
    objects::STRUCTURES,
    mlx5::STRUCTURES,
    mlx5_objects::STRUCTURES,
    rdma_cm::STRUCTURES,
];

/// All numbers with their names in the headers.
pub const NUMBERS: [&[(&str, u64)]; 2] = [numbers::LIST, rdma_cm::LIST];

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
