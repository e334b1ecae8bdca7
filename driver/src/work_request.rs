//! Work requests: what the application wants done, and its encoding. Pure.
//!
//! A request is written down once, in words that can go into the ring as they are: opcode and flags are encoded when it
//! is made, not when it is posted.

use crate::ledger::Posted;
use crate::memory_region::{MemorySlice, RemoteSlice};
use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::{Mkey, Srqn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{SEGMENT, completion_mode, fence_mode, masked_opmod, strom_opmod};
use zerocopy::IntoBytes;

/// Bit 31 of an inline header: the bytes follow.
const INLINE: u32 = 1 << 31;
/// Where fence, completion and solicited bits stand in the third word of a control segment.
const FENCE: u32 = (fence_mode::FENCE as u32) << 5;
const STRONG_ORDERING: u32 = (fence_mode::STRONG_ORDERING as u32) << 5;
const FENCE_MODES: u32 = 7 << 5;
const SIGNALLED: u32 = (completion_mode::ALWAYS as u32) << 2;
const SOLICITED: u32 = 1 << 1;
/// Segments that a work queue entry can have: the field has 6 bits.
pub(crate) const MAX_SEGMENTS: u32 = 63;
/// Segments of a basic block.
pub(crate) const BLOCK_SEGMENTS: u32 = 4;

/// Something to do for a send queue.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ibv_send_wr")]
pub struct WorkRequest<'a> {
    pub(crate) id: u64,
    /// First half of the control segment as a number: opmod, opcode, and the segments if the form says how many.
    control: u64,
    /// What the ledger keeps, but for its place.
    posted: Posted,
    pub(crate) kind: WorkCompletionOpcode,
    pub(crate) shape: Shape,
    pub(crate) form: Form,
    /// Second half of the control segment in memory order: flags and immediate data.
    flags: u64,
    /// Remote address segment in memory order.
    remote: [u64; 2],
    /// Atomic segment in memory order.
    pub(crate) atomic: [u64; 2],
    /// The first slice in memory order, if there is one.
    pub(crate) first: [u64; 2],
    /// Its length.
    pub(crate) length: u32,
    /// The shared receive queue of the peer, if it is named.
    pub(crate) shared_queue: Option<Srqn>,
    /// The data, if they are in memory that the device reaches.
    pub(crate) slices: &'a [MemorySlice],
    /// The data, if they are copied into the entry.
    pub(crate) bytes: &'a [u8],
}

/// Flags of the third word of a control segment, where the second half of the segment has them in memory.
const fn flag(bits: u32) -> u64 {
    ((bits as u64) << 32).to_be()
}

/// Segments between the control segment and the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Shape {
    /// None.
    Plain = 0,
    /// A remote address.
    Remote = 1,
    /// A remote address and an atomic segment.
    Atomic = 2,
    /// The bytes as they are, in place of data.
    Update = 3,
    /// A remote address and the bytes as they are, before the data.
    MaskedAtomic = 4,
}

impl Shape {
    /// Segments that stand before `bytes` and the slices.
    pub(crate) const fn segments(self) -> u32 {
        match self {
            Self::Plain | Self::Update => 0,
            Self::Remote | Self::MaskedAtomic => 1,
            Self::Atomic => 2,
        }
    }

    /// Whether `bytes` are segments, not inline data.
    pub(crate) const fn is_raw(self) -> bool {
        matches!(self, Self::Update | Self::MaskedAtomic)
    }

    /// Whether there is a remote address.
    pub(crate) const fn is_remote(self) -> bool {
        !matches!(self, Self::Plain | Self::Update)
    }

    /// Whether the only slice is for the old value of a word.
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::MaskedAtomic)
    }
}

/// Operands of an atomic compare and swap of a part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedCompareSwap {
    segment: [u64; 4],
}

impl MaskedCompareSwap {
    /// If the bits of `compare_mask` are as in `compare`, the bits of `swap_mask` become those of `swap`.
    pub const fn new(compare: u64, compare_mask: u64, swap: u64, swap_mask: u64) -> Self {
        Self { segment: [swap.to_be(), compare.to_be(), swap_mask.to_be(), compare_mask.to_be()] }
    }
}

/// Operands of an atomic fetch and add of fields of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedFetchAdd {
    segment: [u64; 2],
}

impl MaskedFetchAdd {
    /// Adds `add`; what is carried out of a bit of `boundaries`, the highest of its field, is lost.
    pub const fn new(add: u64, boundaries: u64) -> Self {
        Self { segment: [add.to_be(), boundaries.to_be()] }
    }
}

