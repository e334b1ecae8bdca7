//! What a queue pair wants done after it handled an input.

use bareverbs_prm::time::Time;

/// What a queue pair wants of the device after an input. The router hands it to the scheduler.
#[must_use = "a queue pair whose effects are dropped never gets its turn, nor its timeout"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    /// The queue pair wants a turn at the port.
    pub(crate) frames_wanted: bool,
    /// When to call [`on_timeout`](super::QueuePair::on_timeout), if ever.
    pub(crate) alarm: Option<Time>,
    /// A packet went to the RPC engine, which may have replies by now.
    pub(crate) rpc_delivered: bool,
}

impl Effects {
    /// Nothing is wanted.
    pub(crate) const NONE: Self = Self { frames_wanted: false, alarm: None, rpc_delivered: false };

    /// A turn at the port, and nothing else.
    pub(crate) const TURN: Self = Self { frames_wanted: true, ..Self::NONE };
}

/// The earlier of two deadlines, of which there may be none.
#[inline]
pub(crate) fn earlier(first: Option<Time>, second: Option<Time>) -> Option<Time> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (one, other) => one.or(other),
    }
}
