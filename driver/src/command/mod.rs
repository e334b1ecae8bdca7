//! The command interface: a queue of 32 entries in host memory, mailboxes behind them, a doorbell bit each.
//!
//! [`queue`] is sans-IO: it submits and looks, and never waits. [`execute`] is the blocking shell around it; the
//! only waiting point is [`Hal::relax`](crate::hal::Hal::relax), and every wait has a deadline. Completion is always
//! polled: a command event queue is never created.

mod entry;
mod error;
pub mod execute;
mod mailbox;
pub mod queue;
mod signature;

pub use entry::{Request, Tail, WordList};
pub use error::{CommandError, CommandFailure, HealthReport};
pub use queue::{CommandQueue, CommandQueueConfig, Ticket};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A structure of the PRM that is sent or received whole.
pub trait Message: FromBytes + IntoBytes + Immutable {}
impl<T: FromBytes + IntoBytes + Immutable> Message for T {}
