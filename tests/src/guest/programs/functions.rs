//! The functions that the questions are made of.

/// What they are called in the guest, and their text.
pub(super) const FUNCTIONS: (&str, &str) = ("programs.sh", include_str!("programs.sh"));
