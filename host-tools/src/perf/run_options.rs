//! The checked options of a run that do not concern its load.

use super::payload::Payload;
use bareverbs_prm::time::Duration;

/// The checked options of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunControl {
    /// How long an end pauses before a message of a latency test.
    pub(crate) gap: Duration,
    /// Whether the listening end is the client of the traffic.
    pub(crate) reversed: bool,
    /// Whether each queue pair has its own memory region.
    pub(crate) region_each: bool,
    /// Whether uncounted messages come first.
    pub(crate) warms_up: bool,
    /// How long queue pairs are kept after the test.
    pub(crate) keep: std::time::Duration,
    /// Receives per doorbell.
    pub(crate) receive_list: u32,
    /// Interrupt vector of events.
    pub(crate) vector: u16,
    /// Whether to measure how busy the processors are.
    pub(crate) processor_use: bool,
    /// The data to send, if the ends have agreed on some.
    pub(crate) payload: Option<Payload>,
}

impl Default for RunControl {
    /// A run without options.
    fn default() -> Self {
        Self {
            gap: Duration::ZERO,
            reversed: false,
            region_each: false,
            warms_up: false,
            keep: std::time::Duration::ZERO,
            receive_list: 1,
            vector: 0,
            processor_use: false,
            payload: None,
        }
    }
}
