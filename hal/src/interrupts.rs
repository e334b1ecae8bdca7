//! Event file descriptors of a device's interrupts, waited for all at once.

use bareverbs_prm::time::{Duration, Time};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Interrupts that one look takes.
const BATCH: usize = 16;

/// Event file descriptors, and how often each fired.
#[derive(Debug)]
pub struct Interrupts {
    events: Vec<(OwnedFd, AtomicU64)>,
    epoll: OwnedFd,
}

impl Interrupts {
    /// `count` event file descriptors that have not fired.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut events = Vec::with_capacity(count);
        for index in 0..count {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&epoll, &event, EventData::new_u64(index as u64), EventFlags::IN)?;
            events.push((event, AtomicU64::new(0)));
        }
        Ok(Self { events, epoll })
    }

    /// Event file descriptor `index`.
    pub(crate) fn event(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.events.get(index).map(|(event, _)| event.as_fd())
    }

    /// A file descriptor that is readable when any of them has fired, for an event loop of the application.
    pub(crate) fn any(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// How often `index` has fired since the beginning.
    pub(crate) fn count(&self, index: usize) -> u64 {
        self.collect();
        self.events.get(index).map_or(0, |(_, count)| count.load(Ordering::Relaxed))
    }

    /// Waits until one fires, for `limit` at most; a signal ends the wait. True if one fired.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let nanos = limit.as_nanos();
        let limit = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let mut sources = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut sources, Some(&limit)).is_ok_and(|fired| fired > 0) && self.collect()
    }

    /// Takes what has fired.
    fn collect(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BATCH];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((fired, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&now)) else { return false };
        let mut any = false;
        for event in fired.iter() {
            let Some((file, count)) = self.events.get(event.data.u64() as usize) else { continue };
            let mut bytes = [0; 8];
            // Another thread may have taken it in between.
            if !matches!(read(file, &mut bytes), Err(Errno::AGAIN)) {
                count.fetch_add(u64::from_ne_bytes(bytes), Ordering::Relaxed);
                any = true;
            }
        }
        any
    }
}

/// The clock of a backend in real time: it begins when the device is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// What is left until `deadline`.
    pub(crate) fn left(&self, deadline: Time) -> Duration {
        let now = self.now();
        if deadline > now { deadline.since(now) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::write;

    #[test]
    fn what_fires_ends_the_wait_and_is_counted() {
        let interrupts = Interrupts::new(3).unwrap();
        assert!(!interrupts.wait(Duration::from_micros(50)));
        for _ in 0..2 {
            write(interrupts.event(1).unwrap(), &1u64.to_ne_bytes()).unwrap();
        }
        assert!(interrupts.wait(Duration::from_secs(10)));
        assert_eq!([0, 1, 2, 9].map(|index| interrupts.count(index)), [0, 2, 0, 0]);
        assert!(!interrupts.wait(Duration::ZERO), "it was taken");
        assert!(interrupts.event(3).is_none());
    }

    #[test]
    fn a_wait_ends_in_time() {
        let (interrupts, clock) = (Interrupts::new(1).unwrap(), Clock::start());
        let deadline = clock.now() + Duration::from_millis(3);
        assert!(!interrupts.wait(clock.left(deadline)));
        assert!(clock.now() >= deadline && clock.left(deadline) == Duration::ZERO);
    }
}
