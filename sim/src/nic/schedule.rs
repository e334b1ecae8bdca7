//! The scheduler: queues of the queue pairs with work or deadlines, so that nothing has to scan all queue
//! pairs.

use super::queue_pair::{Effects, QueuePair};
use bareverbs_prm::time::Time;
use std::collections::{BTreeSet, VecDeque};

/// The number of no queue pair.
const NOBODY: u32 = u32::MAX;

/// Queue pairs with work, in the order of their turns, and alarms in the order of time.
#[derive(Debug)]
pub(crate) struct TurnSchedule {
    /// The next queue pair; `None` if there is none.
    next: Option<u32>,
    /// The queue pairs behind it. Apart from it, because often one queue pair has all the turns.
    behind: VecDeque<u32>,
    alarms: Alarms,
    /// The deadlines of the queue pairs, from `first` on.
    deadlines: Vec<Deadline>,
    /// The number of the first queue pair.
    first: u32,
}

/// When a queue pair has something due. This is kept apart from the queue pair: most alarms are those of timers that
/// have stopped, and to learn that should not cost a look at a queue pair that was idle for a long time.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    /// When its pending alarm fires; `Time::MAX` if there is none.
    alarm: Time,
    /// When something is due, as the queue pair last said; `Time::MAX` if nothing is.
    due: Time,
    /// When the last alarm fires that is pending behind `alarm`; `Time::MAX` if there is none.
    later: Time,
}

impl Deadline {
    const NONE: Self = Self { alarm: Time::MAX, due: Time::MAX, later: Time::MAX };
}

/// When to look at which queue pair. Alarms are ordered by time, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    pub(crate) time: Time,
    pub(crate) number: u32,
}

