//! From what trials are drawn.

use crate::fault::FaultKind;
use bareverbs_prm::time::Duration;

/// From what the trials of a test are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Exploration {
    /// How many seeds, from 0. The variable `BAREVERBS_SEEDS` of the environment says otherwise.
    pub seeds: u64,
    /// The fewest and the most hosts.
    pub hosts: (usize, usize),
    /// The fewest and the most operations.
    pub operations: (u32, u32),
    /// The most faults.
    pub faults: usize,
    /// When the last fault begins, at the latest; it lasts half as long at most.
    pub span: Duration,
    /// Kinds of faults. Partners of partitions and rates of loss are drawn; a clock is wrong by at most the rate that is given.
    pub kinds: &'static [FaultKind],
}

impl Exploration {
    /// The defaults, as a constant: 100 seeds, 3 to 5 hosts, up to 20 operations, and up to 4 crashes, pauses, cuts, partitions and lossy
    /// cables that begin in the first 2 ms.
    pub const DEFAULT: Self = Self {
        seeds: 100,
        hosts: (3, 5),
        operations: (1, 20),
        faults: 4,
        span: Duration::from_millis(2),
        kinds: &[
            FaultKind::Crash,
            FaultKind::Pause,
            FaultKind::Cut,
            FaultKind::Partition { with: 0 },
            FaultKind::Loss { per_mille: 0 },
        ],
    };
}

impl Default for Exploration {
    fn default() -> Self {
        Self::DEFAULT
    }
}
