//! The machinery behind the public API, for the tests, loom models and benchmarks of this workspace. It is
//! not part of the API and may change in any release.

pub use crate::command::entry::{Request, Tail};
pub use crate::command::queue::{CommandQueue, CommandQueueConfig, Lane};
pub use crate::doorbell::{Publication, publish, publish_record};
pub use crate::executor::{CommandExecutor, CommandOutput, CommandTiming};
pub use crate::ring::{Consumer, OwnedEntry, take_ownership};

/// Ownership of work request identifiers.
pub mod ledger {
    pub use crate::ledger::{
        Found, Home, Identity, Poster, RECORD_WORDS, Range, ReceivePoller, Refusal, SendPoller, Side,
        UserIndex, Words, retire_receive, retire_send,
    };

    /// The ledger of a shared receive queue.
    pub mod shared {
        pub use crate::ledger::shared::{
            Chain, Claimed, SharedName, SharedPoller, SharedPoster, SharedWords, attach, clear, retire_shared,
        };
    }
}
