//! A bounded egress queue: frames leave one after another.

use super::link::Rate;
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

/// The egress queue of one port, first in, first out.
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

/// The limit of a queue.
#[derive(Debug)]
enum Bound {
    /// Limited by time: the pipeline of a device, which is asked for more frames before it runs dry.
    Pipeline { low: Duration, high: Duration },
    /// Limited in bytes: the buffer of a switch, which drops what does not fit.
    Buffer { limit: u64, bytes: u64, waiting: VecDeque<Leaving> },
}

#[derive(Debug, Clone, Copy)]
struct Leaving {
    gone_at: Time,
    length: u32,
}

/// Wire time queued in a device's pipeline beyond its own latency.
const PIPELINE_SLACK: Duration = Duration::from_micros(2);

impl EgressQueue {
    /// A queue for a device that needs up to `latency` from a request for a frame to its first bit on the wire.
    ///
    /// This is the back-pressure that limits a device to its line rate. The device is asked for frames until the wire
    /// is busy for a little more than `latency`, and again before the wire goes idle.
    pub fn pipeline(rate: Rate, latency: Duration) -> Self {
        let half = Duration::from_picos(PIPELINE_SLACK.as_picos() / 2);
        let bound = Bound::Pipeline { low: latency + half, high: latency + PIPELINE_SLACK };
        Self { rate, free_at: Time::ZERO, bound }
    }

    /// A queue for a switch port with a buffer of `limit` bytes.
    pub fn buffer(rate: Rate, limit: u64) -> Self {
        let bound = Bound::Buffer { limit, bytes: 0, waiting: VecDeque::new() };
        Self { rate, free_at: Time::ZERO, bound }
    }

    /// Changes the rate for frames queued from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Whether a frame of `length` bytes may be queued now. An empty queue accepts any frame.
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

    /// Bytes waiting in a switch port's buffer.
    pub fn waiting(&mut self, now: Time) -> u64 {
        match &mut self.bound {
            Bound::Pipeline { .. } => 0,
            Bound::Buffer { bytes, waiting, .. } => {
                forget_gone(waiting, bytes, now);
                *bytes
            }
        }
    }

    /// When to offer more frames to a full queue.
    pub fn room_at(&self) -> Time {
        match &self.bound {
            Bound::Pipeline { low, .. } => Time::ZERO + self.free_at.since(Time::ZERO + *low),
            Bound::Buffer { waiting, .. } => waiting.front().map_or(self.free_at, |first| first.gone_at),
        }
    }

    /// Queues a frame that is ready to leave at `ready`. Returns when its last bit leaves.
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
