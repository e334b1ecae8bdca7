//! Moderation: an armed queue raises its event after a number of completions or a period, whichever comes first (PRM,
//! completion queue context, `cq_period` and `cq_max_count`).

use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::time::{Duration, Time};

/// `cq_period_mode`: the period starts at the last completion rather than at the last event.
const START_FROM_CQE: u8 = 1;

/// The moderation state of one queue.
#[derive(Debug, Default)]
pub(super) struct Moderation {
    period: Duration,
    max_count: u16,
    from_completion: bool,
    /// Completions since the last event.
    count: u16,
    last_event: Option<Time>,
    /// When the delayed event is due.
    pub(super) due: Option<Time>,
}

impl Moderation {
    pub(super) fn new(context: &CompletionQueueContext) -> Self {
        let mut moderation = Self::default();
        moderation.configure(context);
        moderation
    }

    /// Adopts period, count and mode. An event that is already delayed keeps its deadline.
    pub(super) fn configure(&mut self, context: &CompletionQueueContext) {
        self.period = Duration::from_micros(context.cq_period().into());
        self.max_count = context.cq_max_count();
        self.from_completion = context.cq_period_mode() == START_FROM_CQE;
    }

    /// Counts a completion that matches the arming. Returns whether to raise the event now; otherwise it
    /// waits for [`Self::settle`].
    pub(super) fn completed(&mut self) -> bool {
        self.count = self.count.saturating_add(1);
        let is_moderated = self.max_count > 1 || (self.max_count == 0 && self.period != Duration::ZERO);
        !is_moderated || (self.max_count != 0 && self.count >= self.max_count)
    }

    /// Restarts the timer after completions or an arming, when an event waits or was raised. Returns the old
    /// deadline and the new one.
    pub(super) fn renew(&mut self, now: Time, waits: bool) -> (Option<Time>, Option<Time>) {
        let before = self.due.take();
        if waits {
            return (before, self.settle(now));
        }
        self.event_at(now);
        (before, None)
    }

    /// Sets the deadline of an event that waits since `now`; `None` if only further completions can trigger
    /// it.
    pub(super) fn settle(&mut self, now: Time) -> Option<Time> {
        if self.period == Duration::ZERO {
            self.due = None;
        } else if self.from_completion {
            self.due = Some(now + self.period);
        } else {
            self.due = Some(self.last_event.map_or(now, |last| (last + self.period).max(now)));
        }
        self.due
    }

    /// Restarts the count of completions after an event.
    pub(super) const fn restart_count(&mut self) {
        self.count = 0;
    }

    /// Restarts the period of a mode in which it starts at the last event.
    pub(super) const fn event_at(&mut self, now: Time) {
        self.last_event = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moderation(period: u16, count: u16, mode: u8) -> Moderation {
        let mut context = CompletionQueueContext::new();
        context.set_cq_period(period).set_cq_max_count(count).set_cq_period_mode(mode);
        Moderation::new(&context)
    }

    #[test]
    fn without_moderation_every_completion_raises() {
        let mut none = moderation(0, 0, 0);
        assert!(none.completed() && none.completed());
        assert!(moderation(7, 1, 0).completed(), "one completion is enough");
    }

    #[test]
    fn the_count_raises_before_the_time() {
        let mut both = moderation(10, 3, START_FROM_CQE);
        assert_eq!([both.completed(), both.completed(), both.completed()], [false, false, true]);
        both.restart_count();
        assert!(!both.completed(), "the count starts again");
    }

    #[test]
    fn the_period_begins_with_the_last_completion_or_the_last_event() {
        let at = |micros| Time::ZERO + Duration::from_micros(micros);
        let mut from_completion = moderation(10, 0, START_FROM_CQE);
        assert!(!from_completion.completed());
        assert_eq!(from_completion.settle(at(5)), Some(at(15)));
        assert_eq!(from_completion.settle(at(9)), Some(at(19)), "another completion");
        let mut from_event = moderation(10, 0, 0);
        from_event.event_at(at(2));
        assert_eq!(from_event.settle(at(5)), Some(at(12)));
        assert_eq!(from_event.settle(at(9)), Some(at(12)));
        assert_eq!(moderation(0, 5, 0).settle(at(5)), None, "only the count triggers the event");
    }
}
