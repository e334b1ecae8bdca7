//! Access rights of regions, windows and lists.

use bareverbs_prm::context::MkeyContext;
use core::ops::BitOr;

/// Access rights of a memory region. Local read access is always granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_access_flags")]
pub struct AccessFlags(u8);

impl AccessFlags {
    /// Local read access only.
    pub const LOCAL_READ: Self = Self(0);
    /// The device may write on behalf of the application: receives, RDMA READ responses.
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write; requires local write access.
    #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
    pub const REMOTE_WRITE: Self = Self(4);
    /// Peers may do atomics; requires local write access.
    #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// Memory windows may be bound to the region.
    #[doc(alias = "IBV_ACCESS_MW_BIND")]
    pub const MEMORY_WINDOW_BIND: Self = Self(16);
    /// The device's writes may overtake each other on the bus; completions still come last.
    #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
    pub const RELAXED_ORDERING: Self = Self(32);

    /// Whether it grants everything in `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights without those in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// IBTA v1.4 §10.6, memory management: remote write and atomic access require local write access.
    pub(crate) const fn is_consistent(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) == 0 || self.contains(Self::LOCAL_WRITE)
    }
}

impl AccessFlags {
    /// Sets the rights of a memory key.
    pub(crate) fn apply(self, context: &mut MkeyContext) {
        context
            .set_lr(true)
            .set_lw(self.contains(Self::LOCAL_WRITE))
            .set_rr(self.contains(Self::REMOTE_READ))
            .set_rw(self.contains(Self::REMOTE_WRITE))
            .set_a(self.contains(Self::REMOTE_ATOMIC))
            .set_relaxed_ordering_write(self.contains(Self::RELAXED_ORDERING));
    }
}

impl BitOr for AccessFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_needs_local_writing() {
        assert!(!AccessFlags::REMOTE_WRITE.is_consistent());
        assert!(!(AccessFlags::REMOTE_ATOMIC | AccessFlags::REMOTE_READ).is_consistent());
        assert!((AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE).is_consistent());
        assert!(AccessFlags::REMOTE_READ.is_consistent());
    }
}
