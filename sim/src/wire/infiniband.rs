//! InfiniBand packets: LRH, optional GRH, the headers shared with RoCE, ICRC and VCRC. IBTA v1.4 §7.7 and §7.8, §8.3.
//!
//! A frame on an InfiniBand link is exactly this, from the first byte of the LRH to the last byte of the VCRC: no
//! Ethernet header, no link-level symbols.

use super::bth::Bth;
use super::icrc;
use super::ipv6;
use super::masking::set_ones;
use super::packet::Packet;
use super::parse_error::ParseError;
use super::route::{GlobalRoute, LocalRoute, Network, Route};
use super::transport_headers::{Transport, split_transport};
use bareverbs_prm::ids::MacAddress;
use core::net::Ipv6Addr;
use crc::{Algorithm, Crc, Table};

/// Bytes of the local route header.
pub const LRH: usize = 8;
/// Bytes of the variant CRC.
pub const VCRC: usize = 2;
/// `NxtHdr` of a GRH that is followed by a BTH.
pub(super) const NEXT_BTH: u8 = 0x1b;
/// `LNH`: a BTH follows, or a GRH and then the BTH.
const LNH_LOCAL: u8 = 2;
const LNH_GLOBAL: u8 = 3;
/// Leading bytes that are copied to compute the CRC.
const HEAD: usize = LRH + ipv6::SIZE + Bth::SIZE;

/// First multicast LID (IBTA v1.4 §4.1.3).
pub const FIRST_MULTICAST_LID: u16 = 0xc000;
/// The permissive LID: the port at the other end of the link (IBTA v1.4 §4.1.3).
pub const PERMISSIVE_LID: u16 = 0xffff;
/// VL 15, the virtual lane of subnet management (IBTA v1.4 §7.6.4).
pub const MANAGEMENT_LANE: u8 = 15;

/// Destination LID of a packet; `None` if it is truncated. All that a switch needs.
pub fn destination_lid(frame: &[u8]) -> Option<u16> {
    let (header, _) = frame.split_first_chunk::<LRH>()?;
    Some(u16::from_be_bytes([header[2], header[3]]))
}

/// Whether a LID is a multicast LID (IBTA v1.4 §4.1.3).
#[inline]
pub const fn is_multicast_lid(lid: u16) -> bool {
    lid >= FIRST_MULTICAST_LID && lid != PERMISSIVE_LID
}

/// Destination MGID of a multicast packet; `None` for other packets, and for a multicast packet without the mandatory
/// GRH (IBTA v1.4 §9.6.1.1).
pub fn multicast_group(frame: &[u8]) -> Option<[u8; 16]> {
    let is_multicast = destination_lid(frame).is_some_and(is_multicast_lid);
    if !is_multicast || frame[1] & 3 != LNH_GLOBAL {
        return None;
    }
    frame.get(LRH + ipv6::SIZE - 16..LRH + ipv6::SIZE)?.first_chunk().copied()
}

