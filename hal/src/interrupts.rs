//! A device's interrupts as event file descriptors. Any number of threads can wait for all of them.
//!
//! **No wakeup is lost.** A descriptor is empty once somebody has read it, and the reader may not be the thread that
//! the interrupt was for. So every successful read is counted ([`Interrupts::noticed`]), and threads wait for that
//! count to change: a thread that reads the count before it checks its queue cannot sleep through a later interrupt.
//! One waiting thread sits in `poll`. The others wait for it, and one of them takes over when its time is up.

use bareverbs_prm::time::Duration;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Most interrupts handled per check.
const BATCH: usize = 16;

/// Event file descriptors and their counts.
#[derive(Debug)]
pub struct Interrupts {
    events: Vec<Event>,
    epoll: OwnedFd,
    /// Signalled when another thread has taken an interrupt, to wake the thread in `poll`.
    call: OwnedFd,
    /// Number of checks that found an interrupt. Changed under the lock.
    noticed: AtomicU64,
    watch: Mutex<Watch>,
    changed: Condvar,
}

/// One event file descriptor.
#[derive(Debug)]
struct Event {
    file: OwnedFd,
    /// Number of times it fired.
    count: AtomicU64,
    watcher: OnceLock<Watcher>,
}

/// What an application's event loop polls: readable on the event itself, or when another thread has taken it.
#[derive(Debug)]
struct Watcher {
    either: OwnedFd,
    taken: OwnedFd,
}

impl Event {
    /// # Errors
    /// The process is out of file descriptors.
    fn watcher(&self) -> io::Result<&Watcher> {
        if let Some(watcher) = self.watcher.get() {
            return Ok(watcher);
        }
        let either = epoll::create(CreateFlags::CLOEXEC)?;
        let taken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for file in [&self.file, &taken] {
            epoll::add(&either, file, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(self.watcher.get_or_init(|| Watcher { either, taken }))
    }

    /// Empties the descriptor. Returns whether it had fired.
    fn take(&self) -> bool {
        let mut bytes = [0; 8];
        // An empty descriptor has not fired.
        if matches!(read(&self.file, &mut bytes), Err(Errno::AGAIN)) {
            return false;
        }
        self.count.fetch_add(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        if let Some(watcher) = self.watcher.get() {
            // The counter cannot overflow: the waiter drains it.
            let _ = write(&watcher.taken, &1u64.to_ne_bytes());
        }
        true
    }
}

/// State of the waiting threads.
#[derive(Debug, Default)]
struct Watch {
    /// Whether a thread sits in `poll`.
    kept: bool,
}

impl Interrupts {
    /// Creates `count` event file descriptors.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut events = Vec::with_capacity(count);
        for index in 0..count {
            let event = eventfd(0, flags)?;
            epoll::add(&epoll, &event, EventData::new_u64(index as u64), EventFlags::IN)?;
            events.push(Event { file: event, count: AtomicU64::new(0), watcher: OnceLock::new() });
        }
        let (noticed, watch) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { events, epoll, call: eventfd(0, flags)?, noticed, watch, changed: Condvar::new() })
    }

    /// The event file descriptor with this index.
    pub(crate) fn event(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.events.get(index).map(|event| event.file.as_fd())
    }

    /// A file descriptor that becomes readable when event `index` fires, even if another thread takes the event, and
    /// stays so until [`Self::drain`]. `None` if there is no such event, or the process is out of file descriptors.
    pub(crate) fn watch(&self, index: usize) -> Option<BorrowedFd<'_>> {
        // Take the lock, so that nobody takes the event between creating the two descriptors.
        let _watch = self.lock();
        self.events.get(index)?.watcher().ok().map(|watcher| watcher.either.as_fd())
    }

    /// Takes event `index` on behalf of its watcher.
    pub(crate) fn drain(&self, index: usize) {
        let watch = self.lock();
        let Some(event) = self.events.get(index) else { return };
        if event.take() {
            self.notice(&watch);
        }
        if let Some(watcher) = event.watcher.get() {
            let _ = read(&watcher.taken, &mut [0; 8]);
        }
    }

