//! Neighbour discovery frames: ARP (RFC 826) for IPv4, NDP (RFC 4861) for IPv6.

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_sim::wire::MIN_FRAME;

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Hardware type Ethernet, protocol IPv4, and the lengths of their addresses.
const ARP_OF_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
const ARP_REPLY: [u8; 2] = [0, 2];
const IPV6_HEADER: usize = 40;
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
/// NDP flags: solicited, override.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// Type, code, checksum, flags, target, and one option with a MAC address.
const ICMPV6_LENGTH: usize = 32;
const BROADCAST: MacAddress = MacAddress([0xff; 6]);

/// An address and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// IP address as a GID.
    pub gid: Gid,
    /// Its MAC address.
    pub mac: MacAddress,
}

/// Messages between neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// Asks who has an address.
    Solicitation {
        /// The requester.
        sender: Neighbour,
        /// The address.
        target: Gid,
    },
    /// Announces an address.
    Advertisement {
        /// Its owner.
        sender: Neighbour,
        /// The requester.
        receiver: Neighbour,
    },
}

impl NeighbourMessage {
    /// Parses a frame; `None` for other or invalid frames.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (kind, body) = frame.get(12..)?.split_first_chunk()?;
        match *kind {
            ETHERTYPE_ARP => parse_arp(body),
            ETHERTYPE_IPV6 => parse_ndp(body),
            _ => None,
        }
    }

    /// Encodes the frame.
    pub fn compose(&self) -> Vec<u8> {
        match *self {
            Self::Solicitation { sender, target } => match target.to_ipv4() {
                Some(_) => {
                    let unknown = Neighbour { gid: target, mac: MacAddress([0; 6]) };
                    arp(ARP_REQUEST, sender, BROADCAST, unknown)
                }
                None => solicitation(sender, target),
            },
            Self::Advertisement { sender, receiver } => match receiver.gid.to_ipv4() {
                Some(_) => arp(ARP_REPLY, sender, receiver.mac, receiver),
                None => advertisement(sender, receiver),
            },
        }
    }
}

fn parse_arp(body: &[u8]) -> Option<NeighbourMessage> {
    let (fixed, rest) = body.split_first_chunk::<6>()?;
    let (operation, rest) = rest.split_first_chunk::<2>()?;
    let (sender_mac, rest) = rest.split_first_chunk()?;
    let (sender_ip, rest) = rest.split_first_chunk()?;
    let (receiver_mac, rest) = rest.split_first_chunk()?;
    let receiver_ip = Gid::from_ipv4(*rest.first_chunk()?);
    let sender = Neighbour { gid: Gid::from_ipv4(*sender_ip), mac: MacAddress(*sender_mac) };
    match *operation {
        _ if *fixed != ARP_OF_ETHERNET || is_group(sender.mac) => None,
        ARP_REQUEST => Some(NeighbourMessage::Solicitation { sender, target: receiver_ip }),
        ARP_REPLY => {
            let receiver = Neighbour { gid: receiver_ip, mac: MacAddress(*receiver_mac) };
            Some(NeighbourMessage::Advertisement { sender, receiver })
        }
        _ => None,
    }
}

/// Per RFC 4861 §7.1, a packet that crossed a router or is damaged does not count.
fn parse_ndp(packet: &[u8]) -> Option<NeighbourMessage> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let body = rest.get(..length)?;
    if header[0] >> 4 != 6 || header[6] != ICMPV6 || header[7] != u8::MAX {
        return None;
    }
    let (source, destination) = (Gid(*header[8..].first_chunk()?), Gid(*header[24..].first_chunk()?));
    let target = Gid(*body.get(8..)?.first_chunk()?);
    if checksum(source, destination, body) != 0 || body[1] != 0 || target.is_multicast() {
        return None;
    }
    let options = body.get(24..)?;
    match body[0] {
        // Duplicate address detection: the sender has no address yet, so there is nobody to answer.
        NEIGHBOUR_SOLICITATION if !source.is_zero() => {
            let sender = Neighbour { gid: source, mac: link_address(options, SOURCE_LINK_ADDRESS)? };
            Some(NeighbourMessage::Solicitation { sender, target })
        }
        NEIGHBOUR_ADVERTISEMENT => {
            let sender = Neighbour { gid: target, mac: link_address(options, TARGET_LINK_ADDRESS)? };
            let receiver = Neighbour { gid: destination, mac: MacAddress([0; 6]) };
            Some(NeighbourMessage::Advertisement { sender, receiver })
        }
        _ => None,
    }
}

/// The MAC address in an option of this type. Option lengths are in units of 8 bytes.
fn link_address(mut options: &[u8], wanted: u8) -> Option<MacAddress> {
    while let [kind, units, rest @ ..] = options {
        let length = usize::from(*units) * 8;
        if *kind == wanted && length == 8 {
            return Some(MacAddress(*rest.first_chunk()?)).filter(|mac| !is_group(*mac));
        }
        if length == 0 {
            return None;
        }
        options = options.get(length..)?;
    }
    None
}

const fn is_group(mac: MacAddress) -> bool {
    mac.0[0] & 1 != 0
}

fn framed(destination: MacAddress, source: MacAddress, kind: [u8; 2], body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_HEADER + body.len());
    frame.extend_from_slice(&destination.0);
    frame.extend_from_slice(&source.0);
    frame.extend_from_slice(&kind);
    frame.extend_from_slice(body);
    frame.resize(frame.len().max(MIN_FRAME), 0);
    frame
}

