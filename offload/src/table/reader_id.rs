//! Identifiers of readers that a writer waits for.

use core::fmt;

/// A reader that the writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaderId(pub(super) u8);

impl fmt::Display for ReaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reader {}", self.0)
    }
}