/// Forms that have a short way of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    /// None of them.
    Other,
    /// One slice behind the control segment.
    Slice,
    /// One slice behind a remote address.
    RemoteSlice,
    /// A few bytes behind the control segment.
    Short,
    /// A few bytes behind a remote address.
    RemoteShort,
    /// More bytes behind the control segment.
    Long,
    /// More bytes behind a remote address.
    RemoteLong,
    /// One slice of a word behind a remote address and an atomic segment.
    Atomic,
}

/// Longest scatter/gather element: a byte count of zero means 2^31.
pub(crate) const MAX_SLICE: u32 = 1 << 31;
/// Most bytes of a short form.
const MAX_SHORT: usize = 16;
/// Most bytes of a long form: an entry of [`MAX_SEGMENTS`] with control segment, remote address and header.
const MAX_LONG: usize = (MAX_SEGMENTS as usize - 2) * SEGMENT - 4;
/// Bytes of the word that an atomic changes.
pub(crate) const ATOMIC: u32 = 8;

impl<'a> WorkRequest<'a> {
    #[inline(always)]
    const fn new(
        id: u64,
        opcode: WqeOpcode,
        kind: WorkCompletionOpcode,
        slices: &'a [MemorySlice],
        bytes: &'a [u8],
    ) -> Self {
        let (form, segments) = match (slices, bytes) {
            ([_], []) => (Form::Slice, 2),
            ([], [_, ..]) if bytes.len() <= MAX_SHORT => {
                (Form::Short, 1 + inline_segments(bytes.len() as u32))
            }
            ([], [_, ..]) if bytes.len() <= MAX_LONG => (Form::Long, 1 + inline_segments(bytes.len() as u32)),
            _ => (Form::Other, 0),
        };
        let (first, length) = match slices {
            [first, ..] => (slice_words(first), first.length),
            [] => ([0; 2], 0),
        };
        Self {
            id,
            control: (opcode.raw() as u64) << 32 | segments as u64,
            posted: Posted::some(segments.div_ceil(BLOCK_SEGMENTS), kind as u8),
            kind,
            shape: Shape::Plain,
            form,
            flags: flag(SIGNALLED),
            remote: [0; 2],
            atomic: [0; 2],
            first: [first[0].to_be(), first[1].to_be()],
            length,
            shared_queue: None,
            slices,
            bytes,
        }
    }

    #[inline(always)]
    const fn to(mut self, remote: RemoteSlice) -> Self {
        self.shape = Shape::Remote;
        (self.form, self.control) = match self.form {
            Form::Slice => (Form::RemoteSlice, self.control + 1),
            Form::Short => (Form::RemoteShort, self.control + 1),
            Form::Long => (Form::RemoteLong, self.control + 1),
            form => (form, self.control),
        };
        self.count_blocks();
        self.remote = [remote.address.to_be(), ((remote.rkey.value() as u64) << 32).to_be()];
        self
    }

    /// SEND: the peer's next receive takes the data.
    #[inline(always)]
    #[doc(alias = "IBV_WR_SEND")]
    pub const fn send(id: u64, data: &'a [MemorySlice]) -> Self {
        Self::new(id, WqeOpcode::Send, WorkCompletionOpcode::Send, data, &[])
    }

    /// SEND of bytes that are copied now.
    #[inline(always)]
    #[doc(alias = "IBV_SEND_INLINE")]
    pub const fn send_inline(id: u64, data: &'a [u8]) -> Self {
        Self::new(id, WqeOpcode::Send, WorkCompletionOpcode::Send, &[], data)
    }

