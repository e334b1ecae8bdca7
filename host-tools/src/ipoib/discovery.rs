//! IPv6 neighbour discovery, whose options contain hardware addresses: 6 bytes on Ethernet; on InfiniBand 20
//! bytes after 2 bytes of padding (RFC 4861 §4.6.1, RFC 4391 §9.3).

use super::link::{ADDRESS, HardwareAddress};
use bareverbs_prm::ids::MacAddress;
use std::net::Ipv6Addr;

/// Length of the IPv6 header, and offsets of its fields.
pub(super) const IPV6_HEADER: usize = 40;
const LENGTH_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
const HOP_LIMIT_AT: usize = 7;
const SOURCE_AT: usize = 8;
const DESTINATION_AT: usize = 24;
pub(super) const ICMPV6: u8 = 58;
/// Offset of the checksum in a message.
const CHECKSUM_AT: usize = 2;
/// Options with the hardware address of the sender, or of the target.
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;
/// Padding before an InfiniBand address.
const PADDING: usize = 2;

/// Source and destination of an IPv6 packet.
pub(super) fn ends(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let address = |at: usize| packet.get(at..)?.first_chunk::<16>().copied().map(Ipv6Addr::from);
    let is_ipv6 = packet.len() >= IPV6_HEADER && packet[0] >> 4 == 6;
    is_ipv6.then_some(())?;
    Some((address(SOURCE_AT)?, address(DESTINATION_AT)?))
}

/// The next header field of a packet.
pub(super) fn next_header(packet: &[u8]) -> Option<u8> {
    packet.get(NEXT_HEADER_AT).copied()
}

/// Types of neighbour solicitation and advertisement (RFC 4861 §§4.3, 4.4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement: solicited, override.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// Bytes of both messages before their options, and the offset of the target address.
const NEIGHBOUR_FIXED: usize = 24;
const TARGET_AT: usize = 8;

/// A neighbour solicitation or advertisement on InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeighbourMessage {
    pub(super) is_solicitation: bool,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    /// The solicited or advertised address.
    pub(super) target: Ipv6Addr,
    /// The hardware address of the solicitation's sender, or of the advertised node.
    pub(super) address: Option<HardwareAddress>,
}

impl NeighbourMessage {
    /// The solicited-node multicast group of an address (RFC 4291 §2.7.1).
    pub(super) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
        let low = target.to_bits() & 0xff_ffff;
        Ipv6Addr::from_bits(0xff02 << 112 | 0x1_ff00_0000 | low)
    }

    /// The packet; `None` if it has no hardware address to convey.
    pub(super) fn to_packet(self) -> Option<Vec<u8>> {
        let (kind, flags, option) = match self.is_solicitation {
            true => (SOLICITATION, 0, SOURCE_OPTION),
            false => (ADVERTISEMENT, SOLICITED_OVERRIDE, TARGET_OPTION),
        };
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, ICMPV6, 255];
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend([kind, 0, 0, 0, flags, 0, 0, 0]);
        packet.extend(self.target.octets());
        packet.extend([option, ((2 + PADDING + ADDRESS) / 8) as u8]);
        packet.extend([0; PADDING]);
        packet.extend(self.address?.bytes());
        finish(&mut packet)?;
        Some(packet)
    }
}

/// The form of hardware addresses in options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressKind {
    Ethernet,
    InfiniBand,
}

/// A neighbour discovery message in a packet.
#[derive(Debug)]
pub(super) struct Discovery<'a> {
    packet: &'a [u8],
    /// Offsets of the options and of the end of the packet.
    options_at: usize,
    end: usize,
}

impl<'a> Discovery<'a> {
    /// Parses a packet if it is a valid neighbour discovery message from the same link (RFC 4861 §6.1, §7.1).
    pub(super) fn parse(packet: &'a [u8]) -> Option<Self> {
        let (header, message) = packet.split_at_checked(IPV6_HEADER)?;
        let length = usize::from(u16::from_be_bytes([header[LENGTH_AT], header[LENGTH_AT + 1]]));
        let message = message.get(..length)?;
        let fixed = match *message.first()? {
            133 => 8,        // router solicitation
            134 => 16,       // router advertisement
            135 | 136 => 24, // neighbour solicitation and advertisement
            137 => 40,       // redirect
            _ => return None,
        };
        let is_sound = header[NEXT_HEADER_AT] == ICMPV6 && header[HOP_LIMIT_AT] == 255 && length >= fixed;
        let (options_at, end) = (IPV6_HEADER + fixed, IPV6_HEADER + length);
        is_sound.then_some(Self { packet, options_at, end })
    }

