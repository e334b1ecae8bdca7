//! From a [`PacketHeader`] and a payload to the bytes of a frame.
//!
//! All that is the same in every packet of a connection is written once, into a [`HeaderTemplate`], as it travels and
//! as the ICRC sees it. A frame begins as the masked header with ones in front of it, which makes the CRC one pass;
//! then the true header is copied over it.

use super::bth::Bth;
use super::extension::MAX_EXTENSION_SIZE;
use super::icrc::Carrier;
use super::packet::PacketHeader;
use super::route::{LocalRoute, Network, Route};
use super::service::ServiceClass;
use super::{ethernet, icrc, infiniband, ipv4, ipv6, udp};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use core::fmt;

/// Bytes of payload that a packet can carry: the largest path MTU.
pub const MAX_PAYLOAD: usize = 4096;

pub(super) const MAX_HEADER: usize = ethernet::MAX_SIZE + ipv6::SIZE + udp::SIZE + Bth::SIZE;

/// The headers of a connection up to and with the BTH.
#[derive(Clone)]
pub struct HeaderTemplate {
    /// As it travels, with lengths and checksum zero.
    wire: [u8; MAX_HEADER],
    /// As the ICRC sees it, with ones before the IP header.
    masked: [u8; MAX_HEADER],
    size: usize,
    ip_at: usize,
    ipv4_sum: u32,
    bth: Bth,
    link: Link,
}

/// What is below the transport.
#[derive(Debug, Clone, Copy)]
enum Link {
    Ethernet(Carrier),
    /// A local route header, a global one if so, and a variant CRC at the end.
    InfiniBand {
        global: bool,
    },
}

impl HeaderTemplate {
    /// Headers for packets of `route` to queue pair `destination`, of a reliable connection.
    pub fn new(route: &Route, destination: Qpn, partition_key: u16) -> Self {
        let bth = blank_bth(destination, partition_key);
        match route.network {
            Network::V4 { source, destination } => {
                let header = ipv4::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv4, (&header, ipv4::sum(&header)), bth)
            }
            Network::V6 { source, destination } => {
                let header = ipv6::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv6, (&header, 0), bth)
            }
            Network::Version1(global) => {
                let header = infiniband::route_header(route, &global);
                Self::ethernet(route, Carrier::RouteHeader, (&header, 0), bth)
            }
            Network::InfiniBand(local) => Self::infiniband(route, &local, bth),
        }
    }

    /// `ipv4_sum` is that of the words of an IPv4 header.
    fn ethernet(route: &Route, carrier: Carrier, (ip, ipv4_sum): (&[u8], u32), bth: Bth) -> Self {
        let mut wire = [0; MAX_HEADER];
        let ip_at = write_link_and_ip(route, ether_type(carrier), ip, &mut wire);
        if carrier.has_udp() {
            let udp_at = ip_at + ip.len();
            wire[udp_at..udp_at + udp::SIZE].copy_from_slice(&udp::header(route.udp_source_port));
        }
        let size = ip_at + carrier.size() + Bth::SIZE;
        let mut masked = wire;
        masked[ip_at - icrc::PREFIX..ip_at].fill(0xff);
        icrc::mask(&mut masked[ip_at..size], carrier);
        Self { wire, masked, size, ip_at, ipv4_sum, bth, link: Link::Ethernet(carrier) }
    }

    /// The local route header is where RoCE has ones in front of the IP header.
    fn infiniband(route: &Route, local: &LocalRoute, bth: Bth) -> Self {
        let mut wire = [0; MAX_HEADER];
        let ip_size = infiniband::write(route, local, &mut wire);
        let (ip_at, size) = (infiniband::LRH, infiniband::LRH + ip_size + Bth::SIZE);
        let (mut masked, global) = (wire, ip_size > 0);
        infiniband::mask(&mut masked[..size], global);
        Self { wire, masked, size, ip_at, ipv4_sum: 0, bth, link: Link::InfiniBand { global } }
    }

    /// Bytes of the checksums behind the payload.
    const fn trailer(&self) -> usize {
        match self.link {
            Link::Ethernet(_) => icrc::SIZE,
            Link::InfiniBand { .. } => icrc::SIZE + infiniband::VCRC,
        }
    }

    /// The same for another class of service.
    #[must_use]
    pub const fn of_service(mut self, service: ServiceClass) -> Self {
        self.bth.service = service;
        self
    }

    /// The same with the bit that tells the sender of congestion (RoCEv2 A17.9.3).
    #[must_use]
    pub const fn with_backward_notification(mut self) -> Self {
        self.bth.becn = true;
        self
    }

    /// Bytes of the frame of a packet with `payload_length` bytes of payload.
    pub fn frame_size(&self, header: &PacketHeader, payload_length: usize) -> usize {
        let extensions = header.service_header.size() + header.extension.kind().size();
        self.size + extensions + payload_length + pad(payload_length) + self.trailer()
    }

    fn bth(&self, header: &PacketHeader, pad_count: usize) -> [u8; Bth::SIZE] {
        let PacketHeader { opcode, psn, solicited, ack_request, .. } = *header;
        Bth { opcode, psn, solicited, ack_request, pad_count: pad_count as u8, ..self.bth }.to_bytes()
    }
}

impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderTemplate {{ {} bytes to QP {} }}", self.size, self.bth.destination)
    }
}

/// Writes Ethernet and IP; gives where IP is.
fn write_link_and_ip(route: &Route, ether_type: u16, ip: &[u8], bytes: &mut [u8; MAX_HEADER]) -> usize {
    let mut link = [0; ethernet::MAX_SIZE];
    let at = ethernet::write(route, ether_type, &mut link);
    bytes[..at].copy_from_slice(&link[..at]);
    bytes[at..at + ip.len()].copy_from_slice(ip);
    at
}

const fn ether_type(carrier: Carrier) -> u16 {
    match carrier {
        Carrier::Ipv4 => ethernet::IPV4,
        Carrier::Ipv6 => ethernet::IPV6,
        Carrier::RouteHeader => ethernet::ROCE,
    }
}

fn blank_bth(destination: Qpn, partition_key: u16) -> Bth {
    Bth {
        service: ServiceClass::ReliableConnection,
        opcode: super::BthOpcode::Unknown(0x1f),
        solicited: false,
        // A path that was never migrated counts as migrated: IBTA v1.4 §17.2.8.
        migration: true,
        pad_count: 0,
        partition_key,
        fecn: false,
        becn: false,
        destination,
        ack_request: false,
        psn: Psn::new(0),
    }
}

const fn pad(payload_length: usize) -> usize {
    payload_length.wrapping_neg() & 3
}

/// The payload does not fit the largest path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadTooLong {
    /// Bytes that were asked for.
    pub length: usize,
}

impl fmt::Display for PayloadTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot write a frame with {} bytes of payload: at most {MAX_PAYLOAD} fit a packet",
            self.length
        )
    }
}

impl core::error::Error for PayloadTooLong {}

/// A frame under construction: headers are written, the payload is to be filled, then [`FrameWriter::finish`].
#[must_use = "a frame without its ICRC is refused by everybody"]
pub struct FrameWriter<'a> {
    frame: &'a mut Vec<u8>,
    template: &'a HeaderTemplate,
    bth: [u8; Bth::SIZE],
    payload_at: usize,
    payload_length: usize,
}

