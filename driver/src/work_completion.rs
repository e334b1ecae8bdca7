//! Work completions: results of work requests. A failed work request is data, not an error of the driver.

use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::field::BitRange;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::CqeSyndrome;
use core::fmt;

/// The result of a work request. The field order lets a success be written with few stores: what is the same in most of
/// them comes first, and is copied as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[doc(alias = "ibv_wc")]
pub struct WorkCompletion {
    /// Immediate data sent by the peer, or the key that it invalidated; see [`Self::invalidated`].
    pub immediate: Option<u32>,
    /// The operation.
    pub opcode: WorkCompletionOpcode,
    /// Vendor-specific code of a failure; 0 on success.
    pub vendor_syndrome: u8,
    /// Success, or the cause of the failure.
    pub status: WorkCompletionStatus,
    /// Sender of a received datagram; [`Origin::NONE`] for anything else.
    pub origin: Origin,
    /// Number of bytes received, or read from the peer; meaningless for other operations.
    pub byte_count: u32,
    /// The queue pair.
    pub qpn: Qpn,
    /// ID that the application gave the work request.
    pub wr_id: u64,
}

/// The dword of a completion entry with these fields.
const FLAGS: usize = CompletionEntry::FIELDS.remote_qpn.offset() / 4;
const GRH: BitRange = CompletionEntry::FIELDS.grh.in_dword(FLAGS);
const SERVICE_LEVEL: BitRange = CompletionEntry::FIELDS.service_level.in_dword(FLAGS);
const ROCE_HEADER: BitRange = CompletionEntry::FIELDS.roce_l3_header_type.in_dword(FLAGS);
const REMOTE_QPN: BitRange = CompletionEntry::FIELDS.remote_qpn.in_dword(FLAGS);

/// Sender of a datagram. Kept in the memory order of the completion entry, because few applications ask for it.
#[derive(Clone, Copy, Default)]
pub struct Origin {
    /// The dword with `flags_rqpn`.
    flags: u32,
    /// The dword with the LID in its low half.
    lid: u32,
}

/// The kind of header in the 40 bytes before a datagram's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "rdma_network_type")]
pub enum NetworkType {
    /// A global route header: RoCE version 1, or InfiniBand.
    RoceV1,
    /// An IPv6 header.
    Ipv6,
    /// An IPv4 header, in the last 20 bytes.
    Ipv4,
}

impl Origin {
    /// No sender.
    pub const NONE: Self = Self { flags: 0, lid: 0 };

    /// The dwords `slid` and `flags_rqpn` of a completion entry, in memory order.
    #[inline(always)]
    pub(crate) const fn new(slid: u32, flags: u32) -> Self {
        Self { flags, lid: slid }
    }

    const fn flags(self) -> u64 {
        u32::from_be(self.flags) as u64
    }

    /// QPN of the sender.
    #[doc(alias = "src_qp")]
    pub const fn qpn(self) -> Qpn {
        Qpn::from_low_bits(REMOTE_QPN.get(self.flags()) as u32)
    }

    /// Whether a route header precedes the payload.
    #[doc(alias = "IBV_WC_GRH")]
    pub const fn has_route_header(self) -> bool {
        GRH.get(self.flags()) != 0
    }

    /// Service level on InfiniBand; on Ethernet these bits encode the kind of route header.
    #[doc(alias = "sl")]
    pub const fn service_level(self) -> u8 {
        SERVICE_LEVEL.get(self.flags()) as u8
    }

    /// LID of the sender's port on InfiniBand; meaningless on Ethernet.
    #[doc(alias = "slid")]
    pub const fn lid(self) -> u16 {
        u32::from_be(self.lid) as u16
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        (self.flags, self.lid()) == (other.flags, other.lid())
    }
}

impl Eq for Origin {}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("qpn", &self.qpn())
            .field("lid", &self.lid())
            .field("has_route_header", &self.has_route_header())
            .finish()
    }
}

