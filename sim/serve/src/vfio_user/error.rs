//! Why a device cannot be served.

use bareverbs_prm::ids::VhcaId;
use core::fmt;
use std::io;
use std::path::PathBuf;

/// Why serving failed.
#[derive(Debug)]
pub enum ServeError {
    /// The socket cannot be created.
    Socket(PathBuf, io::Error),
    /// The path exists and is not a socket.
    NotASocket(PathBuf),
    /// A live server uses the path, or its socket cannot be removed.
    InUse(PathBuf),
    /// The wire cannot be opened, or the device's thread cannot be started.
    Wire(io::Error),
    /// The card has a function of this number already, or the device is no function.
    Card(Option<VhcaId>),
    /// The device's thread has ended: the model panicked.
    DeviceEnded,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path, cause) => write!(f, "cannot listen at {}: {cause}", path.display()),
            Self::NotASocket(path) => {
                write!(
                    f,
                    "{} exists and is not a socket, so it is left alone: choose another path",
                    path.display()
                )
            }
            Self::InUse(path) => {
                write!(f, "{} is in use; end the other server or choose another path", path.display())
            }
            Self::Wire(cause) => write!(f, "cannot take the end of the wire: {cause}"),
            Self::Card(Some(id)) => {
                write!(f, "the card has a function with VHCA id {id} already: give this one another")
            }
            Self::Card(None) => write!(f, "the device is not a function of a card: set NicConfig::card"),
            Self::DeviceEnded => write!(f, "the device model has ended; its last messages are above"),
        }
    }
}

impl core::error::Error for ServeError {}
