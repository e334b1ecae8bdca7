//! Where no machine code runs.

use crate::frame::{Frame, Stop};
use crate::translate::Translation;
use std::io;

/// No translation runs here.
pub enum NoCodeMemory {}

impl NoCodeMemory {
    pub fn new(_translation: Translation) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub const fn translation(&self) -> &Translation {
        match *self {}
    }

    pub const fn run(&self, _frame: &mut Frame<'_>, _from: Stop) -> Option<Stop> {
        match *self {}
    }
}
