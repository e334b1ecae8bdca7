//! What a translation finds at a position: host memory, or another key.

use bareverbs_prm::ids::Mkey;

/// What stands at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranslationStep {
    /// Host memory.
    Host(u64),
    /// An address of another key.
    Key {
        /// The key.
        key: Mkey,
        /// The address, as that key counts it.
        address: u64,
    },
}
