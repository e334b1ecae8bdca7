//! Signals to the process: to end, or to read its files again.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals received so far.
pub(super) struct Signals {
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// Catches SIGTERM, SIGINT and SIGHUP from now on.
    pub(super) fn catch() -> Result<Self> {
        let signals = Self { end: Arc::default(), reload: Arc::default() };
        for (number, flag) in [(SIGTERM, &signals.end), (SIGINT, &signals.end), (SIGHUP, &signals.reload)] {
            signal_hook::flag::register(number, flag.clone()).context("catching signals")?;
        }
        Ok(signals)
    }

    /// Whether the process was told to end.
    pub(super) fn end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether it was told to read its files again since the last call.
    pub(super) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