    /// RDMA WRITE: the data go to the peer's memory.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    pub const fn write(id: u64, data: &'a [MemorySlice], remote: RemoteSlice) -> Self {
        Self::new(id, WqeOpcode::RdmaWrite, WorkCompletionOpcode::RdmaWrite, data, &[]).to(remote)
    }

    /// RDMA WRITE of bytes that are copied now.
    #[inline(always)]
    pub const fn write_inline(id: u64, data: &'a [u8], remote: RemoteSlice) -> Self {
        Self::new(id, WqeOpcode::RdmaWrite, WorkCompletionOpcode::RdmaWrite, &[], data).to(remote)
    }

    /// RDMA READ: the peer's memory goes to the slices.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_READ")]
    pub const fn read(id: u64, data: &'a [MemorySlice], remote: RemoteSlice) -> Self {
        Self::new(id, WqeOpcode::RdmaRead, WorkCompletionOpcode::RdmaRead, data, &[]).to(remote)
    }

    /// Atomic compare and swap of 8 bytes; what was there before goes to the slice.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub const fn compare_swap(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Self {
        let (opcode, kind) = (WqeOpcode::AtomicCompareSwap, WorkCompletionOpcode::CompareSwap);
        Self::new(id, opcode, kind, old, &[]).to(remote).atomic([swap.to_be(), compare.to_be()])
    }

    /// Atomic fetch and add of 8 bytes; what was there before goes to the slice.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub const fn fetch_add(id: u64, old: &'a [MemorySlice; 1], remote: RemoteSlice, add: u64) -> Self {
        let (opcode, kind) = (WqeOpcode::AtomicFetchAdd, WorkCompletionOpcode::FetchAdd);
        Self::new(id, opcode, kind, old, &[]).to(remote).atomic([add.to_be(), 0])
    }

    /// With an atomic segment, given in memory order. A slice of another length than that of a word is refused when the
    /// request is posted.
    const fn atomic(mut self, operands: [u64; 2]) -> Self {
        (self.shape, self.atomic) = (Shape::Atomic, operands);
        if self.length == ATOMIC {
            (self.form, self.control) = (Form::Atomic, self.control + 1);
        } else {
            self.lose_form();
        }
        self
    }

    /// Atomic compare and swap of a part of 8 bytes; what was there before goes to the slice.
    #[doc(alias = "IB_WR_MASKED_ATOMIC_CMP_AND_SWP")]
    pub fn masked_compare_swap(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        operands: &'a MaskedCompareSwap,
    ) -> Self {
        let (opcode, kind) = (WqeOpcode::AtomicMaskedCompareSwap, WorkCompletionOpcode::MaskedCompareSwap);
        Self::masked(Self::new(id, opcode, kind, old, &[]).to(remote), operands.segment.as_bytes())
    }

    /// Atomic fetch and add of fields of 8 bytes; what was there before goes to the slice.
    #[doc(alias = "IB_WR_MASKED_ATOMIC_FETCH_AND_ADD")]
    pub fn masked_fetch_add(
        id: u64,
        old: &'a [MemorySlice; 1],
        remote: RemoteSlice,
        operands: &'a MaskedFetchAdd,
    ) -> Self {
        let (opcode, kind) = (WqeOpcode::AtomicMaskedFetchAdd, WorkCompletionOpcode::MaskedFetchAdd);
        Self::masked(Self::new(id, opcode, kind, old, &[]).to(remote), operands.segment.as_bytes())
    }

    fn masked(mut self, operands: &'a [u8]) -> Self {
        self.shape = Shape::MaskedAtomic;
        self.lose_form();
        self.bytes = operands;
        self.with_opmod(masked_opmod::EIGHT_BYTES)
    }

    /// A change of a memory key: its segments behind the control segment.
    pub(crate) fn update(id: u64, kind: WorkCompletionOpcode, key: Mkey, segments: &'a [u8]) -> Self {
        let mut request = Self::new(id, WqeOpcode::Umr, kind, &[], &[]);
        request.shape = Shape::Update;
        request.lose_form();
        request.bytes = segments;
        request.set_immediate(key.value());
        request
    }

    /// Nothing, but a completion.
    pub const fn nop(id: u64) -> Self {
        Self::new(id, WqeOpcode::Nop, WorkCompletionOpcode::Nop, &[], &[])
    }

    /// StRoM's RDMA RPC Params (BTH op-code 0x18): invokes `rpc_opcode` on the peer's NIC with inline parameters.
    ///
    /// **Not mlx5.** An RDMA WRITE with [`strom_opmod::RPC_PARAMS`] whose remote address is the RPC op-code. Hardware
    /// refuses it with a local QP operation error, and so does the simulator unless the extension is switched on.
    pub const fn rpc_params(id: u64, rpc_opcode: u64, region: Mkey, parameters: &'a [u8]) -> Self {
        Self::write_inline(id, parameters, RemoteSlice { address: rpc_opcode, rkey: region })
            .with_opmod(strom_opmod::RPC_PARAMS)
    }

    /// [`Self::rpc_params`] with parameters in memory.
    pub const fn rpc_params_from(
        id: u64,
        rpc_opcode: u64,
        region: Mkey,
        parameters: &'a [MemorySlice],
    ) -> Self {
        Self::write(id, parameters, RemoteSlice { address: rpc_opcode, rkey: region })
            .with_opmod(strom_opmod::RPC_PARAMS)
    }

    /// StRoM's RDMA RPC WRITE (BTH op-codes 0x19 to 0x1c): streams data to the kernel `rpc_opcode` of the peer's NIC.
    /// See [`Self::rpc_params`].
    pub const fn rpc_write(id: u64, rpc_opcode: u64, region: Mkey, data: &'a [MemorySlice]) -> Self {
        Self::write(id, data, RemoteSlice { address: rpc_opcode, rkey: region })
            .with_opmod(strom_opmod::RPC_WRITE)
    }

    const fn with_opmod(mut self, opmod: u8) -> Self {
        self.control |= (opmod as u64) << 56;
        self
    }

    /// There is no short way for it: the segments are counted when the request is posted.
    const fn lose_form(&mut self) {
        self.form = Form::Other;
        self.control &= !(MAX_SEGMENTS as u64);
    }

    /// Tells the ledger how many basic blocks the segments take.
    #[inline(always)]
    const fn count_blocks(&mut self) {
        let segments = self.control as u32 & MAX_SEGMENTS;
        self.posted = Posted::some(segments.div_ceil(BLOCK_SEGMENTS), self.kind as u8);
    }

    /// Carries `immediate` to the peer's receive. Only SEND and RDMA WRITE can; others stay as they are.
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
        self.set_opcode(opcode);
        self.set_immediate(immediate);
        self
    }

    /// Takes `key` away from the peer that receives this SEND: one of its memory windows, or a fast registration. Others
    /// than SEND stay as they are.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    pub const fn invalidating(mut self, key: Mkey) -> Self {
        if matches!(self.kind, WorkCompletionOpcode::Send) {
            self.set_opcode(WqeOpcode::SendInval);
            self.set_immediate(key.value());
        }
        self
    }

    #[inline(always)]
    const fn set_opcode(&mut self, opcode: WqeOpcode) {
        self.control = self.control & !(0xff << 32) | (opcode.raw() as u64) << 32;
    }

    #[inline(always)]
    const fn set_immediate(&mut self, immediate: u32) {
        self.flags = self.flags & !(u32::MAX as u64).to_be() | (immediate as u64).to_be();
    }

    /// Whether success is reported too. The default is yes. A request that is not signalled gives its place in the
    /// queue back with the next completion: at least one request a queue length must be signalled.
    #[inline(always)]
    #[must_use]
    #[doc(alias = "IBV_SEND_SIGNALED")]
    pub const fn signalled(mut self, signalled: bool) -> Self {
        self.flags = self.flags & !flag(SIGNALLED) | if signalled { flag(SIGNALLED) } else { 0 };
        self
    }

    /// Raises an event at the peer if its completion queue is armed for solicited completions.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_SEND_SOLICITED")]
    pub const fn solicited(mut self) -> Self {
        self.flags |= flag(SOLICITED);
        self
    }

    /// Names the shared receive queue of the peer that an extended reliable connection is to deliver to. All its requests
    /// must, RDMA too: keys are looked up in the protection domain of that queue. Requests of other services may not.
    #[inline]
    #[must_use]
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    #[doc(alias = "remote_srqn")]
    pub const fn for_shared_queue(mut self, queue: Srqn) -> Self {
        self.lose_form();
        self.shared_queue = Some(queue);
        self
    }

    /// Waits until all earlier RDMA READs and atomics of the queue are done.
    #[inline]
    #[must_use]
    #[doc(alias = "IBV_SEND_FENCE")]
    pub const fn fence(mut self) -> Self {
        self.flags = self.flags & !flag(FENCE_MODES) | flag(FENCE);
        self
    }

    /// Waits until everything earlier in the queue is done. So does a change of a key have to that something earlier
    /// may still need.
    #[inline]
    #[must_use]
    pub const fn strong_ordering(mut self) -> Self {
        self.flags = self.flags & !flag(FENCE_MODES) | flag(STRONG_ORDERING);
        self
    }

    /// The second 8 bytes in memory order behind a change of a key: what follows it says that it waits for it.
    pub(crate) const fn flags_behind_update(&self) -> u64 {
        let mode = (u64::from_be(self.flags) >> 37) as u8 & 7;
        let mode = match mode {
            fence_mode::NONE => fence_mode::INITIATOR_SMALL,
            fence_mode::FENCE => fence_mode::SMALL_AND_FENCE,
            stronger => stronger,
        };
        self.flags & !flag(FENCE_MODES) | flag((mode as u32) << 5)
    }

    /// The first 8 bytes of the entry as a number; for [`Form::Other`] the number of segments is still to be added.
    #[inline(always)]
    pub(crate) const fn control(&self, counter: u32, qpn_shifted: u32) -> u64 {
        self.control | ((counter & 0xffff) as u64) << 40 | qpn_shifted as u64
    }

    /// What the ledger keeps of a request that has a form, without its place.
    #[inline(always)]
    pub(crate) const fn posted(&self) -> Posted {
        self.posted
    }

    /// The second 8 bytes in memory order.
    #[inline(always)]
    pub(crate) const fn flags(&self) -> u64 {
        self.flags
    }

    /// The remote address segment in memory order.
    #[inline(always)]
    pub(crate) const fn remote(&self) -> [u64; 2] {
        self.remote
    }
}

