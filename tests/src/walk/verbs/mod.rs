//! A walk over all verbs. A seed decides which services two hosts use, what they post, and when a queue pair
//! is drained, changed, fails, is flushed, reset and connected again.
//!
//! The parts: a [`lane`] is a queue pair at either host, and each [`end`] of it has memory, [`remote_key`]s and
//! three oracles: [`sends`] for what it posted, [`receives`] for the receives that it or a shared queue of
//! its [`host`] holds, [`inbox`] for the messages that must fill them. A [`request`] knows its effect on
//! memory; [`lane_ends`] posts it and [`settle`] checks the result. [`run`] decides what comes next; [`watch`]
//! takes completions and events; [`moves`] has the changes of state.

pub mod atomic;
pub mod build;
pub mod end;
pub mod host;
pub mod inbox;
pub mod lane;
pub mod lane_ends;
pub mod moves;
pub mod outcome;
pub mod queue;
pub mod receives;
pub mod remote_key;
pub mod request;
pub mod run;
pub mod sends;
pub mod settle;
pub mod watch;
pub mod work;

use super::plan::Conditions;
use bareverbs_hal_sim::SimWorld;
pub use outcome::WalkCounts;
use run::VerbsWalk;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Walks under `conditions`. A walk that fails prints how to repeat it; `test` is the name of its test file.
///
/// # Panics
/// If anything happens that the oracles do not expect.
pub fn walk_verbs(conditions: &Conditions, test: &str) -> WalkCounts {
    let world = SimWorld::new(conditions.seed);
    let mut walk = VerbsWalk::new(conditions, &world);
    match catch_unwind(AssertUnwindSafe(|| walk.walk())) {
        Ok(outcome) => outcome,
        Err(cause) => {
            println!("the walk failed at event digest {:#018x}; {}", world.digest(), conditions.replay(test));
            resume_unwind(cause)
        }
    }
}
