//! The result of a walk.

use core::fmt;
use core::ops::AddAssign;

/// Counts of a walk, or of several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkCounts {
    /// Requests that succeeded.
    pub completed: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that did not arrive: lost without a promise, or with their queue pair.
    pub lost: u64,
    /// Remote keys that were opened.
    pub opened: u64,
    /// Send queues that drained.
    pub drained: u64,
    /// Changes of attributes in RTS and in SQD.
    pub changed: u64,
    /// Send queues that failed alone (SQE) and recovered.
    pub recovered: u64,
    /// Lanes that failed, were flushed and connected again.
    pub killed: u64,
    /// Lanes that were reset at once and connected again.
    pub reset: u64,
    /// Frames that the cable lost.
    pub frames_lost: u64,
    /// The event digest of the world, or the combined digest of several walks.
    pub digest: u64,
}

impl AddAssign for WalkCounts {
    fn add_assign(&mut self, other: Self) {
        self.completed += other.completed;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.opened += other.opened;
        self.drained += other.drained;
        self.changed += other.changed;
        self.recovered += other.recovered;
        self.killed += other.killed;
        self.reset += other.reset;
        self.frames_lost += other.frames_lost;
        self.digest = self.digest.rotate_left(1) ^ other.digest;
    }
}

impl fmt::Display for WalkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completed, delivered, lost, opened, frames_lost, digest, .. } = self;
        write!(f, "{completed} requests succeeded, {delivered} messages arrived, {lost} did not; ")?;
        write!(f, "{} remote keys opened, {} drains, {} changes, ", opened, self.drained, self.changed)?;
        write!(f, "{} recoveries, {} failures, {} resets; ", self.recovered, self.killed, self.reset)?;
        write!(f, "{frames_lost} frames lost; digest {digest:#018x}")
    }
}