/// Destination QPN of a packet; `None` if it is truncated or has no BTH. IBTA v1.4 §7.7.5, §9.2.6.
pub fn destination_qpn(frame: &[u8]) -> Option<u32> {
    let bth = transport_header_at(frame)?;
    let [_, high, middle, low] = *frame.get(bth + 4..bth + 8)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

/// P_Key of a packet, without checking the rest. `None` if it is truncated, and for raw packets, which have none.
pub fn partition_key(frame: &[u8]) -> Option<u16> {
    let bth = transport_header_at(frame)?;
    frame.get(bth + 2..bth + 4)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Offset of a packet's BTH.
fn transport_header_at(frame: &[u8]) -> Option<usize> {
    match frame.get(1)? & 3 {
        LNH_LOCAL => Some(LRH),
        LNH_GLOBAL => Some(LRH + ipv6::SIZE),
        _ => None,
    }
}

/// The virtual lane of a packet.
pub fn virtual_lane(frame: &[u8]) -> Option<u8> {
    frame.first().map(|byte| byte >> 4)
}

/// The service level of a packet.
pub fn service_level(frame: &[u8]) -> Option<u8> {
    frame.get(1).map(|byte| byte >> 4)
}

/// LRH and GRH, with lengths zero.
pub(super) struct RouteHeaders {
    bytes: [u8; LRH + ipv6::SIZE],
    pub(super) has_global: bool,
}

impl RouteHeaders {
    /// The headers for a route on an InfiniBand link.
    pub(super) fn new(route: &Route, local: &LocalRoute) -> Self {
        let mut bytes = [0; LRH + ipv6::SIZE];
        let next = if local.global.is_some() { LNH_GLOBAL } else { LNH_LOCAL };
        bytes[0] = local.virtual_lane << 4;
        bytes[1] = local.service_level << 4 | next;
        bytes[2..4].copy_from_slice(&local.destination.to_be_bytes());
        bytes[6..8].copy_from_slice(&local.source.to_be_bytes());
        if let Some(global) = local.global {
            bytes[LRH..].copy_from_slice(&route_header(route, &global));
        }
        Self { bytes, has_global: local.global.is_some() }
    }

    /// Encodes the headers, with the GRH if the route has one.
    pub(super) fn as_bytes(&self) -> &[u8] {
        if self.has_global { &self.bytes } else { &self.bytes[..LRH] }
    }
}

/// A GRH with payload length zero: an IPv6 header with a different next header (IBTA v1.4 §8.3).
pub(super) fn route_header(route: &Route, global: &GlobalRoute) -> [u8; ipv6::SIZE] {
    let mut header = ipv6::header(route, global.source, global.destination);
    header[6] = NEXT_BTH;
    header
}

/// The GRH of a received route before `carried` bytes; `None` if the route has none.
pub fn global_header(route: &Route, carried: usize) -> Option<[u8; ipv6::SIZE]> {
    let Network::InfiniBand(LocalRoute { global: Some(global), .. }) = route.network else { return None };
    let mut header = route_header(route, &global);
    let length = u16::try_from(carried).unwrap_or(u16::MAX);
    header[ipv6::LENGTH..ipv6::LENGTH + 2].copy_from_slice(&length.to_be_bytes());
    Some(header)
}

/// Writes the length fields of a frame of `length` bytes: the LRH counts words up to the VCRC, the GRH the bytes after
/// itself up to there.
pub(super) fn write_lengths(header: &mut [u8], length: usize, global: bool) {
    let covered = length - VCRC;
    header[4..6].copy_from_slice(&((covered / 4) as u16).to_be_bytes());
    if global {
        let carried = (covered - LRH - ipv6::SIZE) as u16;
        header[LRH + ipv6::LENGTH..LRH + ipv6::LENGTH + 2].copy_from_slice(&carried.to_be_bytes());
    }
}

/// Sets the fields to ones that may change in transit: virtual lane; traffic class, flow label, hop limit; the BTH byte
/// before the destination QPN (IBTA v1.4 §7.8.1).
pub(super) fn mask(head: &mut [u8], global: bool) {
    if let Some(lane) = head.first_mut() {
        *lane |= 0xf0;
    }
    if global {
        ipv6::mask(&mut head[LRH..]);
    }
    let bth_at = LRH + if global { ipv6::SIZE } else { 0 };
    set_ones(head, bth_at + Bth::CONGESTION, 1);
}

/// The variant CRC (VCRC): polynomial 0x100b over everything before it, initially ones, inverted at the end, least
/// significant bit first like the ICRC (IBTA v1.4 §7.8.2).
pub fn variant_crc(bytes: &[u8]) -> [u8; VCRC] {
    VARIANT.checksum(bytes).to_le_bytes()
}

const VARIANT_ALGORITHM: Algorithm<u16> = Algorithm {
    width: 16,
    poly: 0x100b,
    init: 0xffff,
    refin: true,
    refout: true,
    xorout: 0xffff,
    check: 0x0a3d,
    residue: 0x556f,
};

static VARIANT: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&VARIANT_ALGORITHM);

/// Parses and verifies an InfiniBand packet.
pub fn parse(frame: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (covered, tail) = frame.split_last_chunk::<VCRC>().ok_or(ParseError::Truncated)?;
    let (header, rest) = covered.split_first_chunk::<LRH>().ok_or(ParseError::Truncated)?;
    let words = u16::from_be_bytes([header[4] & 7, header[5]]);
    if usize::from(words) * 4 != covered.len() {
        return Err(ParseError::LinkLength(words));
    }
    if header[0] & 0xf != 0 {
        return Err(ParseError::LinkVersion(header[0] & 0xf));
    }
    if variant_crc(covered) != *tail {
        return Err(ParseError::VariantCrc);
    }
    let (route, transport) = split_route(header, rest)?;
    let (body, crc) = transport.split_last_chunk::<{ icrc::SIZE }>().ok_or(ParseError::Truncated)?;
    let icrc = check_icrc(&covered[..covered.len() - icrc::SIZE], rest.len() != transport.len(), *crc)?;
    let Transport { bth, service_header, extension, payload } = split_transport(body)?;
    Ok(Packet { route, bth, service_header, extension, payload, icrc })
}

/// Decodes the route headers and returns the rest.
fn split_route<'a>(header: &[u8; LRH], rest: &'a [u8]) -> Result<(Route, &'a [u8]), ParseError> {
    let mut local = LocalRoute {
        source: u16::from_be_bytes([header[6], header[7]]),
        destination: u16::from_be_bytes([header[2], header[3]]),
        service_level: header[1] >> 4,
        virtual_lane: header[0] >> 4,
        global: None,
    };
    match header[1] & 3 {
        LNH_LOCAL => Ok((route(local, 0, 0, 0), rest)),
        LNH_GLOBAL => {
            let (ip, carried) = ipv6::split_for(NEXT_BTH, rest)?;
            if carried.len() + ipv6::SIZE != rest.len() {
                return Err(ParseError::IpLength(carried.len() as u16));
            }
            if let Network::V6 { source, destination } = ip.network {
                local.global = Some(GlobalRoute { source, destination });
            }
            Ok((route(local, ip.traffic_class, ip.hop_limit, ip.flow_label), carried))
        }
        other => Err(ParseError::LinkNextHeader(other)),
    }
}

