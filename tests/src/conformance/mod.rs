//! `tests/conformance.md`: which test proves which requirement of the specifications.
//!
//! This module reads the `Requirement: …` lines in the doc comments of tests and writes a table of them. It
//! does not judge whether a test proves what its comment claims; only a reader can.

mod annotation;
mod scan;
mod table;

pub use annotation::Requirement;
pub use scan::{Fault, Proof, scan_text, scan_workspace};
pub use table::render;

/// Path of the table, from the root of the workspace.
pub const TABLE: &str = "tests/conformance.md";
