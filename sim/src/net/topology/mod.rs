//! Who is joined to whom in an InfiniBand subnet, and the text in which `ibnetdiscover` prints it and `ibsim` reads it.
//!
//! **What this is.** [`SubnetTopology`] is a value: what a manager has found ([`Switch::topology`](crate::net::Switch::topology)), or what a file says
//! ([`SubnetTopology::parse`]); [`World::add_topology`](crate::run::World::add_topology) builds it. Its `Display` is the text.
//!
//! **What it may not do.** A text is somebody's allegation: whatever contradicts itself, or is too large, is an error that names the line.
//! The grouping of `ibnetdiscover -g` into chassis is passed over. **Where to read first.** `reader`.

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
