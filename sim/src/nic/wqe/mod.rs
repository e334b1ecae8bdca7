//! Send WQEs: from 16-byte segments to a request and the local memory it needs (PRM, send WQE format; Linux `drivers/infiniband/hw/mlx5/wr.c`).

mod dma;
mod fault;
mod pieces;
mod segments;

pub(crate) use dma::LOG_MAX_DMA;
pub use fault::*;
pub(crate) use pieces::{Piece, PieceList};
pub(crate) use segments::{
    FetchContext, Format, LocalBuffer, RingPlace, SegmentReader, byte_count, check_data, parse_data,
};

use super::card::DmaCopy;
use super::mkey::KeyUpdate;
use crate::transport::{AtomicOperation, MaskedCompareSwap, Operation, Request};
use crate::wire::ServiceHeader;
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Qpn, Srqn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{
    AddressVector, AtomicSegment, BASIC_BLOCK, ControlSegment, KeyUpdateSegment, MaskedAtomicSegment,
    RemoteAddressSegment, SEGMENT, XrcSegment, masked_opmod, strom_opmod, umr_flags,
};

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

/// Parses a WQE and adds its local buffer to `pieces`, which must be empty. Of a message it fills in the
/// operation, the service class header and the length: to return a message would cost more than to parse it.
#[inline(always)]
pub(crate) fn parse(
    control: &ControlSegment,
    mut cursor: SegmentReader<'_>,
    context: &FetchContext<'_>,
    pieces: &mut PieceList,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    cursor.check(control)?;
    let work = parse_work(control, &mut cursor, context, pieces, request)?;
    if matches!(work, WqeRequest::Nop | WqeRequest::Dma(_)) {
        // A copy was parsed completely. A NOP fills a gap of any length, so the bytes after its control
        // segment are ignored.
        return Ok(work);
    }
    let scatters = matches!(work, WqeRequest::Request) && request.operation.expects_data();
    let longest = match work {
        WqeRequest::KeyUpdate(_) => LONGEST_LIST,
        _ => 1 << context.log_max_message,
    };
    let buffer = LocalBuffer { pieces, longest, scatters };
    parse_data(&mut cursor, context.mkeys, &context.accessor, buffer)?;
    check_length(&work, &request.operation, pieces.length(), context.log_max_message)?;
    request.length = pieces.length() as u32;
    Ok(work)
}

/// Parses the requests with an `opmod` that are neither RPC nor atomic: copies of memory.
#[cold]
fn parse_operation_of_memory(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
) -> Result<WqeRequest, WorkFault> {
    match control.opcode() {
        WqeOpcode::Mmo => Ok(WqeRequest::Dma(Box::new(dma::parse_mmo(control, cursor, context)?))),
        _ => Err(OPMOD),
    }
}

#[inline(always)]
fn parse_work(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
    pieces: &mut PieceList,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    let opcode = control.opcode();
    match context.format {
        Format::Connected => {}
        Format::Datagram => return parse_datagram(control, cursor),
        Format::KeyUpdate => return parse_key_work(control, cursor, pieces),
    }
    if opcode == WqeOpcode::Umr {
        return parse_key_work(control, cursor, pieces);
    }
    request.service_header = parse_queue(control, cursor, context)?;
    if opcode == WqeOpcode::RdmaWrite && control.opmod() == 0 {
        request.operation = write(cursor.segment()?, None);
        return Ok(WqeRequest::Request);
    }
    parse_other(control, cursor, context, request)
}

/// Parses every message that is not a plain RDMA WRITE, and what needs no message.
// Inlined, its many shapes of an operation would pass through the stack with every RDMA WRITE.
#[inline(never)]
fn parse_other(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
    request: &mut Request,
) -> Result<WqeRequest, WorkFault> {
    let (opcode, immediate) = (control.opcode(), control.immediate());
    request.operation = match (opcode, control.opmod()) {
        (WqeOpcode::RdmaWrite, 1..) => {
            // StRoM's calls carry no service class header.
            request.service_header = ServiceHeader::None;
            parse_rpc(control, cursor, context)?
        }
        (WqeOpcode::AtomicMaskedCompareSwap | WqeOpcode::AtomicMaskedFetchAdd, _) => {
            masked_atomic(control, cursor)?
        }
        (WqeOpcode::Mmo, _) | (_, 1..) => return parse_operation_of_memory(control, cursor, context),
        (WqeOpcode::Nop, 0) => return Ok(WqeRequest::Nop),
        (WqeOpcode::Send, 0) => Operation::Send { immediate: None, invalidate: None },
        (WqeOpcode::SendImm, 0) => Operation::Send { immediate: Some(immediate), invalidate: None },
        (WqeOpcode::SendInval, 0) => Operation::Send { immediate: None, invalidate: Some(immediate) },
        (WqeOpcode::RdmaWrite, 0) => write(cursor.segment()?, None),
        (WqeOpcode::RdmaWriteImm, 0) => write(cursor.segment()?, Some(immediate)),
        (WqeOpcode::RdmaRead, 0) => {
            let remote: &RemoteAddressSegment = cursor.segment()?;
            Operation::Read { address: remote.address(), rkey: remote.rkey().value() }
        }
        (WqeOpcode::AtomicCompareSwap | WqeOpcode::AtomicFetchAdd, 0) => atomic(opcode, cursor)?,
        _ => return Err(OPCODE),
    };
    Ok(WqeRequest::Request)
}

/// Parses the segment of extended reliable connections, which only sending requests have.
#[inline(always)]
fn parse_queue(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
) -> Result<ServiceHeader, WorkFault> {
    if !context.names_queue || control.opcode() == WqeOpcode::Nop {
        return Ok(ServiceHeader::None);
    }
    let segment: &XrcSegment = cursor.segment()?;
    Ok(ServiceHeader::Xrceth(Srqn::from_low_bits(segment.srqn())))
}

