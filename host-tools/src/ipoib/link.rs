//! IPoIB's encapsulation header of IP and ARP packets, and its addresses (RFC 4391 §§4, 6, 9.1.1).

use bareverbs_prm::ids::{Gid, Qpn};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of the header before every packet: the EtherType, and 16 reserved bits (RFC 4391 §6).
pub(super) const HEADER: usize = 4;
/// Bytes of a hardware address.
pub(super) const ADDRESS: usize = 20;

/// Types of packets.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;

/// Signatures in the GIDs of IPv4 and IPv6 groups (RFC 4391 §4).
const IPV4_SIGNATURE: u128 = 0x401b;
const IPV6_SIGNATURE: u128 = 0x601b;
/// The first bits of a group's GID: not permanent, link-local scope.
const LINK_GROUP: u128 = 0xff12;
const FULL_MEMBER: u16 = 1 << 15;

/// Address of an interface: a queue pair of a port (RFC 4391 §9.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HardwareAddress {
    pub(super) qpn: Qpn,
    pub(super) gid: Gid,
}

impl HardwareAddress {
    /// Parses it. Flags about connected mode in the first byte are ignored.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ADDRESS] = bytes.first_chunk()?;
        let (head, gid) = bytes.split_first_chunk::<4>()?;
        let qpn = Qpn::from_low_bits(u32::from_be_bytes(*head));
        Some(Self { qpn, gid: Gid(gid.try_into().ok()?) })
    }

    /// Its bytes, without flags, because there is no connected mode here.
    pub(super) fn bytes(&self) -> [u8; ADDRESS] {
        let mut bytes = [0; ADDRESS];
        bytes[..4].copy_from_slice(&self.qpn.value().to_be_bytes());
        bytes[4..].copy_from_slice(&self.gid.0);
        bytes
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x} at {}", self.qpn.value(), self.gid)
    }
}

/// The packet after its header, with its type.
pub(super) fn unwrap(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (header, packet) = bytes.split_first_chunk::<HEADER>()?;
    Some((u16::from_be_bytes([header[0], header[1]]), packet))
}

/// A packet with its header.
pub(super) fn wrap(kind: u16, packet: &[u8]) -> Vec<u8> {
    let [high, low] = kind.to_be_bytes();
    [&[high, low, 0, 0], packet].concat()
}

/// The IPv4 broadcast group of a partition, to which every interface belongs (RFC 4391 §5).
pub(super) fn broadcast_group(partition_key: u16) -> Gid {
    group(IPV4_SIGNATURE, partition_key, 0xffff_ffff)
}

/// The InfiniBand group of an IPv4 multicast address, with its low 28 bits, or the broadcast group.
pub(super) fn ipv4_group(partition_key: u16, address: Ipv4Addr) -> Gid {
    if address.is_broadcast() {
        return broadcast_group(partition_key);
    }
    group(IPV4_SIGNATURE, partition_key, u128::from(address.to_bits() & 0x0fff_ffff))
}

/// The InfiniBand group of an IPv6 multicast address, with its low 80 bits.
pub(super) fn ipv6_group(partition_key: u16, address: Ipv6Addr) -> Gid {
    group(IPV6_SIGNATURE, partition_key, address.to_bits() & ((1 << 80) - 1))
}

/// The partition key in a GID has the bit of full members set (RFC 4391 §4).
fn group(signature: u128, partition_key: u16, number: u128) -> Gid {
    let key = u128::from(partition_key | FULL_MEMBER);
    Gid((LINK_GROUP << 112 | signature << 96 | key << 80 | number).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().expect("an address").octets())
    }

    /// Requirement: RFC 4391 §4: an IP multicast group has a GID of its family, of link-local scope and of its partition.
    ///
    /// As Linux maps them (`ip_ib_mc_map`, `ipv6_ib_mc_map` in `include/net`).
    #[test]
    fn groups_are_those_of_linux() {
        assert_eq!(broadcast_group(0x7fff), gid("ff12:401b:ffff::ffff:ffff"));
        assert_eq!(ipv4_group(0xffff, Ipv4Addr::new(239, 44, 0, 9)), gid("ff12:401b:ffff::f2c:9"));
        assert_eq!(ipv4_group(0xffff, Ipv4Addr::BROADCAST), broadcast_group(0xffff));
        let solicited = "ff02::1:ff04:2".parse().expect("an address");
        assert_eq!(ipv6_group(0x8001, solicited), gid("ff12:601b:8001::1:ff04:2"));
        let wide = "ff15:1:2:3:4:5:6:7".parse().expect("an address");
        assert_eq!(ipv6_group(0xffff, wide), gid("ff12:601b:ffff:3:4:5:6:7"));
    }

    #[test]
    fn hardware_addresses_survive_their_bytes_and_ignore_flags() {
        let address = HardwareAddress { qpn: Qpn::from_low_bits(0x42), gid: gid("fe80::202:c9ff:fe04:1") };
        let mut bytes = address.bytes();
        assert_eq!(bytes[..6], [0, 0, 0, 0x42, 0xfe, 0x80]);
        bytes[0] = 0x80;
        assert_eq!(HardwareAddress::parse(&bytes), Some(address), "Linux says that it knows connected mode");
        assert_eq!(HardwareAddress::parse(&bytes[..19]), None);
    }

    /// Requirement: RFC 4391 §6: a packet follows its type, as in Ethernet, and 16 reserved bits.
    #[test]
    fn a_packet_has_four_bytes_before_it() {
        let wrapped = wrap(IPV6, &[0x60, 1]);
        assert_eq!(wrapped, [0x86, 0xdd, 0, 0, 0x60, 1]);
        assert_eq!(unwrap(&wrapped), Some((IPV6, &[0x60, 1][..])));
        assert_eq!(unwrap(&[8, 0, 0]), None);
    }
}
