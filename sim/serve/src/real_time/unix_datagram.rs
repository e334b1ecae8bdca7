//! Frames over Unix datagram sockets: one frame a datagram, as QEMU's `-netdev dgram` sends and takes them.

use super::FrameIo;
use super::descriptor::{Buffer, is_later, wait_for};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One end of a wire: a socket of our own, and the path of the other side's.
#[derive(Debug)]
pub struct UnixDatagramIo {
    socket: UnixDatagram,
    own: PathBuf,
    peer: PathBuf,
    buffer: Buffer,
}

impl UnixDatagramIo {
    /// Listens at `own` and sends to `peer`, which need not be there yet. `own` is removed in the end.
    pub fn bind(own: &Path, peer: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(own)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, own: own.to_owned(), peer: peer.to_owned(), buffer: Buffer::default() })
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
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let socket = &self.socket;
        self.buffer.take(frame, |buffer| socket.recv(buffer))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        wait_for(self.as_fd(), limit)
    }
}

impl Drop for UnixDatagramIo {
    fn drop(&mut self) {
        // Nobody listens here any more; a path that is gone already is as good.
        let _ = std::fs::remove_file(&self.own);
    }
}
