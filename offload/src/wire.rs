//! The wire format of requests and replies. Numbers are big-endian.
//!
//! **Request by SEND** (any RC NIC), 64 bytes, then parameters, then payload:
//!
//! ```text
//!  0  magic 2 | version 1 | flags 1 | total length 4      32  reply rkey 4 | largest answer 4
//!  8  op-code 8                                           40  deadline 4 (µs) | region 4
//! 16  request id 8                                        48  parameter length 4 | payload length 4
//! 24  reply address 8                                     56  slot 2 | hop limit 2 | credits 2 | batch 2
//! ```
//!
//! **Request by StRoM's RPC Params** (BTH 0x18): the op-code travels in the address field of the RETH and the region in
//! its rkey field. The paper gives no layout of the parameter block; this one is ours and keeps only its convention
//! that the target address comes first:
//!
//! ```text
//!  0  reply address 8                                     16  request id 8
//!  8  reply rkey 4 | largest answer 4                     24  deadline 4 (µs) | hop limit 2 | slot 2
//! 32  parameters of the kernel
//! ```
//!
//! **Reply**: one RDMA WRITE into the response slot. The trailer has a fixed place at the end of the slot and the
//! answer ends where the trailer begins, so one contiguous WRITE carries both, and the request id is the last word to
//! change. A client that polls memory polls only that word.
//!
//! ```text
//! slot:    [ unused | answer ][ trailer 32 ]
//! trailer:  0  status 1 | format 1 | hops 2 | answer length 4      16  version of the value 8
//!           8  retries 2 | credits 2 | server time 4 (ns)          24  request id 8
//! ```

use crate::kernel::Opcode;
use crate::status::Status;
use bareverbs_prm::time::Duration;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of a request: "bv".
pub const MAGIC: u16 = 0x6276;
/// The version of the format. Version 2 widened region handles to 32 bits.
pub const VERSION: u8 = 2;
/// Bytes of a request before its parameters.
pub const HEADER_SIZE: usize = 64;
/// Where the op-code is in a message.
pub const OPCODE: core::ops::Range<usize> = 8..16;
/// Bytes of a StRoM parameter block before the parameters of the kernel.
pub const STROM_HEADER_SIZE: usize = 32;
/// Bytes of the trailer.
pub const TRAILER_SIZE: usize = 32;

/// The op-code by which a client withdraws a request. It carries that request's id and response slot, and no
/// parameters. The answer is [`Status::Withdrawn`]; nothing follows it for that request, so the slot can be reused.
pub const WITHDRAW: Opcode = Opcode(u64::from_be_bytes(*b"WITHDRAW"));

/// Names a region that the connection was granted: index in the low byte, generation in the upper 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionHandle(pub u32);

/// Where a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// First address of the response slot.
    pub address: u64,
    /// The remote key of the slot.
    pub rkey: u32,
    /// Largest answer in bytes that the slot holds, without the trailer.
    pub max_response: u32,
    /// Number of the slot, returned in the immediate data.
    pub slot: u16,
}

impl ReplyTo {
    /// Size of the slot in bytes: the answer, rounded up to 8, and the trailer.
    pub const fn size(&self) -> u64 {
        slot_size(self.max_response)
    }

    /// Address at which a reply with an answer of `length` bytes begins; `None` if it does not fit or wraps.
    pub const fn write_address(&self, length: u32) -> Option<u64> {
        if length > self.max_response {
            return None;
        }
        match self.address.checked_add(self.size()) {
            Some(end) => Some(end - TRAILER_SIZE as u64 - length as u64),
            None => None,
        }
    }
}

/// Size in bytes of a response slot for answers of up to `max_response` bytes.
pub const fn slot_size(max_response: u32) -> u64 {
    (max_response as u64).next_multiple_of(8) + TRAILER_SIZE as u64
}

/// A decoded request. Every field is untrusted.
///
/// ```
/// use bareverbs_offload::kernel::Kernel;
/// use bareverbs_offload::kernels::aggregate::Aggregate;
/// use bareverbs_offload::wire::{RegionHandle, ReplyTo, Request};
/// use bareverbs_prm::time::Duration;
///
/// let request = Request {
///     opcode: Aggregate::OPCODE,
///     request_id: 1,
///     reply: ReplyTo { address: 0x9000, rkey: 0x1234_5600, max_response: 256, slot: 0 },
///     deadline: Duration::from_micros(100),
///     hop_limit: 64,
///     region: RegionHandle(0),
///     parameters: &[0; 32],
///     payload: &[],
/// };
/// let mut buffer = [0; 128];
/// let message = request.encode_message(&mut buffer).unwrap();
/// assert_eq!(message.len(), 64 + 32);
/// assert_eq!(Request::parse_message(message), Ok(request));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The kernel, program or control operation.
    pub opcode: Opcode,
    /// Chosen by the client, returned with the reply.
    pub request_id: u64,
    /// Where the reply goes.
    pub reply: ReplyTo,
    /// Time that the server may take; zero leaves it to the server.
    pub deadline: Duration,
    /// Elements the kernel may read; zero leaves it to the server.
    pub hop_limit: u16,
    /// The region to work on.
    pub region: RegionHandle,
    /// Parameters of the kernel.
    pub parameters: &'a [u8],
    /// Payload, for kernels that take one.
    pub payload: &'a [u8],
}

