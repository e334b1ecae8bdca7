//! Structures that a command sends or receives whole.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A structure of the PRM that is sent or received whole.
pub trait Message: FromBytes + IntoBytes + Immutable {}
impl<T: FromBytes + IntoBytes + Immutable> Message for T {}
