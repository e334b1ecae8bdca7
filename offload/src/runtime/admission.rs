//! What happens to a request that arrives.

use super::traffic::Reply;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refusal may hold a reply that is to be sent"]
pub enum Admission {
    /// It runs; a reply will come.
    Accepted,
    /// It does not run; send this reply.
    Refused(Reply),
    /// It does not run and has no address for a reply; it was counted.
    Dropped(DropReason),
}

/// Why a request got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// It is too short or its format is unknown, so its reply address is unknown too.
    Unintelligible,
    /// Its response slot lies outside the window that the connection registered.
    ReplyWindow,
    /// There is no such connection.
    NoConnection,
}

/// Counters of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests accepted.
    pub accepted: u64,
    /// Requests refused with a reply.
    pub refused: u64,
    /// Requests that could not be answered.
    pub dropped: u64,
    /// DMA completions that no invocation awaited any more.
    pub stale_completions: u64,
    /// DMA requests emitted.
    pub dma_requests: u64,
    /// Requests that their client withdrew, running or not.
    pub withdrawn: u64,
}
