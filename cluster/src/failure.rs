//! What a run comes to.

use bareverbs_prm::time::Time;
use bareverbs_sim::run::Stalled;
use core::fmt;

/// A run that ended as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// When, in virtual time.
    pub at: Time,
    /// Events of the world.
    pub steps: u64,
    /// A number that stands for every frame on every link: the same for the same seed.
    pub digest: u64,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub cause: FailureCause,
    /// When, in virtual time.
    pub at: Time,
    /// The seed of the cluster.
    pub seed: u64,
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FailureCause {
    /// An invariant does not hold.
    Invariant {
        /// Its name.
        name: String,
        /// What it says.
        text: String,
    },
    /// A task ended with an error.
    Task {
        /// Its host.
        host: usize,
        /// The error.
        error: String,
    },
    /// The limit of the run came before the required tasks ended.
    Unfinished {
        /// Hosts whose tasks had not ended.
        hosts: Vec<usize>,
        /// What the world says of its nodes.
        world: Box<Stalled>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, at, seed } = self;
        write!(f, "at {at} (seed {seed}): ")?;
        match cause {
            FailureCause::Invariant { name, text } => {
                write!(f, "the invariant '{name}' does not hold: {text}")
            }
            FailureCause::Task { host, error } => {
                write!(f, "a task of host {host} ended with an error: {error}")
            }
            FailureCause::Unfinished { hosts, world } => {
                write!(f, "the limit of the run came, and tasks of hosts {hosts:?} have not ended; {world}")
            }
        }
    }
}

impl core::error::Error for Failure {}
