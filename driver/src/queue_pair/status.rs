//! State of a queue pair, as reported by the device.

use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{PathMtu, QpState};
use bareverbs_prm::psn::Psn;

/// State of a queue pair, as reported by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_query_qp")]
pub struct QueuePairStatus {
    /// Its state.
    pub state: QpState,
    /// The peer's queue pair number.
    pub remote_qpn: Qpn,
    /// PSN of the next packet to send.
    pub next_send_psn: Psn,
    /// PSN of the next packet to receive.
    pub next_receive_psn: Psn,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// Basic blocks of the send queue that the device has processed, modulo 2^16.
    pub hardware_send_counter: u16,
}
