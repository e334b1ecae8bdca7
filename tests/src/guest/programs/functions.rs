//! The shell functions that the cases are made of.

/// Their file name in the guest, and their text.
pub(super) const FUNCTIONS: (&str, &str) = ("programs.sh", include_str!("programs.sh"));
