//! Messages of communication management: management datagrams of 256 bytes of the class ComMgt (IBTA v1.4 §12.6, §13.4).
//!
//! Fields are named by their position: byte and bit as counted in the tables of §12.6, from the end of the common
//! header.

use bareverbs_prm::ids::Gid;
use core::fmt;

/// Bytes of a management datagram.
pub(crate) const SIZE: usize = 256;
/// Bytes of the common header (IBTA v1.4 §13.4.2).
const HEADER: usize = 24;
/// Base version, class ComMgt, its version, method Send (§12.6.1, §13.4.4).
const COMMON: [u8; 4] = [1, 0x07, 2, 0x03];

/// Message kinds (IBTA v1.4 §12.6.4, table of attributes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// REQ.
    Request,
    /// MRA.
    Receipt,
    /// REJ.
    Reject,
    /// REP.
    Reply,
    /// RTU.
    ReadyToUse,
    /// DREQ.
    DisconnectRequest,
    /// DREP.
    DisconnectReply,
    /// SIDR_REQ.
    ServiceRequest,
    /// SIDR_REP.
    ServiceReply,
    /// Load Alternate Path and all other attributes.
    Other(u16),
}

impl Kind {
    const KNOWN: [(Self, u16); 9] = [
        (Self::Request, 0x10),
        (Self::Receipt, 0x11),
        (Self::Reject, 0x12),
        (Self::Reply, 0x13),
        (Self::ReadyToUse, 0x14),
        (Self::DisconnectRequest, 0x15),
        (Self::DisconnectReply, 0x16),
        (Self::ServiceRequest, 0x17),
        (Self::ServiceReply, 0x18),
    ];

    fn from_raw(raw: u16) -> Self {
        Self::KNOWN.iter().find(|(_, number)| *number == raw).map_or(Self::Other(raw), |(kind, _)| *kind)
    }

    fn to_raw(self) -> u16 {
        match self {
            Self::Other(raw) => raw,
            known => Self::KNOWN.iter().find(|(kind, _)| *kind == known).map_or(0, |(_, number)| *number),
        }
    }
}

/// A field of a message: a big-endian number of `width` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Position of the first bit, from the end of the common header.
    at: usize,
    width: usize,
}

impl Field {
    /// A field of `width` bits that starts with the most significant bit of a byte.
    const fn new(byte: usize, width: usize) -> Self {
        Self { at: byte * 8, width }
    }

    /// Bits `high` to `low` of a byte.
    const fn bits(byte: usize, high: usize, low: usize) -> Self {
        Self { at: byte * 8 + 7 - high, width: high - low + 1 }
    }
}

/// Position of the private data in a message.
pub type Private = core::ops::Range<usize>;

/// Communication IDs, the sender's first. All messages but REQ and those of service resolution have them here.
pub const SENDER_ID: Field = Field::new(0, 32);
pub const RECEIVER_ID: Field = Field::new(4, 32);

/// REQ (IBTA v1.4 §12.6.5).
#[expect(missing_docs, reason = "a constant is the field of its name in the table of the section")]
pub mod request {
    use super::{Field, Private};

    pub const LOCAL_ID: Field = Field::new(0, 32);
    /// Vendor ID of the enhanced connection establishment, a later addition: it says how to read the attribute
    /// modifier.
    pub const VENDOR_ID: Field = Field::new(5, 24);
    pub const SERVICE_ID: Field = Field::new(8, 64);
    pub const LOCAL_GUID: Field = Field::new(16, 64);
    pub const LOCAL_QPN: Field = Field::new(32, 24);
    pub const RESPONDER_RESOURCES: Field = Field::new(35, 8);
    pub const INITIATOR_DEPTH: Field = Field::new(39, 8);
    pub const REMOTE_TIMEOUT: Field = Field::bits(43, 7, 3);
    pub const SERVICE_TYPE: Field = Field::bits(43, 2, 1);
    pub const FLOW_CONTROL: Field = Field::bits(43, 0, 0);
    pub const STARTING_PSN: Field = Field::new(44, 24);
    pub const LOCAL_TIMEOUT: Field = Field::bits(47, 7, 3);
    pub const RETRY_COUNT: Field = Field::bits(47, 2, 0);
    pub const PARTITION_KEY: Field = Field::new(48, 16);
    pub const PATH_MTU: Field = Field::bits(50, 7, 4);
    pub const RNR_RETRY: Field = Field::bits(50, 2, 0);
    pub const MAX_RETRIES: Field = Field::bits(51, 7, 4);
    pub const SHARED_RECEIVES: Field = Field::bits(51, 3, 3);
    pub const EXTENDED_TYPE: Field = Field::bits(51, 2, 0);
    pub const LOCAL_LID: Field = Field::new(52, 16);
    pub const REMOTE_LID: Field = Field::new(54, 16);
    pub const LOCAL_GID_AT: usize = 56;
    pub const REMOTE_GID_AT: usize = 72;
    pub const TRAFFIC_CLASS: Field = Field::new(92, 8);
    pub const HOP_LIMIT: Field = Field::new(93, 8);
    pub const SERVICE_LEVEL: Field = Field::bits(94, 7, 4);
    pub const SUBNET_LOCAL: Field = Field::bits(94, 3, 3);
    pub const ACK_TIMEOUT: Field = Field::bits(95, 7, 3);
    pub const PRIVATE: Private = 140..232;
}

