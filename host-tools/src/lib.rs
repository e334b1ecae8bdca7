//! The bareverbs command.
#![forbid(unsafe_code)]

pub mod serve;