    /// The message for InfiniBand, with addresses mapped by `translate`. Options without a mapping are
    /// removed.
    pub(super) fn to_infiniband(
        &self,
        mut translate: impl FnMut(MacAddress) -> Option<HardwareAddress>,
    ) -> Option<Vec<u8>> {
        self.rewrite(AddressKind::Ethernet, |bytes| {
            let own = translate(MacAddress(*bytes.first_chunk()?))?;
            Some([&[0; PADDING][..], &own.bytes()].concat())
        })
    }

    /// The message for Ethernet.
    pub(super) fn to_ethernet(
        &self,
        mut translate: impl FnMut(HardwareAddress) -> Option<MacAddress>,
    ) -> Option<Vec<u8>> {
        self.rewrite(AddressKind::InfiniBand, |bytes| {
            let mac = translate(HardwareAddress::parse(bytes.get(PADDING..)?)?)?;
            Some(mac.0.to_vec())
        })
    }

    /// The solicitation or advertisement in it; its options have InfiniBand addresses.
    pub(super) fn neighbour(&self) -> Option<NeighbourMessage> {
        let message = &self.packet[IPV6_HEADER..self.end];
        let is_solicitation = match message[0] {
            SOLICITATION => true,
            ADVERTISEMENT => false,
            _ => return None,
        };
        let (source, destination) = ends(self.packet)?;
        let target = Ipv6Addr::from(*message.get(TARGET_AT..NEIGHBOUR_FIXED)?.first_chunk::<16>()?);
        let wanted = if is_solicitation { SOURCE_OPTION } else { TARGET_OPTION };
        let mut address = None;
        let mut rest = &self.packet[self.options_at..self.end];
        while let [option, units, ..] = *rest {
            let bytes = rest.split_off(..usize::from(units) * 8).filter(|bytes| !bytes.is_empty())?;
            if option == wanted && bytes.len() == 2 + AddressKind::InfiniBand.length() {
                address = HardwareAddress::parse(&bytes[2 + PADDING..]);
            }
        }
        Some(NeighbourMessage { is_solicitation, source, destination, target, address })
    }

    fn rewrite(
        &self,
        kind: AddressKind,
        mut translate: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let mut rewritten = self.packet[..self.options_at].to_vec();
        let mut rest = &self.packet[self.options_at..self.end];
        while let [option, units, ..] = *rest {
            // A length of 0 would never end (RFC 4861 §4.6).
            let bytes = rest.split_off(..usize::from(units) * 8).filter(|bytes| !bytes.is_empty())?;
            match option {
                SOURCE_OPTION | TARGET_OPTION => {
                    let address = &bytes[2..];
                    let is_of_kind = address.len() == kind.length();
                    let Some(other) = is_of_kind.then(|| translate(address)).flatten() else { continue };
                    rewritten.extend([option, ((other.len() + 2) / 8) as u8]);
                    rewritten.extend(other);
                }
                _ => rewritten.extend(bytes),
            }
        }
        finish(&mut rewritten)?;
        Some(rewritten)
    }
}

impl AddressKind {
    const fn length(self) -> usize {
        match self {
            Self::Ethernet => 6,
            Self::InfiniBand => PADDING + ADDRESS,
        }
    }
}

