//! What ends a monitor before its limit: a signal, or a reader of its output that has gone away.

use crate::Failure;
use crate::output::{OutputReader, output_reader};
use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest interval between two checks whether to end.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Exit status of a process that a signal ended: this plus the number of the signal.
const ENDED_BY_SIGNAL: i32 = 128;

pub(super) struct Ending {
    signalled: Arc<AtomicBool>,
    /// Whether samples go to standard output.
    prints: bool,
}

impl Ending {
    /// Handles SIGINT and SIGTERM, so that the device is closed and the terminal is restored. A second signal
    /// ends the process at once.
    pub(super) fn watch(prints: bool) -> Result<Self> {
        let signalled = Arc::<AtomicBool>::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                ENDED_BY_SIGNAL + signal,
                signalled.clone(),
            )
            .and_then(|_| signal_hook::flag::register(signal, signalled.clone()))
            .context("cannot watch for signals")?;
        }
        Ok(Self { signalled, prints })
    }

    /// Whether to end.
    ///
    /// # Errors
    /// The system does not say whether anybody reads standard output.
    pub(super) fn has_come(&self) -> Result<bool, Failure> {
        let signalled = self.signalled.load(Ordering::Relaxed);
        Ok(signalled || self.prints && output_reader()? == OutputReader::Gone)
    }
}
