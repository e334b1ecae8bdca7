//! The cables of served devices, for other processes (`bareverbs serve --link-down PATH`). Beside the socket PATH of a device,
//! PATH.cable takes a word per connection, `down` or `up`, and repeats it when the cable has that state.
//!
//! The virtual machine behind PATH cannot reach this socket.

use anyhow::{Context as _, Result, bail, ensure};
use bareverbs_serve::vfio_user::{Cable, ServeError, listen_at};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long either end waits for the other.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes that are read: one more than the longest word has, so that a longer one is none.
const LONGEST: u64 = 5;

/// The word for a cable that is plugged in, or is not.
const fn word(is_plugged: bool) -> &'static str {
    if is_plugged { "up" } else { "down" }
}

/// The socket for the cable of the device at `device`.
pub(super) fn socket_of(device: &Path) -> PathBuf {
    let mut name = device.as_os_str().to_owned();
    name.push(".cable");
    name.into()
}

/// The socket of a cable. Dropping it removes the socket.
#[derive(Debug)]
pub(super) struct CableSocket {
    path: PathBuf,
}

impl CableSocket {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CableSocket {
    fn drop(&mut self) {
        // Best effort: the next server replaces a socket on which nobody listens.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens for words about the cable of the device at `device`, in a thread of its own.
pub(super) fn listen(device: &Path, cable: Cable) -> Result<CableSocket, ServeError> {
    let path = socket_of(device);
    let listener = listen_at(&path)?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that says nothing, or nonsense, changes nothing; the next one is heard.
            if let Err(error) = stream.context("cannot accept a client").and_then(|end| obey(end, &cable)) {
                tracing::warn!("a request to change a cable failed: {error:#}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    Ok(CableSocket { path })
}

fn obey(mut client: UnixStream, cable: &Cable) -> Result<()> {
    let said = hear(&mut client)?;
    let is_plugged = match said.as_str() {
        "up" => true,
        "down" => false,
        other => bail!("{other:?} is neither up nor down"),
    };
    cable.set_plugged(is_plugged);
    client.write_all(said.as_bytes()).context("the client has gone")
}

/// What the other end says until it ends its sentence, or the start of it.
fn hear(end: &mut UnixStream) -> Result<String> {
    end.set_read_timeout(Some(DEADLINE)).and_then(|()| end.set_write_timeout(Some(DEADLINE)))?;
    let mut said = String::new();
    end.take(LONGEST).read_to_string(&mut said).context("the other end sent nothing")?;
    Ok(said)
}

/// Plugs the cable of the device that another process serves at `device` in, or unplugs it.
pub(super) fn set(device: &Path, is_plugged: bool) -> Result<()> {
    let path = socket_of(device);
    let word = word(is_plugged);
    let mut server = UnixStream::connect(&path).with_context(|| {
        format!(
            "no `bareverbs serve` answers at {}: give the path of a socket that one serves, as in --socket",
            path.display()
        )
    })?;
    let said = server
        .write_all(word.as_bytes())
        .and_then(|()| server.shutdown(Shutdown::Write))
        .map_err(Into::into)
        .and_then(|()| hear(&mut server))
        .with_context(|| format!("the server at {} did not say that the link is {word}", path.display()))?;
    ensure!(said == word, "the server at {} answered {said:?} instead of {word:?}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::MacAddress;
    use bareverbs_serve::vfio_user::{Server, ServerConfig};
    use bareverbs_sim::nic::NicConfig;

    /// A device, with its cable's socket.
    struct Scene {
        directory: tempfile::TempDir,
        path: PathBuf,
        server: Server,
        socket: CableSocket,
    }

    fn served() -> Scene {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic");
        let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
        let server = Server::bind(&path, ServerConfig::new(nic)).expect("a device");
        let socket = listen(&path, server.cable()).expect("a socket");
        Scene { directory, path, server, socket }
    }

    #[test]
    fn a_cable_command_may_be_repeated() {
        let Scene { directory: _directory, path, server, socket: _socket } = served();
        for is_plugged in [false, false, true] {
            set(&path, is_plugged).expect("an answer");
            assert_eq!(server.cable().is_plugged(), is_plugged);
        }
    }

    #[test]
    fn malformed_cable_commands_change_nothing_and_the_next_one_works() {
        let Scene { directory: _directory, path, server, socket: _socket } = served();
        for nonsense in ["", "u", "downdown", "\u{fe}"] {
            let mut client = UnixStream::connect(socket_of(&path)).expect("a connection");
            client.write_all(nonsense.as_bytes()).expect("room");
            client.shutdown(Shutdown::Write).expect("an open end");
            let mut answer = Vec::new();
            // The server may close a connection before it has read all of it.
            let _ = client.read_to_end(&mut answer);
            assert!(answer.is_empty() && server.cable().is_plugged(), "{nonsense:?}");
        }
        set(&path, false).expect("an answer");
        assert!(!server.cable().is_plugged());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let Scene { directory, server, .. } = served();
        let other = directory.path().join("other");
        drop(std::os::unix::net::UnixListener::bind(socket_of(&other)).expect("a socket"));
        drop(listen(&other, server.cable()).expect("the old socket is replaced"));
        fs::write(socket_of(&other), "mine").expect("a file");
        let error = listen(&other, server.cable()).expect_err("a file is in the way");
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read(socket_of(&other)).expect("the file"), b"mine");
        let error = set(&directory.path().join("nobody"), true).expect_err("nobody is there");
        assert!(error.to_string().starts_with("no `bareverbs serve` answers at "), "{error:#}");
    }

    #[test]
    fn a_living_socket_is_left_alone() {
        let Scene { directory: _directory, path, server, socket } = served();
        let error = listen(&path, server.cable()).expect_err("the first one listens");
        assert!(error.to_string().contains("is in use"), "{error}");
        set(&path, false).expect("the first one answers");
        let left = socket.path().to_owned();
        drop(socket);
        assert!(!left.exists());
    }
}