/// MRA (IBTA v1.4 §12.6.6).
pub(crate) mod receipt {
    use super::Field;

    /// Which message was received; see [`super::of_message`].
    pub const MESSAGE: Field = Field::bits(8, 7, 6);
    pub const SERVICE_TIMEOUT: Field = Field::bits(9, 7, 3);
}

/// REJ (IBTA v1.4 §12.6.7).
#[expect(missing_docs, reason = "a constant is the field of its name in the table of the section")]
pub mod reject {
    use super::{Field, Private};

    /// Which message is rejected: 0 a REQ, 1 a REP, 2 none.
    pub const MESSAGE: Field = Field::bits(8, 7, 6);
    /// Bytes of additional information that are used, at most 72.
    pub const INFO_LENGTH: Field = Field::bits(9, 7, 1);
    pub const REASON: Field = Field::new(10, 16);
    /// Start of the additional information: GUID of the side that gave up.
    pub const INFO_GUID: Field = Field::new(12, 64);
    pub const PRIVATE: Private = 84..232;
}

/// Values of the `MESSAGE` field of an MRA or a REJ.
pub(crate) mod of_message {
    pub const REQUEST: u64 = 0;
    pub const REPLY: u64 = 1;
    pub const NONE: u64 = 2;
}

/// REP (IBTA v1.4 §12.6.8).
#[expect(missing_docs, reason = "a constant is the field of its name in the table of the section")]
pub mod reply {
    use super::{Field, Private};

    pub const LOCAL_QPN: Field = Field::new(12, 24);
    pub const VENDOR_ID_HIGH: Field = Field::new(15, 8);
    pub const VENDOR_ID_MIDDLE: Field = Field::new(19, 8);
    pub const STARTING_PSN: Field = Field::new(20, 24);
    pub const VENDOR_ID_LOW: Field = Field::new(23, 8);
    pub const RESPONDER_RESOURCES: Field = Field::new(24, 8);
    pub const INITIATOR_DEPTH: Field = Field::new(25, 8);
    /// Failover: 0 accepted, 1 not supported, 2 rejected.
    pub const FAILOVER: Field = Field::bits(26, 2, 1);
    pub const FLOW_CONTROL: Field = Field::bits(26, 0, 0);
    pub const RNR_RETRY: Field = Field::bits(27, 7, 5);
    pub const SHARED_RECEIVES: Field = Field::bits(27, 4, 4);
    pub const LOCAL_GUID: Field = Field::new(28, 64);
    pub const PRIVATE: Private = 36..232;
}

/// DREQ (IBTA v1.4 §12.6.10).
pub(crate) mod disconnect {
    use super::Field;

    pub const REMOTE_QPN: Field = Field::new(8, 24);
}

/// SIDR_REQ (IBTA v1.4 §12.11.1).
#[expect(missing_docs, reason = "a constant is the field of its name in the table of the section")]
pub mod service_request {
    use super::{Field, Private};

    pub const REQUEST_ID: Field = Field::new(0, 32);
    pub const PARTITION_KEY: Field = Field::new(4, 16);
    pub const SERVICE_ID: Field = Field::new(8, 64);
    pub const PRIVATE: Private = 16..232;
}

/// SIDR_REP (IBTA v1.4 §12.11.2).
#[expect(missing_docs, reason = "a constant is the field of its name in the table of the section")]
pub mod service_reply {
    use super::{Field, Private};

    pub const REQUEST_ID: Field = Field::new(0, 32);
    pub const STATUS: Field = Field::new(4, 8);
    pub const QPN: Field = Field::new(8, 24);
    pub const SERVICE_ID: Field = Field::new(12, 64);
    pub const Q_KEY: Field = Field::new(20, 32);
    pub const PRIVATE: Private = 96..232;
}

/// A message: a management datagram of 256 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Message([u8; SIZE]);

