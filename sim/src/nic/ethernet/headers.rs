//! Locates the headers of an Ethernet frame, and the fields that flows and hashes use.

use crate::wire::ROCE_UDP_PORT;
use bareverbs_prm::command::flow::FlowMatchHeaders;
use bareverbs_prm::ids::MacAddress;

pub(crate) const ETHERNET: usize = 14;
pub(crate) const TAG: usize = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ENCRYPTED: u8 = 50;
const AUTHENTICATED: u8 = 51;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ROCE_V1: u16 = 0x8915;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// IPv6 extension headers that the parser skips: hop-by-hop options, routing, destination options.
const STEPPED_OVER: [u8; 3] = [0, 43, 60];
const IPV6_FRAGMENT: u8 = 44;
/// Packets with more extension headers are not parsed further.
const MOST_EXTENSIONS: usize = 8;

/// The network layer of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkProtocol {
    /// Neither IPv4 nor IPv6, or an inconsistent IP header.
    Other,
    V4,
    V6,
}

/// Offsets and contents of the headers of one frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers {
    pub(crate) destination: MacAddress,
    source: MacAddress,
    /// Tag control information.
    pub(crate) vlan: Option<u16>,
    pub(crate) service_tag: bool,
    /// The EtherType after the VLAN tag, if there is one.
    ether_type: u16,
    pub(crate) network: NetworkProtocol,
    /// Offset of the network header.
    pub(crate) network_at: usize,
    /// Where the IP packet ends according to its header (padding may follow), or else where the frame ends.
    pub(crate) end: usize,
    /// Whether the frame contains the whole IP packet. Flows and hashes also use the headers of a truncated
    /// one.
    pub(crate) is_whole: bool,
    pub(crate) protocol: u8,
    /// Offset of the transport header, if the packet is whole or the first fragment.
    pub(crate) transport_at: Option<usize>,
    fragment: bool,
    source_ip: [u8; 16],
    destination_ip: [u8; 16],
}

/// Whether a packet is RoCE v1 or v2.
pub(in crate::nic) fn is_roce(frame: &[u8]) -> bool {
    Headers::parse(frame).is_some_and(|headers| headers.is_roce(frame))
}

