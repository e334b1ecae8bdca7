//! Ctrl-C and TERM end a judge with an error, so that it cleans up everything it started on the way out.

use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| Arc::new(AtomicBool::new(false)))
}

/// Installs handlers for INT and TERM. A second signal ends the process at once.
pub fn install() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag()))?;
        signal_hook::flag::register(signal, Arc::clone(flag()))?;
    }
    Ok(())
}

/// Fails once the process was asked to end. Every wait calls this.
pub fn check() -> Result<()> {
    if flag().load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
