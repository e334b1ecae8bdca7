//! The command interface: a queue of up to 32 entries in host memory, mailboxes for longer commands, one doorbell bit
//! per entry.
//!
//! This module is sans-IO: it submits and polls, and never waits; the executor waits. The driver always polls
//! for responses and never requests command completion events.

pub(crate) mod entry;
mod error;
mod mailbox;
mod message;
mod presence;
pub(crate) mod queue;
mod register;
mod signature;

pub use error::{CommandError, CommandFailure, DeviceLoss, HealthReport, InterfaceBusy};

pub(crate) use entry::{Request, Tail, WordList};
pub(crate) use message::Message;
pub(crate) use queue::{CommandQueue, CommandQueueConfig, Lane, Ticket};
pub(crate) use register::{REGISTER_HEADER, RegisterAccess, access_register};
