//! Output: one versioned JSON object on standard output, and the destination of the log.

pub(crate) mod openmetrics;

use crate::Failure;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use tracing_subscriber::EnvFilter;

/// A JSON object of kind `kind`, schema version 1.
pub fn json_object(kind: &'static str, value: Value) -> Result<String, Failure> {
    let object = json!({"schema": format!("bareverbs.{kind}.v1"), kind: value});
    serde_json::to_string_pretty(&object).map_err(|error| Failure::Run(error.into()))
}

/// Prints a result and a newline. A reader that has closed the pipe (`bareverbs explain | head -1`) is not an error.
///
/// # Errors
/// [`Failure::Run`] if standard output cannot be written for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(drop)
}

/// Whether anybody still reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    Present,
    Gone,
}

/// Like [`print`], for commands that print repeatedly and should end when nobody reads any more.
pub(crate) fn print_to_reader(text: &str) -> Result<OutputReader, Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(OutputReader::Present),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(Failure::Run(anyhow::Error::new(error).context("cannot write to standard output"))),
    }
}

/// Whether anybody still reads standard output, for a command that has nothing to print yet. A pipe without a
/// reader reports an error at once.
///
/// # Errors
/// [`Failure::Run`] if the system does not say.
pub(crate) fn output_reader() -> Result<OutputReader, Failure> {
    let out = std::io::stdout();
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    match poll(&mut watched, Some(&Timespec::default())) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(OutputReader::Present),
        Err(error) => {
            let error = anyhow::Error::new(error).context("asking whether anybody reads standard output");
            return Err(Failure::Run(error));
        }
    }
    let is_gone = watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    Ok(if is_gone { OutputReader::Gone } else { OutputReader::Present })
}

/// Logs what `directives` select to standard error, unless `RUST_LOG` says otherwise. Colours are only used
/// on a terminal.
pub(crate) fn log_to_stderr(directives: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(directives))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init()
        .map_err(|error| anyhow::anyhow!("{error}"))
        .context("cannot log")
}
