//! Work requests: operations for the device. Pure.
//!
//! The head of the entry is encoded when the request is created, not when it is posted: see `wqe`.

use crate::ledger::Posted;
use crate::memory_region::{MemorySlice, RemoteSlice};
use crate::work_completion::WorkCompletionOpcode;
use crate::wqe::head::Head;
use crate::wqe::receive::ScatterList;
use crate::wqe::segment::{self, Segment};
use crate::wqe::send::{SendData, SendEntry};
use bareverbs_prm::ids::{Mkey, Srqn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{fence_mode, masked_opmod, mmo, strom_opmod};

/// A work request for a send queue.
///
/// ```
/// use bareverbs_core::queue_pair::PostError;
/// use bareverbs_core::{DeviceRef, MemorySlice, QueuePair, RemoteSlice, WorkRequest};
///
/// /// Data, then a flag behind it, with one doorbell. Only the flag is reported: what is before it has ended by then.
/// fn publish<D: DeviceRef>(
///     queue_pair: &mut QueuePair<D>,
///     data: MemorySlice,
///     (place, flag): (RemoteSlice, RemoteSlice),
/// ) -> Result<(), PostError> {
///     let mut batch = queue_pair.send_batch();
///     batch.post(&WorkRequest::write(1, &[data], place).signalled(false))?;
///     batch.post(&WorkRequest::write_inline(2, &[1], flag))?;
///     batch.ring();
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ibv_send_wr")]
pub struct WorkRequest<'a> {
    pub(crate) id: u64,
    /// What the ledger stores of a request with a fast path, without its position.
    pub(crate) posted: Posted,
    /// Basic blocks of a request with a fast path; `posted` contains them too, among other fields.
    pub(crate) blocks: u32,
    pub(crate) kind: WorkCompletionOpcode,
    pub(crate) entry: SendEntry<'a>,
    /// The shared receive queue of the peer, if the request names one.
    pub(crate) shared_queue: Option<Srqn>,
}

/// Operands of a masked atomic compare and swap.
///
/// ```
/// use bareverbs_core::work_request::MaskedCompareSwap;
///
/// /// Takes the lock in the lowest bit of a word if it is free, and leaves the other 63 bits as they are.
/// const LOCK: MaskedCompareSwap = MaskedCompareSwap::new(0, 1, 1, 1);
/// # let _ = LOCK;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedCompareSwap {
    operands: Segment,
    masks: Segment,
}

impl MaskedCompareSwap {
    /// If the bits in `compare_mask` equal those of `compare`, replaces the bits in `swap_mask` by those of `swap`.
    pub const fn new(compare: u64, compare_mask: u64, swap: u64, swap_mask: u64) -> Self {
        Self {
            operands: segment::masked_atomic(swap, compare),
            masks: segment::atomic_masks(swap_mask, compare_mask),
        }
    }
}

/// Operands of a masked atomic fetch and add.
///
/// ```
/// use bareverbs_core::work_request::MaskedFetchAdd;
///
/// /// Two counters of 32 bits in one word: each counts up by one, and neither carries into the other.
/// const BOTH: MaskedFetchAdd = MaskedFetchAdd::new(1 << 32 | 1, 1 << 63 | 1 << 31);
/// # let _ = BOTH;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedFetchAdd {
    operands: Segment,
}

impl MaskedFetchAdd {
    /// Adds `add`. `boundaries` marks the highest bit of each field; a carry out of such a bit is dropped.
    pub const fn new(add: u64, boundaries: u64) -> Self {
        Self { operands: segment::masked_atomic(add, boundaries) }
    }
}

/// Bytes of the word that an atomic operates on.
pub(crate) const ATOMIC: u32 = 8;

impl<'a> WorkRequest<'a> {
    #[inline(always)]
    const fn new(id: u64, kind: WorkCompletionOpcode, head: Head, data: SendData<'a>) -> Self {
        let entry = SendEntry::new(head, data);
        let blocks = entry.blocks();
        let posted = Posted::some(blocks, kind as u8);
        Self { id, posted, blocks, kind, entry, shared_queue: None }
    }

    /// SEND: the data go to the peer's next receive.
    #[inline(always)]
    #[doc(alias = "IBV_WR_SEND")]
    pub const fn send(id: u64, data: &'a [MemorySlice]) -> Self {
        let head = Head::new(WqeOpcode::Send);
        Self::new(id, WorkCompletionOpcode::Send, head, SendData::of_slices(data))
    }

    /// SEND of inline data, copied when the request is posted.
    #[inline(always)]
    #[doc(alias = "IBV_SEND_INLINE")]
    pub const fn send_inline(id: u64, data: &'a [u8]) -> Self {
        let head = Head::new(WqeOpcode::Send);
        Self::new(id, WorkCompletionOpcode::Send, head, SendData::of_bytes(data))
    }