/// Why bytes are not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It does not even say where to answer.
    Unanswerable,
    /// The request is wrong but says where to answer.
    Answerable {
        /// The id of the request.
        request_id: u64,
        /// Where the reply goes.
        reply: ReplyTo,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestHeaderBytes {
    magic: U16,
    version: u8,
    flags: u8,
    total: U32,
    opcode: U64,
    request_id: U64,
    reply_address: U64,
    reply_rkey: U32,
    max_response: U32,
    deadline: U32,
    region: U32,
    parameter_length: U32,
    payload_length: U32,
    slot: U16,
    hop_limit: U16,
    credits: U16,
    batch: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StromBytes {
    reply_address: U64,
    reply_rkey: U32,
    max_response: U32,
    request_id: U64,
    deadline: U32,
    hop_limit: U16,
    slot: U16,
}

const _: () = assert!(size_of::<RequestHeaderBytes>() == HEADER_SIZE);
const _: () = assert!(size_of::<StromBytes>() == STROM_HEADER_SIZE);
const _: () = assert!(size_of::<TrailerBytes>() == TRAILER_SIZE);

impl RequestHeaderBytes {
    fn reply(&self) -> ReplyTo {
        ReplyTo {
            address: self.reply_address.get(),
            rkey: self.reply_rkey.get(),
            max_response: self.max_response.get(),
            slot: self.slot.get(),
        }
    }

    /// Whether the lengths agree with what was received, and nothing is set that this version does not know.
    fn is_coherent(&self, received: usize) -> bool {
        let stated = HEADER_SIZE as u64
            + u64::from(self.parameter_length.get())
            + u64::from(self.payload_length.get());
        let unknown = self.flags != 0 || self.credits != U16::ZERO || self.batch.get() > 1;
        stated == received as u64 && u64::from(self.total.get()) == stated && !unknown
    }
}

impl<'a> Request<'a> {
    /// Decodes a message received by SEND.
    pub fn parse_message(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) =
            RequestHeaderBytes::ref_from_prefix(bytes).map_err(|_| Malformed::Unanswerable)?;
        if header.magic.get() != MAGIC || header.version != VERSION {
            return Err(Malformed::Unanswerable);
        }
        let reply = header.reply();
        let request_id = header.request_id.get();
        let wrong = Malformed::Answerable { request_id, reply };
        if !header.is_coherent(bytes.len()) {
            return Err(wrong);
        }
        let parameter_length = header.parameter_length.get() as usize;
        let (parameters, payload) = rest.split_at_checked(parameter_length).ok_or(wrong)?;
        Ok(Self {
            opcode: Opcode(header.opcode.get()),
            request_id,
            reply,
            deadline: Duration::from_micros(header.deadline.get().into()),
            hop_limit: header.hop_limit.get(),
            region: RegionHandle(header.region.get()),
            parameters,
            payload,
        })
    }

    /// Encodes the message into `buffer` and returns its bytes; `None` if it does not fit.
    pub fn encode_message<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let total = HEADER_SIZE.checked_add(self.parameters.len())?.checked_add(self.payload.len())?;
        let header = RequestHeaderBytes {
            magic: MAGIC.into(),
            version: VERSION,
            flags: 0,
            total: u32::try_from(total).ok()?.into(),
            opcode: self.opcode.0.into(),
            request_id: self.request_id.into(),
            reply_address: self.reply.address.into(),
            reply_rkey: self.reply.rkey.into(),
            max_response: self.reply.max_response.into(),
            deadline: micros(self.deadline).into(),
            hop_limit: self.hop_limit.into(),
            region: self.region.0.into(),
            parameter_length: (self.parameters.len() as u32).into(),
            payload_length: (self.payload.len() as u32).into(),
            slot: self.reply.slot.into(),
            credits: U16::ZERO,
            batch: U16::ZERO,
        };
        concatenate(buffer, [header.as_bytes(), self.parameters, self.payload])
    }

    /// Decodes the parameter block of an RPC Params packet; op-code and region key come from its RETH.
    pub fn parse_strom(opcode: Opcode, region_key: u32, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (block, parameters) = StromBytes::ref_from_prefix(bytes).map_err(|_| Malformed::Unanswerable)?;
        let reply = ReplyTo {
            address: block.reply_address.get(),
            rkey: block.reply_rkey.get(),
            max_response: block.max_response.get(),
            slot: block.slot.get(),
        };
        let request_id = block.request_id.get();
        Ok(Self {
            opcode,
            request_id,
            reply,
            deadline: Duration::from_micros(block.deadline.get().into()),
            hop_limit: block.hop_limit.get(),
            region: RegionHandle(region_key),
            parameters,
            payload: &[],
        })
    }

    /// Encodes the parameter block of an RPC Params packet; `None` if it does not fit or there is a payload.
    pub fn encode_strom<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        if !self.payload.is_empty() {
            return None;
        }
        let block = StromBytes {
            reply_address: self.reply.address.into(),
            reply_rkey: self.reply.rkey.into(),
            max_response: self.reply.max_response.into(),
            request_id: self.request_id.into(),
            deadline: micros(self.deadline).into(),
            hop_limit: self.hop_limit.into(),
            slot: self.reply.slot.into(),
        };
        concatenate(buffer, [block.as_bytes(), self.parameters, &[]])
    }
}

