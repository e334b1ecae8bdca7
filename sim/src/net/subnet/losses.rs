//! Counts of management packets that a switch's own node neither sends nor answers. The switch shows them among its
//! counters, since for these the performance agent has no counter, or only one per port.

/// Packets so far; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::net) struct ManagementLosses {
    /// Packets to send that the queue had no room for, or that no port leads to the destination of.
    pub(in crate::net) dropped: u64,
    /// Requests to the SA without a response, because their sender is unknown or their SM_Key is wrong.
    pub(in crate::net) refused: u64,
}

impl ManagementLosses {
    pub(super) const fn add(&mut self, more: Self) {
        self.dropped += more.dropped;
        self.refused += more.refused;
    }
}
