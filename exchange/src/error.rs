//! Errors of an exchange between two programs.

use crate::message::{Limit, MessageError, VERSION};
use bareverbs_prm::ids::Qpn;
use core::fmt;
use std::io;
use std::time::Duration;

/// An exchange that failed.
#[derive(Debug)]
pub struct ExchangeError {
    /// The peer's address if it is known, otherwise our own.
    pub address: String,
    /// What happened.
    pub cause: ExchangeCause,
}

/// What this end was waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// A call.
    Call,
    /// Room to send: the peer must read what we sent.
    Room,
    /// The caller's name.
    Name,
    /// The peer's nonce, which our proof must cover.
    Challenge,
    /// The proof that the peer knows the key.
    Proof,
    /// The peer's introduction.
    Introduction,
    /// The word that the peer is ready.
    Ready,
    /// The end of the connection.
    End,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "for a call",
            Self::Room => "until it takes what we send",
            Self::Name => "for its name",
            Self::Challenge => "for the number that a proof needs",
            Self::Proof => "for the proof that it knows the key",
            Self::Introduction => "for its introduction",
            Self::Ready => "until it is ready",
            Self::End => "for its end",
        })
    }
}

/// Why an exchange failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExchangeCause {
    /// The address is malformed or its host name does not resolve.
    Address(io::Error),
    /// No address answered before the deadline.
    Unreachable {
        /// Number of attempts.
        attempts: u32,
        /// The last error.
        error: io::Error,
    },
    /// Listening at the address failed.
    Listen(io::Error),
    /// The deadline passed.
    TimedOut {
        /// What this end was waiting for.
        awaited: Awaited,
        /// How long it waited.
        limit: Duration,
        /// Bytes of the message that had arrived.
        received: usize,
    },
    /// The peer hung up.
    Closed {
        /// What this end was waiting for.
        awaited: Awaited,
        /// Bytes of the message that had arrived.
        received: usize,
    },
    /// The connection broke.
    Connection {
        /// What this end was waiting for.
        awaited: Awaited,
        /// The operating system's error.
        error: io::Error,
    },
    /// The peer does not speak this protocol.
    OtherProtocol {
        /// The first bytes it sent.
        found: [u8; 4],
    },
    /// The peer speaks another version of the exchange.
    OtherVersion {
        /// The peer's version.
        theirs: u16,
    },
    /// The peer sent a message out of turn.
    OutOfTurn {
        /// What this end was waiting for.
        awaited: Awaited,
        /// Kind of the message that arrived.
        kind: u16,
    },
    /// The peer's message is invalid.
    Peer(MessageError),
    /// The message that this end wants to send is invalid.
    Own(MessageError),
    /// The two ends state different purposes.
    OtherPurpose {
        /// This end's purpose.
        ours: String,
        /// The peer's purpose.
        theirs: String,
    },
    /// The peer introduced itself with our own queue pair.
    Ourselves {
        /// The queue pair.
        qpn: Qpn,
    },
    /// This end knows no key for the caller's name.
    UnknownName {
        /// The name.
        name: String,
    },
    /// The caller does not know the key for its name.
    WrongKey {
        /// The name.
        name: String,
    },
    /// The called end does not know the key for our name.
    Impostor {
        /// Our name.
        name: String,
    },
    /// The operating system returned no random number.
    Random(io::Error),
    /// The peer refused and hung up.
    Refused {
        /// The peer's reason.
        reason: String,
    },
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exchanging endpoints with {}: {}", self.address, self.cause)
    }
}

impl fmt::Display for ExchangeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "not an address HOST:PORT that can be resolved: {error}"),
            Self::Unreachable { attempts, error } => {
                write!(
                    f,
                    "not reached in {attempts} attempts: {error}; is the other program running and listening there?"
                )
            }
            Self::Listen(error) => {
                write!(
                    f,
                    "cannot listen: {error}; is another program, or an earlier run of this one, listening there?"
                )
            }
            Self::Own(error) => write!(f, "this end's own message is invalid: {error}"),
            Self::Random(error) => write!(f, "the operating system has no random number: {error}"),
            Self::TimedOut { .. } | Self::Closed { .. } | Self::Connection { .. } => self.fmt_broken(f),
            Self::UnknownName { .. } | Self::WrongKey { .. } | Self::Impostor { .. } => self.fmt_key(f),
            _ => self.fmt_peer(f),
        }
    }
}

