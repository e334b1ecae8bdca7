//! An egress queue: frames leave one after the other, and only so many may wait.

use super::link::Rate;
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

/// Frames on their way out of one port, in the order in which they leave.
///
/// ```
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_sim::net::link::Rate;
/// use bareverbs_sim::net::queue::EgressQueue;
///
/// // A port of 100 Gb/s with room for 2 KiB: one frame fits, a second one does not.
/// let mut queue = EgressQueue::buffer(Rate::new(100_000_000_000), 2048);
/// let gone_at = queue.push(Time::ZERO, 1_500);
/// assert_eq!(gone_at, Time::ZERO + Duration::from_picos(121_920));
/// assert!(!queue.has_room(Time::ZERO, 1_500));
/// assert!(queue.has_room(gone_at, 1_500));
/// ```
#[derive(Debug)]
pub struct EgressQueue {
    rate: Rate,
    free_at: Time,
    bound: Bound,
}

/// What may wait.
#[derive(Debug)]
enum Bound {
    /// Frames for so much time: the pipeline of a device, which is asked for more in time.
    Pipeline { low: Duration, high: Duration },
    /// So many bytes: the buffer of a switch, which drops what does not fit.
    Buffer { limit: u64, bytes: u64, waiting: VecDeque<Leaving> },
}

#[derive(Debug, Clone, Copy)]
struct Leaving {
    gone_at: Time,
    length: u32,
}

/// Wire time that waits in the pipeline of a device beyond its own latency.
const PIPELINE_SLACK: Duration = Duration::from_micros(2);

impl EgressQueue {
    /// The queue of a device that takes up to `latency` from being asked for a frame until its first bit can leave.
    ///
    /// This is the back-pressure that makes a device send no faster than its link: it is asked for frames until the wire is
    /// busy for `latency` and a little more, and again before the wire falls idle.
    pub fn pipeline(rate: Rate, latency: Duration) -> Self {
        let half = Duration::from_picos(PIPELINE_SLACK.as_picos() / 2);
        let bound = Bound::Pipeline { low: latency + half, high: latency + PIPELINE_SLACK };
        Self { rate, free_at: Time::ZERO, bound }
    }

    /// The queue of a switch port with a buffer of `limit` bytes.
    pub fn buffer(rate: Rate, limit: u64) -> Self {
        let bound = Bound::Buffer { limit, bytes: 0, waiting: VecDeque::new() };
        Self { rate, free_at: Time::ZERO, bound }
    }

    /// Changes the rate for frames that are queued from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Whether a frame of `length` bytes may be queued now. A queue that is empty always takes one.
    #[inline]
    pub fn has_room(&mut self, now: Time, length: usize) -> bool {
        match &mut self.bound {
            Bound::Pipeline { high, .. } => self.free_at <= now + *high,
            Bound::Buffer { limit, bytes, waiting } => {
                forget_gone(waiting, bytes, now);
                waiting.is_empty() || *bytes + length as u64 <= *limit
            }
        }
    }

    /// Bytes that wait now in the buffer of a switch.
    pub fn waiting(&mut self, now: Time) -> u64 {
        match &mut self.bound {
            Bound::Pipeline { .. } => 0,
            Bound::Buffer { bytes, waiting, .. } => {
                forget_gone(waiting, bytes, now);
                *bytes
            }
        }
    }

    /// When to offer the next frames to a queue that is full.
    pub fn room_at(&self) -> Time {
        match &self.bound {
            Bound::Pipeline { low, .. } => Time::ZERO + self.free_at.since(Time::ZERO + *low),
            Bound::Buffer { waiting, .. } => waiting.front().map_or(self.free_at, |first| first.gone_at),
        }
    }

    /// Queues a frame that may leave at `ready` at the earliest; gives the time when its last bit leaves.
    #[inline]
    pub fn push(&mut self, ready: Time, length: usize) -> Time {
        let gone_at = self.free_at.max(ready) + self.rate.serialisation(length);
        self.free_at = gone_at;
        if let Bound::Buffer { bytes, waiting, .. } = &mut self.bound {
            *bytes += length as u64;
            waiting.push_back(Leaving { gone_at, length: length as u32 });
        }
        gone_at
    }
}

fn forget_gone(waiting: &mut VecDeque<Leaving>, bytes: &mut u64, now: Time) {
    while let Some(frame) = waiting.front() {
        if frame.gone_at > now {
            return;
        }
        *bytes -= u64::from(frame.length);
        waiting.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICOSECOND_A_BYTE: Rate = Rate::new(8_000_000_000_000);

    fn at(picos: u64) -> Time {
        Time::from_picos(picos)
    }

    #[test]
    fn frames_leave_in_order_and_never_at_once() {
        let mut queue = EgressQueue::buffer(PICOSECOND_A_BYTE, 10_000);
        assert_eq!(queue.push(at(1_000), 76), at(1_100));
        assert_eq!(queue.push(at(0), 76), at(1_200), "overtook");
        assert_eq!(queue.push(at(5_000), 76), at(5_100));
    }

    #[test]
    fn a_full_buffer_takes_what_fits_and_has_room_again() {
        let mut queue = EgressQueue::buffer(PICOSECOND_A_BYTE, 150);
        queue.push(Time::ZERO, 76);
        assert!(queue.has_room(Time::ZERO, 74) && !queue.has_room(Time::ZERO, 75));
        assert_eq!(queue.room_at(), at(100));
        assert!(queue.has_room(at(100), 75));
        assert_eq!(
            (queue.waiting(at(100)), queue.push(at(100), 75), queue.waiting(at(100))),
            (0, at(199), 75)
        );
    }

    #[test]
    fn an_empty_buffer_takes_a_frame_longer_than_its_limit() {
        assert!(EgressQueue::buffer(PICOSECOND_A_BYTE, 10).has_room(Time::ZERO, 9_000));
    }

    #[test]
    fn a_pipeline_is_asked_for_more_before_the_wire_falls_idle() {
        let latency = Duration::from_nanos(500);
        let mut queue = EgressQueue::pipeline(PICOSECOND_A_BYTE, latency);
        let now = at(1_000_000);
        let mut frames = 0;
        while queue.has_room(now, 976) {
            queue.push(now + latency, 976);
            frames += 1;
        }
        assert_eq!(frames, 2_001, "2 µs beyond the latency, at 1 ns a frame");
        let again = queue.room_at();
        assert!(again > now && queue.has_room(again, 976));
        let idle_from = now + latency + Duration::from_nanos(2_001);
        assert!(again + latency < idle_from, "the next frame cannot be there before the wire is idle");
    }
}
