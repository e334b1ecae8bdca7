//! The scheduled timer of somebody whose deadline moves: a device or a switch.
//!
//! Moving an event in the schedule would cost a search. So an earlier deadline is scheduled in addition, and an event that
//! comes up and is not wanted any more is stale: it is skipped, and the deadline that holds then is scheduled.

use bareverbs_prm::time::Time;

/// When the earliest timer event of an owner is due; [`Time::MAX`] if none is scheduled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer(Time);

impl Timer {
    /// None is scheduled.
    pub(super) const IDLE: Self = Self(Time::MAX);

    /// Whether an event has to be scheduled for a deadline, since none comes before.
    #[inline]
    pub(super) fn arm(&mut self, due: Time) -> bool {
        let earlier = due < self.0;
        if earlier {
            self.0 = due;
        }
        earlier
    }

    /// Whether the event that is due at `due` is the one that the owner waits for, whose deadline is `wanted` by now.
    pub(super) fn is_current(self, due: Time, wanted: Option<Time>) -> bool {
        self.0 == due && wanted.is_some_and(|wanted| wanted <= due)
    }

    /// The event that is due at `due` has left the schedule.
    pub(super) fn expire(&mut self, due: Time) {
        if self.0 == due {
            self.0 = Time::MAX;
        }
    }
}
