//! Whether somebody wants to end an endless test, or an end that answers.

use anyhow::{Context as _, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Exit status after a second signal: this and its number.
const INTERRUPTED: i32 = 128;

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handles these signals as the request to end. A second one ends the process at once.
pub(crate) fn watch(signals: &[i32]) -> Result<()> {
    let flag = WANTED.get_or_init(Arc::default);
    for signal in signals.iter().copied() {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED + signal, Arc::clone(flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(flag)))
            .with_context(|| format!("cannot wait for signal {signal}"))?;
    }
    Ok(())
}

/// Whether the request has come.
pub(crate) fn is_wanted() -> bool {
    WANTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
