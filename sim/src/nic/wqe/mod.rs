//! Send WQEs: from 16-byte segments to a request and the local memory it needs (PRM, send WQE format; Linux `drivers/infiniband/hw/mlx5/wr.c`).

mod dma;
mod fault;
mod segments;

pub(crate) use dma::LOG_MAX_DMA;
pub use fault::*;
pub(crate) use segments::{FetchContext, Format, WqeRules, byte_count};

use super::card::DmaCopy;
use super::mkey::{Access, Accessor, HostRange, KeyUpdate, MkeyTable};
use super::strict;
use crate::transport::{AtomicOperation, MaskedCompareSwap, Operation, Request};
use crate::wire::ServiceHeader;
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::field::Layout;
use bareverbs_prm::ids::{Mkey, Qpn, Srqn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{
    AddressVector, AtomicSegment, BASIC_BLOCK, ControlSegment, DataSegment, InlineHeader, KeyUpdateSegment,
    MaskedAtomicSegment, RemoteAddressSegment, SEGMENT, XrcSegment, masked_opmod, strom_opmod, umr_flags,
};
use segments::SegmentReader;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of an inline segment header.
const INLINE_HEADER: usize = InlineHeader::SIZE;

/// A piece of the local buffer of a WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Checked memory.
    Memory(HostRange),
    /// Bytes in the send queue itself: ring offset and length. Software may not change them before the
    /// completion.
    Inline { offset: u32, length: u32 },
}

impl Piece {
    pub(crate) const fn length(&self) -> u64 {
        match self {
            Self::Memory(range) => range.length(),
            Self::Inline { length, .. } => *length as u64,
        }
    }
}

/// The local buffer of a WQE. The first piece is stored in place, since most buffers have only one; the
/// others are in a vector.
#[derive(Debug, Default)]
pub(crate) struct PieceList {
    first: Option<Piece>,
    others: Vec<Piece>,
    length: u64,
}

impl PieceList {
    pub(crate) fn push(&mut self, piece: Piece) {
        match &self.first {
            None => self.first = Some(piece),
            Some(_) => self.others.push(piece),
        }
        self.length = self.length.saturating_add(piece.length());
    }

    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.others.clear();
        self.length = 0;
    }

    /// Bytes of all pieces.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// The range, if the list consists of exactly one range of checked memory.
    #[inline]
    pub(crate) fn only_range(&self) -> Option<&HostRange> {
        match &self.first {
            Some(Piece::Memory(range)) if self.others.is_empty() => Some(range),
            _ => None,
        }
    }

    /// The pieces that cover `length` bytes from `offset` on, each with the offset and the byte count within
    /// it.
    #[inline]
    pub(crate) fn cover(
        &self,
        mut offset: u64,
        mut length: usize,
    ) -> impl Iterator<Item = (&Piece, u64, usize)> {
        self.first.iter().chain(&self.others).filter_map(move |piece| {
            let size = piece.length();
            if length == 0 || offset >= size {
                offset = offset.saturating_sub(size);
                return None;
            }
            let take = usize::try_from(size - offset).unwrap_or(usize::MAX).min(length);
            let start = offset;
            offset = 0;
            length -= take;
            Some((piece, start, take))
        })
    }
}

/// The request in a WQE.
#[derive(Debug)]
pub(crate) enum WqeRequest {
    /// Nothing; it completes once everything before it has.
    Nop,
    /// A message for the requester, which was filled in.
    Request,
    /// A datagram, which needs no requester.
    Datagram(DatagramAddress),
    /// A copy of memory; boxed because it is larger than most others.
    Dma(Box<DmaCopy>),
    /// A memory-key update; boxed because it is several times as large as the others.
    KeyUpdate(Box<KeyUpdate>),
}

/// The destination of a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramAddress {
    pub(crate) vector: AddressVector,
    pub(crate) immediate: Option<u32>,
}

/// Checks the control segment before the length of the WQE is trusted.
pub(crate) fn check_control(
    control: &ControlSegment,
    qpn: Qpn,
    index: u16,
    posted_blocks: u16,
    limit: u16,
) -> Result<usize, WorkFault> {
    let bytes = usize::from(control.ds()) * SEGMENT;
    let blocks = bytes.div_ceil(BASIC_BLOCK);
    if control.wqe_index() != index {
        return Err(INDEX);
    }
    if control.qpn() != qpn {
        return Err(QUEUE_PAIR);
    }
    if bytes == 0 || blocks > usize::from(posted_blocks) || bytes > usize::from(limit) {
        return Err(SIZE);
    }
    Ok(bytes)
}

