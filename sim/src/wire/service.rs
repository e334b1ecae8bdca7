//! Service class: the upper three bits of an opcode, the operations of the class, and its header between the BTH and
//! the headers of the operation. IBTA v1.4 §9.2, table 38; §9.3.1, §9.3.2.

use super::opcode::{BthOpcode, OperationKind, Position};
use bareverbs_prm::ids::{Qpn, Srqn};
use core::fmt;

/// Class of service.
///
/// ```
/// use bareverbs_sim::wire::{BthOpcode, ServiceClass};
///
/// assert_eq!(ServiceClass::split(0x64), (ServiceClass::UnreliableDatagram, BthOpcode::SendOnly));
/// assert_eq!(ServiceClass::ReliableConnection.join(BthOpcode::WriteOnly), 0x0a);
/// assert!(!ServiceClass::UnreliableConnection.has(BthOpcode::ReadRequest));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceClass {
    /// Reliable connection.
    ReliableConnection,
    /// Unreliable connection.
    UnreliableConnection,
    /// Reliable datagram.
    ReliableDatagram,
    /// Unreliable datagram.
    UnreliableDatagram,
    /// Congestion notification, RoCEv2 A17.9.3.
    CongestionNotification,
    /// Extended reliable connection.
    ExtendedReliableConnection,
    /// Manufacturer specific.
    Other(u8),
}

/// Mask of the operation within an opcode.
const OPERATION_BITS: u8 = 0x1f;

impl ServiceClass {
    /// Decodes the three bits.
    pub const fn from_raw(raw: u8) -> Self {
        match raw & 7 {
            0 => Self::ReliableConnection,
            1 => Self::UnreliableConnection,
            2 => Self::ReliableDatagram,
            3 => Self::UnreliableDatagram,
            4 => Self::CongestionNotification,
            5 => Self::ExtendedReliableConnection,
            other => Self::Other(other),
        }
    }

    /// Encodes the three bits.
    pub const fn raw(self) -> u8 {
        match self {
            Self::ReliableConnection => 0,
            Self::UnreliableConnection => 1,
            Self::ReliableDatagram => 2,
            Self::UnreliableDatagram => 3,
            Self::CongestionNotification => 4,
            Self::ExtendedReliableConnection => 5,
            Self::Other(other) => other & 7,
        }
    }

    /// Splits the opcode byte of a BTH. An operation that the class does not have becomes unknown.
    pub fn split(byte: u8) -> (Self, BthOpcode) {
        let (class, opcode) = (Self::from_raw(byte >> 5), BthOpcode::from_raw(byte & OPERATION_BITS));
        let known = if class.has(opcode) { opcode } else { BthOpcode::Unknown(byte & OPERATION_BITS) };
        (class, known)
    }

    /// The opcode byte of an operation in this class.
    pub const fn join(self, opcode: BthOpcode) -> u8 {
        Self::with_operation(self.raw() << 5, opcode)
    }

    /// An opcode byte of the same class, with this operation.
    #[inline]
    pub(super) const fn with_operation(byte: u8, opcode: BthOpcode) -> u8 {
        byte & !OPERATION_BITS | opcode.raw() & OPERATION_BITS
    }

    /// Whether the class has the operation. Reliable datagrams are not supported.
    #[inline]
    pub fn has(self, opcode: BthOpcode) -> bool {
        // Nearly every packet belongs to a reliable connection.
        self == Self::ReliableConnection || self.has_some(opcode)
    }

    /// [`Self::has`] of a class that lacks some operations.
    #[inline(never)]
    fn has_some(self, opcode: BthOpcode) -> bool {
        use OperationKind::{RpcParams, RpcWrite, Send, Write};
        let invalidates = matches!(opcode, BthOpcode::SendLastInvalidate | BthOpcode::SendOnlyInvalidate);
        let kind = opcode.kind();
        match self {
            Self::ReliableConnection => true,
            Self::ExtendedReliableConnection => !matches!(kind, RpcParams | RpcWrite),
            Self::UnreliableConnection => matches!(kind, Send | Write) && !invalidates,
            Self::UnreliableDatagram => kind == Send && opcode.position() == Position::Only && !invalidates,
            Self::ReliableDatagram | Self::CongestionNotification | Self::Other(_) => false,
        }
    }

    /// Kind of header that packets of this class and operation carry.
    const fn header_kind(self, opcode: BthOpcode) -> HeaderKind {
        match self {
            Self::UnreliableDatagram => HeaderKind::Deth,
            Self::ExtendedReliableConnection if !opcode.is_response() => HeaderKind::Xrceth,
            _ => HeaderKind::None,
        }
    }
}

impl fmt::Display for ServiceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReliableConnection => f.write_str("RC"),
            Self::UnreliableConnection => f.write_str("UC"),
            Self::ReliableDatagram => f.write_str("RD"),
            Self::UnreliableDatagram => f.write_str("UD"),
            Self::CongestionNotification => f.write_str("CNP"),
            Self::ExtendedReliableConnection => f.write_str("XRC"),
            Self::Other(other) => write!(f, "class {other}"),
        }
    }
}

/// Datagram extended transport header. IBTA v1.4 §9.3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key; must match the receiving queue pair's.
    pub q_key: u32,
    /// Source QPN.
    pub source: Qpn,
}

