//! # bareverbs-perftest: what the programs of perftest say to each other over TCP
//!
//! **What this is.** The exchange of `ib_{write,read,send,atomic}_{bw,lat}`, seen from either end: [`exchange`] has the messages,
//! [`mod@line`] the connection, which lets its owner work while it waits.
//!
//! **What it may not do.** It posts nothing and knows no device: the caller does between two messages what the program would do.
//! A peer that hangs up, says nothing or says nonsense is an error with what was expected of it.
//!
//! **Where to read first.** [`exchange::Session`].
#![forbid(unsafe_code)]

pub mod exchange;
pub mod line;

use core::fmt;

/// Which end of the TCP connection somebody is. In every exchange the client speaks first.
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
