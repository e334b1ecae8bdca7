//! The ranges that trials are drawn from.

use crate::fault::FaultKind;
use bareverbs_prm::time::Duration;

/// The ranges that a test's trials are drawn from.
///
/// ```
/// use bareverbs_cluster::{Exploration, FaultKind};
///
/// // Always three hosts; crashes only.
/// let limits = Exploration { hosts: (3, 3), kinds: &[FaultKind::Crash], ..Exploration::default() };
/// assert_eq!(limits.seeds, 100);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Exploration {
    /// Number of seeds, from 0. The environment variable `BAREVERBS_SEEDS` overrides it.
    pub seeds: u64,
    /// Fewest and most hosts.
    pub hosts: (usize, usize),
    /// Fewest and most operations.
    pub operations: (u32, u32),
    /// Most faults.
    pub faults: usize,
    /// Latest start of a fault. A fault lasts at most half as long.
    pub span: Duration,
    /// Kinds of faults. Partners of partitions and loss rates are drawn; for a clock the given rate is the maximum.
    pub kinds: &'static [FaultKind],
}

impl Exploration {
    /// The defaults: 100 seeds, 3 to 5 hosts, up to 20 operations, and up to 4 faults (crashes, pauses, cuts,
    /// partitions, lossy cables) that start within the first 2 ms.
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