impl Headers {
    /// Parses the headers of a frame. `None` if it is shorter than an Ethernet header.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let destination = MacAddress(*frame.first_chunk()?);
        let source = MacAddress(*frame.get(6..)?.first_chunk()?);
        let mut headers = Self {
            destination,
            source,
            vlan: None,
            service_tag: false,
            ether_type: word(frame, 12)?,
            network: NetworkProtocol::Other,
            network_at: ETHERNET,
            end: frame.len(),
            is_whole: true,
            protocol: 0,
            transport_at: None,
            fragment: false,
            source_ip: [0; 16],
            destination_ip: [0; 16],
        };
        headers.parse_tag(frame);
        match headers.ether_type {
            IPV4 => headers.parse_ipv4(frame),
            IPV6 => headers.parse_ipv6(frame),
            _ => None,
        };
        Some(headers)
    }

    fn parse_tag(&mut self, frame: &[u8]) {
        if !matches!(self.ether_type, CUSTOMER_TAG | SERVICE_TAG) {
            return;
        }
        let (Some(tag), Some(inner)) = (word(frame, ETHERNET), word(frame, ETHERNET + 2)) else { return };
        self.service_tag = self.ether_type == SERVICE_TAG;
        self.vlan = Some(tag);
        self.ether_type = inner;
        self.network_at += TAG;
    }

    /// `None` as soon as the header is inconsistent or exceeds the frame.
    fn parse_ipv4(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.network_at;
        let first = *frame.get(at)?;
        let header = usize::from(first & 0xf) * 4;
        let total = usize::from(word(frame, at + 2)?);
        if first >> 4 != 4 || header < IPV4_HEADER || total < header || at + header > frame.len() {
            return None;
        }
        self.network = NetworkProtocol::V4;
        self.set_end(at + total, frame);
        self.protocol = *frame.get(at + 9)?;
        self.source_ip[12..].copy_from_slice(frame.get(at + 12..at + 16)?);
        self.destination_ip[12..].copy_from_slice(frame.get(at + 16..at + 20)?);
        let fragment = word(frame, at + 6)?;
        self.fragment = fragment & 0x3fff != 0;
        self.transport_at = (!self.fragment).then_some(at + header);
        Some(())
    }

    fn parse_ipv6(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.network_at;
        if frame.get(at)? >> 4 != 6 || at + IPV6_HEADER > frame.len() {
            return None;
        }
        self.network = NetworkProtocol::V6;
        self.set_end(at + IPV6_HEADER + usize::from(word(frame, at + 4)?), frame);
        self.source_ip.copy_from_slice(frame.get(at + 8..at + 24)?);
        self.destination_ip.copy_from_slice(frame.get(at + 24..at + 40)?);
        self.protocol = *frame.get(at + 6)?;
        let mut next = at + IPV6_HEADER;
        for _ in 0..MOST_EXTENSIONS {
            if !STEPPED_OVER.contains(&self.protocol) || next + 8 > self.end {
                break;
            }
            self.protocol = *frame.get(next)?;
            next += 8 + usize::from(*frame.get(next + 1)?) * 8;
        }
        self.fragment = self.protocol == IPV6_FRAGMENT;
        self.transport_at = (!self.fragment && next <= self.end).then_some(next);
        Some(())
    }

    fn set_end(&mut self, end: usize, frame: &[u8]) {
        self.end = end.min(frame.len());
        self.is_whole = end <= frame.len();
    }

    /// Source and destination port of TCP or UDP.
    pub(crate) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let at = self.transport_at.filter(|_| matches!(self.protocol, TCP | UDP))?;
        let frame = frame.get(..self.end)?;
        Some((word(frame, at)?, word(frame, at + 2)?))
    }

    /// The security parameters index of IPsec (RFC 4302, RFC 4303).
    pub(crate) fn security_index<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let at = match self.protocol {
            ENCRYPTED => self.transport_at?,
            AUTHENTICATED => self.transport_at? + 4,
            _ => return None,
        };
        frame.get(..self.end)?.get(at..at + 4)
    }

    /// Addresses in the form that hashes take: four or sixteen bytes each.
    pub(crate) fn addresses(&self) -> (&[u8], &[u8]) {
        let from = if self.network == NetworkProtocol::V4 { 12 } else { 0 };
        (&self.source_ip[from..], &self.destination_ip[from..])
    }

    /// Whether the packet is RoCE v1 or v2.
    pub(crate) fn is_roce(&self, frame: &[u8]) -> bool {
        let version2 = self.protocol == UDP && self.ports(frame).is_some_and(|(_, to)| to == ROCE_UDP_PORT);
        self.ether_type == ROCE_V1 || version2
    }

    /// The fields that flow table entries compare.
    pub(crate) fn flow_headers(&self, frame: &[u8]) -> FlowMatchHeaders {
        let mut flow = FlowMatchHeaders::new();
        flow.set_smac_47_16(high(self.source)).set_smac_15_0(low(self.source));
        flow.set_dmac_47_16(high(self.destination)).set_dmac_15_0(low(self.destination));
        flow.set_ethertype(self.ether_type);
        if let Some(tag) = self.vlan {
            flow.set_cvlan_tag(!self.service_tag).set_svlan_tag(self.service_tag);
            flow.set_first_prio((tag >> 13) as u8)
                .set_first_cfi(tag >> 12 & 1 != 0)
                .set_first_vid(tag & 0xfff);
        }
        self.match_network(frame, &mut flow);
        self.match_transport(frame, &mut flow);
        flow
    }

    fn match_network(&self, frame: &[u8], flow: &mut FlowMatchHeaders) {
        let byte = |offset: usize| frame.get(self.network_at + offset).copied().unwrap_or(0);
        let class = match self.network {
            NetworkProtocol::Other => return,
            NetworkProtocol::V4 => {
                flow.set_ip_version(4).set_ttl_hoplimit(byte(8)).set_ipv4_ihl(byte(0) & 0xf);
                byte(1)
            }
            NetworkProtocol::V6 => {
                flow.set_ip_version(6).set_ttl_hoplimit(byte(7));
                byte(0) << 4 | byte(1) >> 4
            }
        };
        flow.set_ip_protocol(self.protocol)
            .set_ip_dscp(class >> 2)
            .set_ip_ecn(class & 3)
            .set_frag(self.fragment);
        flow.set_source_ip(self.source_ip).set_destination_ip(self.destination_ip);
    }

    fn match_transport(&self, frame: &[u8], flow: &mut FlowMatchHeaders) {
        let Some((source, destination)) = self.ports(frame) else { return };
        if self.protocol == UDP {
            flow.set_udp_sport(source).set_udp_dport(destination);
            return;
        }
        flow.set_tcp_sport(source).set_tcp_dport(destination);
        let flags = self.transport_at.and_then(|at| word(frame, at + 12)).unwrap_or(0);
        flow.set_tcp_flags(flags & 0x1ff);
    }
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn high(mac: MacAddress) -> u32 {
    let [a, b, c, d, ..] = mac.0;
    u32::from_be_bytes([a, b, c, d])
}

fn low(mac: MacAddress) -> u16 {
    u16::from_be_bytes([mac.0[4], mac.0[5]])
}
