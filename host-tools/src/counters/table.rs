//! All named counters: what each counts, and what an unexpected increase means.

/// Category of an abnormal counter. `doctor` reports one finding per category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AbnormalKind {
    /// Packets were lost or reordered, and retransmitted.
    Retransmission,
    /// A receiver had no receive posted.
    NotReady,
    /// A request, a receive or a key was invalid.
    Fault,
    /// The cable or its ends corrupt bits, or the link went down.
    Link,
    /// Full buffers dropped frames.
    Discard,
    /// Pause frames stopped a sender.
    Paused,
    /// Packets were marked for congestion.
    Congestion,
}

/// Meaning of an increasing counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abnormal {
    /// Its category.
    pub kind: AbnormalKind,
    /// What has happened.
    pub says: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Name in Linux; `N` stands for a priority.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// What an increase means; `None` if an increase is normal.
    pub abnormal: Option<Abnormal>,
}

/// Finds a counter by name; `rx_prio3_bytes` matches `rx_prioN_bytes`.
pub fn known(name: &str) -> Option<&'static Known> {
    let plain = KNOWN.iter().find(|known| known.name == name);
    plain.or_else(|| {
        KNOWN.iter().find(|known| {
            let parts = known.name.split_once("_prioN_");
            parts.is_some_and(|(before, after)| {
                let rest = name.strip_prefix(before).and_then(|rest| rest.strip_prefix("_prio"));
                let priority = rest.and_then(|rest| rest.strip_suffix(after)?.strip_suffix('_'));
                priority.is_some_and(|priority| matches!(priority.as_bytes(), [b'0'..=b'7']))
            })
        })
    })
}

macro_rules! counters {
    ($($name:literal, $help:literal $(: $kind:ident, $says:literal, $fix:literal)?;)*) => {
        /// All counters.
        pub const KNOWN: &[Known] = &[
            $(Known { name: $name, help: $help, abnormal: counters!(@ $($kind, $says, $fix)?) },)*
        ];
    };
    (@) => { None };
    (@ $kind:ident, $says:literal, $fix:literal) => { Some(Abnormal { kind: AbnormalKind::$kind, says: $says, fix: $fix }) };
}