/// A scatter/gather element, as two numbers.
#[inline(always)]
pub(crate) const fn slice_words(slice: &MemorySlice) -> [u64; 2] {
    [(slice.length as u64) << 32 | slice.lkey.value() as u64, slice.address]
}

/// 16-byte segments that `length` inline bytes need, header included; `length` is small.
#[inline(always)]
pub(crate) const fn inline_segments(length: u32) -> u32 {
    (length + 4).div_ceil(16)
}

/// The header of an inline segment: the low half of its first word, if that is read as a little-endian number.
#[inline(always)]
pub(crate) const fn inline_header(bytes: &[u8]) -> u64 {
    (INLINE | bytes.len() as u32).to_be().to_le() as u64
}

/// Header and up to 16 bytes of an inline segment, in memory order, padded with zeros.
#[inline(always)]
pub(crate) fn short_inline(bytes: &[u8]) -> [u64; 3] {
    let (low, high) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), _) if bytes.len() == 8 => (u64::from_le_bytes(*first), 0),
        (Some(first), Some(last)) => {
            // The last 8 bytes overlap the first ones; only what is beyond them counts.
            let overlap = 128u32.wrapping_sub(bytes.len() as u32 * 8) & 63;
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last) >> overlap)
        }
        _ => (short(bytes), 0),
    };
    let header = inline_header(bytes);
    [(header | low << 32).to_le(), (low >> 32 | high << 32).to_le(), (high >> 32).to_le()]
}

