//! Errors of a network of processes.

use super::greeting::VERSION;
use core::fmt;
use std::io;
use std::path::PathBuf;

/// Most processes per host. Queue pair numbers from 0x800000 are reserved for packet queues and multicast.
pub const MOST_PROCESSES: u8 = 0x80;

/// Why a network cannot be used.
#[derive(Debug)]
pub enum NetworkError {
    /// Something in its directory cannot be created, read or removed.
    Directory(PathBuf, io::Error),
    /// It belongs to another version of this program.
    Version {
        /// Directory of the network.
        path: PathBuf,
        /// Version in its file.
        found: String,
    },
    /// The path of a socket would exceed the kernel's limit.
    TooLong(PathBuf),
    /// The host has no free process number.
    Full(String),
    /// Another process already is the network's bridge to the outside.
    HasWire(PathBuf),
    /// Another process holds the lock of the network.
    Locked {
        /// The lock.
        path: PathBuf,
        /// Number of that process, where the kernel tells.
        holder: Option<i32>,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path, error) => {
                write!(f, "network: {}: {error}; check the rights of this directory", path.display())
            }
            Self::Version { path, found } => write!(
                f,
                "the network at {} was made by another version of bareverbs (version {found} of the protocol, this one has \
                 {VERSION}); choose another with --network, or delete that directory when none of its programs runs",
                path.display()
            ),
            Self::TooLong(path) => write!(
                f,
                "{} is too long for the path of a socket (at most 107 bytes); set XDG_RUNTIME_DIR to a shorter directory, or \
                 shorten the names of network and host",
                path.display()
            ),
            Self::Full(host) => {
                write!(
                    f,
                    "host {host} has {MOST_PROCESSES} processes with an open device already; use a further host"
                )
            }
            Self::HasWire(path) => write!(
                f,
                "the network at {} already has the wire of another `bareverbs run --wire`; end that one, or \
                 choose another network with --network",
                path.display()
            ),
            Self::Locked { path, holder } => {
                let who = holder.map_or("another process".to_owned(), |number| format!("process {number}"));
                write!(
                    f,
                    "{} has been locked by {who} for seconds; if that process is stopped or in a debugger, let it continue or end it",
                    path.display()
                )
            }
        }
    }
}

impl core::error::Error for NetworkError {}
