//! The checked options of how a test runs beside its load.

use super::payload::Payload;
use bareverbs_prm::time::Duration;

/// The checked options of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunControl {
    /// How long an end rests before a message of a test of latency.
    pub(crate) gap: Duration,
    /// The end that listens is the client of the traffic.
    pub(crate) reversed: bool,
    /// A memory region for each queue pair.
    pub(crate) region_each: bool,
    /// Messages that do not count come first.
    pub(crate) warms_up: bool,
    /// How long queue pairs stay when the test is over.
    pub(crate) keep: std::time::Duration,
    /// Receives of a doorbell.
    pub(crate) receive_list: u32,
    /// By which events come.
    pub(crate) vector: u16,
    /// Whether it is measured how busy the processors are.
    pub(crate) processor_use: bool,
    /// What is sent, if the ends have agreed on that.
    pub(crate) payload: Option<Payload>,
}

impl Default for RunControl {
    /// As a run is without options.
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
