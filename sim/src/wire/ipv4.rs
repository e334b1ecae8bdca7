//! IPv4 as RoCEv2 uses it: no options, no fragments. RoCEv2 A17.3.1.1.

use super::masking::set_ones;
use super::parse_error::ParseError;
use super::route::{IpHeader, Network, Route};
use bareverbs_prm::mutation::mutated;
use core::net::Ipv4Addr;

/// Bytes of the header.
pub const SIZE: usize = 20;
/// Offset of the total length.
pub const LENGTH: usize = 2;
/// Offset of the checksum.
pub const CHECKSUM: usize = 10;

const VERSION_AND_SIZE: u8 = 0x45;
const DO_NOT_FRAGMENT: u8 = 0x40;
/// The more-fragments flag and the fragment offset.
const FRAGMENT: u16 = 0x3fff;
const UDP: u8 = 17;

/// Splits off the header. Bytes beyond its total length are Ethernet padding.
pub fn split(bytes: &[u8]) -> Result<(IpHeader, &[u8]), ParseError> {
    let header = bytes.first_chunk::<SIZE>().ok_or(ParseError::Truncated)?;
    let [version, tos, l0, l1, _, _, f0, f1, ttl, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    check_version(version)?;
    if fold(sum(header)) != 0xffff {
        return Err(ParseError::IpChecksum);
    }
    if u16::from_be_bytes([f0, f1]) & FRAGMENT != 0 && !mutated("ip_fragments") {
        return Err(ParseError::Fragment);
    }
    if protocol != UDP {
        return Err(ParseError::IpProtocol(protocol));
    }
    let length = u16::from_be_bytes([l0, l1]);
    let payload = bytes.get(SIZE..usize::from(length)).ok_or(ParseError::IpLength(length))?;
    let network =
        Network::V4 { source: Ipv4Addr::new(s0, s1, s2, s3), destination: Ipv4Addr::new(d0, d1, d2, d3) };
    Ok((IpHeader { network, traffic_class: tos, hop_limit: ttl, flow_label: 0 }, payload))
}

fn check_version(byte: u8) -> Result<(), ParseError> {
    match byte {
        VERSION_AND_SIZE => Ok(()),
        other if other >> 4 == 4 => Err(ParseError::IpOptions(other & 0xf)),
        other => Err(ParseError::IpVersion(other >> 4)),
    }
}

/// Builds the header with total length and checksum zero.
pub fn header(route: &Route, source: Ipv4Addr, destination: Ipv4Addr) -> [u8; SIZE] {
    let [s0, s1, s2, s3] = source.octets();
    let [d0, d1, d2, d3] = destination.octets();
    let (tos, ttl) = (route.traffic_class, route.hop_limit);
    [VERSION_AND_SIZE, tos, 0, 0, 0, 0, DO_NOT_FRAGMENT, 0, ttl, UDP, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3]
}

/// Sum of the big-endian 16-bit words, not folded.
pub fn sum(header: &[u8; SIZE]) -> u32 {
    header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// Checksum of a header whose words without the total length add up to `sum`.
pub fn checksum(sum: u32, total_length: u16) -> u16 {
    !fold(sum + u32::from(total_length))
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once + (once >> 16)) as u16
}

/// Masks type of service, time to live and checksum. RoCEv2 A17.3.3.
pub fn mask(header: &mut [u8]) {
    set_ones(header, 1, 1);
    set_ones(header, 8, 1);
    set_ones(header, CHECKSUM, 2);
}
