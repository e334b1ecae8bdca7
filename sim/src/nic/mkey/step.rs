//! One step of a translation: from a position to host memory or to another key.

use bareverbs_prm::ids::Mkey;

/// What a translation finds at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranslationStep {
    /// Host memory.
    Host(u64),
    /// An address of another key.
    Key {
        /// The key.
        key: Mkey,
        /// The address in the space of that key.
        address: u64,
    },
}
