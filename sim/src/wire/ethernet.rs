//! Ethernet and one 802.1Q tag.

use super::parse_error::ParseError;
use super::route::{Route, VlanTag};
use bareverbs_prm::ids::MacAddress;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of RoCE version 1.
pub const ROCE: u16 = 0x8915;
const VLAN: u16 = 0x8100;
const TAG_SIZE: usize = 4;
/// Bytes of the minimum frame, without its frame check sequence (IEEE 802.3). Shorter frames are padded.
pub const MIN_FRAME: usize = 60;
/// Longest header in bytes.
pub const MAX_SIZE: usize = 14 + TAG_SIZE;

/// A decoded Ethernet header.
pub struct EthernetHeader {
    pub destination: MacAddress,
    pub source: MacAddress,
    pub vlan: Option<VlanTag>,
    pub ether_type: u16,
}

/// Splits off the header.
pub fn split(frame: &[u8]) -> Result<(EthernetHeader, &[u8]), ParseError> {
    let (header, rest) = frame.split_first_chunk::<14>().ok_or(ParseError::Truncated)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    let (vlan, ether_type, rest) = split_tag(u16::from_be_bytes([t0, t1]), rest)?;
    let destination = MacAddress([d0, d1, d2, d3, d4, d5]);
    let source = MacAddress([s0, s1, s2, s3, s4, s5]);
    Ok((EthernetHeader { destination, source, vlan, ether_type }, rest))
}

fn split_tag(ether_type: u16, rest: &[u8]) -> Result<(Option<VlanTag>, u16, &[u8]), ParseError> {
    if ether_type != VLAN {
        return Ok((None, ether_type, rest));
    }
    let (tag, rest) = rest.split_first_chunk::<TAG_SIZE>().ok_or(ParseError::Truncated)?;
    let [c0, c1, t0, t1] = *tag;
    Ok((Some(VlanTag::from_raw(u16::from_be_bytes([c0, c1]))), u16::from_be_bytes([t0, t1]), rest))
}

/// Writes the header for a route and returns its size.
pub fn write(route: &Route, ether_type: u16, bytes: &mut [u8; MAX_SIZE]) -> usize {
    bytes[..6].copy_from_slice(&route.destination_mac.0);
    bytes[6..12].copy_from_slice(&route.source_mac.0);
    let Some(tag) = route.vlan else {
        bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
        return MAX_SIZE - TAG_SIZE;
    };
    bytes[12..14].copy_from_slice(&VLAN.to_be_bytes());
    bytes[14..16].copy_from_slice(&tag.to_raw().to_be_bytes());
    bytes[16..18].copy_from_slice(&ether_type.to_be_bytes());
    MAX_SIZE
}
