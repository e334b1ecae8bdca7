//! Decodes a frame into a [`Packet`]. Checks every length, version and checksum, then the ICRC.

use super::bth::Bth;
use super::ethernet::{self, EthernetHeader};
use super::icrc::Carrier;
use super::packet::Packet;
use super::parse_error::ParseError;
use super::route::{GlobalRoute, IpHeader, Network, Route};
use super::transport_headers::{Transport, split_transport};
use super::{icrc, infiniband, ipv4, ipv6, udp};

/// Parses and verifies a frame. Bytes beyond the IP length are Ethernet padding and are ignored.
pub fn parse(frame: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (ethernet, datagram) = ethernet::split(frame)?;
    let carrier = carrier(ethernet.ether_type)?;
    let (ip, carried) = match carrier {
        Carrier::Ipv4 => ipv4::split(datagram)?,
        Carrier::Ipv6 => ipv6::split(datagram)?,
        Carrier::RouteHeader => split_route_header(datagram)?,
    };
    let (udp_source_port, transport) = if carrier.has_udp() { udp::split(carried)? } else { (0, carried) };
    let (body, icrc) = check_icrc(datagram, carrier, transport)?;
    let Transport { bth, service_header, extension, payload } = split_transport(body)?;
    let route = route(&ethernet, &ip, udp_source_port);
    Ok(Packet { route, bth, service_header, extension, payload, icrc })
}

fn carrier(ether_type: u16) -> Result<Carrier, ParseError> {
    match ether_type {
        ethernet::IPV4 => Ok(Carrier::Ipv4),
        ethernet::IPV6 => Ok(Carrier::Ipv6),
        ethernet::ROCE => Ok(Carrier::RouteHeader),
        other => Err(ParseError::EtherType(other)),
    }
}

/// Splits off the GRH of version 1, which has the form of an IPv6 header.
fn split_route_header(bytes: &[u8]) -> Result<(IpHeader, &[u8]), ParseError> {
    let (header, carried) = ipv6::split_for(infiniband::NEXT_BTH, bytes)?;
    let network = match header.network {
        Network::V6 { source, destination } => Network::Version1(GlobalRoute { source, destination }),
        other => other,
    };
    Ok((IpHeader { network, ..header }, carried))
}

/// The IP header or GRH of a received frame; `None` if it has none.
pub fn network_header(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, datagram) = ethernet::split(frame).ok()?;
    datagram.get(..carrier(ethernet.ether_type).ok()?.ip())
}

/// Verifies the ICRC at the end of `transport` and strips it.
fn check_icrc<'a>(
    datagram: &[u8],
    carrier: Carrier,
    transport: &'a [u8],
) -> Result<(&'a [u8], u32), ParseError> {
    let (body, tail) = transport.split_last_chunk::<{ icrc::SIZE }>().ok_or(ParseError::Truncated)?;
    if body.len() < Bth::SIZE {
        return Err(ParseError::Truncated);
    }
    let received = u32::from_le_bytes(*tail);
    let covered = datagram.get(..carrier.size() + body.len()).ok_or(ParseError::Truncated)?;
    let computed = icrc::compute(covered, carrier);
    if computed == received { Ok((body, received)) } else { Err(ParseError::Icrc { received, computed }) }
}

fn route(ethernet: &EthernetHeader, ip: &IpHeader, udp_source_port: u16) -> Route {
    Route {
        source_mac: ethernet.source,
        destination_mac: ethernet.destination,
        vlan: ethernet.vlan,
        network: ip.network,
        traffic_class: ip.traffic_class,
        hop_limit: ip.hop_limit,
        flow_label: ip.flow_label,
        udp_source_port,
    }
}