/// Whole microseconds, at least one unless zero. A longer time saturates, which is as good as forever.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_picos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

fn concatenate<'b>(buffer: &'b mut [u8], parts: [&[u8]; 3]) -> Option<&'b [u8]> {
    let mut end = 0_usize;
    for part in parts {
        let begin = end;
        end = begin.checked_add(part.len())?;
        buffer.get_mut(begin..end)?.copy_from_slice(part);
    }
    buffer.get(..end)
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TrailerBytes {
    status: u8,
    format: u8,
    hops: U16,
    length: U32,
    retries: U16,
    credits: U16,
    server_nanos: U32,
    version: U64,
    request_id: U64,
}

/// The end of a reply: status and accounting.
///
/// ```
/// use bareverbs_offload::status::Status;
/// use bareverbs_offload::wire::Trailer;
///
/// let trailer = Trailer {
///     status: Status::Ok,
///     hops: 2,
///     length: 64,
///     retries: 0,
///     credits: 1,
///     server_nanos: 3_140,
///     version: 7,
///     request_id: 1,
/// };
/// assert_eq!(Trailer::parse(&trailer.encode()), Some(trailer));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// How it ended.
    pub status: Status,
    /// Elements read.
    pub hops: u16,
    /// Bytes of the answer; for [`Status::Truncated`], its full length.
    pub length: u32,
    /// Times that reading was restarted.
    pub retries: u16,
    /// Additional requests that the client may send.
    pub credits: u16,
    /// Nanoseconds between the arrival of the request and its reply; saturates.
    pub server_nanos: u32,
    /// Version of the data found.
    pub version: u64,
    /// The id of the request.
    pub request_id: u64,
}

impl Trailer {
    /// Encodes the trailer.
    pub fn encode(&self) -> [u8; TRAILER_SIZE] {
        zerocopy::transmute!(TrailerBytes {
            status: self.status.number(),
            format: VERSION,
            hops: self.hops.into(),
            length: self.length.into(),
            retries: self.retries.into(),
            credits: self.credits.into(),
            server_nanos: self.server_nanos.into(),
            version: self.version.into(),
            request_id: self.request_id.into(),
        })
    }

    /// Decodes a trailer; `None` if the format is another.
    pub fn parse(bytes: &[u8; TRAILER_SIZE]) -> Option<Self> {
        let raw = TrailerBytes::ref_from_bytes(bytes).ok()?;
        (raw.format == VERSION).then(|| Self {
            status: Status::from_number(raw.status),
            hops: raw.hops.get(),
            length: raw.length.get(),
            retries: raw.retries.get(),
            credits: raw.credits.get(),
            server_nanos: raw.server_nanos.get(),
            version: raw.version.get(),
            request_id: raw.request_id.get(),
        })
    }
}

/// The immediate data of a reply by RDMA WRITE with immediate.
///
/// ```
/// use bareverbs_offload::status::Status;
/// use bareverbs_offload::wire::Immediate;
///
/// let immediate = Immediate { slot: 3, status: Status::NotFound, credits: 2 };
/// assert_eq!(immediate.encode(), 0x0003_0102);
/// assert_eq!(Immediate::decode(0x0003_0102), immediate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate {
    /// The slot that was written.
    pub slot: u16,
    /// How the request ended.
    pub status: Status,
    /// Additional requests that the client may send.
    pub credits: u8,
}

impl Immediate {
    /// Encodes the immediate data.
    pub const fn encode(self) -> u32 {
        (self.slot as u32) << 16 | (self.status.number() as u32) << 8 | self.credits as u32
    }
    /// Decodes the immediate data.
    pub const fn decode(value: u32) -> Self {
        Self {
            slot: (value >> 16) as u16,
            status: Status::from_number((value >> 8) as u8),
            credits: value as u8,
        }
    }
}

#[cfg(test)]
mod tests;