/// Header of a service class, before those of the operation.
///
/// ```
/// use bareverbs_prm::ids::Qpn;
/// use bareverbs_sim::wire::{BthOpcode, Deth, ServiceClass, ServiceHeader};
///
/// let header = ServiceHeader::Deth(Deth { q_key: 0x1111_1111, source: Qpn::from_low_bits(0x40) });
/// let bytes = header.to_bytes();
/// let read = ServiceHeader::split_from(ServiceClass::UnreliableDatagram, BthOpcode::SendOnly, &bytes);
/// assert_eq!(read, Some((header, &[][..])));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceHeader {
    /// No header.
    None,
    /// Header of a datagram.
    Deth(Deth),
    /// Header of an XRC request: the shared receive queue. IBTA v1.4 annex A14.
    Xrceth(Srqn),
}

enum HeaderKind {
    None,
    Deth,
    Xrceth,
}

/// Longest service class header in bytes.
pub const MAX_SERVICE_HEADER: usize = 8;

impl ServiceHeader {
    /// Bytes of the header.
    pub const fn size(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Deth(_) => 8,
            Self::Xrceth(_) => 4,
        }
    }

    /// Whether packets of this class and operation carry this kind of header.
    pub(super) const fn is_of(&self, class: ServiceClass, opcode: BthOpcode) -> bool {
        matches!(
            (class.header_kind(opcode), self),
            (HeaderKind::None, Self::None)
                | (HeaderKind::Deth, Self::Deth(_))
                | (HeaderKind::Xrceth, Self::Xrceth(_))
        )
    }

    /// The DETH, if it is one.
    pub const fn deth(&self) -> Option<Deth> {
        match self {
            Self::Deth(deth) => Some(*deth),
            _ => None,
        }
    }

    /// Splits the header of an opcode off the start of `bytes`; `None` if `bytes` is too short.
    pub fn split_from(class: ServiceClass, opcode: BthOpcode, bytes: &[u8]) -> Option<(Self, &[u8])> {
        match class.header_kind(opcode) {
            HeaderKind::None => Some((Self::None, bytes)),
            HeaderKind::Deth => {
                let ([k0, k1, k2, k3, _, q0, q1, q2], rest) = bytes.split_first_chunk()?;
                let q_key = u32::from_be_bytes([*k0, *k1, *k2, *k3]);
                let source = Qpn::from_low_bits(u32::from_be_bytes([0, *q0, *q1, *q2]));
                Some((Self::Deth(Deth { q_key, source }), rest))
            }
            HeaderKind::Xrceth => {
                let (word, rest) = bytes.split_first_chunk()?;
                Some((Self::Xrceth(Srqn::from_low_bits(u32::from_be_bytes(*word))), rest))
            }
        }
    }

    /// Encodes the header; the first [`Self::size`] bytes count.
    pub fn to_bytes(&self) -> [u8; MAX_SERVICE_HEADER] {
        let mut bytes = [0; MAX_SERVICE_HEADER];
        match *self {
            Self::None => {}
            Self::Deth(Deth { q_key, source }) => {
                bytes[..4].copy_from_slice(&q_key.to_be_bytes());
                bytes[4..].copy_from_slice(&source.value().to_be_bytes());
            }
            Self::Xrceth(number) => bytes[..4].copy_from_slice(&number.value().to_be_bytes()),
        }
        bytes
    }
}

impl fmt::Display for ServiceHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Deth(deth) => write!(f, " from QP={} qkey={:#010x}", deth.source, deth.q_key),
            Self::Xrceth(number) => write!(f, " SRQ={number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_code_byte_survives() {
        for byte in 0..=255 {
            let (class, opcode) = ServiceClass::split(byte);
            assert_eq!(class.join(opcode), byte);
        }
    }

    #[test]
    fn classes_have_their_operations() {
        let known = |class: ServiceClass| BthOpcode::ALL.iter().filter(|opcode| class.has(**opcode)).count();
        assert_eq!(known(ServiceClass::ReliableConnection), 30);
        assert_eq!(known(ServiceClass::UnreliableConnection), 12);
        assert_eq!(known(ServiceClass::UnreliableDatagram), 2);
        assert_eq!(known(ServiceClass::ExtendedReliableConnection), 25);
        assert_eq!(
            ServiceClass::split(0x64),
            (ServiceClass::UnreliableDatagram, BthOpcode::SendOnly),
            "UD SEND only"
        );
        assert_eq!(ServiceClass::split(0x2c).1, BthOpcode::Unknown(0x0c), "UC has no READ");
    }

    #[test]
    fn headers_survive() {
        let deth = Deth { q_key: 0x1122_3344, source: Qpn::from_low_bits(0xab_cdef) };
        for (class, opcode, header) in [
            (ServiceClass::UnreliableDatagram, BthOpcode::SendOnlyImmediate, ServiceHeader::Deth(deth)),
            (
                ServiceClass::ExtendedReliableConnection,
                BthOpcode::ReadRequest,
                ServiceHeader::Xrceth(Srqn::from_low_bits(7)),
            ),
            (ServiceClass::ExtendedReliableConnection, BthOpcode::Acknowledge, ServiceHeader::None),
            (ServiceClass::ReliableConnection, BthOpcode::SendOnly, ServiceHeader::None),
        ] {
            let bytes = header.to_bytes();
            let bytes = &bytes[..header.size()];
            assert_eq!(ServiceHeader::split_from(class, opcode, bytes), Some((header, &[][..])));
            if let Some(short) = bytes.len().checked_sub(1) {
                assert_eq!(ServiceHeader::split_from(class, opcode, &bytes[..short]), None);
            }
        }
        assert_eq!(ServiceHeader::Deth(deth).to_bytes(), [0x11, 0x22, 0x33, 0x44, 0, 0xab, 0xcd, 0xef]);
    }
}
