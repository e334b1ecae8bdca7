//! Structures that a command sends or receives as a whole.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A structure of the PRM that is sent or received as a whole.
pub trait Message: FromBytes + IntoBytes + Immutable {}
impl<T: FromBytes + IntoBytes + Immutable> Message for T {}
