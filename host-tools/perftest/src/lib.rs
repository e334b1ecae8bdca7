//! # bareverbs-perftest: what the programs of perftest say to each other over TCP
//!
//! **What this is.** The exchange of `ib_{write,read,send,atomic}_{bw,lat}`, seen from either end:
//! [`exchange`] has the messages, [`mod@line`] the connection, which lets its owner work while it waits, and
//! [`payload`] words for payloads.
//!
//! **What it may not do.** It posts no work requests and knows no device: between two messages the caller
//! does what the program would do. If a peer hangs up, is silent or sends nonsense, the error says what was
//! expected.
//!
//! **Where to read first.** [`exchange::Session`].
#![forbid(unsafe_code)]

pub mod exchange;
pub mod line;
pub mod payload;

use core::fmt;

/// An end of the TCP connection. In every exchange the client speaks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connects.
    Client,
    /// Listens.
    Server,
}

impl Role {
    /// The other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
