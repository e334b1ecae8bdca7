//! A process's membership in a network: its number and its socket.

use super::error::NetworkError;
use super::socket::{connect, socket};
use rustix::fs::FlockOperation;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Longest wait for the lock of a network.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

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
        let address = SocketAddrUnix::new(path).map_err(|_| NetworkError::TooLong(path.to_owned()))?;
        let listener = socket().map_err(trouble)?;
        if path.exists() {
            if is_alive(path) {
                return Ok(None);
            }
            fs::remove_file(path).map_err(trouble)?;
        }
        rustix::net::bind(&listener, &address).map_err(|error| trouble(error.into()))?;
        rustix::net::listen(&listener, BACKLOG).map_err(|error| trouble(error.into()))?;
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
    let start = Instant::now();
    while let Err(error) = rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        if !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS | rustix::io::Errno::INTR) {
            return Err(NetworkError::Directory(path.to_owned(), error.into()));
        }
        if start.elapsed() > LOCK_LIMIT {
            return Err(NetworkError::Locked(path.to_owned()));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(())
}