impl ExchangeCause {
    /// Formats a broken connection.
    fn fmt_broken(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { awaited: Awaited::Call, limit, .. } => {
                write!(
                    f,
                    "no call arrived in {limit:?}; is the other program running, and does it call this address?"
                )
            }
            Self::TimedOut { awaited, limit, received } => write!(
                f,
                "waited {limit:?} {awaited}, {received} bytes of it arrived; is the other program stuck, or does it not use this exchange?"
            ),
            Self::Closed { awaited, received } => write!(
                f,
                "it hung up while we waited {awaited}, {received} bytes of it had arrived; did the other program end? Check its output"
            ),
            Self::Connection { awaited, error } => {
                write!(f, "the connection broke while we waited {awaited}: {error}")
            }
            _ => Ok(()),
        }
    }

    /// Formats a failed authentication.
    fn fmt_key(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => {
                write!(f, "it claims to be {name:?}, but that name is not known here")
            }
            Self::WrongKey { name } => {
                write!(f, "it claims to be {name:?}, but does not know the key of that name")
            }
            Self::Impostor { name } => write!(
                f,
                "it did not prove that it knows the key of {name:?}, so nothing that it sent was used; is the address right?"
            ),
            _ => Ok(()),
        }
    }

    /// Formats a mistake of the peer.
    fn fmt_peer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProtocol { found } => write!(
                f,
                "it speaks another protocol: what it sends begins with \"{}\" instead of \"BVEX\"; is the port right?",
                found.escape_ascii()
            ),
            Self::OtherVersion { theirs } => {
                let older = if *theirs < VERSION { "the other" } else { "this" };
                write!(
                    f,
                    "it has version {theirs} of the exchange, this end has {VERSION}; update {older} program"
                )
            }
            Self::OutOfTurn { awaited, kind } => {
                write!(
                    f,
                    "we waited {awaited}, but a message of kind {kind} arrived; do both programs take the same steps?"
                )
            }
            Self::Peer(error) => write!(f, "it sent an invalid message: {error}"),
            Self::OtherPurpose { ours, theirs } => write!(
                f,
                "its purpose is {theirs:?}, this end's is {ours:?}; do both run the same program in the same version?"
            ),
            Self::Ourselves { qpn } => {
                write!(f, "it introduced itself with our own queue pair {qpn}; did this program call itself?")
            }
            Self::Refused { reason } => write!(f, "it refused: {}", reason.escape_debug()),
            _ => Ok(()),
        }
    }

    /// What to tell the peer, if the mistake was the peer's. An unknown name and a wrong key look the same, so that
    /// nobody can find names by guessing.
    pub(crate) fn for_the_peer(&self) -> Option<String> {
        use ExchangeCause as C;
        match self {
            C::UnknownName { name } | C::WrongKey { name } => Some(format!(
                "no {name:?} with this key is known here; do name and key come from the owner of this end?"
            )),
            C::OtherVersion { .. }
            | C::OutOfTurn { .. }
            | C::Peer(_)
            | C::OtherPurpose { .. }
            | C::Ourselves { .. } => Some(self.to_string()),
            _ => None,
        }
    }

    /// The error for a body length beyond the limit.
    pub(crate) fn too_long(found: usize) -> Self {
        Self::Peer(MessageError::TooMany { limit: Limit::Body, found })
    }
}

impl std::error::Error for ExchangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            ExchangeCause::Address(error) | ExchangeCause::Listen(error) | ExchangeCause::Random(error) => {
                Some(error)
            }
            ExchangeCause::Unreachable { error, .. } | ExchangeCause::Connection { error, .. } => Some(error),
            ExchangeCause::Peer(error) | ExchangeCause::Own(error) => Some(error),
            _ => None,
        }
    }
}