impl WorkCompletion {
    /// An empty completion, to initialize the array for [`poll`](crate::completion_queue::CompletionQueue::poll).
    pub const EMPTY: Self = Self {
        wr_id: 0,
        byte_count: 0,
        immediate: None,
        qpn: Qpn::from_low_bits(0),
        status: WorkCompletionStatus::Success,
        vendor_syndrome: 0,
        opcode: WorkCompletionOpcode::Nop,
        origin: Origin::NONE,
    };

    /// The key that the peer invalidated with its SEND.
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub const fn invalidated(&self) -> Option<Mkey> {
        match (self.opcode, self.immediate) {
            (WorkCompletionOpcode::ReceiveWithInvalidate, Some(key)) => Some(Mkey::new(key)),
            _ => None,
        }
    }

    /// Kind of header before the payload of a datagram that arrived over Ethernet.
    pub const fn network_type(&self) -> Option<NetworkType> {
        match (self.origin.has_route_header(), ROCE_HEADER.get(self.origin.flags())) {
            (true, 0) => Some(NetworkType::RoceV1),
            (true, 1) => Some(NetworkType::Ipv6),
            (true, 2) => Some(NetworkType::Ipv4),
            _ => None,
        }
    }

    /// Whether the work request succeeded.
    pub const fn is_success(&self) -> bool {
        matches!(self.status, WorkCompletionStatus::Success)
    }

    /// Returns a success as is, and turns a failure into an error that tells which work request failed and why.
    ///
    /// ```
    /// use bareverbs_core::WorkCompletion;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let completion = WorkCompletion { wr_id: 7, ..WorkCompletion::EMPTY };
    /// assert_eq!(completion.into_result()?.wr_id, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The work request failed.
    pub const fn into_result(self) -> Result<Self, WorkRequestFailed> {
        match self.status {
            WorkCompletionStatus::Success => Ok(self),
            WorkCompletionStatus::Failed(_) => Err(WorkRequestFailed(self)),
        }
    }
}

/// A failed work request: its completion as an error. See [`WorkCompletion::into_result`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkRequestFailed(pub WorkCompletion);

impl fmt::Display for WorkRequestFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkCompletion { wr_id, qpn, opcode, status, vendor_syndrome, .. } = self.0;
        write!(f, "work request {wr_id} on queue pair {qpn} failed: ")?;
        // A failed completion names the operation, except for the kind of a receive.
        write!(f, "{opcode:?}: {status}, vendor syndrome {vendor_syndrome:#04x}")?;
        let taken_back = matches!(status, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection));
        let hint = if opcode == WorkCompletionOpcode::DmaCopy && taken_back {
            "; an alias stops working once its owner drops the region or resets"
        } else {
            ""
        };
        f.write_str(hint)
    }
}

impl core::error::Error for WorkRequestFailed {}

impl Default for WorkCompletion {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Status of a work request. A success consists of zeros, as most of a completion does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[doc(alias = "ibv_wc_status")]
pub enum WorkCompletionStatus {
    /// It succeeded.
    #[doc(alias = "IBV_WC_SUCCESS")]
    Success,
    /// It failed.
    Failed(CqeSyndrome),
}

impl fmt::Display for WorkCompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Failed(syndrome) = *self else { return f.write_str("success") };
        let text = match syndrome {
            CqeSyndrome::LocalLength => "message longer than its buffer or than the path allows",
            CqeSyndrome::LocalQpOperation => {
                "the work request is malformed: check operation, slices and the queue pair's service"
            }
            CqeSyndrome::LocalProtection => "a local key does not cover the memory: check slices and domain",
            CqeSyndrome::WorkRequestFlushed => {
                "flushed: the queue pair was in the error state; the first failed completion says why"
            }
            CqeSyndrome::MemoryWindowBind => {
                "binding the memory window failed: check the region's key, its range and AccessFlags::MEMORY_WINDOW_BIND"
            }
            CqeSyndrome::BadResponse => {
                "the peer sent a response that makes no sense: compare the PSNs and options of both ends"
            }
            CqeSyndrome::LocalAccess => {
                "the peer's RDMA WRITE with immediate data could not reach local memory: keep it registered meanwhile"
            }
            CqeSyndrome::RemoteInvalidRequest => {
                "the peer found the request invalid: check its receive's length and the operations that it allows"
            }
            CqeSyndrome::RemoteAccess => "the peer refused access: check address, remote key and AccessFlags",
            CqeSyndrome::RemoteOperation => {
                "the peer failed to do it: look at the peer's completions and events"
            }
            CqeSyndrome::TransportRetryExceeded => {
                "the peer does not answer: check the path and the peer's state"
            }
            CqeSyndrome::RnrRetryExceeded => {
                "the peer posted no receive: post receives earlier, or raise rnr_retry"
            }
            CqeSyndrome::RemoteAborted => "the peer aborted it: look at the peer's completions and events",
            _ => "unknown failure: look the vendor syndrome up in the firmware's release notes",
        };
        write!(f, "{text} ({syndrome})")
    }
}

