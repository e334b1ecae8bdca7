//! What sides want of each other.

use super::connection::{Path, Service};
use alloc::vec::Vec;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// Options of enhanced connection establishment: whose they are, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extension {
    /// 24 bits.
    pub vendor_id: u32,
    /// Which options: the attribute modifier.
    pub options: u32,
}

/// What an active side offers.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Service (IBTA v1.4 §12.6.5); of RDMA CM [`service_id`](crate::service_id).
    pub service_id: u64,
    /// Between whom.
    pub path: Path,
    /// Transport service.
    pub service: Service,
    /// Our queue pair.
    pub qpn: Qpn,
    /// First PSN that the queue pair expects; `None` lets the manager choose one.
    pub psn: Option<Psn>,
    /// Whether its receives are those of a shared receive queue.
    pub shared_receives: bool,
    /// READs and atomics of the peer that we serve at a time.
    pub responder_resources: u8,
    /// READs and atomics of ours that the peer is to serve at a time.
    pub initiator_depth: u8,
    /// Whether we do end-to-end flow control.
    pub flow_control: bool,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after a receiver was not ready; 7: without end.
    pub rnr_retry: u8,
    /// Code of the local ACK timeout: 4.096 µs · 2^code.
    pub ack_timeout: u8,
    /// Code of the path MTU: 128 · 2^code bytes.
    pub path_mtu: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Options of enhanced connection establishment.
    pub extension: Extension,
    /// At most as much as a REQ holds.
    pub private: Vec<u8>,
}

/// What a passive side answers.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// Our queue pair.
    pub qpn: Qpn,
    /// First PSN that the queue pair expects; `None` is the one in [`Terms::receive_psn`](crate::Terms).
    pub psn: Option<Psn>,
    /// Whether its receives are those of a shared receive queue.
    pub shared_receives: bool,
    /// READs and atomics of the peer that we serve at a time.
    pub responder_resources: u8,
    /// READs and atomics of ours that the peer is to serve at a time.
    pub initiator_depth: u8,
    /// Whether we do end-to-end flow control.
    pub flow_control: bool,
    /// Retries after a receiver was not ready; 7: without end.
    pub rnr_retry: u8,
    /// Options of enhanced connection establishment.
    pub extension: Extension,
    /// At most as much as a REP holds.
    pub private: Vec<u8>,
}

/// Why not.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// One of [`reason`](crate::reason).
    pub reason: u16,
    /// At most as much as a REJ holds.
    pub private: Vec<u8>,
}

/// Which service of datagrams is asked for.
#[derive(Debug, Clone)]
pub struct ServiceOffer {
    /// Service (IBTA v1.4 §12.6.5); of RDMA CM [`service_id`](crate::service_id).
    pub service_id: u64,
    /// Between whom.
    pub path: Path,
    /// At most as much as a SIDR_REQ holds.
    pub private: Vec<u8>,
}

/// What is said of a service (IBTA v1.4 §12.11.2.1): status 0 is an answer, others refuse.
#[derive(Debug, Clone)]
pub struct ServiceAnswer {
    /// Status of a SIDR_REP.
    pub status: u8,
    /// Our queue pair.
    pub qpn: Qpn,
    /// Q_Key of the queue pair.
    pub q_key: u32,
    /// At most as much as a SIDR_REP holds.
    pub private: Vec<u8>,
}
