//! Partitions and their members (IBTA v1.4 §10.9): the P_Key tables for the ports of a subnet.
//!
//! **What this is.** [`Partitions`] is a configuration value of the SM: [`Partitions::of_all`] gives every port the
//! same P_Keys, and [`Partitions::parse`] reads a file in OpenSM's format.

mod file;
mod model;

pub use file::PartitionFileError;
pub use model::Partitions;
pub(super) use model::{PARTITION_KEYS, PartitionedPort};