counters! {
    // Port, IEEE 802.3.
    "tx_packets_phy", "Frames sent by the port";
    "rx_packets_phy", "Frames received by the port";
    "tx_bytes_phy", "Bytes sent by the port";
    "rx_bytes_phy", "Bytes received by the port";
    "tx_multicast_phy", "Multicast frames sent";
    "tx_broadcast_phy", "Broadcast frames sent";
    "rx_multicast_phy", "Multicast frames received";
    "rx_broadcast_phy", "Broadcast frames received";
    "rx_crc_errors_phy", "Frames received with a wrong frame check sequence": Link,
        "frames arrive with wrong check sums: the cable or a connector corrupts bits",
        "clean or replace the cable; compare the error correction (FEC) of both ends";
    "rx_alignment_errors_phy", "Frames received whose length is not a whole number of bytes": Link,
        "frames arrive with a broken length: the cable corrupts bits", "clean or replace the cable";
    "rx_symbol_err_phy", "Symbol errors while the link was up": Link,
        "symbols arrive that do not exist: the cable corrupts bits",
        "clean or replace the cable; compare the error correction (FEC) of both ends";
    "rx_in_range_len_errors_phy", "Frames received whose length field differs from their length": Link,
        "frames arrive whose length field is wrong", "look at the device at the other end of the cable";
    "rx_out_of_range_len_phy", "Frames received whose length field is out of range": Link,
        "frames arrive whose length field is out of range", "look at the device at the other end of the cable";
    "rx_oversize_pkts_phy", "Frames received that were longer than the MTU of the port": Link,
        "frames arrive that are longer than the MTU of this port, and are dropped",
        "give both ends and the switch between them the same MTU";
    "rx_unsupported_op_phy", "Control frames received with an unknown operation": Link,
        "control frames arrive that are not pause frames", "look at the configuration of the switch";
    "tx_mac_control_phy", "Control frames sent";
    "rx_mac_control_phy", "Control frames received";
    "rx_pause_ctrl_phy", "Pause frames received": Paused,
        "the other end stops this port: it, or a host behind it, accepts data more slowly than it arrives",
        "find the slow receiver; prefer priority flow control to global pause";
    "tx_pause_ctrl_phy", "Pause frames sent": Paused,
        "this host accepts data more slowly than it arrives, and stops the whole link",
        "look at the PCIe width and the NUMA node of the card; prefer priority flow control";
    // Port, by priority.
    "rx_prioN_bytes", "Bytes received with the priority";
    "rx_prioN_packets", "Frames received with the priority";
    "tx_prioN_bytes", "Bytes sent with the priority";
    "tx_prioN_packets", "Frames sent with the priority";
    "rx_prioN_pause", "Pause frames received for the priority": Paused,
        "the other end stops this priority: a host behind it accepts data more slowly than it arrives",
        "find the slow receiver; see whether ECN marks before pause frames are needed";
    "rx_prioN_pause_duration", "Microseconds during which received pause frames stopped the priority";
    "tx_prioN_pause", "Pause frames sent for the priority": Paused,
        "this host accepts data of this priority more slowly than it arrives",
        "look at the PCIe width and the NUMA node of the card";
    "tx_prioN_pause_duration", "Microseconds during which sent pause frames stopped the peer";
    "rx_prioN_pause_transition", "Changes from sending to paused";
    "rx_prioN_discards", "Frames of the priority dropped because no buffer was free": Discard,
        "frames were dropped on receipt because no buffer was free",
        "switch priority flow control on for the priority of RoCE, at this port and at the switch; enlarge its buffer";
    // Congestion control.
    "np_ecn_marked_roce_packets", "RoCE packets received with a congestion mark": Congestion,
        "switches mark packets on their way here: their queues grow", "spread the senders; see rp_cnp_handled at the senders";
    "np_cnp_sent", "Congestion notification packets sent";
    "rp_cnp_handled", "Congestion notification packets received for a queue pair": Congestion,
        "receivers ask this port to send more slowly", "spread the load; look for the queue that grows at the switch";
    "rp_cnp_ignored", "Congestion notification packets received for no queue pair": Congestion,
        "congestion notifications arrive for queue pairs that are gone", "nothing, if connections are often closed";
    // Queue pairs.
    "rx_write_requests", "RDMA WRITE requests received";
    "rx_read_requests", "RDMA READ requests received";
    "rx_atomic_requests", "Atomic requests received";
    "rx_dct_connect", "Connections to dynamically connected targets";
    "out_of_buffer", "Messages that arrived when no receive was posted": NotReady,
        "messages arrive when no receive is posted", "post more receives, or poll faster";
    "out_of_sequence", "Packets received while an earlier one was missing": Retransmission,
        "packets from the peer are missing when later ones arrive: something on the way drops or reorders them",
        "look for drops at the switch; switch priority flow control or ECN on for the priority of RoCE";
    "duplicate_request", "Packets received a second time": Retransmission,
        "the peer sends again what has arrived: its acknowledgement was lost or late",
        "look for drops on the way back; give the peer a longer ACK timeout";
    "rnr_nak_retry_err", "NAKs 'receiver not ready' received, after which the request was repeated": NotReady,
        "the peer has no receive posted and asks to try again later", "post more receives at the peer; set rnr_retry to 7";
    "packet_seq_err", "NAKs 'PSN sequence error' received, after which the request was repeated": Retransmission,
        "the peer misses packets of ours: something on the way drops or reorders them",
        "look for drops at the switch; switch priority flow control or ECN on for the priority of RoCE";
    "implied_nak_seq_err", "Responses received out of order: an earlier one is missing": Retransmission,
        "responses of the peer were lost on the way", "look for drops at the switch";
    "local_ack_timeout_err", "ACK timeouts": Retransmission,
        "the peer did not answer in time: packets or their acknowledgements were lost, or the peer is gone",
        "compare state, GIDs, path MTU and PSNs of both ends; look for drops; lengthen the ACK timeout";
    "req_transport_retries_exceeded", "Sends given up because the peer never answered": Retransmission,
        "connections broke because the peer never answered", "bareverbs explain IBV_WC_RETRY_EXC_ERR";
    "req_rnr_retries_exceeded", "Sends given up because the receiver was never ready": NotReady,
        "connections broke because the peer had no receive posted", "bareverbs explain IBV_WC_RNR_RETRY_EXC_ERR";
    "resp_local_length_error", "Receives whose buffers were too short": Fault,
        "messages are longer than the receives for them", "bareverbs explain IBV_WC_LOC_LEN_ERR";
    "req_local_length_error", "Sends that were longer than the device sends": Fault,
        "messages are longer than the device sends", "bareverbs explain IBV_WC_LOC_LEN_ERR";
    "resp_local_qp_error", "Receives that were malformed": Fault,
        "receives are malformed", "bareverbs explain IBV_WC_LOC_QP_OP_ERR";
    "local_operation_error", "Sends that were malformed": Fault,
        "sends are malformed", "bareverbs explain IBV_WC_LOC_QP_OP_ERR";
    "resp_local_protection", "Receives whose local key does not cover the memory": Fault,
        "receives name memory that their key does not give", "bareverbs explain IBV_WC_LOC_PROT_ERR";
    "req_local_protection", "Sends whose local key does not cover the memory": Fault,
        "sends name memory that their key does not give", "bareverbs explain IBV_WC_LOC_PROT_ERR";
    "resp_cqe_error", "Receives that failed, flushed ones included": Fault,
        "receives complete with an error", "bareverbs explain the status of the first of them";
    "req_cqe_error", "Sends that failed, flushed ones included": Fault,
        "sends complete with an error", "bareverbs explain the status of the first of them";
    "req_mw_binding", "Memory windows that could not be bound": Fault,
        "memory windows could not be bound", "bareverbs explain IBV_WC_MW_BIND_ERR";
    "req_bad_response", "Sends that got a malformed or unexpected response": Fault,
        "the peer answered with packets that do not fit the request", "bareverbs explain IBV_WC_BAD_RESP_ERR";
    "req_remote_invalid_request", "Sends that the peer refused as invalid": Fault,
        "the peer refuses requests as invalid", "bareverbs explain IBV_WC_REM_INV_REQ_ERR";
    "resp_remote_invalid_request", "Requests of the peer that were refused as invalid": Fault,
        "the peer sends requests that are invalid here", "bareverbs explain IBV_WC_REM_INV_REQ_ERR";
    "req_remote_access_errors", "Sends that the peer refused because of access rights": Fault,
        "the peer refuses keys, rights or ranges", "bareverbs explain IBV_WC_REM_ACCESS_ERR";
    "resp_remote_access_errors", "Requests of the peer that were refused because of access rights": Fault,
        "the peer asks for memory that its keys do not give", "bareverbs explain IBV_WC_REM_ACCESS_ERR";
    "req_remote_operation_errors", "Sends that the peer failed to carry out": Fault,
        "the peer could not carry requests out", "bareverbs explain IBV_WC_REM_OP_ERR";
    "cq_overflow", "Completion queues that overran": Fault,
        "a completion queue was full and completions were lost", "bareverbs explain CQ_OVERRUN";
    "resp_cqe_flush_error", "Receives that were flushed": Fault,
        "receives were flushed with their queue pair", "bareverbs explain IBV_WC_WR_FLUSH_ERR";
    "req_cqe_flush_error", "Sends that were flushed": Fault,
        "sends were flushed with their queue pair", "bareverbs explain IBV_WC_WR_FLUSH_ERR";
    "roce_adp_retrans", "Adaptive retransmissions": Retransmission,
        "packets were sent again by adaptive retransmission", "look for drops at the switch";
    "roce_adp_retrans_to", "Timeouts of adaptive retransmission": Retransmission,
        "adaptive retransmission ran into its timeout", "look for drops at the switch";
    "roce_slow_restart", "Slow restarts": Congestion,
        "queue pairs began slowly again after a pause or a loss", "nothing, if rates are as expected";
    "roce_slow_restart_cnps", "Congestion notifications sent by slow restart": Congestion,
        "slow restart slowed senders down", "nothing, if rates are as expected";
    "roce_slow_restart_trans", "Changes of the slow restart state";
    // InfiniBand port.
    "symbol_error", "Symbol errors": Link,
        "symbols arrive that do not exist: the cable corrupts bits", "clean or replace the cable";
    "link_error_recovery", "Times that the link recovered from errors": Link,
        "the link had to be trained again", "clean or replace the cable";
    "link_downed", "Times that the link went down": Link,
        "the link went down", "look at the cable and at the other end's log";
    "port_rcv_errors", "Packets received with an error": Link,
        "packets arrive damaged", "clean or replace the cable";
    "port_rcv_remote_physical_errors", "Packets received with the end-of-bad-packet delimiter": Link,
        "packets were damaged before they came to this link", "look at symbol_error of the ports before this one";
    "port_rcv_switch_relay_errors", "Packets that a switch could not forward": Link,
        "packets came that no port leads to", "look at the forwarding tables of the subnet manager";
    "port_xmit_discards", "Packets that could not be sent and were discarded": Discard,
        "packets waited too long for the other end and were discarded", "find the slow receiver (port_xmit_wait of the switches)";
    "port_xmit_constraint_errors", "Packets not sent because of a constraint of the port": Fault,
        "packets were held back by their partition", "compare the P_Keys of queue pair and port";
    "port_rcv_constraint_errors", "Packets discarded on receipt because of a constraint of the port": Fault,
        "packets of another partition came", "compare the P_Keys of both ends";
    "link_overrun_errors", "Excessive buffer overruns": Link,
        "the link broke its credits", "replace the cable; update the firmware of both ends";
    "VL15_dropped", "Subnet management packets dropped for lack of buffers": Discard,
        "packets of subnet management were dropped", "lower the number of packets that the subnet manager has under way";
    "port_xmit_wait", "Ticks during which the port had data to send and could not": Congestion,
        "data waits at this port because the other end has no room", "look for the slow receiver behind it";
}
