//! What the device says of a queue pair.

use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{PathMtu, QpState};
use bareverbs_prm::psn::Psn;

/// What the device says of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "ibv_query_qp")]
pub struct QueuePairStatus {
    /// Its state.
    pub state: QpState,
    /// The peer.
    pub remote_qpn: Qpn,
    /// PSN of the next packet to send.
    pub next_send_psn: Psn,
    /// PSN of the next packet to receive.
    pub next_receive_psn: Psn,
    /// The largest packet.
    pub path_mtu: PathMtu,
    /// Basic blocks of the send queue that the device has executed, modulo 2^16.
    pub hardware_send_counter: u16,
}
