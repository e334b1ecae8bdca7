//! The judge of `bareverbs run`: programs of other projects on virtual hosts.
//!
//! [`crate::installation`] starts programs, as an unprivileged user if it may switch to one. Each module has
//! rows of one kind:
//!
//! * [`listed`]: what the checked-in list demands
//! * [`fields`]: what `ibv_devinfo` prints; [`devices`]: whether `devinfo` and `gids` show the same
//! * [`matrix`]: every program of perftest against `bareverbs perf`
//! * [`mpi`]: OpenMPI, over a UCX that can (`ucx`); [`suite`]: rdma-core's own tests
//! * [`captures`]: what other programs find in captures; [`full_disk`]: what a program is told whose capture
//!   runs out of room
//! * [`trouble`]: how programs survive faults; [`cables`]: what `--list` shows of programs, and what they
//!   notice of a cable
//! * [`driven`]: a program that polls drives its device; [`objects`]: what `rdma` shows of a program's
//!   objects
//! * [`payload`]: whether perftest's bytes arrive; [`at_once`]: a hundred pairs at once
//! * [`own_programs`]: a program as users write it; [`own_test`]: the one in the documentation
//! * [`kernel_devices`]: our own programs at devices of the kernel, by DEVX
//! * [`neighbours`]: who waits for a neighbour's address
//! * [`wires`]: programs of two networks that a wire joins; [`tap`]: a network and this machine's kernel
//!
//! [`workers`] judge rows side by side. A failed row is not run again. No program outlives its row. Start reading at [`listed::ListedCase`].

pub mod at_once;
pub mod cables;
pub mod captures;
pub mod devices;
pub mod driven;
pub mod fields;
pub mod full_disk;
pub mod kernel_devices;
pub mod listed;
pub mod matrix;
pub mod mpi;
pub mod neighbours;
pub mod objects;
pub mod own_programs;
pub mod own_test;
pub mod payload;
pub mod suite;
pub mod tap;
pub mod trouble;
mod ucx;
pub mod wires;
pub mod workers;

use crate::guest::table::{Entry, Verdict};
use anyhow::Result;
use std::time::Instant;

/// Runs a judge and measures its time. An error is a failure.
pub fn entry(name: String, judge: impl FnOnce() -> Result<Verdict>) -> Entry {
    let start = Instant::now();
    let verdict = judge().unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")));
    Entry { columns: vec![name], verdict, elapsed: start.elapsed() }
}
