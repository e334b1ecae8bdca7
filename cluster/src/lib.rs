//! # bareverbs-cluster: a cluster under test
//!
//! **What this is.** A [`SimCluster`] is any number of simulated hosts on switches. Each runs tasks, which are futures over its own
//! driver; [`Host`] is what a task knows of its host. The test outside schedules what happens to them: crashes, pauses, partitions, loss.
//! Invariants are checked after every event. [`explore`] runs a test over many seeds; a [`Trial`] that fails shrinks and is
//! replayed from one line.
//!
//! **What it may not do.** No thread, clock or randomness but the world's: the same trial gives the same digest. A cluster and its tasks
//! belong to one thread.
//!
//! **Where to read first.** [`SimCluster`].
#![forbid(unsafe_code)]

mod clock;
mod cluster;
mod control;
mod executor;
mod explore;
mod failure;
mod fault;
mod host;
mod limits;
mod meeting;
mod state;
mod station;
mod trial;

pub use cluster::{ClusterConfig, SimCluster};
pub use control::Capture;
pub use explore::{TestResult, explore, find_failure};
pub use failure::{EndedRound, Failure, FailureCause, Report};
pub use fault::{Fault, FaultKind};
pub use host::{Disk, Handle, Host, HostInterrupt, Sleep, TaskResult};
pub use limits::Exploration;
pub use station::{Peer, Station};
pub use trial::{ParseTrialError, Trial};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
