//! A process's membership in a network: its number and its socket.

use super::error::NetworkError;
use super::socket::{connect, socket};
use crate::listening;
use rustix::fs::FlockOperation;
use rustix::net::{SocketAddrUnix, SocketFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Longest wait for the lock of a network while one process has it, and in all: a hundred that start at once take it in turn, on a machine
/// where each may have to wait for a processor.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_LIMIT_IN_ALL: Duration = Duration::from_secs(60);
/// Between two tries; it grows, so that those who wait leave the processors to who has the lock.
const SHORTEST_LOCK_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Membership of a process of a host. Dropping it leaves the network, and so does any end of the process.
#[derive(Debug)]
pub struct Membership {
    number: u8,
    listener: OwnedFd,
    /// `None` once it has been abandoned.
    path: Option<PathBuf>,
}

impl Membership {
    /// Listens at a path, replacing a dead process's socket; `None` if a live process listens there.
    pub(super) fn bind(path: &Path, number: u8) -> Result<Option<Self>, NetworkError> {
        let trouble = |error: io::Error| NetworkError::Directory(path.to_owned(), error);
        SocketAddrUnix::new(path).map_err(|_| NetworkError::TooLong(path.to_owned()))?;
        let listener = socket().map_err(trouble)?;
        if path.exists() {
            if is_alive(path) {
                return Ok(None);
            }
            fs::remove_file(path).map_err(trouble)?;
        }
        listening::listen(&listener, path, BACKLOG).map_err(trouble)?;
        Ok(Some(Self { number, listener, path: Some(path.to_owned()) }))
    }

    /// Number within the host: the upper 8 bits of the process's queue pair numbers.
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// Closes the descriptor without leaving the network: after `fork` a child has a copy of its parent's membership.
    pub fn abandon(mut self) {
        self.path = None;
    }

    /// The next process that has connected; `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => Ok(Some(connection)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Membership {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Best effort: the next process would detect that nobody listens there.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

/// Whether a live process listens there.
pub(super) fn is_alive(path: &Path) -> bool {
    let gone = |error: io::Error| matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
    !connect(path).is_err_and(gone)
}

/// Takes a lock that ends with `file` or with this process. A child after `fork` does not hold it.
pub(super) fn hold(file: &File, path: &Path) -> Result<(), NetworkError> {
    let mut wait = LockWait::new(Instant::now());
    while let Err(error) = rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        if !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS | rustix::io::Errno::INTR) {
            return Err(NetworkError::Directory(path.to_owned(), error.into()));
        }
        let holder = holder(file);
        if wait.is_over(Instant::now(), holder) {
            return Err(NetworkError::Locked { path: path.to_owned(), holder });
        }
        std::thread::sleep(wait.pause);
        wait.pause = (wait.pause * 2).min(LONGEST_LOCK_PAUSE);
    }
    Ok(())
}

/// Number of the process that holds the lock of a file; `None` if it has just been released.
fn holder(file: &File) -> Option<i32> {
    let lock = Flock::from(FlockType::WriteLock);
    Some(fcntl_getlk(file, &lock).ok()??.pid?.as_raw_pid())
}

/// The wait for a lock that goes from process to process.
#[derive(Debug)]
struct LockWait {
    start: Instant,
    holder: Option<i32>,
    /// Since when this one has it.
    since: Instant,
    pause: Duration,
}

impl LockWait {
    const fn new(now: Instant) -> Self {
        Self { start: now, holder: None, since: now, pause: SHORTEST_LOCK_PAUSE }
    }

    /// Whether the same process has held the lock for too long. A lock that is free, or that has changed hands, makes progress.
    fn is_over(&mut self, now: Instant, holder: Option<i32>) -> bool {
        if holder.is_none() || holder != self.holder {
            (self.holder, self.since) = (holder, now);
        }
        now - self.since > LOCK_LIMIT || now - self.start > LOCK_LIMIT_IN_ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_changes_hands_is_waited_for_longer_than_a_stuck_one() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut wait = LockWait::new(start);
        assert!((0..60).all(|second| !wait.is_over(after(second), Some(second as i32 / 4))));
        assert!(wait.is_over(after(61), Some(99)), "a minute is enough");
        let mut wait = LockWait::new(start);
        assert!(!wait.is_over(after(1), Some(7)) && !wait.is_over(after(5), Some(7)));
        assert!(wait.is_over(after(7), Some(7)), "the process stands still");
        let mut wait = LockWait::new(start);
        assert!(
            !wait.is_over(after(1), Some(7))
                && !wait.is_over(after(5), None)
                && !wait.is_over(after(9), Some(7))
        );
    }
}