fn route(local: LocalRoute, traffic_class: u8, hop_limit: u8, flow_label: u32) -> Route {
    Route { traffic_class, hop_limit, flow_label, ..local.into() }
}

/// A route without a GRH; all its other fields are zero.
impl From<LocalRoute> for Route {
    fn from(local: LocalRoute) -> Self {
        Self {
            source_mac: MacAddress::default(),
            destination_mac: MacAddress::default(),
            vlan: None,
            network: Network::InfiniBand(local),
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            udp_source_port: 0,
        }
    }
}

/// Verifies the ICRC over everything before it.
fn check_icrc(covered: &[u8], global: bool, received: [u8; icrc::SIZE]) -> Result<u32, ParseError> {
    let size = covered.len().min(HEAD);
    let (start, rest) = covered.split_at(size);
    let mut head = [0; HEAD];
    head[..size].copy_from_slice(start);
    mask(&mut head[..size], global);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..size]);
    crc.update(rest);
    let (computed, received) = (crc.finalize(), u32::from_le_bytes(received));
    if computed == received { Ok(received) } else { Err(ParseError::Icrc { received, computed }) }
}

impl GlobalRoute {
    /// A route between two GIDs, given as bytes.
    pub const fn new(source: [u8; 16], destination: [u8; 16]) -> Self {
        Self {
            source: Ipv6Addr::from_bits(u128::from_be_bytes(source)),
            destination: Ipv6Addr::from_bits(u128::from_be_bytes(destination)),
        }
    }
}

#[cfg(test)]
mod tests;