    /// A file descriptor that is readable when any event has fired, for an application's event loop.
    pub(crate) fn any(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Number of times `index` has fired. Takes the lock, because another thread may have emptied the descriptor
    /// without having counted yet.
    pub(crate) fn count(&self, index: usize) -> u64 {
        let watch = self.lock();
        if self.take() {
            self.notice(&watch);
        }
        drop(watch);
        self.events.get(index).map_or(0, |event| event.count.load(Ordering::Relaxed))
    }

    /// Number of checks that found an interrupt.
    #[inline]
    pub(crate) fn noticed(&self) -> u64 {
        self.noticed.load(Ordering::Acquire)
    }

    /// Waits until [`Self::noticed`] differs from `before`, for at most `limit`. A signal to the thread in `poll` ends
    /// its wait early. Returns whether the count differs.
    pub(crate) fn wait(&self, before: u64, limit: Duration) -> bool {
        let limit = std::time::Duration::from_nanos(limit.as_nanos());
        let end = Instant::now() + limit;
        let mut watch = self.lock();
        loop {
            if self.noticed() != before {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if watch.kept {
                if left.is_zero() {
                    return false;
                }
                let woken = self.changed.wait_timeout(watch, left);
                watch = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            watch.kept = true;
            drop(watch);
            let signal = self.sit(left);
            watch = self.lock();
            watch.kept = false;
            let _ = read(&self.call, &mut [0; 8]);
            if self.take() {
                self.notice(&watch);
            }
            // If others still wait, one of them must take over `poll`.
            self.changed.notify_all();
            if signal || left.is_zero() {
                return self.noticed() != before;
            }
        }
    }

    /// Polls for a descriptor or a call. Returns true if a signal interrupted it.
    fn sit(&self, limit: std::time::Duration) -> bool {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut sources = [PollFd::new(&self.epoll, PollFlags::IN), PollFd::new(&self.call, PollFlags::IN)];
        poll(&mut sources, Some(&limit)).is_err()
    }

    /// Counts a successful check and wakes all waiting threads.
    fn notice(&self, watch: &MutexGuard<'_, Watch>) {
        self.noticed.fetch_add(1, Ordering::Release);
        if watch.kept {
            // The counter cannot overflow: every thread that leaves `poll` empties it.
            let _ = write(&self.call, &1u64.to_ne_bytes());
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        // The state is consistent even if another thread panicked.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything that has fired, under the lock. Returns whether there was anything.
    fn take(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BATCH];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((fired, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&now)) else { return false };
        let mut any = false;
        for event in fired.iter() {
            any |= self.events.get(event.data.u64() as usize).is_some_and(Event::take);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::thread;

    /// Longer than any stall of a test machine: a wait that takes this long has lost its wakeup.
    const EVER: Duration = Duration::from_secs(60);

    fn fire(interrupts: &Interrupts, index: usize) {
        write(interrupts.event(index).unwrap(), &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn an_interrupt_ends_the_wait_and_is_counted() {
        let interrupts = Interrupts::new(3).unwrap();
        assert!(!interrupts.wait(interrupts.noticed(), Duration::from_micros(50)));
        fire(&interrupts, 1);
        fire(&interrupts, 1);
        assert!(interrupts.wait(interrupts.noticed(), EVER));
        assert_eq!([0, 1, 2, 9].map(|index| interrupts.count(index)), [0, 2, 0, 0]);
        assert!(!interrupts.wait(interrupts.noticed(), Duration::ZERO), "it was taken");
        assert!(interrupts.event(3).is_none());
    }

    #[test]
    fn a_wait_ends_in_time() {
        let (interrupts, clock) = (Interrupts::new(1).unwrap(), Clock::start());
        let deadline = clock.now() + Duration::from_millis(3);
        assert!(!interrupts.wait(interrupts.noticed(), clock.left(deadline)));
        assert!(clock.now() >= deadline && clock.left(deadline) == Duration::ZERO);
    }

    #[test]
    fn an_interrupt_that_another_thread_took_before_the_wait_ends_it() {
        let interrupts = Interrupts::new(2).unwrap();
        let before = interrupts.noticed();
        fire(&interrupts, 0);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(interrupts.count(0), 1));
        });
        assert!(interrupts.wait(before, EVER));
    }

    /// All waiters are notified, no matter which one sits in `poll` and who takes the interrupt.
    #[test]
    fn an_interrupt_that_another_thread_takes_during_the_wait_wakes_every_waiter() {
        let interrupts = Interrupts::new(1).unwrap();
        for round in 1..200 {
            let before = interrupts.noticed();
            thread::scope(|scope| {
                let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| interrupts.wait(before, EVER))).collect();
                fire(&interrupts, 0);
                assert_eq!(interrupts.count(0), round);
                for waiter in waiters {
                    assert!(waiter.join().unwrap(), "round {round}");
                }
            });
        }
    }

    /// Two threads that both wait for both descriptors pass a ball, like two completion channels of one device.
    #[test]
    fn two_threads_never_miss_each_others_interrupts() {
        let (interrupts, turn) = (Interrupts::new(2).unwrap(), AtomicU64::new(0));
        let play = |own: u64| {
            for round in 0..2000 {
                loop {
                    let before = interrupts.noticed();
                    if turn.load(Ordering::Acquire) == 2 * round + own {
                        break;
                    }
                    assert!(interrupts.wait(before, EVER), "round {round} of {own}");
                }
                turn.store(2 * round + own + 1, Ordering::Release);
                fire(&interrupts, own as usize);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
    }

    /// An event taken by another thread stays readable for its watcher until the watcher drains it.
    #[test]
    fn a_watcher_sees_interrupts_that_another_thread_takes() {
        let interrupts = Interrupts::new(2).unwrap();
        let readable = || {
            let mut sources = [PollFd::from_borrowed_fd(interrupts.watch(1).unwrap(), PollFlags::IN)];
            poll(&mut sources, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        assert!(!readable() && interrupts.watch(2).is_none());
        for taken in [false, true] {
            fire(&interrupts, 1);
            if taken {
                assert_eq!(interrupts.count(1), 2);
            }
            assert!(readable() && readable(), "taken by another: {taken}");
            interrupts.drain(1);
            assert!(!readable());
        }
        fire(&interrupts, 0);
        assert!(!readable(), "another vector");
        assert_eq!([0, 1].map(|index| interrupts.count(index)), [1, 2]);
    }

    #[test]
    fn a_waiter_that_times_out_leaves_the_watch_to_another() {
        let interrupts = Interrupts::new(1).unwrap();
        let before = interrupts.noticed();
        let (woken, news) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let first = scope.spawn(|| interrupts.wait(before, Duration::from_millis(5)));
            scope.spawn(|| woken.send(interrupts.wait(before, EVER)));
            assert!(!first.join().unwrap());
            fire(&interrupts, 0);
            let half = std::time::Duration::from_nanos(EVER.as_nanos() / 2);
            assert_eq!(news.recv_timeout(half), Ok(true));
        });
    }
}
