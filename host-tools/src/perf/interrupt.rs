//! Whether somebody wants to end an endless test.

use anyhow::{Context as _, Result};
use signal_hook::consts::SIGINT;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Exit status after a second interrupt.
const INTERRUPTED: i32 = 130;

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handles SIGINT as the request to end. A second one ends the process at once.
pub(crate) fn watch() -> Result<()> {
    let flag = WANTED.get_or_init(Arc::default);
    signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(flag))
        .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(flag)))
        .map(drop)
        .context("cannot wait for SIGINT")
}

/// Whether the request has come.
pub(crate) fn is_wanted() -> bool {
    WANTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
