//! Frames over Unix datagram sockets: one frame a datagram, as QEMU's `-netdev dgram` sends and takes them.

use super::FrameIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest frame that is taken: what QEMU can send.
pub(super) const LONGEST_FRAME: usize = 68 << 10;

/// One end of a wire: a socket of our own, and the path of the other side's.
#[derive(Debug)]
pub struct UnixDatagramIo {
    socket: UnixDatagram,
    own: PathBuf,
    peer: PathBuf,
    buffer: Box<[u8]>,
}

impl UnixDatagramIo {
    /// Listens at `own` and sends to `peer`, which need not be there yet. `own` is removed in the end.
    pub fn bind(own: &Path, peer: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(own)?;
        socket.set_nonblocking(true)?;
        let buffer = vec![0; LONGEST_FRAME].into_boxed_slice();
        Ok(Self { socket, own: own.to_owned(), peer: peer.to_owned(), buffer })
    }
}

impl AsFd for UnixDatagramIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl FrameIo for UnixDatagramIo {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self.socket.send_to(frame, &self.peer) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        match self.socket.recv(&mut self.buffer) {
            Ok(length) => {
                frame.clear();
                frame.extend_from_slice(self.buffer.get(..length).unwrap_or_default());
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        wait_for(self.as_fd(), limit)
    }
}

/// Waits until something can be read there, for `limit` at most.
pub(super) fn wait_for(source: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(&mut [PollFd::from_borrowed_fd(source, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Drop for UnixDatagramIo {
    fn drop(&mut self) {
        // Nobody listens here any more; a path that is gone already is as good.
        let _ = std::fs::remove_file(&self.own);
    }
}
