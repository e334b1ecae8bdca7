//! What a queue pair remembers of congestion that it has to tell its peer of (RoCEv2 A17.9.3).

use bareverbs_prm::time::Time;

/// What a queue pair remembers as notification point.
#[derive(Debug, Default)]
pub(super) struct NotificationPoint {
    /// A notification is to be sent.
    pub(super) due: bool,
    pub(super) last: Option<Time>,
}

impl NotificationPoint {
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }
}
