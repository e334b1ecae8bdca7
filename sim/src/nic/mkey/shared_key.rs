//! The name of a memory key that belongs to another function.

use bareverbs_prm::ids::VhcaId;

/// A memory key of a function at the time when the function shared it. Changing or recreating the key makes
/// it a different one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedKey {
    pub(crate) owner: VhcaId,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
