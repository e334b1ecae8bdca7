//! The end of the server: removes its sockets, so that nobody finds one that does not answer.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Removes the sockets when SIGINT or SIGTERM ends the process; the process then ends with that signal. A
/// killed process leaves them behind, and the next server replaces them.
pub(super) fn remove_at_end(sockets: &[PathBuf]) -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let (mut told, tells) = UnixStream::pair().context("cannot watch for signals")?;
        pipe::register(signal, tells).context("cannot watch for signals")?;
        let sockets = sockets.to_vec();
        std::thread::spawn(move || {
            // It fails only if the other end is gone, and then so is the handler.
            if told.read_exact(&mut [0]).is_ok() {
                sockets.iter().for_each(remove);
                // This does not return: the signal's default action ends the process.
                let _ = emulate_default_handler(signal);
            }
        });
    }
    Ok(())
}

fn remove(socket: &PathBuf) {
    if let Err(error) = std::fs::remove_file(socket) {
        tracing::warn!("{} stays: {error}", socket.display());
    }
}
