//! Report of a wait for something that will not happen.

use crate::net::UnfiredFault;
use bareverbs_prm::time::Time;
use core::fmt;

/// Why a wait ended before its condition came true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallReason {
    /// No event is left: a deadlock.
    Idle,
    /// The deadline passed.
    Deadline,
}

/// State of a node at a stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Whether its device has frames to send.
    pub has_transmit: bool,
    /// Whether it has a cable.
    pub connected: bool,
    /// Its next timer.
    pub timer: Option<Time>,
    /// Interrupts that nobody took.
    pub interrupts: u64,
}

/// A wait that ended before its condition came true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalled {
    /// The reason.
    pub reason: StallReason,
    /// Virtual time.
    pub at: Time,
    /// Seed of the world, for a replay.
    pub seed: u64,
    /// Events still scheduled.
    pub events: usize,
    /// Frames in flight.
    pub frames: usize,
    /// State of the nodes.
    pub nodes: Vec<NodeReport>,
    /// Scripted faults that have not fired.
    pub faults: Vec<UnfiredFault>,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, at, seed, events, frames, .. } = self;
        match reason {
            StallReason::Idle => {
                write!(f, "deadlock at {at} (seed {seed}): something waits, and no further event will come")?
            }
            StallReason::Deadline => write!(f, "deadline reached at {at} (seed {seed})")?,
        }
        write!(f, "; {events} events, {frames} frames under way")?;
        for node in &self.nodes {
            write!(f, "\n  {node}")?;
        }
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Stalled {}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sends = if self.has_transmit { "has frames to send" } else { "has nothing to send" };
        write!(f, "node {}: {sends}", self.name)?;
        match self.timer {
            Some(at) => write!(f, ", timer at {at}")?,
            None => f.write_str(", no timer")?,
        }
        if self.interrupts > 0 {
            write!(f, ", {} interrupts not taken", self.interrupts)?;
        }
        if !self.connected {
            f.write_str(", no cable")?;
        }
        Ok(())
    }
}
