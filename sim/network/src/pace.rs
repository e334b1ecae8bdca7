//! How long the driver thread of a NIC pauses. Nothing can wake it: doorbells and frame rings are plain memory.

use bareverbs_prm::time::{Duration, Time};
use std::time::Instant;

/// Shortest sleep.
const SHORTEST: Duration = Duration::from_micros(20);
/// Longest sleep: what the first doorbell after a long silence may cost.
const LONGEST: Duration = Duration::from_micros(500);
/// A sleep lasts at most this fraction of the preceding silence, as a divisor.
const PART: u64 = 16;
/// How long the thread may spin before it sleeps.
const SPIN: Duration = Duration::from_millis(1);
/// How often to check the machine's load.
const ASK: std::time::Duration = std::time::Duration::from_millis(50);

/// The pacing of one thread.
#[derive(Debug)]
pub struct Pace {
    last_work: Time,
    cores: usize,
    may_spin: bool,
    asked: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// A thread that has not worked yet.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { last_work: Time::ZERO, cores, may_spin: false, asked: None }
    }

    /// Pauses after a step that ended at `now`, until `wakeup` at the latest.
    pub fn rest(&mut self, now: Time, busy: bool, wakeup: Option<Time>) {
        if busy {
            self.last_work = now;
            return;
        }
        let idle = now - self.last_work;
        if idle < SPIN && self.has_free_core() {
            core::hint::spin_loop();
            return;
        }
        let sleep = sleep_after(idle);
        let sleep = wakeup.map_or(sleep, |wakeup| sleep.min(wakeup - now));
        if sleep > Duration::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(sleep.as_nanos()));
        }
    }

    /// Pauses because another thread is driving the NIC.
    pub fn pause(&self) {
        std::thread::sleep(std::time::Duration::from_nanos(SHORTEST.as_nanos()));
    }

    /// Whether every runnable thread has a core, this one included.
    fn has_free_core(&mut self) -> bool {
        if self.asked.is_none_or(|asked| asked.elapsed() > ASK) {
            self.asked = Some(Instant::now());
            let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
            self.may_spin = running(&load).is_some_and(|running| running <= self.cores);
        }
        self.may_spin
    }
}

/// How long to sleep after this much silence.
fn sleep_after(idle: Duration) -> Duration {
    Duration::from_picos(idle.as_picos() / PART).clamp(SHORTEST, LONGEST)
}

/// Number of runnable threads on the machine: the number before the slash in `/proc/loadavg`.
fn running(load: &str) -> Option<usize> {
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_with_the_idle_time() {
        let micros = |n| Duration::from_micros(n);
        assert_eq!(sleep_after(micros(1)), micros(20));
        assert_eq!(sleep_after(micros(1600)), micros(100));
        assert_eq!(sleep_after(Duration::from_secs(1)), micros(500));
        assert_eq!(running("0.15 0.20 0.18 3/412 12345\n"), Some(3));
        assert_eq!(running("0.15"), None);
    }
}
