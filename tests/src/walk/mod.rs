//! Random walks: two drivers post what a seed decides, and an oracle knows what the result must be.
//!
//! [`plan`] draws requests; [`oracle`] remembers what was posted and checks completions and bytes; [`party`]
//! is one side with its queues; [`slots`] is its memory; [`run`] is the walk. [`shared`] is another walk,
//! over shared receive queues, and [`verbs`] one over all services, operations and states.

pub mod oracle;
pub mod party;
pub mod plan;
pub mod run;
pub mod shared;
pub mod slots;
pub mod verbs;

pub use plan::Conditions;
pub use run::{Outcome, walk, walk_captured};
