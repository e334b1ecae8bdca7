//! Sockets that have their name only when they listen, and that only their owner may use.

use rustix::fd::AsFd;
use rustix::net::SocketAddrUnix;
use std::ffi::OsString;
use std::fs::Permissions;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Read and write permission of the owner. To connect takes write permission.
const OWNER_ONLY: u32 = 0o600;

/// Makes a socket listen at `path`, which must not exist. Until a socket listens it refuses connections, as that of a dead
/// process does, and who waits for its name may connect at once; so it gets the name last.
pub(crate) fn listen(socket: impl AsFd, path: &Path, backlog: i32) -> io::Result<()> {
    let unready = unready_name(path);
    let Ok(address) = SocketAddrUnix::new(&unready) else {
        // The longer name is too long for a socket.
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        restrict(path)?;
        return Ok(rustix::net::listen(socket, backlog)?);
    };
    let unready = Path::new(&unready);
    rustix::net::bind(&socket, &address).map_err(|error| at(unready, error.into()))?;
    let named = restrict(unready)
        .and_then(|()| Ok(rustix::net::listen(socket, backlog)?))
        .and_then(|()| std::fs::hard_link(unready, path));
    std::fs::remove_file(unready).map_err(|error| at(unready, error))?;
    named
}

/// The first name of a socket. In a directory of all users, nobody else can guess it and take it.
fn unready_name(path: &Path) -> OsString {
    let mut unready = path.as_os_str().to_owned();
    unready.push(format!(".{:08x}", RandomState::new().hash_one(path) as u32));
    unready
}

fn restrict(socket: &Path) -> io::Result<()> {
    std::fs::set_permissions(socket, Permissions::from_mode(OWNER_ONLY)).map_err(|error| at(socket, error))
}

/// An error with the path that it is about.
fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::os::unix::net::UnixStream;

    fn listening_at(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        listen(&socket, path, 1).map(|()| socket)
    }

    #[test]
    fn a_leftover_of_the_process_number_is_not_in_the_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic");
        let leftover = directory.path().join(format!("nic.{}", std::process::id()));
        std::fs::write(&leftover, "").expect("a file");
        let _socket = listening_at(&path).expect("the path is free");
        UnixStream::connect(&path).expect("it listens");
        let names = std::fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(names, 2, "the socket and the leftover");
    }

    #[test]
    fn only_the_owner_may_use_a_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        // The second name leaves no room for a longer one.
        let long = 107 - directory.path().as_os_str().len() - 1;
        for name in ["nic", &"n".repeat(long)] {
            let path = directory.path().join(name);
            let _socket = listening_at(&path).expect("the path is free");
            let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
            assert_eq!(mode & 0o777, OWNER_ONLY, "{name}");
        }
    }

    #[test]
    fn the_error_names_the_path_that_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = listening_at(&directory.path().join("none/nic")).expect_err("there is no directory");
        assert!(error.to_string().contains("none/nic."), "{error}");
    }
}
