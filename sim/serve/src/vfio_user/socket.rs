//! The sockets of a served device: where nobody listens, and for their owner only.

use super::error::ServeError;
use crate::listening;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Clients that may wait to be accepted; others wait in `connect`. Each one, even a garbage sender, is served to its
/// end before the next.
pub(super) const WAITING: i32 = 16;

/// Listens at a path for connections of this user, as [`Server::bind`](super::Server::bind) does, for a program that serves something
/// beside a device. Replaces a dead server's socket.
///
/// # Errors
/// Something else is at the path, or nobody can listen there.
pub fn listen_at(path: &Path) -> Result<UnixListener, ServeError> {
    clear_path(path)?;
    listen(path)
}

/// Removes a socket on which nobody listens.
pub(super) fn clear_path(path: &Path) -> Result<(), ServeError> {
    let Ok(about) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !about.file_type().is_socket() {
        return Err(ServeError::NotASocket(path.to_owned()));
    }
    let dead = UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if !dead || std::fs::remove_file(path).is_err() {
        return Err(ServeError::InUse(path.to_owned()));
    }
    Ok(())
}

pub(super) fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let listening = || -> io::Result<UnixListener> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        listening::listen(&socket, path, WAITING)?;
        Ok(socket.into())
    };
    listening().map_err(|cause| ServeError::Socket(path.to_owned(), cause))
}
