//! # bareverbs-cluster: a cluster under test
//!
//! **What this is.** A [`SimCluster`] is a set of simulated hosts on switches. Each host runs tasks, which are futures
//! over its own driver instance; [`Host`] is a task's view of its host. The test schedules what happens to the hosts:
//! crashes, pauses, partitions, loss. Invariants are checked after every event. [`explore`] runs a test over many
//! seeds; a failing [`Trial`] is shrunk and can be replayed from one line.
//!
//! **What it may not do.** It uses no thread, clock or randomness but the world's, so a trial always gives the same
//! digest. A cluster and its tasks belong to one thread.
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
