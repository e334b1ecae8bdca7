//! The topology of an InfiniBand subnet, and its text form, which `ibnetdiscover` prints and `ibsim` reads.
//!
//! **What this is.** [`SubnetTopology`] is a value: what an SM has discovered
//! ([`Switch::topology`](crate::net::Switch::topology)) or a file describes ([`SubnetTopology::parse`]).
//! [`World::add_topology`](crate::run::World::add_topology) builds it. Its `Display` is the text form.
//!
//! **What it may not do.** Input is not trusted: whatever is contradictory or too large is an error that names the
//! line. The chassis grouping of `ibnetdiscover -g` is skipped. **Where to read first.** `reader`.

mod error;
mod model;
mod reader;
mod speed;
mod writer;

pub use error::{TopologyFileError, TopologyProblem};
pub use model::{CableEnd, NodeKind, SubnetTopology, TopologyLink, TopologyNode};
pub use speed::{LaneSpeed, LinkSpeed};

#[cfg(test)]
mod tests;
