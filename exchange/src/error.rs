//! What can go wrong between two programs that introduce themselves.

use crate::message::{Limit, MessageError, VERSION};
use bareverbs_prm::ids::Qpn;
use core::fmt;
use std::io;
use std::time::Duration;

/// An exchange that failed.
#[derive(Debug)]
pub struct ExchangeError {
    /// The other end, as far as it is known; otherwise our own address.
    pub address: String,
    /// What happened.
    pub cause: ExchangeCause,
}

/// What was awaited of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// That it calls.
    Call,
    /// That it takes what we send.
    Room,
    /// Who calls.
    Name,
    /// The number that its proof is to cover.
    Challenge,
    /// The proof that it knows the key.
    Proof,
    /// Its introduction.
    Introduction,
    /// That it is ready.
    Ready,
    /// Whether it hangs up.
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
    /// The address is not one, or its name is unknown.
    Address(io::Error),
    /// Nobody could be reached before the deadline.
    Unreachable {
        /// How often it was tried.
        attempts: u32,
        /// The last answer.
        error: io::Error,
    },
    /// The address could not be listened at.
    Listen(io::Error),
    /// The time was over.
    TimedOut {
        /// What was awaited.
        awaited: Awaited,
        /// For how long.
        limit: Duration,
        /// Bytes of the message that had come.
        received: usize,
    },
    /// The peer hung up.
    Closed {
        /// What was awaited.
        awaited: Awaited,
        /// Bytes of the message that had come.
        received: usize,
    },
    /// The connection broke.
    Connection {
        /// What was awaited.
        awaited: Awaited,
        /// What the operating system says.
        error: io::Error,
    },
    /// The peer speaks something else.
    OtherProtocol {
        /// The first bytes.
        found: [u8; 4],
    },
    /// The peer has another version of the exchange.
    OtherVersion {
        /// Its version.
        theirs: u16,
    },
    /// The peer sent something else than what it was its turn to send.
    OutOfTurn {
        /// What was awaited.
        awaited: Awaited,
        /// The number of what came.
        kind: u16,
    },
    /// What the peer sent cannot be.
    Peer(MessageError),
    /// What this end wants to send cannot be.
    Own(MessageError),
    /// Both are there for different things.
    OtherPurpose {
        /// The purpose of this end.
        ours: String,
        /// The peer's.
        theirs: String,
    },
    /// The peer introduced itself with our own queue pair.
    Ourselves {
        /// The queue pair.
        qpn: Qpn,
    },
    /// Nobody of the caller's name is known here.
    UnknownName {
        /// The name.
        name: String,
    },
    /// The caller does not know the key of its name.
    WrongKey {
        /// The name.
        name: String,
    },
    /// The end that was called does not know the key of our name.
    Impostor {
        /// Our name.
        name: String,
    },
    /// The operating system has no random number.
    Random(io::Error),
    /// The peer hung up and said why.
    Refused {
        /// What it said.
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
                    "not reached in {attempts} attempts: {error}; does the other program run and listen there?"
                )
            }
            Self::Listen(error) => {
                write!(
                    f,
                    "cannot listen: {error}; does another program, or an earlier run of this one, listen there?"
                )
            }
            Self::Own(error) => write!(f, "what this end wants to send cannot be sent: {error}"),
            Self::Random(error) => write!(f, "the operating system has no random number: {error}"),
            Self::TimedOut { .. } | Self::Closed { .. } | Self::Connection { .. } => self.fmt_broken(f),
            Self::UnknownName { .. } | Self::WrongKey { .. } | Self::Impostor { .. } => self.fmt_key(f),
            _ => self.fmt_peer(f),
        }
    }
}

impl ExchangeCause {
    /// What happened to the connection.
    fn fmt_broken(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { awaited: Awaited::Call, limit, .. } => {
                write!(f, "nobody called in {limit:?}; does the other program run, and call this address?")
            }
            Self::TimedOut { awaited, limit, received } => write!(
                f,
                "waited {limit:?} {awaited}, {received} bytes of it came; is it stuck, or no program of this exchange?"
            ),
            Self::Closed { awaited, received } => write!(
                f,
                "it hung up while we waited {awaited}, {received} bytes of it had come; did the other program end? Look at what it says"
            ),
            Self::Connection { awaited, error } => {
                write!(f, "the connection broke while we waited {awaited}: {error}")
            }
            _ => Ok(()),
        }
    }

    /// Who does not know a key.
    fn fmt_key(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => {
                write!(f, "it says to be {name:?}, and nobody of that name is known here")
            }
            Self::WrongKey { name } => {
                write!(f, "it says to be {name:?}, and does not know the key of that name")
            }
            Self::Impostor { name } => write!(
                f,
                "it did not prove that it knows the key of {name:?}, and nothing it said was used; is that the address that was meant?"
            ),
            _ => Ok(()),
        }
    }

    /// What the peer did.
    fn fmt_peer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProtocol { found } => write!(
                f,
                "it speaks something else: what it sends begins with \"{}\" instead of \"BVEX\"; is the port right?",
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
                    "we waited {awaited}, and a message of kind {kind} came; do both programs take the same steps?"
                )
            }
            Self::Peer(error) => write!(f, "what it sent cannot be: {error}"),
            Self::OtherPurpose { ours, theirs } => write!(
                f,
                "it is there for {theirs:?}, this end for {ours:?}; do both run the same program in the same version?"
            ),
            Self::Ourselves { qpn } => {
                write!(f, "it introduced itself with our own queue pair {qpn}; did this program call itself?")
            }
            Self::Refused { reason } => write!(f, "it refused: {}", reason.escape_debug()),
            _ => Ok(()),
        }
    }

    /// What the peer should be told, if the fault lies in what it sent. A name that is unknown and a key that is wrong look the same, so that
    /// nobody can find names by trying.
    pub(crate) fn for_the_peer(&self) -> Option<String> {
        use ExchangeCause as C;
        match self {
            C::UnknownName { name } | C::WrongKey { name } => Some(format!(
                "nobody called {name:?} who has this key is known here; do name and key come from the owner of this end?"
            )),
            C::OtherVersion { .. }
            | C::OutOfTurn { .. }
            | C::Peer(_)
            | C::OtherPurpose { .. }
            | C::Ourselves { .. } => Some(self.to_string()),
            _ => None,
        }
    }

    /// A message that says to be longer than any.
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
