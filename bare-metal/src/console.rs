//! The serial console: lines out, and lines in within a time limit.

use bareverbs_core::hal::Hal;
use bareverbs_prm::time::Duration;
use core::fmt;
use heapless::String;

/// Bytes of the longest line that is read.
pub const LINE: usize = 512;

/// A console that never waits.
pub trait Console: fmt::Write {
    /// A byte that came, if any.
    fn read(&mut self) -> Option<u8>;
}

/// Why no line was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// No end of line came in time.
    TimedOut,
    /// More than [`LINE`] bytes came without an end of line.
    TooLong,
    /// A byte that is no ASCII character came.
    NoText(u8),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the console: no line arrived in time; is the other end running?"),
            Self::TooLong => write!(f, "the console: a line is longer than {LINE} bytes"),
            Self::NoText(byte) => write!(f, "the console: byte {byte:#04x} is not text"),
        }
    }
}

impl core::error::Error for ReadError {}

/// Reads a line; blanks at its ends are cut, empty lines are skipped.
pub fn read_line<H: Hal>(
    console: &mut impl Console,
    hal: &H,
    timeout: Duration,
) -> Result<String<LINE>, ReadError> {
    let deadline = hal.now() + timeout;
    let mut line = String::new();
    loop {
        match console.read() {
            Some(b'\r' | b'\n') if line.trim().is_empty() => line.clear(),
            Some(b'\r' | b'\n') => return Ok(line),
            Some(byte) if !byte.is_ascii() => return Err(ReadError::NoText(byte)),
            Some(byte) => line.push(char::from(byte)).map_err(|_| ReadError::TooLong)?,
            None if hal.now() >= deadline => return Err(ReadError::TimedOut),
            None => core::hint::spin_loop(),
        }
    }
}
