//! A scheduled timer with a movable deadline, for a device or a switch.
//!
//! Moving an event in the schedule would require a search. So an earlier deadline is scheduled in addition. An event
//! that comes up but is no longer wanted is stale: it is skipped, and the current deadline is scheduled.

use bareverbs_prm::time::Time;

/// When an owner's earliest timer event is due; [`Time::MAX`] if none is scheduled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer(Time);

impl Timer {
    /// No event scheduled.
    pub(super) const IDLE: Self = Self(Time::MAX);

    /// Whether to schedule an event for a deadline, because none comes earlier.
    #[inline]
    pub(super) fn arm(&mut self, due: Time) -> bool {
        let earlier = due < self.0;
        if earlier {
            self.0 = due;
        }
        earlier
    }

    /// Whether the event due at `due` is the one that the owner wants, whose deadline is now `wanted`.
    pub(super) fn is_current(self, due: Time, wanted: Option<Time>) -> bool {
        self.0 == due && wanted.is_some_and(|wanted| wanted <= due)
    }

    /// The event due at `due` was removed from the schedule.
    pub(super) fn expire(&mut self, due: Time) {
        if self.0 == due {
            self.0 = Time::MAX;
        }
    }
}
