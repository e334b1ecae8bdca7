//! `tests/conformance.md`: which requirement of the specifications is proved by which test.
//!
//! **What this is.** A reader of the lines `Requirement: …` in the doc comments of tests, and a writer of the table made
//! from them. **What it may not do.** Judge whether a test proves what it says; nothing but a reader can.

mod annotation;
mod scan;
mod table;

pub use annotation::Requirement;
pub use scan::{Fault, Proof, scan_text, scan_workspace};
pub use table::render;

/// Where the table lies, from the root of the workspace.
pub const TABLE: &str = "tests/conformance.md";
