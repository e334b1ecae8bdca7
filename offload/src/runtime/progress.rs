//! A runtime's progress, for writers that wait until nobody reads what they replaced.

/// Invocations are numbered in the order in which they begin.
///
/// ```
/// use bareverbs_offload::runtime::ReaderProgress;
///
/// // Nine invocations have begun; the one with number 7 still reads.
/// let progress = ReaderProgress { begun: 9, oldest: 7 };
/// assert!(progress.oldest < progress.begun);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaderProgress {
    /// How many have begun.
    pub begun: u64,
    /// The number of the oldest one still running; `begun` if there is none.
    pub oldest: u64,
}
