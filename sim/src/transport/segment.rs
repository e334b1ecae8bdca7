//! Segmentation: how many packets a message takes, and what each of them carries. IBTA v1.4 §9.7.2, table 38.

use super::outstanding::Message;
use super::request::{Operation, Request, RequestPacket};
use crate::wire::{BthOpcode, Extension, PacketHeader, Position, Reth};
use bareverbs_prm::psn::Psn;

/// Bytes of the longest message.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// A path MTU as a power of two. A value that the specification does not define counts as the next smaller
/// one, at least 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    shift: u32,
}

impl PathMtu {
    /// The path MTU of this many bytes.
    pub fn new(bytes: u32) -> Self {
        Self { shift: bytes.clamp(256, 4096).ilog2() }
    }
    /// In bytes.
    pub fn bytes(self) -> u32 {
        1 << self.shift
    }
    /// Packets for `length` bytes; at least one.
    pub fn packets(self, length: u32) -> u32 {
        let whole = length >> self.shift;
        let part = u32::from(length & (self.bytes() - 1) != 0);
        (whole + part).max(1)
    }
    /// Index of the packet that begins at `offset`.
    pub fn index(self, offset: u32) -> u32 {
        offset >> self.shift
    }
    /// Offset of packet `index` in its message.
    pub fn offset(self, index: u32) -> u32 {
        index << self.shift
    }
}

/// Packets of a message, which is also the number of PSNs that it occupies; `None` if it exceeds the maximum
/// length.
#[inline]
pub fn span(request: &Request, mtu: PathMtu) -> Option<u32> {
    match request.operation {
        operation if operation.is_atomic() => Some(1),
        Operation::RpcParams { .. } => (request.length <= mtu.bytes()).then_some(1),
        _ => (request.length <= MAX_MESSAGE).then(|| mtu.packets(request.length)),
    }
}

/// Builds the packet of `message` with sequence number `sequence`. A READ asks for everything from there on.
#[inline(always)] // For every packet; a call would write it to memory first.
pub fn packet(message: &Message, sequence: u64, psn: Psn, mtu: PathMtu) -> RequestPacket {
    let request = &message.request;
    let index = sequence.saturating_sub(message.start) as u32;
    let offset = mtu.offset(index);
    let left = request.length.saturating_sub(offset);
    let data = message.expects_data();
    let position = Position::new(data || index == 0, data || sequence + 1 >= message.end);
    let (opcode, extension) = opcode_and_extension(&request.operation, position, offset, left);
    let header = PacketHeader {
        opcode,
        psn,
        solicited: request.solicited && position.ends(),
        ack_request: false,
        service_header: request.service_header,
        extension,
    };
    let payload_length = if data { 0 } else { left.min(mtu.bytes()) };
    RequestPacket {
        header,
        token: request.token,
        payload_offset: offset,
        payload_length,
        retransmission: None,
        is_followed: false,
    }
}

#[inline(always)] // As for `packet`.
fn opcode_and_extension(
    operation: &Operation,
    position: Position,
    offset: u32,
    left: u32,
) -> (BthOpcode, Extension) {
    match *operation {
        Operation::Send { immediate, invalidate } => {
            (send_opcode(position, immediate, invalidate), send_extension(position, immediate, invalidate))
        }
        Operation::Write { address, rkey, immediate } => {
            let reth = Reth { address, rkey, length: left };
            (write_opcode(position, immediate), write_extension(position, reth, immediate))
        }
        Operation::Read { address, rkey } => {
            let reth = Reth { address: address.wrapping_add(u64::from(offset)), rkey, length: left };
            (BthOpcode::ReadRequest, Extension::Reth(reth))
        }
        Operation::Atomic { address, rkey, operation } => {
            (operation.opcode(), operation.extension(address, rkey))
        }
        Operation::RpcParams { rpc_opcode, region } => {
            let reth = Reth { address: rpc_opcode, rkey: region, length: left };
            (BthOpcode::RpcParams, write_extension(position, reth, None))
        }
        Operation::RpcWrite { rpc_opcode, region } => {
            let reth = Reth { address: rpc_opcode, rkey: region, length: left };
            (rpc_write_opcode(position), write_extension(position, reth, None))
        }
    }
}

fn rpc_write_opcode(position: Position) -> BthOpcode {
    match position {
        Position::First => BthOpcode::RpcWriteFirst,
        Position::Middle => BthOpcode::RpcWriteMiddle,
        Position::Last => BthOpcode::RpcWriteLast,
        Position::Only => BthOpcode::RpcWriteOnly,
    }
}

fn send_opcode(position: Position, immediate: Option<u32>, invalidate: Option<u32>) -> BthOpcode {
    match (position, immediate, invalidate) {
        (Position::First, ..) => BthOpcode::SendFirst,
        (Position::Middle, ..) => BthOpcode::SendMiddle,
        (Position::Last, Some(_), _) => BthOpcode::SendLastImmediate,
        (Position::Last, None, Some(_)) => BthOpcode::SendLastInvalidate,
        (Position::Last, None, None) => BthOpcode::SendLast,
        (Position::Only, Some(_), _) => BthOpcode::SendOnlyImmediate,
        (Position::Only, None, Some(_)) => BthOpcode::SendOnlyInvalidate,
        (Position::Only, None, None) => BthOpcode::SendOnly,
    }
}

fn write_opcode(position: Position, immediate: Option<u32>) -> BthOpcode {
    match (position, immediate) {
        (Position::First, _) => BthOpcode::WriteFirst,
        (Position::Middle, _) => BthOpcode::WriteMiddle,
        (Position::Last, Some(_)) => BthOpcode::WriteLastImmediate,
        (Position::Last, None) => BthOpcode::WriteLast,
        (Position::Only, Some(_)) => BthOpcode::WriteOnlyImmediate,
        (Position::Only, None) => BthOpcode::WriteOnly,
    }
}

fn send_extension(position: Position, immediate: Option<u32>, invalidate: Option<u32>) -> Extension {
    match (position.ends(), immediate, invalidate) {
        (true, Some(data), _) => Extension::Immediate(data),
        (true, None, Some(key)) => Extension::Ieth(key),
        _ => Extension::None,
    }
}

fn write_extension(position: Position, reth: Reth, immediate: Option<u32>) -> Extension {
    match (position, immediate) {
        (Position::Only, Some(data)) => Extension::RethImmediate(reth, data),
        (Position::First | Position::Only, _) => Extension::Reth(reth),
        (Position::Last, Some(data)) => Extension::Immediate(data),
        _ => Extension::None,
    }
}
