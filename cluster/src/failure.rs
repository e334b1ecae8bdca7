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

/// How the last round of a host ended that [`Station::serve`](crate::Station::serve) or [`Station::keep`](crate::Station::keep) ran: with an error,
/// since a connection that breaks is one. Those begin anew, so it fails nothing; a mistake in the round itself is only seen here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRound {
    /// The host.
    pub host: usize,
    /// What the connection was about.
    pub topic: String,
    /// When, in virtual time.
    pub at: Time,
    /// The error.
    pub error: String,
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
    /// The last round of each host that had any.
    pub rounds: Vec<EndedRound>,
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
        let Self { cause, at, seed, rounds } = self;
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
        }?;
        rounds.iter().try_for_each(|round| write!(f, "\n{round}"))
    }
}

impl fmt::Display for EndedRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, topic, at, error } = self;
        write!(f, "host {host}: its last round of '{topic}' ended at {at}: {error}")
    }
}

impl core::error::Error for Failure {}
