//! Parameters of the manager's calls.

use super::connection::{Path, Service};
use alloc::vec::Vec;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// Options of the enhanced connection establishment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extension {
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
    /// The options: the attribute modifier.
    pub options: u32,
}

/// Parameters of a REQ.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Service ID (IBTA v1.4 §12.6.5); for RDMA CM see [`service_id`](crate::service_id).
    pub service_id: u64,
    /// Path to the peer.
    pub path: Path,
    /// Transport service.
    pub service: Service,
    /// Our queue pair number.
    pub qpn: Qpn,
    /// First PSN that our queue pair expects; `None` lets the manager choose one.
    pub psn: Option<Psn>,
    /// Whether the queue pair uses a shared receive queue.
    pub shared_receives: bool,
    /// Most outstanding READs and atomics of the peer that we serve.
    pub responder_resources: u8,
    /// Most outstanding READs and atomics of ours that the peer should serve.
    pub initiator_depth: u8,
    /// Whether we support end-to-end flow control.
    pub flow_control: bool,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// Local ACK timeout code: 4.096 µs · 2^code.
    pub ack_timeout: u8,
    /// Path MTU code: 128 · 2^code bytes.
    pub path_mtu: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Options of the enhanced connection establishment.
    pub extension: Extension,
    /// Private data; at most what a REQ holds.
    pub private: Vec<u8>,
}

/// Parameters of a REP.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// Our queue pair number.
    pub qpn: Qpn,
    /// First PSN that our queue pair expects; `None` selects the one in [`Terms::receive_psn`](crate::Terms).
    pub psn: Option<Psn>,
    /// Whether the queue pair uses a shared receive queue.
    pub shared_receives: bool,
    /// Most outstanding READs and atomics of the peer that we serve.
    pub responder_resources: u8,
    /// Most outstanding READs and atomics of ours that the peer should serve.
    pub initiator_depth: u8,
    /// Whether we support end-to-end flow control.
    pub flow_control: bool,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// Options of the enhanced connection establishment.
    pub extension: Extension,
    /// Private data; at most what a REP holds.
    pub private: Vec<u8>,
}

/// Parameters of a REJ.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// One of the constants in [`reason`](crate::reason).
    pub reason: u16,
    /// Private data; at most what a REJ holds.
    pub private: Vec<u8>,
}

/// Parameters of a SIDR_REQ.
#[derive(Debug, Clone)]
pub struct ServiceOffer {
    /// Service ID (IBTA v1.4 §12.6.5); for RDMA CM see [`service_id`](crate::service_id).
    pub service_id: u64,
    /// Path to the peer.
    pub path: Path,
    /// Private data; at most what a SIDR_REQ holds.
    pub private: Vec<u8>,
}

/// Parameters of a SIDR_REP (IBTA v1.4 §12.11.2.1). Status 0 resolves the service; any other rejects it.
#[derive(Debug, Clone)]
pub struct ServiceReply {
    /// Status of a SIDR_REP.
    pub status: u8,
    /// Our queue pair number.
    pub qpn: Qpn,
    /// Q_Key of the queue pair.
    pub q_key: u32,
    /// Private data; at most what a SIDR_REP holds.
    pub private: Vec<u8>,
}
