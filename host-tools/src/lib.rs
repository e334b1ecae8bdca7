//! # bareverbs-tools: what the `bareverbs` command does
//!
//! **What this is.** One module a subcommand, so that tests can call them.
//!
//! **What it may not do.** Nothing that matters to a packet or a byte: that is in the crates below. Standard output is for
//! results alone; progress and complaints go to standard error.
//!
//! **Where to read first.** [`demo`].
#![forbid(unsafe_code)]

pub mod demo;