/// Sets the length and the checksum of an ICMPv6 packet.
pub(super) fn finish(packet: &mut [u8]) -> Option<()> {
    let length = packet.len().checked_sub(IPV6_HEADER)?;
    packet[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    finish_behind(packet, IPV6_HEADER)
}

/// Sets the checksum of an ICMPv6 message at offset `at`, possibly after extension headers (RFC 4443 §2.3).
pub(super) fn finish_behind(packet: &mut [u8], at: usize) -> Option<()> {
    let field = at + CHECKSUM_AT..at + CHECKSUM_AT + 2;
    packet.get_mut(field.clone())?.fill(0);
    let length = u32::try_from(packet.len() - at).ok()?.to_be_bytes();
    let addresses = packet.get(SOURCE_AT..IPV6_HEADER)?;
    let sum = checksum(&[addresses, &length, &[0, 0, 0, ICMPV6], &packet[at..]]);
    packet[field].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// The Internet checksum over several parts (RFC 1071). All but the last must have an even length.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::ids::{Gid, Qpn};

    /// A neighbour solicitation from fe80::1 for fe80::2, with its sender's address, an unrelated option, and
    /// a checksum.
    fn solicitation() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 40, ICMPV6, 255];
        packet.extend("fe80::1".parse::<Ipv6Addr>().expect("an address").octets());
        packet.extend("ff02::1:ff00:2".parse::<Ipv6Addr>().expect("an address").octets());
        packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend("fe80::2".parse::<Ipv6Addr>().expect("an address").octets());
        packet.extend([SOURCE_OPTION, 1, 2, 0, 0, 0, 0, 7]);
        packet.extend([14, 1, 1, 2, 3, 4, 5, 6]);
        finish(&mut packet).expect("a message");
        packet
    }

    fn is_right(packet: &[u8]) -> bool {
        let length = u32::try_from(packet.len() - IPV6_HEADER).expect("short").to_be_bytes();
        checksum(&[&packet[SOURCE_AT..IPV6_HEADER], &length, &[0, 0, 0, ICMPV6], &packet[IPV6_HEADER..]]) == 0
    }

    #[test]
    fn a_solicitation_crosses_over_and_back() {
        let (packet, mac) = (solicitation(), MacAddress([2, 0, 0, 0, 0, 7]));
        let own = HardwareAddress { qpn: Qpn::from_low_bits(0x42), gid: Gid([0xfe; 16]) };
        let discovery = Discovery::parse(&packet).expect("a message");
        let crossed = discovery.to_infiniband(|sender| (sender == mac).then_some(own)).expect("crossed");
        assert_eq!(crossed.len(), packet.len() + 16, "an option of 24 bytes in place of 8");
        assert_eq!(crossed[64..72], [SOURCE_OPTION, 3, 0, 0, 0, 0, 0, 0x42]);
        assert_eq!(crossed[4..6], [0, 56]);
        assert!(is_right(&packet) && is_right(&crossed));
        let back = Discovery::parse(&crossed).expect("a message");
        let back = back.to_ethernet(|sender| (sender == own).then_some(mac)).expect("crossed");
        assert_eq!(back, packet);
        let without = discovery.to_infiniband(|_| None).expect("crossed");
        assert_eq!(without.len(), packet.len() - 8, "the option is dropped");
        assert!(is_right(&without));
    }

    /// Requirement: RFC 4391 §9.3: an option with an InfiniBand address has 3 units of 8 bytes, of which two bytes are
    /// padding.
    #[test]
    fn requests_and_replies_survive_their_packets() {
        let address = Some(HardwareAddress { qpn: Qpn::from_low_bits(0x42), gid: Gid([0xfe; 16]) });
        let [source, target] = [1, 0x12_3456].map(|low| Ipv6Addr::from_bits(0xfd44 << 112 | low));
        let destination = NeighbourMessage::solicited_node(target);
        assert_eq!(destination, "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("an address"));
        for is_solicitation in [true, false] {
            let message = NeighbourMessage { is_solicitation, source, destination, target, address };
            let packet = message.to_packet().expect("a packet");
            assert_eq!((packet.len(), &packet[4..8]), (88, &[0, 48, ICMPV6, 255][..]));
            assert_eq!(packet[65..68], [3, 0, 0]);
            assert!(is_right(&packet));
            assert_eq!(Discovery::parse(&packet).and_then(|found| found.neighbour()), Some(message));
            assert_eq!(NeighbourMessage { address: None, ..message }.to_packet(), None);
            for end in 0..packet.len() {
                assert!(Discovery::parse(&packet[..end]).is_none(), "cut off at {end}");
            }
        }
        let of_ethernet = solicitation();
        let found = Discovery::parse(&of_ethernet).and_then(|found| found.neighbour()).expect("a request");
        assert_eq!(found.address, None, "its link-layer address is not an IPoIB one");
    }

    #[test]
    fn other_frames_are_left_alone() {
        let packet = solicitation();
        let changed = |at: usize, value: u8| {
            let mut packet = packet.clone();
            packet[at] = value;
            packet
        };
        assert!(Discovery::parse(&changed(HOP_LIMIT_AT, 64)).is_none(), "it crossed a router");
        assert!(Discovery::parse(&changed(40, 128)).is_none(), "an echo");
        assert!(Discovery::parse(&packet[..70]).is_none());
        let endless = changed(65, 0);
        assert!(Discovery::parse(&endless).expect("a message").to_ethernet(|_| None).is_none());
    }
}
