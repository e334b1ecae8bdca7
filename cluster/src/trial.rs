//! A trial: everything that one seed stands for, as a value that can be shrunk, printed and parsed.

use crate::cluster::SimCluster;
use crate::fault::{Fault, FaultKind};
use crate::limits::Exploration;
use bareverbs_prm::time::Duration;
use bareverbs_sim::run::Seed;
use core::fmt;
use core::str::FromStr;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

/// Parameters of one run of a test, drawn from a seed and possibly shrunk.
///
/// ```
/// use bareverbs_cluster::{Exploration, SimCluster, Trial};
///
/// let drawn = Trial::of_seed(6, &Exploration::DEFAULT);
/// assert_eq!(drawn.to_string().parse(), Ok(drawn), "the line of a report replays the trial");
///
/// let trial: Trial = "seed=6 hosts=3 operations=4 crash:1@120000ns+2000000ns".parse().unwrap();
/// let cluster = SimCluster::of(&trial);
/// assert_eq!((cluster.hosts(), trial.faults.len()), (3, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Seed of the cluster. All remaining random choices follow from it.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: usize,
    /// Amount of work; the test chooses the unit.
    pub operations: u32,
    /// Faults during the run.
    pub faults: Vec<Fault>,
}

/// A line that is not a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseTrialError {
    /// The word that was not understood, or the name of the missing one.
    pub word: String,
}

impl fmt::Display for ParseTrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.word;
        write!(
            f,
            "reading a trial: '{word}' is not understood or missing; a trial looks like \
             'seed=6 hosts=3 operations=4 crash:1@120000ns+2000000ns'"
        )
    }
}

impl core::error::Error for ParseTrialError {}

impl Trial {
    /// Draws the trial of a seed.
    pub fn of_seed(seed: u64, limits: &Exploration) -> Self {
        let mut chance = Seed(seed).stream("trial");
        let hosts = draw(&mut chance, limits.hosts.0 as u64, limits.hosts.1 as u64) as usize;
        let operations = draw(&mut chance, limits.operations.0.into(), limits.operations.1.into()) as u32;
        let count = draw(&mut chance, 0, limits.faults as u64);
        let faults = (0..count).map(|_| draw_fault(&mut chance, hosts, limits)).collect();
        Self { seed, hosts, operations, faults }
    }

    /// Slightly smaller trials, the biggest step first.
    pub(crate) fn smaller(&self, limits: &Exploration) -> Vec<Self> {
        let mut smaller = Vec::new();
        if self.hosts > limits.hosts.0 {
            let hosts = self.hosts - 1;
            let faults = self.faults.iter().filter(|fault| !fault.is_beyond(hosts)).copied().collect();
            smaller.push(Self { hosts, faults, ..self.clone() });
        }
        for operations in [self.operations / 2, self.operations.saturating_sub(1)] {
            if operations >= limits.operations.0 && operations < self.operations {
                smaller.push(Self { operations, ..self.clone() });
            }
        }
        for skip in 0..self.faults.len() {
            let mut faults = self.faults.clone();
            faults.remove(skip);
            smaller.push(Self { faults, ..self.clone() });
        }
        smaller
    }
}

impl SimCluster {
    /// Builds the cluster of a trial: its seed, its hosts, and its faults, which start counting now.
    ///
    /// # Panics
    /// Like [`Self::new`].
    pub fn of(trial: &Trial) -> Self {
        let cluster = Self::new(trial.seed, trial.hosts);
        cluster.inject(&trial.faults);
        cluster
    }
}

fn draw(chance: &mut ChaCha8Rng, least: u64, most: u64) -> u64 {
    let span = most.saturating_sub(least).saturating_add(1);
    least + ((u128::from(chance.next_u64()) * u128::from(span)) >> 64) as u64
}

fn draw_fault(chance: &mut ChaCha8Rng, hosts: usize, limits: &Exploration) -> Fault {
    let host = draw(chance, 0, hosts as u64 - 1) as usize;
    let other = (host + 1 + draw(chance, 0, (hosts as u64).saturating_sub(2)) as usize) % hosts;
    let span = limits.span.as_nanos();
    let after = Duration::from_nanos(draw(chance, 0, span));
    let lasts = Duration::from_nanos(draw(chance, 1000, span / 2));
    let kind = match limits.kinds.get(draw(chance, 0, (limits.kinds.len() as u64).saturating_sub(1)) as usize)
    {
        Some(FaultKind::Partition { .. }) => FaultKind::Partition { with: other },
        Some(FaultKind::Loss { .. }) => FaultKind::Loss { per_mille: draw(chance, 1, 60) as u16 },
        Some(FaultKind::Skew { ppm }) => {
            FaultKind::Skew { ppm: draw(chance, 0, 2 * ppm.unsigned_abs()) as i64 - ppm.abs() }
        }
        Some(kind) => *kind,
        None => FaultKind::Cut,
    };
    Fault { kind, host, after, lasts }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, hosts, operations, faults } = self;
        write!(f, "seed={seed} hosts={hosts} operations={operations}")?;
        faults.iter().try_for_each(|fault| write!(f, " {fault}"))
    }
}

impl FromStr for Trial {
    type Err = ParseTrialError;

    fn from_str(text: &str) -> Result<Self, ParseTrialError> {
        let (mut seed, mut hosts, mut operations, mut faults) = (None, None, None, Vec::new());
        for word in text.split_whitespace() {
            let wrong = || ParseTrialError { word: word.to_owned() };
            match word.split_once('=') {
                Some(("seed", value)) => seed = Some(value.parse().map_err(|_| wrong())?),
                Some(("hosts", value)) => hosts = Some(value.parse().map_err(|_| wrong())?),
                Some(("operations", value)) => operations = Some(value.parse().map_err(|_| wrong())?),
                Some(_) => return Err(wrong()),
                None => faults.push(word.parse().map_err(|()| wrong())?),
            }
        }
        let missing = |word: &str| ParseTrialError { word: word.to_owned() };
        Ok(Self {
            seed: seed.ok_or_else(|| missing("seed=N"))?,
            hosts: hosts.ok_or_else(|| missing("hosts=N"))?,
            operations: operations.ok_or_else(|| missing("operations=N"))?,
            faults,
        })
    }
}
