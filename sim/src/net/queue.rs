//! An egress queue: frames leave one after the other, and only so many may wait.

use super::link::Rate;
use bareverbs_prm::time::Time;
use std::collections::VecDeque;

/// How much may wait in an egress queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimit {
    /// Bytes of frames.
    pub bytes: u64,
    /// Frames.
    pub frames: usize,
}

/// Frames on their way out of one port, in the order in which they leave.
#[derive(Debug)]
pub struct EgressQueue {
    rate: Rate,
    limit: QueueLimit,
    waiting: VecDeque<Leaving>,
    bytes: u64,
    free_at: Time,
}

#[derive(Debug, Clone, Copy)]
struct Leaving {
    gone_at: Time,
    length: u32,
}

impl EgressQueue {
    /// An empty queue in front of a wire of `rate`.
    pub fn new(rate: Rate, limit: QueueLimit) -> Self {
        Self { rate, limit, waiting: VecDeque::new(), bytes: 0, free_at: Time::ZERO }
    }

    /// Whether another frame may be queued now. A queue that is empty always takes one.
    #[inline]
    pub fn has_room(&mut self, now: Time) -> bool {
        self.forget_gone(now);
        self.waiting.is_empty() || (self.bytes < self.limit.bytes && self.waiting.len() < self.limit.frames)
    }

    /// Whether a frame of `length` bytes fits without going over the limit.
    pub fn fits(&mut self, now: Time, length: usize) -> bool {
        self.has_room(now) && (self.waiting.is_empty() || self.bytes + length as u64 <= self.limit.bytes)
    }

    /// When the first of the waiting frames will be gone.
    pub fn room_at(&self) -> Option<Time> {
        self.waiting.front().map(|frame| frame.gone_at)
    }

    /// Queues a frame that may leave at `ready` at the earliest; gives the time when its last bit leaves.
    #[inline]
    pub fn push(&mut self, ready: Time, length: usize) -> Time {
        let gone_at = self.free_at.max(ready) + self.rate.serialisation(length);
        self.free_at = gone_at;
        self.bytes += length as u64;
        self.waiting.push_back(Leaving { gone_at, length: length as u32 });
        gone_at
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[inline]
    fn forget_gone(&mut self, now: Time) {
        while let Some(frame) = self.waiting.front() {
            if frame.gone_at > now {
                break;
            }
            self.bytes -= u64::from(frame.length);
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::time::Duration;

    fn queue(bytes: u64, frames: usize) -> EgressQueue {
        EgressQueue::new(Rate::new(8_000_000_000_000), QueueLimit { bytes, frames })
    }

    #[test]
    fn frames_leave_in_order_and_never_at_once() {
        let mut queue = queue(10_000, 10);
        let at = |picos| Time::ZERO + Duration::from_picos(picos);
        assert_eq!(queue.push(at(1_000), 76), at(1_100));
        assert_eq!(queue.push(at(0), 76), at(1_200), "overtook");
        assert_eq!(queue.push(at(5_000), 76), at(5_100));
    }

    #[test]
    fn a_full_queue_says_when_it_has_room() {
        let mut queue = queue(150, 10);
        queue.push(Time::ZERO, 76);
        assert!(queue.has_room(Time::ZERO) && !queue.fits(Time::ZERO, 76));
        queue.push(Time::ZERO, 76);
        assert!(!queue.has_room(Time::ZERO));
        let room = queue.room_at().unwrap();
        assert_eq!(room, Time::from_picos(100));
        assert!(queue.has_room(room));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn an_empty_queue_takes_a_frame_longer_than_its_limit() {
        assert!(queue(10, 1).fits(Time::ZERO, 9_000));
    }
}