/// Parses the bytes of a WQE and adds its local buffer to `pieces`, which must be empty. Of a message it fills in the
/// operation, the service class header and the length: to return a message would cost more than to parse it.
#[inline(always)]
pub(crate) fn parse(
    bytes: &[u8],
    control: &ControlSegment,
    rules: &WqeRules<'_>,
    pieces: &mut PieceList,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    let mut cursor = SegmentReader { bytes, position: ControlSegment::SIZE };
    if rules.context.strict && !strict::is_clear(&ControlSegment::INFO, control.as_bytes(), 0..0) {
        return Err(RESERVED);
    }
    let work = parse_work(control, &mut cursor, rules, pieces, request)?;
    if matches!(work, WqeRequest::Nop | WqeRequest::Dma(_)) {
        // A copy was parsed completely. A NOP fills a gap of any length, so the bytes after its control
        // segment are ignored.
        return Ok(work);
    }
    let scatters = matches!(work, WqeRequest::Request) && request.operation.expects_data();
    let longest = match work {
        WqeRequest::KeyUpdate(_) => LONGEST_LIST,
        _ => 1 << rules.context.log_max_message,
    };
    parse_data(&mut cursor, rules, LocalBuffer { pieces, longest, scatters })?;
    check_length(&work, &request.operation, pieces.length(), rules)?;
    request.length = pieces.length() as u32;
    Ok(work)
}

/// Parses the requests with an `opmod` that are neither RPC nor atomic: copies of memory.
#[cold]
fn parse_operation_of_memory(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
) -> Result<WqeRequest, WorkFault> {
    match control.opcode() {
        WqeOpcode::Mmo => Ok(WqeRequest::Dma(Box::new(dma::parse_mmo(control, cursor, rules)?))),
        _ => Err(OPMOD),
    }
}

#[inline(always)]
fn parse_work(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    pieces: &mut PieceList,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    let opcode = control.opcode();
    match rules.context.format {
        Format::Connected => {}
        Format::Datagram => return parse_datagram(control, cursor),
        Format::KeyUpdate => return parse_key_work(control, cursor, rules, pieces),
    }
    if opcode == WqeOpcode::Umr {
        return parse_key_work(control, cursor, rules, pieces);
    }
    request.service_header = parse_queue(control, cursor, rules)?;
    if opcode == WqeOpcode::RdmaWrite && control.opmod() == 0 {
        request.operation = write(cursor.segment(rules)?, None);
        return Ok(WqeRequest::Request);
    }
    parse_other(control, cursor, rules, request)
}

/// Parses every message that is not a plain RDMA WRITE, and what needs no message.
// Inlined, its many shapes of an operation would pass through the stack with every RDMA WRITE.
#[inline(never)]
fn parse_other(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    let (opcode, immediate) = (control.opcode(), control.immediate());
    request.operation = match (opcode, control.opmod()) {
        (WqeOpcode::RdmaWrite, 1..) => {
            // StRoM's calls carry no service class header.
            request.service_header = ServiceHeader::None;
            parse_rpc(control, cursor, rules)?
        }
        (WqeOpcode::AtomicMaskedCompareSwap | WqeOpcode::AtomicMaskedFetchAdd, _) => {
            masked_atomic(control, cursor, rules)?
        }
        (WqeOpcode::Mmo, _) | (_, 1..) => return parse_operation_of_memory(control, cursor, rules),
        (WqeOpcode::Nop, 0) => return Ok(WqeRequest::Nop),
        (WqeOpcode::Send, 0) => Operation::Send { immediate: None, invalidate: None },
        (WqeOpcode::SendImm, 0) => Operation::Send { immediate: Some(immediate), invalidate: None },
        (WqeOpcode::SendInval, 0) => Operation::Send { immediate: None, invalidate: Some(immediate) },
        (WqeOpcode::RdmaWrite, 0) => write(cursor.segment(rules)?, None),
        (WqeOpcode::RdmaWriteImm, 0) => write(cursor.segment(rules)?, Some(immediate)),
        (WqeOpcode::RdmaRead, 0) => {
            let remote: RemoteAddressSegment = cursor.segment(rules)?;
            Operation::Read { address: remote.address(), rkey: remote.rkey().value() }
        }
        (WqeOpcode::AtomicCompareSwap | WqeOpcode::AtomicFetchAdd, 0) => atomic(opcode, cursor, rules)?,
        _ => return Err(OPCODE),
    };
    Ok(WqeRequest::Request)
}

/// Parses the segment of extended reliable connections, which only sending requests have.
#[inline(always)]
fn parse_queue(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
) -> Result<ServiceHeader, WorkFault> {
    if !rules.context.names_queue || control.opcode() == WqeOpcode::Nop {
        return Ok(ServiceHeader::None);
    }
    let segment: XrcSegment = cursor.segment(rules)?;
    Ok(ServiceHeader::Xrceth(Srqn::from_low_bits(segment.srqn())))
}

