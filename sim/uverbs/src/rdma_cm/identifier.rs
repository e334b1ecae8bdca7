//! Identifiers: a program's end of a connection, a listener, or a resolution, from creation to destruction.

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

/// The stage of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Bound,
    /// The peer's address is being resolved.
    ResolvingAddress {
        next_look: Time,
        /// When to give up.
        until: Time,
    },
    AddressResolved,
    /// The route to the peer will be known at this time.
    ResolvingRoute {
        at: Time,
    },
    RouteResolved,
    Listening,
    /// A connection is being requested, is established, or has ended.
    Connecting,
}

impl Stage {
    /// When the resolution has to continue.
    pub(super) const fn next_look(self) -> Option<Time> {
        match self {
            Self::ResolvingAddress { next_look, .. } => Some(next_look),
            Self::ResolvingRoute { at } => Some(at),
            _ => None,
        }
    }
}

/// An identifier; see the module's comment.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) file: ConnectionFileId,
    /// The program's own ID for it; 0 until it has one.
    pub(super) uid: u64,
    pub(super) space: u16,
    pub(super) qp_type: u8,
    pub(super) stage: Stage,
    pub(super) source: Option<SocketAddress>,
    pub(super) destination: Option<SocketAddress>,
    /// GIDs of both ends, once they are known. Without a peer, both are the own GID.
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
