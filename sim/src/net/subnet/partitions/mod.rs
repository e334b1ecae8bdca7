//! Who is a member of which partition (IBTA v1.4 §10.9): what P_Key tables the ports of a subnet are to have.
//!
//! **What this is.** [`Partitions`] is a value that a manager is given: [`Partitions::of_all`] gives every port the same table, and
//! [`Partitions::parse`] reads a file as OpenSM does.

mod file;
mod model;

pub use file::PartitionFileError;
pub use model::Partitions;
pub(super) use model::{PARTITION_KEYS, PartitionedPort};
