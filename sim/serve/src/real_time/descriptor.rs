//! Common code for frames over a file descriptor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Longest accepted frame: what QEMU can send.
const LONGEST_FRAME: usize = 68 << 10;

/// Buffer for one frame.
#[derive(Debug)]
pub(super) struct Buffer(Box<[u8]>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; LONGEST_FRAME].into_boxed_slice())
    }
}

impl Buffer {
    /// Moves what `read` reads to `frame`; false if there is nothing to read now.
    pub(super) fn take(
        &mut self,
        frame: &mut Vec<u8>,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        match read(&mut self.0) {
            Ok(length) => {
                frame.clear();
                frame.extend_from_slice(self.0.get(..length).unwrap_or_default());
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the error only asks for a retry.
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Waits until the descriptor is readable, for at most `limit`.
pub(super) fn wait_for(source: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(&mut [PollFd::from_borrowed_fd(source, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
