//! Counters of a device since its creation. A reset does not clear them.

/// Counters of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Commands executed, including refused ones.
    pub commands: u64,
    /// Commands completed with an error status.
    pub commands_refused: u64,
    /// Command queue entries returned with a delivery error.
    pub deliveries_refused: u64,
    /// Ignored doorbells: slots that software owns, nonexistent queues, the wrong UAR.
    pub doorbells_ignored: u64,
    /// Writes to offsets without a writable register.
    pub writes_ignored: u64,
    /// Doorbells ignored in strict mode because of set reserved bits.
    pub strict_violations: u64,
    /// Send doorbells.
    pub send_doorbells: u64,
    /// Send WQEs fetched.
    pub wqes: u64,
    /// Copies requested from the card.
    pub dma_requests: u64,
    /// Copies that ended after their work request was gone.
    pub dma_forgotten: u64,
    /// Completion queue entries written.
    pub completions: u64,
    /// Completion queue entries that were part of a compressed run.
    pub completions_compressed: u64,
    /// Completion queues that overran.
    pub completion_overruns: u64,
    /// Event queue entries lost.
    pub events_lost: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames between queue pairs of this device.
    pub frames_looped_back: u64,
    /// Frames without a destination: no port of the InfiniBand subnet has the address.
    pub frames_without_path: u64,
    /// Frames received for a queue pair.
    pub frames_received: u64,
    /// Frames for another MAC address, or received while the link was down.
    pub frames_foreign: u64,
    /// Management packets dropped because too many responses were waiting to be sent.
    pub management_dropped: u64,
    /// Frames that are not RoCEv2, or have inconsistent headers.
    pub frames_malformed: u64,
    /// Frames with a wrong invariant CRC.
    pub frames_bad_icrc: u64,
    /// Frames for an address that is not in the GID table.
    pub frames_unknown_gid: u64,
    /// Frames for a queue pair that does not exist, is not in a receiving state, or is connected to another peer.
    pub frames_unknown_qp: u64,
    /// Frames with a P_Key other than the queue pair's.
    pub frames_bad_pkey: u64,
    /// Datagrams dropped for lack of a receive.
    pub datagrams_dropped: u64,
    /// Datagrams with a Q_Key other than the queue pair's.
    pub datagrams_bad_qkey: u64,
    /// Replies of the RPC engine for a queue pair that cannot send, or has too many that wait for the peer.
    pub rpc_replies_dropped: u64,
    /// Ethernet packets steered to a receive queue that is not ready.
    pub packets_at_stopped_queues: u64,
    /// Ethernet packets steered to a nonexistent receive queue or TIR.
    pub packets_without_queue: u64,
    /// Ethernet packets that came back to the port that sent them, where the TIR does not receive its own
    /// (`self_lb_block`).
    pub packets_blocked_from_self: u64,
    /// Receives of a shared queue that was destroyed before they completed.
    pub shared_receives_gone: u64,
    /// Turns of queue pairs that were destroyed while waiting for the port.
    pub turns_of_destroyed: u64,
    /// Completions for a nonexistent queue. **Always zero.**
    pub completions_without_queue: u64,
    /// Completions of requests without a WQE. **Always zero.**
    pub completions_unmatched: u64,
    /// Packets accepted in a state without the requester or responder they are for. **Always zero.**
    pub packets_without_side: u64,
    /// Packets longer than any frame. **Always zero.**
    pub frames_too_long: u64,
    /// Requests that the transport refused although it had reported room. **Always zero.**
    pub requests_refused: u64,
    /// Bytes of all frames sent.
    pub bytes_sent: u64,
    /// Bytes of all frames between queue pairs of this device.
    pub bytes_looped_back: u64,
    /// Bytes of all frames received for a queue pair.
    pub bytes_received: u64,
}

impl Counters {
    /// Sum of all counters that are zero unless the model contradicts itself.
    pub const fn contradictions(&self) -> u64 {
        self.completions_without_queue
            + self.completions_unmatched
            + self.packets_without_side
            + self.frames_too_long
            + self.requests_refused
    }
}

/// Congestion counters of a device, named as in the PRM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CongestionTally {
    /// `np_ecn_marked_roce_packets`
    pub(crate) marked: u64,
    /// `np_cnp_sent`
    pub(crate) sent: u64,
    /// `rp_cnp_handled`
    pub(crate) handled: u64,
    /// `rp_cnp_ignored`
    pub(crate) ignored: u64,
}
