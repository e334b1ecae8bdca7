//! What sides want of each other.

use super::connection::{Path, Service};
use alloc::vec::Vec;
use bareverbs_prm::ids::Qpn;

/// Options of enhanced connection establishment: whose they are, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extension {
    /// 24 bits.
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
}

/// What an active side offers.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) service_id: u64,
    pub(crate) path: Path,
    pub(crate) service: Service,
    pub(crate) qpn: Qpn,
    pub(crate) shared_receives: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) path_mtu: u8,
    pub(crate) traffic_class: u8,
    pub(crate) extension: Extension,
    /// At most as much as a REQ holds.
    pub(crate) private: Vec<u8>,
}

/// What a passive side answers.
#[derive(Debug, Clone)]
pub(crate) struct Acceptance {
    pub(crate) qpn: Qpn,
    pub(crate) shared_receives: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry: u8,
    pub(crate) extension: Extension,
    /// At most as much as a REP holds.
    pub(crate) private: Vec<u8>,
}

/// Why not.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) reason: u16,
    /// At most as much as a REJ holds.
    pub(crate) private: Vec<u8>,
}

/// Which service of datagrams is asked for.
#[derive(Debug, Clone)]
pub(crate) struct ServiceOffer {
    pub(crate) service_id: u64,
    pub(crate) path: Path,
    /// At most as much as a SIDR_REQ holds.
    pub(crate) private: Vec<u8>,
}

/// What is said of a service (IBTA v1.4 §12.11.2.1): status 0 is an answer, others refuse.
#[derive(Debug, Clone)]
pub(crate) struct ServiceAnswer {
    pub(crate) status: u8,
    pub(crate) qpn: Qpn,
    pub(crate) q_key: u32,
    /// At most as much as a SIDR_REP holds.
    pub(crate) private: Vec<u8>,
}
