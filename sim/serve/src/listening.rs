//! Sockets that get their name only once they listen.

use rustix::fd::AsFd;
use rustix::net::SocketAddrUnix;
use std::io;
use std::path::Path;

/// Makes a socket listen at `path`, which must not exist. Until a socket listens it refuses connections, as that of a dead
/// process does, and who waits for its name may connect at once; so it gets the name last.
pub(crate) fn listen(socket: impl AsFd, path: &Path, backlog: i32) -> io::Result<()> {
    let mut unready = path.as_os_str().to_owned();
    unready.push(format!(".{}", std::process::id()));
    let Ok(address) = SocketAddrUnix::new(&unready) else {
        // The longer name is too long for a socket.
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        return Ok(rustix::net::listen(socket, backlog)?);
    };
    rustix::net::bind(&socket, &address)?;
    let named = rustix::net::listen(socket, backlog)
        .map_err(io::Error::from)
        .and_then(|()| std::fs::hard_link(&unready, path));
    std::fs::remove_file(&unready)?;
    named
}
