//! Frames over Unix datagram sockets: one frame a datagram, as QEMU's `-netdev dgram` sends and takes them.

use super::FrameIo;
use super::descriptor::{Buffer, is_later, wait_for};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One end of a wire: a socket of our own, and the path of the other side's.
///
/// ```
/// use bareverbs_serve::real_time::{FrameIo, UnixDatagramIo};
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let [near, far] = ["near", "far"].map(|name| directory.path().join(name));
/// let mut one = UnixDatagramIo::bind(&near, &far)?;
/// let mut other = UnixDatagramIo::bind(&far, &near)?;
/// assert!(one.send(&[0xff; 60])?);
/// let mut frame = Vec::new();
/// assert!(other.receive(&mut frame)? && frame == [0xff; 60]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UnixDatagramIo {
    socket: UnixDatagram,
    own: PathBuf,
    peer: PathBuf,
    buffer: Buffer,
}

impl UnixDatagramIo {
    /// Listens at `own` and sends to `peer`, which need not be there yet. `own` is removed in the end; one that a process which was killed
    /// has left is taken over.
    pub fn bind(own: &Path, peer: &Path) -> io::Result<Self> {
        if is_abandoned(own) {
            std::fs::remove_file(own)?;
        }
        let socket = UnixDatagram::bind(own)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", own.display())))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, own: own.to_owned(), peer: peer.to_owned(), buffer: Buffer::default() })
    }
}

/// Whether a socket is there that nobody has open any more.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let answer = || UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket && answer().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_process_that_was_killed_is_taken_over_and_that_of_one_that_lives_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let [own, peer] = ["own", "peer"].map(|name| directory.path().join(name));
        // What is left of one that was killed: nothing is removed.
        drop(UnixDatagram::bind(&own).expect("free"));
        let _living = UnixDatagramIo::bind(&own, &peer).expect("taken over");
        let refusal = UnixDatagramIo::bind(&own, &peer).expect_err("somebody lives there");
        assert_eq!(refusal.kind(), io::ErrorKind::AddrInUse);
        assert!(refusal.to_string().contains("own"), "{refusal}");
    }
}
