//! Identifiers: a program's end of a connection, a listener, or a resolution, from its making to its destruction.

use super::address::SocketAddress;
use crate::connection_names::{ConnectionFileId, Port};
use bareverbs_cm::{CommunicationId, Extension, Path};
use bareverbs_prm::time::Time;

/// Kinds of queue pairs, as programs number them.
pub(super) mod qp_type {
    pub(in crate::rdma_cm) const RELIABLE: u8 = 2;
    pub(in crate::rdma_cm) const UNRELIABLE: u8 = 3;
    pub(in crate::rdma_cm) const DATAGRAM: u8 = 4;
    pub(in crate::rdma_cm) const XRC_SEND: u8 = 9;
    pub(in crate::rdma_cm) const XRC_RECEIVE: u8 = 10;
}

/// How far a program has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Bound,
    /// The peer's address is looked for.
    ResolvingAddress {
        next_look: Time,
        /// When it is given up.
        until: Time,
    },
    AddressResolved,
    /// The way to the peer is known at a time.
    ResolvingRoute {
        at: Time,
    },
    RouteResolved,
    Listening,
    /// A connection is asked for, made, or was.
    Connecting,
}

impl Stage {
    /// When there is something to do for a resolution.
    pub(super) const fn next_look(self) -> Option<Time> {
        match self {
            Self::ResolvingAddress { next_look, .. } => Some(next_look),
            Self::ResolvingRoute { at } => Some(at),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) file: ConnectionFileId,
    /// The program's own name for it; 0 until it has one.
    pub(super) uid: u64,
    pub(super) space: u16,
    pub(super) qp_type: u8,
    pub(super) stage: Stage,
    pub(super) source: Option<SocketAddress>,
    pub(super) destination: Option<SocketAddress>,
    /// GIDs of both ends, when they are known. Without a peer, both are the own.
    pub(super) path: Option<Path>,
    pub(super) port: Option<Port>,
    pub(super) shares_port: bool,
    pub(super) traffic_class: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) extension: Extension,
    pub(super) q_key: u32,
    /// Requests that may wait to be read.
    pub(super) backlog: usize,
    /// Events that the program has read.
    pub(super) events_reported: u32,
    pub(super) communication: Option<CommunicationId>,
}

impl Identifier {
    pub(super) const fn new(file: ConnectionFileId, uid: u64, space: u16, qp_type: u8) -> Self {
        Self {
            file,
            uid,
            space,
            qp_type,
            stage: Stage::Idle,
            source: None,
            destination: None,
            path: None,
            port: None,
            shares_port: false,
            traffic_class: 0,
            ack_timeout: None,
            extension: Extension { vendor_id: 0, options: 0 },
            q_key: 0,
            backlog: 0,
            events_reported: 0,
            communication: None,
        }
    }

    pub(super) const fn is_datagram(&self) -> bool {
        self.qp_type == qp_type::DATAGRAM
    }
}
