//! What a device has counted since it was made; a reset does not clear it.

/// Counters of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Commands executed, refused ones included.
    pub commands: u64,
    /// Commands answered with a status that is not OK.
    pub commands_refused: u64,
    /// Command queue entries given back with a delivery status that is not OK.
    pub deliveries_refused: u64,
    /// Doorbells for nothing: slots that software owns, queues that do not exist, the wrong UAR.
    pub doorbells_ignored: u64,
    /// Register writes that no register takes.
    pub writes_ignored: u64,
    /// Doorbells with reserved bits set, ignored in strict mode.
    pub strict_violations: u64,
    /// Send doorbells.
    pub send_doorbells: u64,
    /// Send WQEs fetched.
    pub wqes: u64,
    /// Copies asked of the card.
    pub dma_requests: u64,
    /// Copies that ended after their work request was gone.
    pub dma_forgotten: u64,
    /// Completion queue entries written.
    pub completions: u64,
    /// Of these, entries that were part of a compressed run.
    pub completions_compressed: u64,
    /// Completion queues that overran.
    pub completion_overruns: u64,
    /// Event queue entries lost.
    pub events_lost: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames that left one queue pair for another of the same device.
    pub frames_looped_back: u64,
    /// Frames that had nowhere to go: no port of the InfiniBand subnet has the address.
    pub frames_without_path: u64,
    /// Frames received and given to a queue pair.
    pub frames_received: u64,
    /// Frames for another MAC address, or while the link was down.
    pub frames_foreign: u64,
    /// Management packets for which there was no room: too many answers wait for the wire already.
    pub management_dropped: u64,
    /// Frames that are not RoCEv2 or whose headers contradict themselves.
    pub frames_malformed: u64,
    /// Frames with a wrong invariant CRC.
    pub frames_bad_icrc: u64,
    /// Frames for an address that is not in the GID table.
    pub frames_unknown_gid: u64,
    /// Frames for a queue pair that does not exist, is in no receiving state or is connected with somebody else.
    pub frames_unknown_qp: u64,
    /// Frames whose P_Key is not that of the queue pair.
    pub frames_bad_pkey: u64,
    /// Datagrams without a receive to go to.
    pub datagrams_dropped: u64,
    /// Datagrams whose Q_Key is not that of the queue pair they went to.
    pub datagrams_bad_qkey: u64,
    /// Replies of the RPC engine for a queue pair that cannot send.
    pub rpc_replies_dropped: u64,
    /// Packets of Ethernet steered to a receive queue that is not ready.
    pub packets_at_stopped_queues: u64,
    /// Packets of Ethernet steered to a receive queue, or a TIR, that does not exist.
    pub packets_without_queue: u64,
    /// Receives of a shared queue that was destroyed before they completed.
    pub shared_receives_gone: u64,
    /// Turns at the port of queue pairs that were destroyed while they waited for them.
    pub turns_of_destroyed: u64,
    /// Completions for a queue that does not exist. **Stays zero.**
    pub completions_without_queue: u64,
    /// Completions of requests without a WQE. **Stays zero.**
    pub completions_unmatched: u64,
    /// Packets taken in a state without the requester or the responder that they are for. **Stays zero.**
    pub packets_without_side: u64,
    /// Packets that would be longer than any frame. **Stays zero.**
    pub frames_too_long: u64,
    /// Requests that the transport refused although it said that it had room. **Stays zero.**
    pub requests_refused: u64,
    /// Bytes of all frames sent.
    pub bytes_sent: u64,
    /// Bytes of all frames that left one queue pair for another of the same device.
    pub bytes_looped_back: u64,
    /// Bytes of all frames given to a queue pair.
    pub bytes_received: u64,
}

impl Counters {
    /// Everything that stays zero unless the model contradicts itself, added up.
    pub const fn contradictions(&self) -> u64 {
        self.completions_without_queue
            + self.completions_unmatched
            + self.packets_without_side
            + self.frames_too_long
            + self.requests_refused
    }
}

/// What a device has counted of congestion, under the names of the PRM.
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
