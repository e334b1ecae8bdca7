//! # bareverbs-futures: work requests that can be awaited
//!
//! **What this is.** A [`Dispatcher`] polls one completion queue and hands each completion to the future that waits for
//! it. A [`QueuePair`] posts work requests: [`send`](QueuePair::send), [`write`](QueuePair::write),
//! [`read`](QueuePair::read), atomics and [`receive`](QueuePair::receive) are futures. Memory comes from a
//! [`BufferPool`]. The driver below needs no allocator, but this crate does; a program that polls by itself needs
//! neither.
//!
//! **What it may not do.** It depends on no runtime, thread or clock; an [`InterruptSource`] tells it when to poll. It
//! forbids unsafe.
//!
//! **Where to read first.** [`Dispatcher`], then `operations`, the table that makes dropping a future safe.
#![forbid(unsafe_code)]

mod buffer;
mod dispatcher;
mod error;
mod lock;
mod operation;
mod operations;
mod queue_pair;
mod registration;

pub use buffer::{Buffer, BufferPool, PoolError, Take};
pub use dispatcher::{Dispatcher, DispatcherConfig, DispatcherError, InterruptSource, RunError};
pub use error::{Broken, Completed, Failed, OperationError};
pub use operation::{Operation, Receive};
pub use queue_pair::{PreparedQueuePair, QueuePair};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
