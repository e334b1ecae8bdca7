//! The event queue. Ties are broken by insertion order.
//!
//! Most events are frames on a wire, which arrive in sending order. They wait in one lane per wire; the heap only holds
//! the head of each lane, so it stays small however many frames are in flight. The earliest entry is apart from the heap:
//! while the frames of one wire arrive, nothing moves in it.

use bareverbs_prm::time::Time;
use core::cmp::Reverse;
use core::mem;
use std::collections::{BinaryHeap, VecDeque};

/// A time-ordered queue of events of type `E`.
#[derive(Debug)]
pub struct Schedule<E> {
    /// The earliest entry; `None` if there are no entries.
    first: Option<Entry<What<E>>>,
    /// The other entries.
    heap: BinaryHeap<Reverse<Entry<What<E>>>>,
    lanes: Vec<VecDeque<Entry<E>>>,
    inserted: u64,
    waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry<T> {
    due: Time,
    number: u64,
    what: T,
}

#[derive(Debug, Clone, Copy)]
enum What<E> {
    Event(E),
    /// The head of this lane.
    Lane(usize),
}

impl<T> Entry<T> {
    #[inline]
    fn key(&self) -> (Time, u64) {
        (self.due, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self { first: None, heap: BinaryHeap::new(), lanes: Vec::new(), inserted: 0, waiting: 0 }
    }
}

impl<E: Copy> Schedule<E> {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, due: Time, event: E) {
        let entry = self.number(due, What::Event(event));
        self.insert(entry);
    }

    /// Adds an event that is most likely due after all others in this lane. Lanes are numbered from zero.
    #[inline(always)] // Once for every frame on a wire.
    pub fn push_in_lane(&mut self, lane: usize, due: Time, event: E) {
        let Some(last) = self.lanes.get(lane).and_then(VecDeque::back) else {
            return self.begin_lane(lane, due, event);
        };
        if last.due > due {
            return self.push(due, event);
        }
        let entry = self.number(due, event);
        self.lanes[lane].push_back(entry);
    }

    /// Adds the first event of an empty lane.
    fn begin_lane(&mut self, lane: usize, due: Time, event: E) {
        if lane >= self.lanes.len() {
            self.lanes.resize_with(lane + 1, VecDeque::new);
        }
        let entry = self.number(due, event);
        self.lanes[lane].push_back(entry);
        self.insert(Entry { due, number: entry.number, what: What::Lane(lane) });
    }

    /// The next event, without removing it.
    #[inline]
    pub fn peek(&self) -> Option<(Time, E)> {
        let first = self.first.as_ref()?;
        match first.what {
            What::Event(event) => Some((first.due, event)),
            What::Lane(lane) => self.lanes[lane].front().map(|entry| (entry.due, entry.what)),
        }
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::MAX)
    }

    /// Removes the next event if it is due by `deadline`.
    #[inline(always)] // Once for every event.
    pub fn pop_until(&mut self, deadline: Time) -> Option<(Time, E)> {
        let Entry { due, what, .. } = *self.first.as_ref().filter(|first| first.due <= deadline)?;
        self.waiting -= 1;
        match what {
            What::Event(event) => {
                self.first = self.pop_heap();
                Some((due, event))
            }
            What::Lane(lane) => {
                let waiting = &mut self.lanes[lane];
                let taken = waiting.pop_front();
                match waiting.front().map(Entry::key) {
                    Some((due, number)) => self.replace_first(Entry { due, number, what }),
                    None => self.first = self.pop_heap(),
                }
                taken.map(|entry| (due, entry.what))
            }
        }
    }

    fn insert(&mut self, entry: Entry<What<E>>) {
        let later = match &mut self.first {
            Some(first) if entry < *first => mem::replace(first, entry),
            Some(_) => entry,
            None => return self.first = Some(entry),
        };
        self.heap.push(Reverse(later));
    }

    /// Replaces the earliest entry, which was taken, by a later one of its lane.
    #[inline]
    fn replace_first(&mut self, entry: Entry<What<E>>) {
        let is_first = self.heap.peek().is_none_or(|Reverse(earliest)| entry < *earliest);
        self.first = if is_first { Some(entry) } else { self.exchange(entry) };
    }

    /// Puts an entry into the heap and takes the earliest one out.
    #[inline(never)]
    fn exchange(&mut self, entry: Entry<What<E>>) -> Option<Entry<What<E>>> {
        let mut earliest = self.heap.peek_mut()?;
        Some(mem::replace(&mut earliest.0, entry))
    }

    fn pop_heap(&mut self) -> Option<Entry<What<E>>> {
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Number of waiting events.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no event is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    #[inline]
    fn number<T>(&mut self, due: Time, what: T) -> Entry<T> {
        self.inserted += 1;
        self.waiting += 1;
        Entry { due, number: self.inserted, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any lanes and any mix of pushes and pops, the order is that of a sorted list.
        #[test]
        fn comes_out_by_time_then_by_insertion(acts in prop::collection::vec((0u64..20, 0usize..4, 0usize..3), 0..300)) {
            let mut schedule = Schedule::default();
            let mut model: Vec<(u64, usize)> = Vec::new();
            for (index, (time, lane, pops)) in acts.into_iter().enumerate() {
                let due = Time::from_picos(time);
                if lane == 0 { schedule.push(due, index) } else { schedule.push_in_lane(lane, due, index) }
                model.push((time, index));
                model.sort_unstable();
                if let Some((first, _)) = model.first().filter(|(first, _)| *first > 0) {
                    prop_assert_eq!(schedule.pop_until(Time::from_picos(first - 1)), None);
                }
                for _ in 0..pops.min(model.len()) {
                    prop_assert_eq!(schedule.peek(), Some((Time::from_picos(model[0].0), model[0].1)));
                    prop_assert_eq!(schedule.pop(), Some((Time::from_picos(model[0].0), model[0].1)));
                    model.remove(0);
                }
                prop_assert_eq!(schedule.len(), model.len());
            }
            let rest = core::iter::from_fn(|| schedule.pop()).map(|(time, index)| (time.as_picos(), index));
            prop_assert_eq!(rest.collect::<Vec<_>>(), model);
        }
    }
}
