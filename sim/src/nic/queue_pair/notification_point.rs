//! The state of a queue pair as congestion notification point (RoCEv2 A17.9.3).

use bareverbs_prm::time::Time;

/// The state of a queue pair as notification point.
#[derive(Debug, Default)]
pub(super) struct NotificationPoint {
    /// A CNP has to be sent.
    pub(super) due: bool,
    pub(super) last: Option<Time>,
}

impl NotificationPoint {
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }
}
