//! What a queue pair needs from the device after it handled an input.

use bareverbs_prm::time::Time;

/// What a queue pair needs from the device after an input. The router passes it on to the scheduler.
#[must_use = "a queue pair whose effects are dropped never gets its turn, nor its timeout"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    /// The queue pair wants a turn at the port.
    pub(crate) frames_wanted: bool,
    /// When to call [`on_timeout`](super::QueuePair::on_timeout); `Time::MAX` for never, and `None` if that has not
    /// changed.
    pub(crate) due: Option<Time>,
    /// A packet was passed to the RPC engine, which may now have replies.
    pub(crate) rpc_delivered: bool,
}

impl Effects {
    /// Nothing to do.
    pub(crate) const NONE: Self = Self { frames_wanted: false, due: None, rpc_delivered: false };

    /// A turn at the port and nothing else.
    pub(crate) const TURN: Self = Self { frames_wanted: true, ..Self::NONE };
}

/// The earlier of two optional deadlines.
#[inline]
pub(crate) fn earlier(first: Option<Time>, second: Option<Time>) -> Option<Time> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (one, other) => one.or(other),
    }
}
