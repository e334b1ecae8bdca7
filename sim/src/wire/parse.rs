//! From the bytes of a frame to a [`Packet`]. Every length, version and checksum is checked, then the ICRC.

use super::bth::Bth;
use super::ethernet::{self, EthernetHeader};
use super::extension::Extension;
use super::icrc::Carrier;
use super::opcode::BthOpcode;
use super::packet::Packet;
use super::route::{GlobalRoute, Network, Route};
use super::service::ServiceHeader;
use super::{icrc, infiniband, ipv4, ipv6, udp};
use core::fmt;

/// Why a frame is not a good RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// It ends inside a header.
    Truncated,
    /// Neither IPv4, IPv6 nor RoCE version 1: some other protocol.
    EtherType(u16),
    /// The version of the IP header is not that of the EtherType.
    IpVersion(u8),
    /// An IPv4 header of so many dwords, not five.
    IpOptions(u8),
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// The IP length is longer than the frame or shorter than the header.
    IpLength(u16),
    /// An IPv4 fragment.
    Fragment,
    /// Not UDP, or, behind a global route header, not InfiniBand's transport.
    IpProtocol(u8),
    /// Not the UDP port of RoCEv2.
    UdpPort(u16),
    /// The UDP length is not what IP carries.
    UdpLength(u16),
    /// The invariant CRC is wrong.
    Icrc {
        /// As received.
        received: u32,
        /// As computed.
        computed: u32,
    },
    /// Length of a local route header, in words, that is not that of the frame.
    LinkLength(u16),
    /// Link version other than 0.
    LinkVersion(u8),
    /// A local route header that neither the base transport header nor a global route header follows.
    LinkNextHeader(u8),
    /// The variant CRC of an InfiniBand link is wrong.
    VariantCrc,
    /// Transport header version.
    TransportVersion(u8),
    /// The frame has no room for the extension headers of the op-code.
    Extension(BthOpcode),
    /// The payload with its padding is no multiple of four, or is shorter than the padding.
    Pad(u8),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("frame refused: ")?;
        match self {
            Self::Truncated => f.write_str("it ends inside a header"),
            Self::EtherType(t) => write!(f, "EtherType {t:#06x} is neither IPv4, IPv6 nor RoCE version 1"),
            Self::IpVersion(v) => write!(f, "IP version {v} does not fit the EtherType"),
            Self::IpOptions(n) => write!(f, "IPv4 header of {n} dwords, RoCEv2 has 5"),
            Self::IpChecksum => f.write_str("IPv4 header checksum is wrong"),
            Self::IpLength(n) => write!(f, "IP length {n} does not fit the frame"),
            Self::Fragment => f.write_str("IPv4 fragment"),
            Self::IpProtocol(p) => write!(f, "next protocol {p} is not that of RoCE"),
            Self::UdpPort(p) => write!(f, "UDP port {p} is not 4791"),
            Self::UdpLength(n) => write!(f, "UDP length {n} is not what IP carries"),
            Self::Icrc { received, computed } => {
                write!(f, "ICRC {received:#010x} received, {computed:#010x} computed")
            }
            Self::LinkLength(n) => write!(f, "packet length of {n} words is not that of the frame"),
            Self::LinkVersion(v) => write!(f, "link version {v}, only 0 is known"),
            Self::LinkNextHeader(n) => write!(f, "link next header {n} is no InfiniBand transport"),
            Self::VariantCrc => f.write_str("the variant CRC is wrong"),
            Self::TransportVersion(v) => write!(f, "transport header version {v}, only 0 is known"),
            Self::Extension(o) => write!(f, "no room for the extension headers of {o}"),
            Self::Pad(n) => write!(f, "pad count {n} does not fit the payload"),
        }
    }
}

impl core::error::Error for ParseError {}

/// The meanings of an IP header.
pub struct IpHeader {
    pub network: Network,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub flow_label: u32,
}

/// Parses and verifies a frame. Bytes behind the IP length are Ethernet padding and are not looked at.
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

/// The global route header of version 1 and what it carries: it has the form of an IPv6 header.
fn split_route_header(bytes: &[u8]) -> Result<(IpHeader, &[u8]), ParseError> {
    let (header, carried) = ipv6::split_for(infiniband::NEXT_BTH, bytes)?;
    let network = match header.network {
        Network::V6 { source, destination } => Network::Version1(GlobalRoute { source, destination }),
        other => other,
    };
    Ok((IpHeader { network, ..header }, carried))
}

/// The IP header or global route header of a frame as it came; `None` if it has none.
pub fn network_header(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, datagram) = ethernet::split(frame).ok()?;
    datagram.get(..carrier(ethernet.ether_type).ok()?.ip())
}

/// Verifies the ICRC at the end of `transport` and takes it off.
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

/// What the IP datagram carries, without its ICRC.
pub(super) struct Transport<'a> {
    pub(super) bth: Bth,
    pub(super) service_header: ServiceHeader,
    pub(super) extension: Extension,
    pub(super) payload: &'a [u8],
}

pub(super) fn split_transport(body: &[u8]) -> Result<Transport<'_>, ParseError> {
    let (header, rest) = body.split_first_chunk::<{ Bth::SIZE }>().ok_or(ParseError::Truncated)?;
    let (bth, version) = Bth::from_bytes(header);
    if version != Bth::VERSION {
        return Err(ParseError::TransportVersion(version));
    }
    let short = ParseError::Extension(bth.opcode);
    let (service_header, rest) = ServiceHeader::split_from(bth.service, bth.opcode, rest).ok_or(short)?;
    let (extension, padded) = Extension::split_from(bth.opcode.extension(), rest).ok_or(short)?;
    let pad = ParseError::Pad(bth.pad_count);
    if padded.len() & 3 != 0 {
        return Err(pad);
    }
    let length = padded.len().checked_sub(usize::from(bth.pad_count)).ok_or(pad)?;
    Ok(Transport { bth, service_header, extension, payload: &padded[..length] })
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
