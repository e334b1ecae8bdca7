//! ARP for Ethernet and for InfiniBand, which have different hardware addresses (RFC 826, RFC 4391 §9.1).

use super::link::{ADDRESS, HardwareAddress};
use bareverbs_prm::ids::MacAddress;
use std::net::Ipv4Addr;

/// Hardware types: Ethernet and InfiniBand (RFC 4391 §9.1.2).
const ETHERNET: u16 = 1;
const INFINIBAND: u16 = 32;
const IPV4: u16 = 0x0800;
const HEAD: usize = 8;

/// Request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArpOperation {
    Request,
    Reply,
}

/// A packet, with hardware addresses of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArpPacket<A> {
    pub(super) operation: ArpOperation,
    pub(super) sender: A,
    pub(super) sender_ip: Ipv4Addr,
    /// Unknown in most requests.
    pub(super) target: Option<A>,
    pub(super) target_ip: Ipv4Addr,
}

impl<A> ArpPacket<A> {
    /// The same with other hardware addresses.
    pub(super) fn with<B>(&self, sender: B, target: Option<B>) -> ArpPacket<B> {
        let Self { operation, sender_ip, target_ip, .. } = *self;
        ArpPacket { operation, sender, sender_ip, target, target_ip }
    }
}

impl ArpPacket<MacAddress> {
    pub(super) fn parse_ethernet(bytes: &[u8]) -> Option<Self> {
        let fields = Fields::parse(bytes, ETHERNET, 6)?;
        let mac = |bytes: &[u8]| bytes.first_chunk().copied().map(MacAddress);
        let target = mac(fields.target).filter(|target| target.0 != [0; 6] && target.0 != [0xff; 6]);
        Some(fields.packet(mac(fields.sender)?, target))
    }

    pub(super) fn to_ethernet(self) -> Vec<u8> {
        self.write(ETHERNET, &self.sender.0, &self.target.map_or([0; 6], |target| target.0))
    }
}

impl ArpPacket<HardwareAddress> {
    pub(super) fn parse_infiniband(bytes: &[u8]) -> Option<Self> {
        let fields = Fields::parse(bytes, INFINIBAND, ADDRESS)?;
        let target = HardwareAddress::parse(fields.target).filter(|target| !target.gid.is_zero());
        Some(fields.packet(HardwareAddress::parse(fields.sender)?, target))
    }

    pub(super) fn to_infiniband(self) -> Vec<u8> {
        let target = self.target.map_or([0; ADDRESS], |target| target.bytes());
        self.write(INFINIBAND, &self.sender.bytes(), &target)
    }
}

impl<A> ArpPacket<A> {
    fn write(&self, hardware: u16, sender: &[u8], target: &[u8]) -> Vec<u8> {
        let operation: u16 = if self.operation == ArpOperation::Request { 1 } else { 2 };
        let mut bytes = Vec::with_capacity(HEAD + 2 * (sender.len() + 4));
        bytes.extend(hardware.to_be_bytes());
        bytes.extend(IPV4.to_be_bytes());
        bytes.extend([sender.len() as u8, 4]);
        bytes.extend(operation.to_be_bytes());
        bytes.extend(sender);
        bytes.extend(self.sender_ip.octets());
        bytes.extend(target);
        bytes.extend(self.target_ip.octets());
        bytes
    }
}

/// Fields as bytes.
struct Fields<'a> {
    operation: ArpOperation,
    sender: &'a [u8],
    sender_ip: Ipv4Addr,
    target: &'a [u8],
    target_ip: Ipv4Addr,
}

impl<'a> Fields<'a> {
    fn parse(bytes: &'a [u8], hardware: u16, length: usize) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        if (word(0), word(2), head[4], head[5]) != (hardware, IPV4, length as u8, 4) {
            return None;
        }
        let operation = match word(6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return None,
        };
        let mut take = |length: usize| rest.split_off(..length);
        let (sender, sender_ip, target, target_ip) = (take(length)?, take(4)?, take(length)?, take(4)?);
        Some(Self { operation, sender, sender_ip: ip(sender_ip)?, target, target_ip: ip(target_ip)? })
    }

    const fn packet<A>(&self, sender: A, target: Option<A>) -> ArpPacket<A> {
        let Self { operation, sender_ip, target_ip, .. } = *self;
        ArpPacket { operation, sender, sender_ip, target, target_ip }
    }
}

fn ip(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk().copied().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::{Gid, Qpn};

    #[test]
    fn a_request_crosses_over_and_back() {
        let asked = ArpPacket {
            operation: ArpOperation::Request,
            sender: MacAddress([2, 0, 0, 0, 0, 1]),
            sender_ip: [10, 0, 0, 1].into(),
            target: None,
            target_ip: [10, 0, 0, 2].into(),
        };
        let bytes = asked.to_ethernet();
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(ArpPacket::parse_ethernet(&bytes), Some(asked));
        let own = HardwareAddress { qpn: Qpn::from_low_bits(7), gid: Gid([9; 16]) };
        let crossed = asked.with(own, None);
        let bytes = crossed.to_infiniband();
        assert_eq!((bytes.len(), &bytes[..8]), (56, &[0, 32, 8, 0, 20, 4, 0, 1][..]));
        assert_eq!(ArpPacket::parse_infiniband(&bytes), Some(crossed));
        assert_eq!(ArpPacket::parse_ethernet(&bytes), None, "another kind of hardware");
        assert_eq!(ArpPacket::parse_infiniband(&bytes[..55]), None);
    }
}