    /// RDMA WRITE to the peer's memory.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    pub const fn write(id: u64, data: &'a [MemorySlice], remote: RemoteSlice) -> Self {
        let head = Head::new(WqeOpcode::RdmaWrite).with(segment::remote(remote));
        Self::new(id, WorkCompletionOpcode::RdmaWrite, head, SendData::of_slices(data))
    }

    /// RDMA WRITE of inline data, copied when the request is posted.
    #[inline(always)]
    pub const fn write_inline(id: u64, data: &'a [u8], remote: RemoteSlice) -> Self {
        let head = Head::new(WqeOpcode::RdmaWrite).with(segment::remote(remote));
        Self::new(id, WorkCompletionOpcode::RdmaWrite, head, SendData::of_bytes(data))
    }

    /// RDMA READ from the peer's memory into the slices.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_READ")]
    pub const fn read(id: u64, data: &'a [MemorySlice], remote: RemoteSlice) -> Self {
        let head = Head::new(WqeOpcode::RdmaRead).with(segment::remote(remote));
        Self::new(id, WorkCompletionOpcode::RdmaRead, head, SendData::of_slices(data))
    }

    /// Atomic compare and swap of 8 bytes. The original value goes to the slice.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub const fn compare_swap(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Self {
        let head = Head::new(WqeOpcode::AtomicCompareSwap).with(segment::remote(remote));
        let head = head.with(segment::atomic(swap, compare));
        Self::atomic(id, WorkCompletionOpcode::CompareSwap, head, old)
    }

    /// Atomic fetch and add of 8 bytes. The original value goes to the slice.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub const fn fetch_add(id: u64, old: &'a [MemorySlice; 1], remote: RemoteSlice, add: u64) -> Self {
        let head = Head::new(WqeOpcode::AtomicFetchAdd).with(segment::remote(remote));
        Self::atomic(id, WorkCompletionOpcode::FetchAdd, head.with(segment::atomic(add, 0)), old)
    }

    /// Masked atomic compare and swap of 8 bytes. The original value goes to the slice.
    #[doc(alias = "IB_WR_MASKED_ATOMIC_CMP_AND_SWP")]
    pub fn masked_compare_swap(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        operands: &MaskedCompareSwap,
    ) -> Self {
        let head = Head::new(WqeOpcode::AtomicMaskedCompareSwap).with(segment::remote(remote));
        let head = head.with(operands.operands).with(operands.masks);
        Self::atomic(id, WorkCompletionOpcode::MaskedCompareSwap, head, old)
            .with_opmod(masked_opmod::EIGHT_BYTES)
    }

    /// Masked atomic fetch and add of 8 bytes. The original value goes to the slice.
    #[doc(alias = "IB_WR_MASKED_ATOMIC_FETCH_AND_ADD")]
    pub fn masked_fetch_add(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        operands: &MaskedFetchAdd,
    ) -> Self {
        let head = Head::new(WqeOpcode::AtomicMaskedFetchAdd).with(segment::remote(remote));
        Self::atomic(id, WorkCompletionOpcode::MaskedFetchAdd, head.with(operands.operands), old)
            .with_opmod(masked_opmod::EIGHT_BYTES)
    }

    /// An atomic whose slice does not have the length of a word takes the general path, which refuses it.
    const fn atomic(id: u64, kind: WorkCompletionOpcode, head: Head, old: &'a [MemorySlice; 1]) -> Self {
        let mut request = Self::new(id, kind, head, SendData::of_slices(old));
        if old[0].length != ATOMIC {
            request.entry.use_general_path();
        }
        request
    }

    /// A memory-key update: the segments after the control segment.
    pub(crate) fn update(id: u64, kind: WorkCompletionOpcode, key: Mkey, segments: &'a [u64]) -> Self {
        let mut request = Self::new(id, kind, Head::new(WqeOpcode::Umr), SendData::of_segments(segments));
        request.entry.head.set_immediate(key.value());
        request
    }

    /// A copy from `source` to `destination`, of equal length: the entry is one block. `opaque` is memory for
    /// the device.
    #[inline(always)]
    pub(crate) const fn dma_copy(
        id: u64,
        opaque: &MemorySlice,
        source: &MemorySlice,
        destination: &MemorySlice,
    ) -> Self {
        let head = Head::new(WqeOpcode::Mmo).with(segment::mmo_metadata(opaque));
        let head = head.with(segment::data(source)).with(segment::data(destination));
        let kind = WorkCompletionOpcode::DmaCopy;
        let entry = SendEntry::of_block(head, source.length);
        let blocks = entry.blocks();
        let posted = Posted::some(blocks, kind as u8);
        Self { id, posted, blocks, kind, entry, shared_queue: None }.with_opmod(mmo::DMA)
    }

    /// NOP: does nothing but complete.
    pub const fn nop(id: u64) -> Self {
        Self::new(id, WorkCompletionOpcode::Nop, Head::new(WqeOpcode::Nop), SendData::of_slices(&[]))
    }

    /// StRoM's RDMA RPC Params (BTH op-code 0x18): invokes `rpc_opcode` on the peer's NIC with inline parameters.
    ///
    /// **Not mlx5.** An RDMA WRITE with [`strom_opmod::RPC_PARAMS`] whose remote address is the RPC op-code. Hardware
    /// refuses it with a local QP operation error, and so does the simulator unless the extension is switched on.
    pub const fn rpc_params(id: u64, rpc_opcode: u64, region: Mkey, parameters: &'a [u8]) -> Self {
        Self::write_inline(id, parameters, RemoteSlice::from_raw(rpc_opcode, 0, region))
            .with_opmod(strom_opmod::RPC_PARAMS)
    }

    /// [`Self::rpc_params`] with parameters in memory.
    pub const fn rpc_params_from(
        id: u64,
        rpc_opcode: u64,
        region: Mkey,
        parameters: &'a [MemorySlice],
    ) -> Self {
        Self::write(id, parameters, RemoteSlice::from_raw(rpc_opcode, 0, region))
            .with_opmod(strom_opmod::RPC_PARAMS)
    }

    /// StRoM's RDMA RPC WRITE (BTH op-codes 0x19 to 0x1c): streams data to the kernel `rpc_opcode` of the peer's NIC.
    /// See [`Self::rpc_params`].
    pub const fn rpc_write(id: u64, rpc_opcode: u64, region: Mkey, data: &'a [MemorySlice]) -> Self {
        Self::write(id, data, RemoteSlice::from_raw(rpc_opcode, 0, region)).with_opmod(strom_opmod::RPC_WRITE)
    }

    /// The same request without the parts that only a fast path needs, so that the compiler need not keep those parts of a
    /// request that is made and posted at once.
    #[inline(always)]
    pub(crate) const fn on_general_path(mut self) -> Self {
        self.entry.use_general_path();
        (self.posted, self.blocks) = (Posted::some(0, 0), 0);
        self
    }

    const fn with_opmod(mut self, opmod: u8) -> Self {
        self.entry.head.set_opmod(opmod);
        self
    }

    /// Adds immediate data. Only SEND and RDMA WRITE can carry them; no effect on other requests.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    pub const fn immediate(mut self, immediate: u32) -> Self {
        let opcode = match self.kind {
            WorkCompletionOpcode::Send => WqeOpcode::SendImm,
            WorkCompletionOpcode::RdmaWrite => WqeOpcode::RdmaWriteImm,
            _ => return self,
        };
        self.entry.head.set_opcode(opcode);
        self.entry.head.set_immediate(immediate);
        self
    }

    /// Makes a SEND invalidate `key` at the peer that receives it: one of its memory windows or fast registrations. No
    /// effect on other requests.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    pub const fn invalidating(mut self, key: Mkey) -> Self {
        if matches!(self.kind, WorkCompletionOpcode::Send) {
            self.entry.head.set_opcode(WqeOpcode::SendInval);
            self.entry.head.set_immediate(key.value());
        }
        self
    }

    /// Whether success is reported, too. Default: true. An unsignalled request frees its queue slots with the next
    /// completion, so at least one request per queue length must be signalled.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "IBV_SEND_SIGNALED")]
    pub const fn signalled(mut self, signalled: bool) -> Self {
        self.entry.head.set_signalled(signalled);
        self
    }

    /// Raises an event at the peer if its completion queue is armed for solicited completions.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_SEND_SOLICITED")]
    pub const fn solicited(mut self) -> Self {
        self.entry.head.set_solicited();
        self
    }

    /// Names the peer's shared receive queue for an XRC request. Every XRC request needs this, RDMA included: keys are
    /// looked up in the protection domain of that queue. Requests of other services must not have it.
    #[inline]
    #[must_use]
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    #[doc(alias = "remote_srqn")]
    pub const fn for_shared_queue(mut self, queue: Srqn) -> Self {
        self.entry.use_general_path();
        self.shared_queue = Some(queue);
        self
    }

    /// Fence: waits until all earlier RDMA READs and atomics of the queue are done.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_SEND_FENCE")]
    pub const fn fence(mut self) -> Self {
        self.entry.head.set_fence(fence_mode::FENCE);
        self
    }

    /// Waits until everything earlier in the queue is done. A key update needs this if earlier work may still use the
    /// key.
    #[inline]
    #[must_use]
    pub const fn strong_ordering(mut self) -> Self {
        self.entry.head.set_fence(fence_mode::STRONG_ORDERING);
        self
    }
}

/// A work request for a receive queue.
///
/// ```
/// use bareverbs_core::queue_pair::PostError;
/// use bareverbs_core::{DeviceRef, MemorySlice, QueuePair, ReceiveRequest};
///
/// /// The first 16 bytes of the next message go to `header`, the rest to `body`.
/// fn expect<D: DeviceRef>(queue_pair: &mut QueuePair<D>, header: MemorySlice, body: MemorySlice) -> Result<(), PostError> {
///     queue_pair.post_receive(&ReceiveRequest::new(1, &[header, body]))
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    pub(crate) id: u64,
    pub(crate) list: ScatterList<'a>,
}

impl<'a> ReceiveRequest<'a> {
    /// Receives the next message into `slices`, in order.
    #[inline(always)]
    pub const fn new(id: u64, slices: &'a [MemorySlice]) -> Self {
        Self { id, list: ScatterList::new(slices) }
    }
}
