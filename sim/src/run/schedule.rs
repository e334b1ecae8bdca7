//! What will happen and when. Ties are broken by the order of insertion.

use bareverbs_prm::time::Time;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events of type `E` by time.
#[derive(Debug)]
pub struct Schedule<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    inserted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    due: Time,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    #[inline]
    fn key(&self) -> u128 {
        (u128::from(self.due.as_picos()) << 64) | u128::from(self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }
}

impl<E: Copy> Schedule<E> {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, due: Time, event: E) {
        self.inserted += 1;
        self.heap.push(Reverse(Entry { due, number: self.inserted, event }));
    }

    /// The next event, left in place.
    #[inline]
    pub fn peek(&self) -> Option<(Time, E)> {
        self.heap.peek().map(|Reverse(entry)| (entry.due, entry.event))
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.due, entry.event))
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_out_by_time_then_by_insertion(times in prop::collection::vec(0u64..20, 0..200)) {
            let mut schedule = Schedule::default();
            for (index, &time) in times.iter().enumerate() {
                schedule.push(Time::from_picos(time), index);
            }
            let mut expected: Vec<_> = times.iter().enumerate().map(|(index, &time)| (time, index)).collect();
            expected.sort_unstable();
            let mut found = Vec::new();
            while let Some((time, index)) = schedule.pop() {
                found.push((time.as_picos(), index));
            }
            prop_assert_eq!(found, expected);
        }
    }
}
