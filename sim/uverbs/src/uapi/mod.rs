//! Structures and numbers of the kernel's RDMA headers, under the names that they have there.
//!
//! Every structure says where its fields lie ([`STRUCTURES`]) and every number what it is ([`NUMBERS`]);
//! `tests/uapi_oracle.rs` compares both with what the C compiler makes of the headers.
#![allow(missing_docs, reason = "the names are those of the kernel's headers, which explain them")]

#[macro_use]
mod structure;
mod core_verbs;
mod frame;
mod mlx5;
mod mlx5_objects;
mod numbers;
mod objects;

pub use core_verbs::*;
pub use frame::*;
pub use mlx5::*;
pub use mlx5_objects::*;
pub use numbers::*;
pub use objects::*;
pub(crate) use structure::read_extended;
pub use structure::{FieldPlace, Structure};

/// Everything that this crate knows of the headers, file by file.
pub const STRUCTURES: [&[Structure]; 5] = [
    frame::STRUCTURES,
    core_verbs::STRUCTURES,
    objects::STRUCTURES,
    mlx5::STRUCTURES,
    mlx5_objects::STRUCTURES,
];