/// The pending alarms. An alarm is never cancelled: when it fires too early, nothing is due. A queue pair therefore uses
/// an alarm that is pending anyway before it sets another one: a short wait, such as one that a peer asks for by an RNR
/// NAK, would otherwise leave one alarm of the retransmission timer behind each time.
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
    /// A schedule without work. The number of the first queue pair is `first`.
    pub(crate) const fn new(first: u32) -> Self {
        let alarms = Alarms { row: VecDeque::new(), early: BTreeSet::new() };
        Self { next: None, behind: VecDeque::new(), alarms, deadlines: Vec::new(), first }
    }

    /// Applies the effects of an input to a queue pair.
    #[inline]
    pub(crate) fn apply(&mut self, qp: &mut QueuePair, effects: Effects) {
        if let Some(due) = effects.due {
            self.set_due(qp.number().value(), due);
        }
        if effects.frames_wanted && !qp.queued {
            qp.queued = true;
            self.append(qp.number().value());
        }
    }

    /// A queue pair with this number was created. It has no deadline, whatever its predecessor had, and inherits the
    /// alarms.
    pub(crate) fn start(&mut self, number: u32) {
        let index = number.wrapping_sub(self.first) as usize;
        if index >= self.deadlines.len() {
            self.deadlines.resize(index + 1, Deadline::NONE);
        }
        self.deadlines[index].due = Time::MAX;
    }

    #[inline]
    fn deadline(&mut self, number: u32) -> Option<&mut Deadline> {
        self.deadlines.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// A later deadline than before costs nothing: the earlier alarm fires, finds nothing due and is set again.
    #[inline]
    fn set_due(&mut self, number: u32, due: Time) {
        let Some(deadline) = self.deadline(number) else { return };
        deadline.due = due;
        if due < deadline.alarm {
            self.set_alarm(Alarm { time: due, number });
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

    /// Sets an alarm before the one that is pending. Of several, the last one is remembered, because it is pending for the
    /// longest time.
    #[inline(never)]
    fn set_alarm(&mut self, alarm: Alarm) {
        let Some(deadline) = self.deadline(alarm.number) else { return };
        let pending = core::mem::replace(&mut deadline.alarm, alarm.time);
        if deadline.later == Time::MAX {
            deadline.later = pending;
        }
        self.alarms.insert(alarm);
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

    /// Takes the next queue pair that has something due at `now`, and all alarms before its own.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        while self.next_alarm()? <= now {
            let alarm = self.alarms.pop_first()?;
            if self.is_due(alarm, now) {
                return Some(alarm.number);
            }
        }
        None
    }

    /// Whether a queue pair has something due when an alarm fires. Sets another alarm if something is due later. An alarm
    /// is obsolete if its queue pair is gone or has set another one.
    #[inline]
    fn is_due(&mut self, alarm: Alarm, now: Time) -> bool {
        let Some(deadline) = self.deadline(alarm.number).filter(|own| own.alarm == alarm.time) else {
            return false;
        };
        deadline.alarm = core::mem::replace(&mut deadline.later, Time::MAX);
        let due = deadline.due;
        if due <= now {
            // The queue pair says what is due next. If it does not, the later alarm must not find this again.
            deadline.due = Time::MAX;
            return true;
        }
        self.set_due(alarm.number, due);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Alarms, TurnSchedule};
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

    const FIRST: u32 = 0x40;

    fn at(nanos: u64) -> Time {
        Time::ZERO + Duration::from_nanos(nanos)
    }

    #[test]
    fn a_deadline_that_moves_fires_once_and_where_it_ends() {
        let mut schedule = TurnSchedule::new(FIRST);
        schedule.start(FIRST + 1);
        for due in [at(10), at(30), at(20)] {
            schedule.set_due(FIRST + 1, due);
        }
        assert_eq!(schedule.pop_due(at(10)), None, "that deadline has moved");
        assert_eq!(schedule.next_alarm(), Some(at(20)));
        assert_eq!((schedule.pop_due(at(20)), schedule.pop_due(at(40))), (Some(FIRST + 1), None));
    }

    #[test]
    fn a_stopped_timer_and_a_queue_pair_that_is_gone_are_not_due() {
        let mut schedule = TurnSchedule::new(FIRST);
        schedule.start(FIRST);
        schedule.start(FIRST + 1);
        schedule.set_due(FIRST, at(10));
        schedule.set_due(FIRST, Time::MAX);
        schedule.set_due(FIRST + 1, at(10));
        schedule.start(FIRST + 1);
        assert_eq!((schedule.pop_due(at(10)), schedule.next_alarm()), (None, None));
    }

    fn pending(schedule: &TurnSchedule) -> usize {
        schedule.alarms.row.len() + schedule.alarms.early.len()
    }

    /// A peer that is not ready makes a queue pair wait for a moment, again and again, while its retransmission timer is
    /// far away.
    #[test]
    fn short_waits_leave_no_alarms_of_the_long_timer_behind() {
        let mut schedule = TurnSchedule::new(FIRST);
        schedule.start(FIRST);
        schedule.set_due(FIRST, at(1_000_000));
        for now in 0..1000 {
            schedule.set_due(FIRST, at(now + 1));
            assert_eq!(schedule.pop_due(at(now + 1)), Some(FIRST));
            schedule.set_due(FIRST, at(1_000_000 + now));
            assert_eq!((schedule.pop_due(at(now + 1)), pending(&schedule)), (None, 1));
        }
        assert_eq!(schedule.pop_due(at(1_000_000)), None, "the timer was set again since then");
        assert_eq!(schedule.next_alarm(), Some(at(1_000_999)));
        assert_eq!(schedule.pop_due(at(1_000_999)), Some(FIRST));
        assert_eq!(pending(&schedule), 0);
    }

    #[test]
    fn a_queue_pair_that_is_created_again_uses_the_alarm_of_its_predecessor() {
        let mut schedule = TurnSchedule::new(FIRST);
        for time in 10..100 {
            schedule.start(FIRST);
            schedule.set_due(FIRST, at(time));
            assert_eq!(pending(&schedule), 1);
        }
        assert_eq!((schedule.pop_due(at(98)), schedule.pop_due(at(99))), (None, Some(FIRST)));
    }

    #[test]
    fn a_queue_pair_that_says_nothing_after_its_deadline_is_not_due_at_a_later_alarm() {
        let mut schedule = TurnSchedule::new(FIRST);
        schedule.start(FIRST);
        schedule.set_due(FIRST, at(20));
        schedule.set_due(FIRST, at(10));
        assert_eq!((schedule.pop_due(at(10)), schedule.pop_due(at(20))), (Some(FIRST), None));
        assert_eq!(schedule.next_alarm(), None);
    }

    proptest! {
        /// Whatever alarms are set or inherited, each queue pair is due exactly at its deadline.
        #[test]
        fn queue_pairs_are_due_at_their_deadlines(
            steps in prop::collection::vec((0u32..3, prop::option::of(1u64..40), any::<bool>()), 0..200),
        ) {
            let (mut schedule, mut model) = (TurnSchedule::new(FIRST), [Time::MAX; 3]);
            (0..3).for_each(|number| schedule.start(FIRST + number));
            for (now, (number, wait, again)) in (0..).zip(steps) {
                if again {
                    schedule.start(FIRST + number);
                }
                let due = wait.map_or(Time::MAX, |wait| at(now + wait));
                schedule.set_due(FIRST + number, due);
                model[number as usize] = due;
                for (number, due) in (FIRST..).zip(&mut model) {
                    if *due <= at(now) {
                        prop_assert_eq!(schedule.pop_due(at(now)), Some(number));
                        *due = Time::MAX;
                    }
                }
                prop_assert_eq!(schedule.pop_due(at(now)), None);
            }
        }
    }
}
