//! The scheduler: queues of the queue pairs with work or deadlines, so that nothing has to scan all queue
//! pairs.

use super::queue_pair::{Effects, QueuePair};
use bareverbs_prm::time::Time;
use std::collections::{BTreeSet, VecDeque};

/// The number of no queue pair.
const NOBODY: u32 = u32::MAX;

/// Queue pairs with work, in the order of their turns, and alarms in the order of time.
#[derive(Debug, Default)]
pub(crate) struct TurnSchedule {
    /// The next queue pair; `None` if there is none.
    next: Option<u32>,
    /// The queue pairs behind it. Apart from it, because often one queue pair has all the turns.
    behind: VecDeque<u32>,
    alarms: Alarms,
}

/// When to look at which queue pair. Alarms are ordered by time, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    pub(crate) time: Time,
    pub(crate) number: u32,
}

/// The pending alarms. An alarm is never cancelled: when it fires too early, its queue pair simply has
/// nothing due.
///
/// Queue pairs with equal timeouts set their alarms in the order in which they fire, so most alarms are
/// appended to `row` at a cost that does not depend on their number. Only an alarm earlier than the last of
/// `row` goes into the sorted set.
#[derive(Debug, Default)]
struct Alarms {
    row: VecDeque<Alarm>,
    early: BTreeSet<Alarm>,
}

impl Alarms {
    #[inline]
    fn insert(&mut self, alarm: Alarm) {
        if self.row.back().is_none_or(|&last| last <= alarm) {
            self.row.push_back(alarm);
        } else {
            self.early.insert(alarm);
        }
    }

    #[inline]
    fn first(&self) -> Option<Alarm> {
        match (self.row.front(), self.early.first()) {
            (Some(&row), Some(&early)) => Some(row.min(early)),
            (row, early) => row.or(early).copied(),
        }
    }

    fn pop_first(&mut self) -> Option<Alarm> {
        if self.early.first() == self.first().as_ref() {
            self.early.pop_first()
        } else {
            self.row.pop_front()
        }
    }
}

impl TurnSchedule {
    /// Applies the effects of an input to a queue pair.
    #[inline]
    pub(crate) fn apply(&mut self, qp: &mut QueuePair, effects: Effects) {
        // A later deadline costs nothing: the earlier alarm fires, finds nothing due and is set again.
        if let Some(deadline) = effects.alarm
            && deadline < qp.alarm
        {
            self.set_alarm(qp, deadline);
        }
        if effects.frames_wanted && !qp.queued {
            qp.queued = true;
            self.append(qp.number().value());
        }
    }

    #[inline]
    fn append(&mut self, number: u32) {
        match self.next {
            None => self.next = Some(number),
            Some(_) => self.behind.push_back(number),
        }
    }

    /// The queue pair whose turn it is.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        let number = self.next.take()?;
        if !self.behind.is_empty() {
            self.next = self.behind.pop_front();
        }
        Some(number)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    #[inline(never)]
    fn set_alarm(&mut self, qp: &mut QueuePair, deadline: Time) {
        qp.alarm = deadline;
        self.alarms.insert(Alarm { time: deadline, number: qp.number().value() });
    }

    /// Sets an alarm that belongs to no queue pair. It only makes the device handle everything that is due by
    /// then.
    pub(crate) fn wake_at(&mut self, time: Time) {
        self.alarms.insert(Alarm { time, number: NOBODY });
    }

    #[inline]
    pub(crate) fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|alarm| alarm.time)
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Alarm> {
        self.alarms.first().filter(|first| first.time <= now)?;
        self.alarms.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Alarms};
    use bareverbs_prm::time::{Duration, Time};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn alarms_go_off_in_the_order_of_a_sorted_set(
            steps in prop::collection::vec((any::<bool>(), 0u64..50, 0u32..4), 0..200),
        ) {
            let (mut alarms, mut model) = (Alarms::default(), BTreeSet::new());
            for (push, nanos, number) in steps {
                let alarm = Alarm { time: Time::ZERO + Duration::from_nanos(nanos), number };
                if push && model.insert(alarm) {
                    alarms.insert(alarm);
                } else if !push {
                    prop_assert_eq!(alarms.pop_first(), model.pop_first());
                }
                prop_assert_eq!(alarms.first(), model.first().copied());
            }
        }
    }
}
