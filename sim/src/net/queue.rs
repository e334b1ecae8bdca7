//! A bounded egress queue: frames leave one after another.
//!
//! Subnet management packets have a lane and a small buffer of their own (virtual lane 15, IBTA v1.4 §7.6.4). They leave
//! before all waiting data, and data cannot use up their buffer.
//!
//! **What it may not do.** The departure times of waiting frames are fixed when they are queued. A management packet that
//! overtakes them does not move them: for a few nanoseconds the wire carries both. Frames queued later leave later by that
//! time.

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
    /// Limited in bytes: the buffer of a switch, which drops what does not fit. `management` has the departure times of
    /// the management lane's packets.
    Buffer { limit: u64, bytes: u64, waiting: VecDeque<Leaving>, management: VecDeque<Time> },
}

#[derive(Debug, Clone, Copy)]
struct Leaving {
    gone_at: Time,
    length: u32,
}

/// Most packets that wait on the management lane.
const MANAGEMENT_ROOM: usize = 64;
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
        let bound = Bound::Buffer { limit, bytes: 0, waiting: VecDeque::new(), management: VecDeque::new() };
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
            Bound::Buffer { limit, bytes, waiting, .. } => {
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

    /// Queues a subnet management packet at a switch. It leaves after the frame that is on the wire at `ready`, and before
    /// all waiting frames. `None` if the management lane is full. A device's queue has one lane only.
    #[cold]
    pub fn push_management(&mut self, now: Time, ready: Time, length: usize) -> Option<Time> {
        let time = self.rate.serialisation(length);
        let Bound::Buffer { waiting, management, .. } = &mut self.bound else {
            return Some(self.push(ready, length));
        };
        while management.front().is_some_and(|gone_at| *gone_at <= now) {
            management.pop_front();
        }
        if management.len() >= MANAGEMENT_ROOM {
            return None;
        }
        let begins = management.back().map_or(ready, |last| ready.max(*last));
        let on_wire = waiting.get(waiting.partition_point(|frame| frame.gone_at <= begins));
        let is_begun = |frame: &&Leaving| {
            begins.since(Time::ZERO) + self.rate.serialisation(frame.length as usize)
                > frame.gone_at.since(Time::ZERO)
        };
        let begins = on_wire.filter(is_begun).map_or(begins, |frame| frame.gone_at);
        management.push_back(begins + time);
        self.free_at = if self.free_at > begins { self.free_at + time } else { begins + time };
        Some(begins + time)
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

    /// Requirement: IBTA v1.4 §7.6.4: packets of virtual lane 15 leave before waiting data.
    #[test]
    fn management_goes_before_data_that_waits() {
        let mut queue = EgressQueue::buffer(PICOSECOND_A_BYTE, 400);
        assert_eq!([76; 4].map(|length| queue.push(at(0), length)), [at(100), at(200), at(300), at(400)]);
        assert!(!queue.has_room(at(0), 276), "the buffer of data is full");
        assert_eq!(queue.push_management(at(0), at(150), 76), Some(at(300)), "behind the frame on the wire");
        assert_eq!(queue.push_management(at(0), at(150), 76), Some(at(400)), "behind the first one");
        assert_eq!(queue.push(at(0), 76), at(700), "what comes later pays for both");
        let mut idle = EgressQueue::buffer(PICOSECOND_A_BYTE, 400);
        assert_eq!(idle.push_management(at(0), at(10), 76), Some(at(110)));
        assert_eq!(idle.push(at(0), 76), at(210));
    }

    #[test]
    fn the_management_lane_has_an_end() {
        let mut queue = EgressQueue::buffer(PICOSECOND_A_BYTE, 400);
        let taken = (0..100).filter(|_| queue.push_management(at(0), at(0), 76).is_some()).count();
        assert_eq!(taken, MANAGEMENT_ROOM);
        assert!(queue.push_management(at(100), at(100), 76).is_some(), "one has left");
        let mut device = EgressQueue::pipeline(PICOSECOND_A_BYTE, Duration::ZERO);
        assert_eq!(device.push_management(at(0), at(0), 76), Some(at(100)));
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