/// Parses a datagram, which can only be a SEND. Part of the address vector is not declared as fields, so its
/// reserved bits are not checked.
#[inline(never)] // As for `parse_other`.
fn parse_datagram(control: &ControlSegment, cursor: &mut SegmentReader<'_>) -> Result<WqeRequest, WorkFault> {
    if control.opmod() != 0 {
        return Err(OPMOD);
    }
    let immediate = match control.opcode() {
        WqeOpcode::Nop => return Ok(WqeRequest::Nop),
        WqeOpcode::Send => None,
        WqeOpcode::SendImm => Some(control.immediate()),
        _ => return Err(OPCODE),
    };
    let rest = cursor.bytes.get(cursor.position..).ok_or(SEGMENTS)?;
    let (vector, _) = AddressVector::read_from_prefix(rest).map_err(|_| SEGMENTS)?;
    cursor.position += AddressVector::SIZE;
    Ok(WqeRequest::Datagram(DatagramAddress { vector, immediate }))
}

fn parse_key_work(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    pieces: &mut PieceList,
) -> Result<WqeRequest, WorkFault> {
    match (control.opcode(), control.opmod()) {
        (WqeOpcode::Nop, 0) => Ok(WqeRequest::Nop),
        (WqeOpcode::Umr, 0) => {
            let update = parse_key_update(control, cursor, rules, pieces)?;
            Ok(WqeRequest::KeyUpdate(Box::new(update)))
        }
        _ => Err(OPCODE),
    }
}

/// The UMR control segment, the context of the key, and the translation entries or their location.
fn parse_key_update(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    pieces: &mut PieceList,
) -> Result<KeyUpdate, WorkFault> {
    let change: KeyUpdateSegment = cursor.segment(rules)?;
    let context: MkeyContext = cursor.segment(rules)?;
    let (flags, octowords) = (change.flags(), change.translation_octowords());
    let low = u64::from(change.translation_offset());
    let offset = match flags & umr_flags::TRANSLATION_OFFSET {
        // Without an offset, the same bits count octwords of signature descriptors.
        0 if low != 0 => return Err(KEY_UPDATE),
        0 => 0,
        _ => u64::from(change.translation_offset_47_16()) << 16 | low,
    };
    if flags & umr_flags::INLINE != 0 {
        pieces.push(inline_entries(cursor, rules, octowords)?);
    }
    Ok(KeyUpdate {
        key: Mkey::new(control.immediate()),
        flags,
        mask: change.mkey_mask(),
        context,
        offset,
        octowords,
    })
}

/// Translation entries in the WQE itself, without an inline header. They are the last part of the WQE.
fn inline_entries(
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    octowords: u16,
) -> Result<Piece, WorkFault> {
    let length = usize::from(octowords) * SEGMENT;
    if cursor.bytes.len() - cursor.position.min(cursor.bytes.len()) < length {
        return Err(SEGMENTS);
    }
    let offset = (rules.at + cursor.position as u32) & (rules.ring - 1);
    cursor.position = cursor.bytes.len();
    Ok(Piece::Inline { offset, length: length as u32 })
}

fn write(remote: RemoteAddressSegment, immediate: Option<u32>) -> Operation {
    Operation::Write { address: remote.address(), rkey: remote.rkey().value(), immediate }
}

fn atomic(
    opcode: WqeOpcode,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
) -> Result<Operation, WorkFault> {
    let remote: RemoteAddressSegment = cursor.segment(rules)?;
    let operands: AtomicSegment = cursor.segment(rules)?;
    let operation = if opcode == WqeOpcode::AtomicCompareSwap {
        AtomicOperation::CompareSwap { compare: operands.compare(), swap: operands.swap_add() }
    } else {
        AtomicOperation::FetchAdd { add: operands.swap_add() }
    };
    Ok(at_remote(&remote, operation))
}

fn at_remote(remote: &RemoteAddressSegment, operation: AtomicOperation) -> Operation {
    Operation::Atomic { address: remote.address(), rkey: remote.rkey().value(), operation }
}

/// Masked atomics of eight bytes. The opmod holds the size, and other sizes are not offered. In fetch-and-add
/// the field boundaries take the place of the compare value.
fn masked_atomic(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
) -> Result<Operation, WorkFault> {
    if control.opmod() != masked_opmod::EIGHT_BYTES {
        return Err(OPMOD);
    }
    let remote: RemoteAddressSegment = cursor.segment(rules)?;
    if control.opcode() == WqeOpcode::AtomicMaskedFetchAdd {
        let operands: AtomicSegment = cursor.segment(rules)?;
        let (add, boundaries) = (operands.swap_add(), operands.compare());
        return Ok(at_remote(&remote, AtomicOperation::MaskedFetchAdd { add, boundaries }));
    }
    let operands: MaskedAtomicSegment = cursor.segment(rules)?;
    let operands = MaskedCompareSwap {
        compare: operands.compare(),
        compare_mask: operands.compare_mask(),
        swap: operands.swap_add(),
        swap_mask: operands.swap_add_mask(),
    };
    Ok(at_remote(&remote, AtomicOperation::MaskedCompareSwap(operands)))
}

