//! Base transport header. IBTA v1.4 §9.2.

use super::opcode::BthOpcode;
use super::service::ServiceClass;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// Base transport header.
///
/// ```
/// use bareverbs_sim::wire::{Bth, BthOpcode};
///
/// // RDMA WRITE Only to queue pair 0x123456, with a request for an acknowledgement.
/// let bytes = [0x0a, 0x40, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef];
/// let (bth, version) = Bth::from_bytes(&bytes);
/// assert_eq!((bth.opcode, bth.destination.value(), version), (BthOpcode::WriteOnly, 0x12_3456, 0));
/// assert_eq!(bth.to_bytes(), bytes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Class of service.
    pub service: ServiceClass,
    /// Operation and position in the message.
    pub opcode: BthOpcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state.
    pub migration: bool,
    /// Padding bytes before the ICRC, 0 to 3.
    pub pad_count: u8,
    /// Partition key.
    pub partition_key: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination QPN.
    pub destination: Qpn,
    /// Whether the sender requests an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A placeholder for no packet.
    pub(super) const NONE: Self = Self {
        service: ServiceClass::ReliableConnection,
        opcode: BthOpcode::Unknown(0x1f),
        solicited: false,
        migration: false,
        pad_count: 0,
        partition_key: 0,
        fecn: false,
        becn: false,
        destination: Qpn::from_low_bits(0),
        ack_request: false,
        psn: Psn::new(0),
    };
    /// Bytes of the header.
    pub const SIZE: usize = 12;
    /// Offset of the byte with FECN, BECN and reserved bits, which may change in transit.
    pub const CONGESTION: usize = 4;
    /// BECN, in the byte at [`Self::CONGESTION`].
    pub(super) const BECN: u8 = 0x40;
    /// The only transport header version.
    pub const VERSION: u8 = 0;

    /// Decodes the header and its version field.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> (Self, u8) {
        let [opcode, flags, key0, key1, congestion, q0, q1, q2, ack, p0, p1, p2] = *bytes;
        let (service, opcode) = ServiceClass::split(opcode);
        let header = Self {
            service,
            opcode,
            solicited: flags & 0x80 != 0,
            migration: flags & 0x40 != 0,
            pad_count: flags >> 4 & 3,
            partition_key: u16::from_be_bytes([key0, key1]),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            destination: Qpn::from_low_bits(u32::from_be_bytes([0, q0, q1, q2])),
            ack_request: ack & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
        };
        (header, flags & 0xf)
    }

    /// Encodes what differs between the packets of a connection: operation, solicited event, pad count, acknowledge request
    /// and PSN. The other bits stay.
    #[inline]
    pub(super) fn write_own(&self, bytes: &mut [u8; Self::SIZE]) {
        bytes[0] = ServiceClass::with_operation(bytes[0], self.opcode);
        bytes[1] = self.flags();
        bytes[8..].copy_from_slice(&(u32::from(self.ack_request) << 31 | self.psn.value()).to_be_bytes());
    }

    fn flags(&self) -> u8 {
        flag(self.solicited, 7) | flag(self.migration, 6) | (self.pad_count & 3) << 4 | Self::VERSION
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let [_, q0, q1, q2] = self.destination.value().to_be_bytes();
        let [_, p0, p1, p2] = self.psn.value().to_be_bytes();
        let [key0, key1] = self.partition_key.to_be_bytes();
        let congestion = flag(self.fecn, 7) | flag(self.becn, 6);
        let ack = flag(self.ack_request, 7);
        [self.service.join(self.opcode), self.flags(), key0, key1, congestion, q0, q1, q2, ack, p0, p1, p2]
    }
}

const fn flag(set: bool, bit: u32) -> u8 {
    (set as u8) << bit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let bytes = [0x0a, 0xe0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef];
        let (bth, version) = Bth::from_bytes(&bytes);
        assert_eq!((bth.opcode, version), (BthOpcode::WriteOnly, 0));
        assert!(bth.solicited && bth.migration && bth.ack_request && bth.becn && !bth.fecn);
        assert_eq!((bth.pad_count, bth.destination.value(), bth.psn.value()), (2, 0x12_3456, 0xab_cdef));
        assert_eq!(bth.to_bytes(), bytes);
    }
}
