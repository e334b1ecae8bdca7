//! Why a conversation with a server failed, with the values of the command in progress.

use super::command::Command;
use core::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Why a conversation with a server failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// No server listens at the path.
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The connection broke, or the server did not reply in time.
    Broken {
        /// The command in progress.
        command: &'static str,
        /// What the command was about.
        subject: CommandSubject,
        /// Why.
        error: io::Error,
    },
    /// The server refused the command.
    Refused {
        /// The command.
        command: &'static str,
        /// What the command was about.
        subject: CommandSubject,
        /// Its error number; 0 if it gave none.
        errno: u32,
    },
    /// The server violated the protocol.
    Garbage {
        /// The command in progress.
        command: &'static str,
        /// The violation.
        what: &'static str,
    },
}

/// What a command was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandSubject {
    /// The device as a whole.
    Device,
    /// Memory to map for the device, or to unmap.
    Memory {
        /// Its first address, as the device sees it.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Bytes of a region.
    Region {
        /// Index of the region.
        region: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
}

impl CommandSubject {
    /// The subject of a message.
    pub(in crate::vfio_user) fn of(command: Command, body: &[u8]) -> Self {
        let long =
            |at: usize| body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        let word =
            |at: usize| body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let memory = |at| Some(Self::Memory { address: long(at)?, length: long(at + 8)? });
        let region = || Some(Self::Region { region: word(8)?, offset: long(0)?, length: word(12)? });
        let subject = match command {
            Command::DmaMap => memory(16),
            Command::DmaUnmap => memory(8),
            Command::RegionRead | Command::RegionWrite => region(),
            _ => None,
        };
        subject.unwrap_or(Self::Device)
    }
}

/// Follows the name of a command.
impl fmt::Display for CommandSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => Ok(()),
            Self::Memory { address, length } => write!(f, " of {length} bytes at {address:#x}"),
            Self::Region { region, offset, length } => {
                write!(f, " of {length} bytes at {offset:#x} of region {region}")
            }
        }
    }
}

impl ClientError {
    /// The same failure of a command about `known`.
    pub(super) fn about(self, known: CommandSubject) -> Self {
        match self {
            Self::Broken { command, error, .. } => Self::Broken { command, subject: known, error },
            Self::Refused { command, errno, .. } => Self::Refused { command, subject: known, errno },
            other => other,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { path, error } if error.kind() == ErrorKind::PermissionDenied => write!(
                f,
                "this user may not use the vfio-user socket {}: {error}; run as the user who serves the card, or as root",
                path.display()
            ),
            Self::Connect { path, error } => {
                write!(
                    f,
                    "no vfio-user server at {}: {error}; start one: bareverbs serve --socket PATH",
                    path.display()
                )
            }
            Self::Broken { command, error, .. }
                if error.kind() == ErrorKind::WouldBlock && *command == Command::Version.name() =>
            {
                write!(
                    f,
                    "the server did not answer {command} in time: a served card takes one client at a time, end the other"
                )
            }
            Self::Broken { command, subject, error } if error.kind() == ErrorKind::WouldBlock => {
                write!(f, "the server did not answer {command}{subject} in time")
            }
            Self::Broken { command, subject, error } => {
                write!(f, "the connection broke at {command}{subject}: {error}; the server is gone")
            }
            Self::Refused { command, subject, errno: 0 } => {
                write!(f, "the server refuses {command}{subject} and does not say why")
            }
            Self::Refused { command, subject, errno } => {
                let error = io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0));
                write!(f, "the server refuses {command}{subject}: {error}")
            }
            Self::Garbage { command, what } => {
                write!(f, "the server's answer to {command} is not vfio-user: {what}")
            }
        }
    }
}

impl core::error::Error for ClientError {}