/// StRoM's remote procedure calls: an RDMA WRITE with an `opmod` of its own. Not mlx5.
fn parse_rpc(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
) -> Result<Operation, WorkFault> {
    let remote: RemoteAddressSegment = cursor.segment(rules)?;
    let (rpc_opcode, region) = (remote.address(), remote.rkey().value());
    match control.opmod() {
        strom_opmod::RPC_PARAMS if rules.context.strom => Ok(Operation::RpcParams { rpc_opcode, region }),
        strom_opmod::RPC_WRITE if rules.context.strom => Ok(Operation::RpcWrite { rpc_opcode, region }),
        _ => Err(OPMOD),
    }
}

/// The maximum bytes of translation entries in one work request: 65,536 octwords. They are not a message of
/// the queue pair.
const LONGEST_LIST: u64 = 1 << 20;

/// The local buffer that the data segments of a WQE describe.
struct LocalBuffer<'a> {
    pieces: &'a mut PieceList,
    /// Most bytes that it may have.
    longest: u64,
    /// Whether the device writes it.
    scatters: bool,
}

#[inline(always)]
fn parse_data(
    cursor: &mut SegmentReader<'_>,
    rules: &WqeRules<'_>,
    buffer: LocalBuffer<'_>,
) -> Result<(), WorkFault> {
    let LocalBuffer { pieces, longest, scatters } = buffer;
    rules.context.mkeys.budget().begin_access();
    // Sum up the lengths before checking the memory behind each segment: checking 2 GiB behind every segment
    // would take long.
    let mut left = longest;
    while !cursor.is_at_end() {
        let head = cursor.bytes.get(cursor.position..cursor.position + 4).ok_or(SEGMENTS)?;
        if head[0] & 0x80 == 0 {
            let segment: DataSegment = cursor.segment(rules)?;
            left = left.checked_sub(byte_count(&segment).into()).ok_or(MESSAGE)?;
            let access = if scatters { Access::LocalWrite } else { Access::LocalRead };
            pieces.push(Piece::Memory(check_data(
                &segment,
                rules.context.mkeys,
                &rules.context.accessor,
                access,
            )?));
        } else if scatters {
            return Err(INLINE);
        } else {
            pieces.push(parse_inline(cursor, rules)?);
        }
    }
    Ok(())
}

/// Checks a data segment and returns its range. The pieces of all segments of a work request count together.
#[inline]
pub(crate) fn check_data(
    segment: &DataSegment,
    mkeys: &MkeyTable,
    accessor: &Accessor,
    access: Access,
) -> Result<HostRange, WorkFault> {
    let length = byte_count(segment);
    let range = mkeys.check_segment(accessor, segment.lkey(), access, segment.address(), length.into());
    range.map_err(|_| DATA_KEY)
}

/// An inline segment: a header of four bytes, the data, padding to 16. The bytes stay in the ring.
fn parse_inline(cursor: &mut SegmentReader<'_>, rules: &WqeRules<'_>) -> Result<Piece, WorkFault> {
    let start = cursor.position;
    let header: InlineHeader = cursor.segment(rules)?;
    let length = usize::from(header.byte_count());
    let end = (start + INLINE_HEADER + length).next_multiple_of(SEGMENT);
    if end > cursor.bytes.len() {
        return Err(SEGMENTS);
    }
    cursor.position = end;
    let offset = (rules.at + (start + INLINE_HEADER) as u32) & (rules.ring - 1);
    Ok(Piece::Inline { offset, length: length as u32 })
}

#[inline]
fn check_length(
    work: &WqeRequest,
    operation: &Operation,
    length: u64,
    rules: &WqeRules<'_>,
) -> Result<(), WorkFault> {
    let fits = match work {
        WqeRequest::Nop | WqeRequest::Dma(_) => true,
        WqeRequest::KeyUpdate(update) => length >= u64::from(update.octowords) * SEGMENT as u64,
        WqeRequest::Request if operation.is_atomic() => length == 8,
        WqeRequest::Request | WqeRequest::Datagram(_) => length <= 1 << rules.context.log_max_message,
    };
    if fits { Ok(()) } else { Err(MESSAGE) }
}