/// Parses a datagram, which can only be a SEND.
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
    let vector = cursor.address_vector()?;
    Ok(WqeRequest::Datagram(DatagramAddress { vector: *vector, immediate }))
}

fn parse_key_work(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    pieces: &mut PieceList,
) -> Result<WqeRequest, WorkFault> {
    match (control.opcode(), control.opmod()) {
        (WqeOpcode::Nop, 0) => Ok(WqeRequest::Nop),
        (WqeOpcode::Umr, 0) => {
            let update = parse_key_update(control, cursor, pieces)?;
            Ok(WqeRequest::KeyUpdate(Box::new(update)))
        }
        _ => Err(OPCODE),
    }
}

/// The UMR control segment, the context of the key, and the translation entries or their location.
fn parse_key_update(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    pieces: &mut PieceList,
) -> Result<KeyUpdate, WorkFault> {
    let change: &KeyUpdateSegment = cursor.segment()?;
    let context: &MkeyContext = cursor.segment()?;
    let (flags, octowords) = (change.flags(), change.translation_octowords());
    let low = u64::from(change.translation_offset());
    let offset = match flags & umr_flags::TRANSLATION_OFFSET {
        // Without an offset, the same bits count octwords of signature descriptors.
        0 if low != 0 => return Err(KEY_UPDATE),
        0 => 0,
        _ => u64::from(change.translation_offset_47_16()) << 16 | low,
    };
    if flags & umr_flags::INLINE != 0 {
        pieces.push(inline_entries(cursor, octowords)?);
    }
    Ok(KeyUpdate {
        key: Mkey::new(control.immediate()),
        flags,
        mask: change.mkey_mask(),
        context: *context,
        offset,
        octowords,
    })
}

/// Translation entries in the WQE itself, without an inline header. They are the last part of the WQE.
fn inline_entries(cursor: &mut SegmentReader<'_>, octowords: u16) -> Result<Piece, WorkFault> {
    let entries = cursor.inline(usize::from(octowords) * SEGMENT);
    cursor.end();
    entries
}

fn write(remote: &RemoteAddressSegment, immediate: Option<u32>) -> Operation {
    Operation::Write { address: remote.address(), rkey: remote.rkey().value(), immediate }
}

fn atomic(opcode: WqeOpcode, cursor: &mut SegmentReader<'_>) -> Result<Operation, WorkFault> {
    let remote: &RemoteAddressSegment = cursor.segment()?;
    let operands: &AtomicSegment = cursor.segment()?;
    let operation = if opcode == WqeOpcode::AtomicCompareSwap {
        AtomicOperation::CompareSwap { compare: operands.compare(), swap: operands.swap_add() }
    } else {
        AtomicOperation::FetchAdd { add: operands.swap_add() }
    };
    Ok(at_remote(remote, operation))
}

fn at_remote(remote: &RemoteAddressSegment, operation: AtomicOperation) -> Operation {
    Operation::Atomic { address: remote.address(), rkey: remote.rkey().value(), operation }
}

/// Masked atomics of eight bytes. The opmod holds the size, and other sizes are not offered. In fetch-and-add
/// the field boundaries take the place of the compare value.
fn masked_atomic(control: &ControlSegment, cursor: &mut SegmentReader<'_>) -> Result<Operation, WorkFault> {
    if control.opmod() != masked_opmod::EIGHT_BYTES {
        return Err(OPMOD);
    }
    let remote: &RemoteAddressSegment = cursor.segment()?;
    if control.opcode() == WqeOpcode::AtomicMaskedFetchAdd {
        let operands: &AtomicSegment = cursor.segment()?;
        let (add, boundaries) = (operands.swap_add(), operands.compare());
        return Ok(at_remote(remote, AtomicOperation::MaskedFetchAdd { add, boundaries }));
    }
    let operands: &MaskedAtomicSegment = cursor.segment()?;
    let operands = MaskedCompareSwap {
        compare: operands.compare(),
        compare_mask: operands.compare_mask(),
        swap: operands.swap_add(),
        swap_mask: operands.swap_add_mask(),
    };
    Ok(at_remote(remote, AtomicOperation::MaskedCompareSwap(operands)))
}

/// StRoM's remote procedure calls: an RDMA WRITE with an `opmod` of its own. Not mlx5.
fn parse_rpc(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
) -> Result<Operation, WorkFault> {
    let remote: &RemoteAddressSegment = cursor.segment()?;
    let (rpc_opcode, region) = (remote.address(), remote.rkey().value());
    match control.opmod() {
        strom_opmod::RPC_PARAMS if context.strom => Ok(Operation::RpcParams { rpc_opcode, region }),
        strom_opmod::RPC_WRITE if context.strom => Ok(Operation::RpcWrite { rpc_opcode, region }),
        _ => Err(OPMOD),
    }
}

/// The maximum bytes of translation entries in one work request: 65,536 octwords. They are not a message of
/// the queue pair.
const LONGEST_LIST: u64 = 1 << 20;

#[inline]
fn check_length(
    work: &WqeRequest,
    operation: &Operation,
    length: u64,
    log_max_message: u8,
) -> Result<(), WorkFault> {
    let fits = match work {
        WqeRequest::Nop | WqeRequest::Dma(_) => true,
        WqeRequest::KeyUpdate(update) => length >= u64::from(update.octowords) * SEGMENT as u64,
        WqeRequest::Request if operation.is_atomic() => length == 8,
        WqeRequest::Request | WqeRequest::Datagram(_) => length <= 1 << log_max_message,
    };
    if fits { Ok(()) } else { Err(MESSAGE) }
}