fn arp(operation: [u8; 2], sender: Neighbour, to: MacAddress, receiver: Neighbour) -> Vec<u8> {
    let [own, other] = [sender, receiver].map(|neighbour| neighbour.gid.to_ipv4().unwrap_or_default());
    let body = [&ARP_OF_ETHERNET[..], &operation, &sender.mac.0, &own, &receiver.mac.0, &other].concat();
    framed(to, sender.mac, ETHERTYPE_ARP, &body)
}

/// Asks the solicited-node multicast group of the address (RFC 4291 §2.7.1).
fn solicitation(sender: Neighbour, target: Gid) -> Vec<u8> {
    let [.., a, b, c] = target.0;
    let group = Gid([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    let to = MacAddress([0x33, 0x33, 0xff, a, b, c]);
    let body = icmpv6([NEIGHBOUR_SOLICITATION, 0, SOURCE_LINK_ADDRESS], target, sender.mac);
    framed(to, sender.mac, ETHERTYPE_IPV6, &ipv6(sender.gid, group, body))
}

fn advertisement(sender: Neighbour, receiver: Neighbour) -> Vec<u8> {
    let kinds = [NEIGHBOUR_ADVERTISEMENT, SOLICITED_OVERRIDE, TARGET_LINK_ADDRESS];
    let body = icmpv6(kinds, sender.gid, sender.mac);
    framed(receiver.mac, sender.mac, ETHERTYPE_IPV6, &ipv6(sender.gid, receiver.gid, body))
}

/// A message of this type and flags with one option of this type that contains a MAC address. Its checksum is still
/// missing.
fn icmpv6([kind, flags, option]: [u8; 3], target: Gid, mac: MacAddress) -> [u8; ICMPV6_LENGTH] {
    let mut body = [0; ICMPV6_LENGTH];
    (body[0], body[4]) = (kind, flags);
    body[8..24].copy_from_slice(&target.0);
    (body[24], body[25]) = (option, 1);
    body[26..].copy_from_slice(&mac.0);
    body
}

fn ipv6(source: Gid, destination: Gid, mut body: [u8; ICMPV6_LENGTH]) -> Vec<u8> {
    let sum = checksum(source, destination, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let fixed = [0x60, 0, 0, 0, 0, ICMPV6_LENGTH as u8, ICMPV6, u8::MAX];
    [&fixed[..], &source.0, &destination.0, &body].concat()
}

/// Checksum of the body with its pseudo-header (RFC 8200 §8.1); 0 if the body includes a valid checksum.
fn checksum(source: Gid, destination: Gid, body: &[u8]) -> u16 {
    let length = (body.len() as u32).to_be_bytes();
    let rest = [&length[..], &[0, 0, 0, ICMPV6], body].concat();
    let words = [&source.0[..], &destination.0, &rest].concat();
    let sum: u32 =
        words.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLICITATION_CHECKSUM: u16 = 0x61f2;

    fn v4(last: u8) -> Neighbour {
        Neighbour { gid: Gid::from_ipv4([10, 0, 0, last]), mac: MacAddress([2, 0, 0, 0, 0, last]) }
    }

    fn v6(last: u8) -> Neighbour {
        let mut gid = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0];
        gid[15] = last;
        Neighbour { gid: Gid(gid), ..v4(last) }
    }

    #[test]
    fn an_arp_request_has_the_bytes_of_rfc_826() {
        let frame = NeighbourMessage::Solicitation { sender: v4(1), target: v4(2).gid }.compose();
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6]);
        assert_eq!(frame[14..22], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(frame[22..42], [2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    }

    /// The expected checksum was computed independently of this program.
    #[test]
    fn a_neighbour_solicitation_goes_to_the_group_of_its_target() {
        let frame = NeighbourMessage::Solicitation { sender: v6(1), target: v6(2).gid }.compose();
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xbb, 0xcc, 2]);
        assert_eq!(frame[38..54], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xbb, 0xcc, 2]);
        assert_eq!((frame[54], &frame[56..58]), (135, &SOLICITATION_CHECKSUM.to_be_bytes()[..]));
        assert_eq!(frame.len(), 86);
    }

    #[test]
    fn composed_messages_are_read_back() {
        for (asker, owner) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            let asked = NeighbourMessage::Solicitation { sender: asker, target: owner.gid };
            assert_eq!(NeighbourMessage::parse(&asked.compose()), Some(asked));
            let answer = NeighbourMessage::Advertisement { sender: owner, receiver: asker };
            let Some(NeighbourMessage::Advertisement { sender, receiver }) =
                NeighbourMessage::parse(&answer.compose())
            else {
                panic!("{answer:?}");
            };
            assert_eq!((sender, receiver.gid), (owner, asker.gid));
            assert_eq!(answer.compose()[..6], asker.mac.0);
        }
    }

    #[test]
    fn messages_that_are_cut_damaged_or_from_a_group_are_ignored() {
        for asker in [v4(1), v6(1)] {
            let target = if asker == v4(1) { v4(2).gid } else { v6(2).gid };
            let whole = NeighbourMessage::Solicitation { sender: asker, target }.compose();
            let used = if asker == v4(1) { 42 } else { 86 };
            for length in 0..used {
                assert_eq!(NeighbourMessage::parse(&whole[..length]), None, "{length}");
            }
        }
        let whole = NeighbourMessage::Solicitation { sender: v6(1), target: v6(2).gid }.compose();
        for (at, bit) in [(21, 1), (60, 1), (85, 4), (54, 2)] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            assert_eq!(NeighbourMessage::parse(&damaged), None, "byte {at}");
        }
        let group = Neighbour { mac: MacAddress([0x33; 6]), ..v4(1) };
        let asked = NeighbourMessage::Solicitation { sender: group, target: v4(2).gid };
        assert_eq!(NeighbourMessage::parse(&asked.compose()), None);
    }
}
