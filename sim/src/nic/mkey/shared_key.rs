//! The name of a memory key of another function.

use bareverbs_prm::ids::VhcaId;

/// A memory key of a function, as it was when the function let others use it. A key that was changed or made again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedKey {
    pub(crate) owner: VhcaId,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