impl<'a> FrameWriter<'a> {
    /// Begins a frame in `frame`, whose old content and length are forgotten and whose capacity is used again. The
    /// bytes of the payload are undefined until they are filled.
    pub fn begin(
        frame: &'a mut Vec<u8>,
        template: &'a HeaderTemplate,
        header: &PacketHeader,
        payload_length: usize,
    ) -> Result<Self, PayloadTooLong> {
        if payload_length > MAX_PAYLOAD {
            return Err(PayloadTooLong { length: payload_length });
        }
        frame.resize(template.frame_size(header, payload_length), 0);
        let bth = template.bth(header, pad(payload_length));
        let (extension, extension_size) = header.extension.to_bytes();
        let extension_at = template.size + header.service_header.size();
        let payload_at = extension_at + extension_size;
        frame[template.size..extension_at]
            .copy_from_slice(&header.service_header.to_bytes()[..header.service_header.size()]);
        write_extension(frame, extension_at, &extension, extension_size);
        let mut writer = Self { frame, template, bth, payload_at, payload_length };
        writer.write_masked_header();
        Ok(writer)
    }

    /// The payload, to be filled.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.payload_at..self.payload_at + self.payload_length]
    }

    /// Adds padding and checksums, and gives the ICRC.
    pub fn finish(mut self) -> u32 {
        let end = self.frame.len() - self.template.trailer();
        self.frame[self.payload_at + self.payload_length..end].fill(0);
        let crc = crc32fast::hash(&self.frame[self.template.ip_at - icrc::PREFIX..end]);
        let behind = end + icrc::SIZE;
        self.frame[end..behind].copy_from_slice(&crc.to_le_bytes());
        self.write_wire_header();
        if matches!(self.template.link, Link::InfiniBand { .. }) {
            let variant = infiniband::variant_crc(&self.frame[..behind]);
            self.frame[behind..].copy_from_slice(&variant);
        }
        crc
    }

    fn write_masked_header(&mut self) {
        let HeaderTemplate { size, .. } = *self.template;
        let mut header = self.template.masked;
        let bth_at = size - Bth::SIZE;
        header[bth_at..size].copy_from_slice(&self.bth);
        header[bth_at + Bth::CONGESTION] = 0xff;
        self.write_lengths(&mut header);
        self.frame[..size].copy_from_slice(&header[..size]);
    }

    fn write_wire_header(&mut self) {
        let HeaderTemplate { size, ip_at, ipv4_sum, link, .. } = *self.template;
        let mut header = self.template.wire;
        header[size - Bth::SIZE..size].copy_from_slice(&self.bth);
        let ip_length = self.write_lengths(&mut header);
        if matches!(link, Link::Ethernet(Carrier::Ipv4)) {
            let checksum = ipv4::checksum(ipv4_sum, ip_length).to_be_bytes();
            let at = ip_at + ipv4::CHECKSUM;
            header[at..at + 2].copy_from_slice(&checksum);
        }
        self.frame[..size].copy_from_slice(&header[..size]);
    }

    /// Writes the lengths of the headers and gives that of IP. They fit, since the payload is at most 4096.
    fn write_lengths(&self, header: &mut [u8; MAX_HEADER]) -> u16 {
        match self.template.link {
            Link::Ethernet(carrier) => self.write_ip_lengths(carrier, header),
            Link::InfiniBand { global } => {
                infiniband::write_lengths(header, self.frame.len(), global);
                0
            }
        }
    }

    fn write_ip_lengths(&self, carrier: Carrier, header: &mut [u8; MAX_HEADER]) -> u16 {
        let ip_at = self.template.ip_at;
        let datagram = self.frame.len() - ip_at;
        let carried = (datagram - carrier.ip()) as u16;
        let (field, ip_length) = match carrier {
            Carrier::Ipv4 => (ipv4::LENGTH, datagram as u16),
            Carrier::Ipv6 | Carrier::RouteHeader => (ipv6::LENGTH, carried),
        };
        put_u16(header, ip_at + field, ip_length);
        if carrier.has_udp() {
            put_u16(header, ip_at + carrier.ip() + udp::LENGTH, carried);
        }
        ip_length
    }
}

fn write_extension(frame: &mut [u8], at: usize, bytes: &[u8; MAX_EXTENSION_SIZE], size: usize) {
    frame[at..at + size].copy_from_slice(&bytes[..size]);
}

fn put_u16(bytes: &mut [u8; MAX_HEADER], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