/// Gives header and bytes of an inline segment to `put` as words in memory order, the last one padded with zeros.
#[inline(always)]
pub(crate) fn inline_words(bytes: &[u8], mut put: impl FnMut(u64)) {
    let mut carry = inline_header(bytes);
    let chunks = bytes.chunks_exact(8);
    let rest = short(chunks.remainder());
    let long = chunks.remainder().len() > 4;
    for chunk in chunks {
        let value = chunk.try_into().map_or(0, u64::from_le_bytes);
        put((carry | value << 32).to_le());
        carry = value >> 32;
    }
    put((carry | rest << 32).to_le());
    if long {
        put((rest >> 32).to_le());
    }
}

/// Up to 7 bytes, the first one lowest.
#[inline(always)]
fn short(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let beyond = bytes.len().saturating_sub(4) as u32 * 8;
            let high = (u32::from_le_bytes(*last) as u64).checked_shr(32 - beyond).unwrap_or(0);
            u32::from_le_bytes(*first) as u64 | high << 32
        }
        _ => bytes.iter().rev().fold(0, |value, &byte| value << 8 | byte as u64),
    }
}

/// Forms of receives that have a short way of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReceiveForm {
    /// None of them.
    Other,
    /// One slice of a length that is possible.
    Slice,
    /// What no request is: of queues without a short way.
    Never,
}

/// Something to fill, for a receive queue.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    pub(crate) id: u64,
    /// The only slice in memory order, if the form is of one.
    pub(crate) first: [u64; 2],
    pub(crate) form: ReceiveForm,
    pub(crate) slices: &'a [MemorySlice],
}

impl<'a> ReceiveRequest<'a> {
    /// The next message goes to `slices`, in order.
    #[inline(always)]
    pub const fn new(id: u64, slices: &'a [MemorySlice]) -> Self {
        let (form, first) = match slices {
            [slice] if slice.length.wrapping_sub(1) < MAX_SLICE => {
                let [a, b] = slice_words(slice);
                (ReceiveForm::Slice, [a.to_be(), b.to_be()])
            }
            _ => (ReceiveForm::Other, [0; 2]),
        };
        Self { id, first, form, slices }
    }
}

#[cfg(test)]
mod tests;
