//! The machinery behind the public API, for the tests, loom models and benches of this workspace. Not part of the API: it
//! may change in any release.

pub use crate::command::entry::{Request, Tail};
pub use crate::command::queue::{CommandQueue, CommandQueueConfig, Lane};
pub use crate::doorbell::{Publication, publish, publish_record};
pub use crate::executor::{CommandExecutor, CommandOutput, CommandTiming};
pub use crate::ring::{Consumer, OwnedEntry, take_ownership};

/// Who owns which work request identifier.
pub mod ledger {
    pub use crate::ledger::{
        Identity, Poster, RECORD_WORDS, Range, ReceivePoller, Refusal, SendPoller, Side, Words,
        retire_receive, retire_send,
    };

    /// The ledger of a shared receive queue.
    pub mod shared {
        pub use crate::ledger::shared::{
            Chain, Claimed, SharedName, SharedPoller, SharedPoster, SharedWords, attach, clear, retire_shared,
        };
    }
}
