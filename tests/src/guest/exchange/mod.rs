//! How Debian's verbs programs find each other: small fixed messages over TCP, before and after the RDMA traffic.
//!
//! **What this is.** Messages and their order, seen from either end: [`pingpong`] for `ibv_*_pingpong` of rdma-core,
//! [`perftest`] for `ib_*_bw` and `ib_*_lat` of perftest. **What it may not do.** It posts nothing: the caller does
//! between two messages what the program would do. **Where to read first.** [`line::Line`].

pub mod line;
pub mod perftest;
pub mod pingpong;

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