/// Operation of a completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[doc(alias = "ibv_wc_opcode")]
pub enum WorkCompletionOpcode {
    /// NOP.
    Nop = 0,
    /// SEND.
    #[doc(alias = "IBV_WC_SEND")]
    Send = 1,
    /// RDMA WRITE.
    #[doc(alias = "IBV_WC_RDMA_WRITE")]
    RdmaWrite = 2,
    /// RDMA READ.
    #[doc(alias = "IBV_WC_RDMA_READ")]
    RdmaRead = 3,
    /// Atomic compare and swap.
    #[doc(alias = "IBV_WC_COMP_SWAP")]
    CompareSwap = 4,
    /// Atomic fetch and add.
    #[doc(alias = "IBV_WC_FETCH_ADD")]
    FetchAdd = 5,
    /// A receive that a SEND consumed.
    #[doc(alias = "IBV_WC_RECV")]
    Receive = 6,
    /// A receive that an RDMA WRITE with immediate data consumed.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    ReceiveRdmaWithImmediate = 7,
    /// A memory window was bound.
    #[doc(alias = "IBV_WC_BIND_MW")]
    BindWindow = 8,
    /// A key was invalidated.
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    LocalInvalidate = 9,
    /// Pages were registered.
    #[doc(alias = "IB_WC_REG_MR")]
    FastRegister = 10,
    /// Atomic compare and swap with masks.
    #[doc(alias = "IB_WC_MASKED_COMP_SWAP")]
    MaskedCompareSwap = 11,
    /// Atomic fetch and add with field boundaries.
    #[doc(alias = "IB_WC_MASKED_FETCH_ADD")]
    MaskedFetchAdd = 12,
    /// A receive that a SEND with invalidate consumed.
    ReceiveWithInvalidate = 13,
    /// A copy of a [`DmaQueue`](crate::dma_queue::DmaQueue).
    #[doc(alias = "MLX5DV_WC_MEMCPY")]
    DmaCopy = 14,
    /// A number without a meaning.
    Unknown = 15,
}

impl WorkCompletionOpcode {
    /// Whether it changes a word of the peer's memory.
    pub(crate) const fn is_atomic(self) -> bool {
        use WorkCompletionOpcode::{CompareSwap, FetchAdd, MaskedCompareSwap, MaskedFetchAdd};
        matches!(self, CompareSwap | FetchAdd | MaskedCompareSwap | MaskedFetchAdd)
    }

    /// The operation for the four-bit number in the ledger. All of them are listed in order, so that the
    /// compiler recognizes the number as the value.
    #[inline(always)]
    pub(crate) const fn from_kind(kind: u8) -> Self {
        use WorkCompletionOpcode::*;
        match kind & 15 {
            0 => Nop,
            1 => Send,
            2 => RdmaWrite,
            3 => RdmaRead,
            4 => CompareSwap,
            5 => FetchAdd,
            6 => Receive,
            7 => ReceiveRdmaWithImmediate,
            8 => BindWindow,
            9 => LocalInvalidate,
            10 => FastRegister,
            11 => MaskedCompareSwap,
            12 => MaskedFetchAdd,
            13 => ReceiveWithInvalidate,
            14 => DmaCopy,
            _ => Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip() {
        for kind in 0..16 {
            assert_eq!(WorkCompletionOpcode::from_kind(kind) as u8, kind);
        }
    }
}
