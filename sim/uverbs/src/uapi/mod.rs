//! Structures and numbers of the kernel's RDMA headers, under the names that they have there.
//!
//! Every structure describes its field offsets ([`STRUCTURES`]) and every number its value ([`NUMBERS`]).
//! `tests/uapi_oracle.rs` compares both with the C compiler's view of the headers.
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
pub(crate) use structure::read_extended;
pub use structure::{FieldPlace, Structure};

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
