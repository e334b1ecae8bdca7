//! IPv6 as RoCEv2 uses it: no extension headers. RoCEv2 A17.3.1.2.

use super::masking::set_ones;
use super::parse_error::ParseError;
use super::route::{IpHeader, Network, Route};
use core::net::Ipv6Addr;

/// Bytes of the header.
pub const SIZE: usize = 40;
/// Offset of the payload length.
pub const LENGTH: usize = 4;

const UDP: u8 = 17;
const FLOW_LABEL: u32 = 0xf_ffff;

/// Splits off the header. Bytes beyond its payload length are Ethernet padding.
pub fn split(bytes: &[u8]) -> Result<(IpHeader, &[u8]), ParseError> {
    split_for(UDP, bytes)
}

/// Like [`split`], for another next header: a GRH has the same form.
pub fn split_for(wanted: u8, bytes: &[u8]) -> Result<(IpHeader, &[u8]), ParseError> {
    let (header, rest) = bytes.split_first_chunk::<SIZE>().ok_or(ParseError::Truncated)?;
    let ([v0, v1, v2, v3, l0, l1, next, hop_limit], addresses) = split_words(header);
    let word = u32::from_be_bytes([v0, v1, v2, v3]);
    if word >> 28 != 6 {
        return Err(ParseError::IpVersion((word >> 28) as u8));
    }
    if next != wanted {
        return Err(ParseError::IpProtocol(next));
    }
    let length = u16::from_be_bytes([l0, l1]);
    let payload = rest.get(..usize::from(length)).ok_or(ParseError::IpLength(length))?;
    let [source, destination] = addresses.map(Ipv6Addr::from);
    let network = Network::V6 { source, destination };
    let traffic_class = (word >> 20) as u8;
    Ok((IpHeader { network, traffic_class, hop_limit, flow_label: word & FLOW_LABEL }, payload))
}

fn split_words(header: &[u8; SIZE]) -> ([u8; 8], [[u8; 16]; 2]) {
    let (mut words, mut source, mut destination) = ([0; 8], [0; 16], [0; 16]);
    words.copy_from_slice(&header[..8]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..]);
    (words, [source, destination])
}

/// Builds the header with payload length zero.
pub fn header(route: &Route, source: Ipv6Addr, destination: Ipv6Addr) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let word = 6 << 28 | u32::from(route.traffic_class) << 20 | (route.flow_label & FLOW_LABEL);
    bytes[..4].copy_from_slice(&word.to_be_bytes());
    bytes[6] = UDP;
    bytes[7] = route.hop_limit;
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..].copy_from_slice(&destination.octets());
    bytes
}

/// Masks traffic class, flow label and hop limit. RoCEv2 A17.3.3.
pub fn mask(header: &mut [u8]) {
    if let Some(version) = header.first_mut() {
        *version |= 0x0f;
    }
    set_ones(header, 1, 3);
    set_ones(header, 7, 1);
}
