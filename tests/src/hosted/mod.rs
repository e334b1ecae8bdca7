//! The judge of `bareverbs run`: programs that nobody here wrote, on virtual hosts.
//!
//! **What this is.** [`crate::installation`] starts programs as an unprivileged user where it may choose; [`listed`] judges what the
//! checked-in list demands, [`fields`] what `ibv_devinfo` prints, [`devices`] whether `devinfo` and `gids` show the same, [`mpi`]
//! OpenMPI, [`captures`] what other programs find in captures, [`full_disk`] what a program is told whose capture has no room, [`trouble`] how
//! programs live through faults, [`cables`] what is listed of them and what they notice of a cable, [`driven`] that a program that polls drives its device, [`objects`] what `rdma` says of their objects,
//! [`payload`] that perftest's bytes arrive, [`own_programs`] a program as users write it, [`own_test`] the one of the documentation,
//! [`neighbours`] who waits for a neighbour, [`at_once`] a hundred pairs, [`wires`] programs of two networks that a wire joins, [`tap`] one and the kernel,
//! [`suite`] what rdma-core's own tests say. **What it may not do.** A verdict is not asked for twice. Nothing is left
//! behind: a program does not outlive its row. **Where to read first.** [`listed::ListedCase`].

pub mod at_once;
pub mod cables;
pub mod captures;
pub mod devices;
pub mod driven;
pub mod fields;
pub mod full_disk;
pub mod listed;
pub mod mpi;
pub mod neighbours;
pub mod objects;
pub mod own_programs;
pub mod own_test;
pub mod payload;
pub mod suite;
pub mod tap;
pub mod trouble;
pub mod wires;

use crate::guest::table::{Entry, Verdict};
use anyhow::Result;
use std::time::Instant;

/// Asks for a verdict and takes its time. An error is a failure.
pub fn entry(name: String, judge: impl FnOnce() -> Result<Verdict>) -> Entry {
    let start = Instant::now();
    let verdict = judge().unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")));
    Entry { columns: vec![name], verdict, elapsed: start.elapsed() }
}