impl Message {
    /// A message of this kind and transaction; all other fields are zero.
    pub fn new(kind: Kind, transaction: u64) -> Self {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&COMMON);
        bytes[8..16].copy_from_slice(&transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&kind.to_raw().to_be_bytes());
        Self(bytes)
    }

    /// Parses a datagram's payload; `None` if its class, version, method or length is another.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: [u8; SIZE] = payload.try_into().ok()?;
        bytes.starts_with(&COMMON).then_some(Self(bytes))
    }

    /// The datagram's payload.
    pub const fn bytes(&self) -> &[u8; SIZE] {
        &self.0
    }

    /// The kind of message.
    pub fn kind(&self) -> Kind {
        Kind::from_raw(u16::from_be_bytes([self.0[16], self.0[17]]))
    }

    /// Transaction ID.
    pub fn transaction(&self) -> u64 {
        u64::from_be_bytes(self.bytes_at(8))
    }

    /// Attribute modifier: options of the enhanced connection establishment.
    pub fn modifier(&self) -> u32 {
        u32::from_be_bytes(self.bytes_at(20))
    }

    /// Writes [`Self::modifier`].
    pub fn set_modifier(&mut self, modifier: u32) {
        self.0[20..24].copy_from_slice(&modifier.to_be_bytes());
    }

    fn bytes_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    /// Reads a field of up to 64 bits.
    pub fn get(&self, field: Field) -> u64 {
        let bit = |at: usize| u64::from(self.0[HEADER + at / 8] >> (7 - at % 8) & 1);
        (field.at..field.at + field.width).fold(0, |value, at| value << 1 | bit(at))
    }

    /// Reads a field of up to 32 bits.
    pub fn get32(&self, field: Field) -> u32 {
        self.get(field) as u32
    }

    /// Reads a field of up to 8 bits.
    pub fn get8(&self, field: Field) -> u8 {
        self.get(field) as u8
    }

    /// Writes the low bits of `value` into a field.
    pub fn set(&mut self, field: Field, value: impl Into<u64>) -> &mut Self {
        let value = value.into();
        for place in 0..field.width {
            let (at, bit) = (field.at + place, value >> (field.width - 1 - place) & 1);
            let (byte, mask) = (&mut self.0[HEADER + at / 8], 1 << (7 - at % 8));
            *byte = *byte & !mask | if bit == 0 { 0 } else { mask };
        }
        self
    }

    /// Destination GID of a REQ; `None` for other messages.
    pub fn remote_gid(&self) -> Option<Gid> {
        self.gid(request::REMOTE_GID_AT)
    }

    /// Source GID of a REQ; `None` for other messages.
    pub fn local_gid(&self) -> Option<Gid> {
        self.gid(request::LOCAL_GID_AT)
    }

    fn gid(&self, at: usize) -> Option<Gid> {
        let bytes = self.0.get(HEADER + at..)?.first_chunk();
        bytes.copied().map(Gid).filter(|_| self.kind() == Kind::Request)
    }

    /// Writes a GID at byte `at`.
    pub fn set_gid(&mut self, at: usize, Gid(bytes): Gid) -> &mut Self {
        self.0[HEADER + at..HEADER + at + 16].copy_from_slice(&bytes);
        self
    }

    /// The private data at `place`.
    pub fn private(&self, place: Private) -> &[u8] {
        &self.0[HEADER + place.start..HEADER + place.end]
    }

    /// Writes private data and truncates it to `place`. Callers check the length first.
    pub fn set_private(&mut self, place: Private, bytes: &[u8]) -> &mut Self {
        let place = &mut self.0[HEADER + place.start..HEADER + place.end];
        let length = place.len().min(bytes.len());
        place[..length].copy_from_slice(&bytes[..length]);
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of exchange {:#x}", self.kind(), self.transaction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement: IBTA v1.4 §12.6.5: the fields of a REQ are where the table puts them.
    #[test]
    fn fields_lie_where_the_tables_have_them() {
        let mut message = Message::new(Kind::Request, 0x1122_3344_5566_7788);
        message.set(request::LOCAL_QPN, 0x12_3456_u32).set(request::RESPONDER_RESOURCES, 7_u8);
        message.set(request::REMOTE_TIMEOUT, 20_u8).set(request::SERVICE_TYPE, 3_u8);
        message.set(request::RETRY_COUNT, 7_u8).set(request::LOCAL_TIMEOUT, 19_u8);
        assert_eq!(message.bytes()[..24], {
            let mut header = [0; 24];
            header[..4].copy_from_slice(&[1, 7, 2, 3]);
            header[8..16].copy_from_slice(&0x1122_3344_5566_7788_u64.to_be_bytes());
            header[17] = 0x10;
            header
        });
        assert_eq!(message.bytes()[24 + 32..24 + 36], [0x12, 0x34, 0x56, 7]);
        assert_eq!(message.bytes()[24 + 43], 20 << 3 | 3 << 1);
        assert_eq!(message.bytes()[24 + 47], 19 << 3 | 7);
        assert_eq!(message.get(request::LOCAL_QPN), 0x12_3456);
        message.set(request::LOCAL_QPN, 1_u8);
        assert_eq!(message.get(request::LOCAL_QPN), 1, "old bits are gone");
    }

    #[test]
    fn other_classes_are_no_messages() {
        let message = Message::new(Kind::ReadyToUse, 1);
        assert_eq!(Message::parse(message.bytes()), Some(message.clone()));
        assert_eq!(Message::parse(&message.bytes()[..255]), None);
        for at in 0..4 {
            let mut bytes = *message.bytes();
            bytes[at] ^= 0x80;
            assert_eq!(Message::parse(&bytes), None, "byte {at}");
        }
    }
}
