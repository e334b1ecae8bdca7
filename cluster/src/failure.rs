//! The outcome of a run.

use bareverbs_prm::time::Time;
use bareverbs_sim::run::Stalled;
use core::fmt;

/// A successful run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Virtual time at the end.
    pub at: Time,
    /// Number of simulated events.
    pub steps: u64,
    /// Digest of every frame on every link. The same seed gives the same digest.
    pub digest: u64,
}

/// The error that ended the last round of a host in [`Station::serve`](crate::Station::serve) or
/// [`Station::keep`](crate::Station::keep). A broken connection ends a round with an error, and the round then starts
/// again, so this error fails nothing by itself; but a bug in the round is visible only here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRound {
    /// The host.
    pub host: usize,
    /// Topic of the connection.
    pub topic: String,
    /// Virtual time of the error.
    pub at: Time,
    /// The error's text.
    pub error: String,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// The cause.
    pub cause: FailureCause,
    /// Virtual time of the failure.
    pub at: Time,
    /// Seed of the cluster.
    pub seed: u64,
    /// The last failed round of each host that had one.
    pub rounds: Vec<EndedRound>,
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FailureCause {
    /// An invariant was violated.
    Invariant {
        /// Name of the invariant.
        name: String,
        /// Its error message.
        text: String,
    },
    /// A task returned an error.
    Task {
        /// Its host.
        host: usize,
        /// The error.
        error: String,
    },
    /// Required tasks were still running at the limit.
    Unfinished {
        /// Hosts with unfinished tasks.
        hosts: Vec<usize>,
        /// Report on the state of the nodes.
        world: Box<Stalled>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, at, seed, rounds } = self;
        // In the unit of faults, so that their times can be compared.
        write!(f, "at {} ns (seed {seed}): ", at.as_nanos())?;
        match cause {
            FailureCause::Invariant { name, text } => {
                write!(f, "the invariant '{name}' does not hold: {text}")
            }
            FailureCause::Task { host, error } => {
                write!(f, "a task of host {host} ended with an error: {error}")
            }
            FailureCause::Unfinished { hosts, world } => {
                write!(
                    f,
                    "the run reached its time limit, and tasks of hosts {hosts:?} have not ended; {world}"
                )
            }
        }?;
        rounds.iter().try_for_each(|round| write!(f, "\n{round}"))
    }
}

impl fmt::Display for EndedRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, topic, at, error } = self;
        write!(f, "host {host}: its last round of '{topic}' ended at {} ns: {error}", at.as_nanos())
    }
}

impl core::error::Error for Failure {}
