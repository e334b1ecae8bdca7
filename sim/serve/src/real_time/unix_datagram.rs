//! Frames over Unix datagram sockets, one per datagram, compatible with QEMU's `-netdev dgram`.

use super::FrameIo;
use super::descriptor::{Buffer, is_later, wait_for};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One end of a wire: a socket of our own, and the path of the peer's.
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
    /// Listens at `own` and sends to `peer`, which need not exist yet. Dropping this removes `own`. A socket that a
    /// killed process left there is replaced.
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

/// Whether the socket at this path is dead.
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
        // Best effort: nobody listens here any more.
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
        // What a killed process leaves behind: the socket is not removed.
        drop(UnixDatagram::bind(&own).expect("free"));
        let _living = UnixDatagramIo::bind(&own, &peer).expect("taken over");
        let refusal = UnixDatagramIo::bind(&own, &peer).expect_err("somebody lives there");
        assert_eq!(refusal.kind(), io::ErrorKind::AddrInUse);
        assert!(refusal.to_string().contains("own"), "{refusal}");
    }
}
