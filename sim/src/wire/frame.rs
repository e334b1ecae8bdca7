//! Encodes a [`PacketHeader`] and a payload as a frame.
//!
//! A [`HeaderTemplate`] precomputes what all packets of a connection share: the headers as the ICRC sees them, and the
//! bits in which the headers on the wire differ. A frame starts with the masked headers, so that the CRC takes one
//! pass; then the differing bits are flipped.

use super::bth::Bth;
use super::buffer::{Contents, FrameBuffer};
use super::extension::MAX_EXTENSION_SIZE;
use super::icrc::Carrier;
use super::packet::PacketHeader;
use super::route::{LocalRoute, Network, Route};
use super::service::{MAX_SERVICE_HEADER, ServiceClass, ServiceHeader};
use super::{ethernet, icrc, infiniband, ipv4, ipv6, udp};
use bareverbs_prm::ids::Qpn;
use core::fmt;

/// Largest payload of a packet: the largest path MTU.
pub const MAX_PAYLOAD: usize = 4096;

/// Bytes of the longest headers up to and including the BTH, rounded up to a vector register.
const MAX_HEADER: usize = (ethernet::MAX_SIZE + ipv6::SIZE + udp::SIZE + Bth::SIZE).next_multiple_of(16);

/// The headers of a connection up to and including the BTH.
///
/// ```
/// use bareverbs_prm::ids::Qpn;
/// use bareverbs_sim::wire::{DEFAULT_PARTITION_KEY, HeaderTemplate, LocalRoute, Route, ServiceClass};
///
/// // Datagrams over InfiniBand from LID 1 to the queue pair 0x40 of LID 2.
/// let local = LocalRoute { source: 1, destination: 2, service_level: 0, virtual_lane: 0, global: None };
/// let template = HeaderTemplate::new(&Route::from(local), Qpn::from_low_bits(0x40), DEFAULT_PARTITION_KEY);
/// let datagrams = template.of_service(ServiceClass::UnreliableDatagram);
/// assert_eq!(format!("{datagrams:?}"), "HeaderTemplate { 20 bytes to QP 0x40 }");
/// ```
#[derive(Clone)]
pub struct HeaderTemplate {
    /// The headers as the ICRC sees them: ones before the IP header, lengths zero.
    masked: [u8; MAX_HEADER],
    /// Bits in which the headers on the wire differ. There the checksum is zero.
    unmask: [u8; MAX_HEADER],
    size: u8,
    ip_at: u8,
    ipv4_sum: u32,
    /// The length fields of Ethernet frames.
    lengths: [LengthField; 2],
    bth: Bth,
    link: Link,
    /// The route as the peer decodes it.
    route: Route,
    /// CRC of no bytes. Creating one detects CPU features, which is too slow per packet.
    crc: crc32fast::Hasher,
}

/// Offsets in a template's headers.
struct Geometry {
    size: usize,
    ip_at: usize,
    ipv4_sum: u32,
    bth: Bth,
    link: Link,
}

/// A length in the headers: the bytes of the frame from an offset to the end of the ICRC.
#[derive(Debug, Clone, Copy, Default)]
struct LengthField {
    /// Offset of the field.
    at: u8,
    /// Offset of the first byte that it counts.
    from: u8,
}

/// The layers below the transport.
#[derive(Debug, Clone, Copy)]
enum Link {
    Ethernet(Carrier),
    /// LRH, optional GRH, and VCRC.
    InfiniBand {
        global: bool,
    },
}

impl HeaderTemplate {
    /// Headers for packets on `route` to queue pair `destination` of a reliable connection.
    pub fn new(route: &Route, destination: Qpn, partition_key: u16) -> Self {
        let bth = blank_bth(destination, partition_key);
        match route.network {
            Network::V4 { source, destination } => {
                let header = ipv4::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv4, &header, ipv4::sum(&header), bth)
            }
            Network::V6 { source, destination } => {
                let header = ipv6::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv6, &header, 0, bth)
            }
            Network::Version1(global) => {
                let header = infiniband::route_header(route, &global);
                Self::ethernet(route, Carrier::RouteHeader, &header, 0, bth)
            }
            Network::InfiniBand(local) => Self::infiniband(route, &local, bth),
        }
    }

    /// `ipv4_sum` is the sum of the words of the IPv4 header.
    fn ethernet(route: &Route, carrier: Carrier, ip: &[u8], ipv4_sum: u32, bth: Bth) -> Self {
        let mut wire = [0; MAX_HEADER];
        let ip_at = write_link_and_ip(route, ether_type(carrier), ip, &mut wire);
        if carrier.has_udp() {
            let udp_at = ip_at + ip.len();
            wire[udp_at..udp_at + udp::SIZE].copy_from_slice(&udp::header(route.udp_source_port));
        }
        let size = ip_at + carrier.size() + Bth::SIZE;
        wire[size - Bth::SIZE..size].copy_from_slice(&bth.to_bytes());
        let mut masked = wire;
        masked[ip_at - icrc::PREFIX..ip_at].fill(0xff);
        icrc::mask(&mut masked[ip_at..size], carrier);
        let link = Link::Ethernet(carrier);
        Self::from_headers(route, &wire, masked, Geometry { size, ip_at, ipv4_sum, bth, link })
    }

    /// Builds InfiniBand headers: the LRH takes the place of the ones that RoCE has before the IP header.
    fn infiniband(route: &Route, local: &LocalRoute, bth: Bth) -> Self {
        let mut wire = [0; MAX_HEADER];
        let headers = infiniband::RouteHeaders::new(route, local);
        wire[..headers.as_bytes().len()].copy_from_slice(headers.as_bytes());
        let (ip_at, size) = (infiniband::LRH, headers.as_bytes().len() + Bth::SIZE);
        wire[size - Bth::SIZE..size].copy_from_slice(&bth.to_bytes());
        let (mut masked, global) = (wire, headers.has_global);
        infiniband::mask(&mut masked[..size], global);
        let link = Link::InfiniBand { global };
        Self::from_headers(route, &wire, masked, Geometry { size, ip_at, ipv4_sum: 0, bth, link })
    }

    fn from_headers(
        route: &Route,
        wire: &[u8; MAX_HEADER],
        masked: [u8; MAX_HEADER],
        geometry: Geometry,
    ) -> Self {
        let Geometry { size, ip_at, ipv4_sum, bth, link } = geometry;
        let mut unmask = masked;
        unmask.iter_mut().zip(wire).for_each(|(bits, wire)| *bits ^= wire);
        let lengths = match link {
            Link::Ethernet(carrier) => LengthField::of_carrier(carrier, ip_at),
            Link::InfiniBand { .. } => Default::default(),
        };
        let (size, ip_at) = (size as u8, ip_at as u8);
        Self {
            masked,
            unmask,
            size,
            ip_at,
            ipv4_sum,
            lengths,
            bth,
            link,
            route: route.as_received(),
            crc: crc32fast::Hasher::new(),
        }
    }

    /// Offset of the extension headers.
    const fn size(&self) -> usize {
        self.size as usize
    }

    /// Offset of the IP header or GRH.
    const fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    /// Bytes of the checksums after the payload.
    const fn trailer(&self) -> usize {
        match self.link {
            Link::Ethernet(_) => icrc::SIZE,
            Link::InfiniBand { .. } => icrc::SIZE + infiniband::VCRC,
        }
    }

    /// The same headers for another service class.
    #[must_use]
    pub const fn of_service(mut self, service: ServiceClass) -> Self {
        self.bth.service = service;
        self.masked[self.size() - Bth::SIZE] = service.join(self.bth.opcode);
        self
    }

    /// The same headers with BECN set (RoCEv2 A17.9.3).
    #[must_use]
    pub const fn with_backward_notification(mut self) -> Self {
        self.bth.becn = true;
        self.unmask[self.size() - Bth::SIZE + Bth::CONGESTION] = !Bth::BECN;
        self
    }

    /// Frame length in bytes for a packet with `payload_length` bytes of payload.
    pub fn frame_size(&self, header: &PacketHeader, payload_length: usize) -> usize {
        let extensions = header.service_header.size() + header.extension.kind().size();
        self.size() + extensions + payload_length + pad(payload_length) + self.trailer()
    }
}

impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderTemplate {{ {} bytes to QP {} }}", self.size(), self.bth.destination)
    }
}

/// Writes the Ethernet and IP headers. Returns the offset of the IP header.
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
    // A path that has never migrated counts as migrated: IBTA v1.4 §17.2.8.
    Bth { migration: true, partition_key, destination, ..Bth::NONE }
}

const fn pad(payload_length: usize) -> usize {
    payload_length.wrapping_neg() & 3
}

/// The payload exceeds the largest path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadTooLong {
    /// Bytes requested.
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

/// A frame under construction: the headers are written; fill the payload, then call [`FrameWriter::finish`].
///
/// ```
/// use bareverbs_prm::ids::Qpn;
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::wire::{
///     BthOpcode, DEFAULT_PARTITION_KEY, Extension, FrameBuffer, FrameWriter, HeaderTemplate, PacketHeader,
///     ServiceHeader, parse,
/// };
/// # use bareverbs_prm::ids::MacAddress;
/// # use bareverbs_sim::wire::{Network, Route};
///
/// # let route = Route {
/// #     source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
/// #     destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
/// #     vlan: None,
/// #     network: Network::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
/// #     traffic_class: 0,
/// #     hop_limit: 64,
/// #     flow_label: 0,
/// #     udp_source_port: 0xc000,
/// # };
/// let template = HeaderTemplate::new(&route, Qpn::from_low_bits(0x40), DEFAULT_PARTITION_KEY);
/// let header = PacketHeader {
///     opcode: BthOpcode::SendOnly,
///     psn: Psn::new(7),
///     solicited: false,
///     ack_request: true,
///     service_header: ServiceHeader::None,
///     extension: Extension::None,
/// };
/// let mut frame = FrameBuffer::new();
/// let mut writer = FrameWriter::begin(&mut frame, &template, &header, 5).unwrap();
/// writer.payload_mut().copy_from_slice(b"hello");
/// let icrc = writer.finish();
/// let packet = parse(&frame).unwrap();
/// assert_eq!((packet.payload, packet.bth.psn, packet.icrc), (&b"hello"[..], Psn::new(7), icrc));
/// ```
#[must_use = "a frame without its ICRC is refused by everybody"]
pub struct FrameWriter<'a> {
    frame: &'a mut FrameBuffer,
    template: &'a HeaderTemplate,
}

impl<'a> FrameWriter<'a> {
    /// Starts a frame in `frame`, whose old contents are lost. The payload is unspecified until it is filled.
    // A call would write the header to memory first, which costs as much as encoding it.
    #[inline(always)]
    pub fn begin(
        frame: &'a mut FrameBuffer,
        template: &'a HeaderTemplate,
        header: &PacketHeader,
        payload_length: usize,
    ) -> Result<Self, PayloadTooLong> {
        if payload_length > MAX_PAYLOAD {
            return Err(PayloadTooLong { length: payload_length });
        }
        let length = template.frame_size(header, payload_length);
        let (bytes, contents) = frame.begin(length);
        contents.route = template.route;
        contents.bth = template.bth;
        set_own_fields(&mut contents.bth, header, pad(payload_length));
        contents.service_header = header.service_header;
        contents.extension = header.extension;
        write_masked_header(bytes, template, &contents.bth, length);
        let payload_at = write_extensions(bytes, template.size(), contents);
        (contents.payload_at, contents.payload_length) = (payload_at, payload_length);
        Ok(Self { frame, template })
    }

    /// The payload to fill.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.frame.payload_mut()
    }

    /// Adds padding and checksums. Returns the ICRC.
    #[inline(always)]
    pub fn finish(self) -> u32 {
        let Self { frame, template } = self;
        let (length, payload_end) = (frame.len(), frame.payload_end());
        let bytes = frame.storage_mut();
        let end = length - template.trailer();
        // Up to three bytes of padding. The checksum, which follows, overwrites the rest.
        bytes[payload_end..][..icrc::SIZE].fill(0);
        let mut crc = template.crc.clone();
        crc.update(&bytes[template.ip_at() - icrc::PREFIX..end]);
        let crc = crc.finalize();
        bytes[end..][..icrc::SIZE].copy_from_slice(&crc.to_le_bytes());
        if let Some(header) = bytes.first_chunk_mut() {
            unmask_header(header, template, length);
        }
        if matches!(template.link, Link::InfiniBand { .. }) {
            let behind = end + icrc::SIZE;
            let variant = infiniband::variant_crc(&bytes[..behind]);
            bytes[behind..][..infiniband::VCRC].copy_from_slice(&variant);
        }
        frame.finish(crc);
        crc
    }
}

/// Turns the masked headers into those on the wire. Every buffer has room for the longest ones.
#[inline]
fn unmask_header(header: &mut [u8; MAX_HEADER], template: &HeaderTemplate, length: usize) {
    header.iter_mut().zip(&template.unmask).for_each(|(byte, bits)| *byte ^= bits);
    if matches!(template.link, Link::Ethernet(Carrier::Ipv4)) {
        let ip_at = template.ip_at();
        let checksum = ipv4::checksum(template.ipv4_sum, (length - ip_at) as u16);
        put_u16(header, ip_at + ipv4::CHECKSUM, checksum);
    }
}

/// Sets the fields in which the packets of a connection differ.
fn set_own_fields(bth: &mut Bth, header: &PacketHeader, pad_count: usize) {
    (bth.opcode, bth.psn) = (header.opcode, header.psn);
    (bth.solicited, bth.ack_request) = (header.solicited, header.ack_request);
    bth.pad_count = pad_count as u8;
}

/// Writes the headers of a frame of `length` bytes up to and including the BTH as the ICRC sees them. May overwrite
/// bytes after them.
#[inline(always)]
fn write_masked_header(bytes: &mut [u8], template: &HeaderTemplate, bth: &Bth, length: usize) {
    let bth_at = template.size() - Bth::SIZE;
    let header = &mut bytes[..MAX_HEADER];
    header.copy_from_slice(&template.masked);
    if let Some(bytes) = header[bth_at..].first_chunk_mut() {
        bth.write_own(bytes);
    }
    match template.link {
        Link::Ethernet(_) => template.lengths.iter().for_each(|field| field.write(header, length)),
        Link::InfiniBand { global } => infiniband::write_lengths(header, length, global),
    }
}

/// Writes the headers between BTH and payload; every buffer has room for them. Returns the offset of the payload.
#[inline(always)]
fn write_extensions(bytes: &mut [u8], mut at: usize, contents: &Contents) -> usize {
    let Contents { service_header, extension, .. } = contents;
    if *service_header != ServiceHeader::None {
        bytes[at..at + MAX_SERVICE_HEADER].copy_from_slice(&service_header.to_bytes());
        at += service_header.size();
    }
    if let Some(place) = bytes[at..].first_chunk_mut::<MAX_EXTENSION_SIZE>() {
        extension.write(place);
    }
    at + extension.kind().size()
}

impl LengthField {
    /// The length fields of IP and UDP behind an IP header at `ip_at`. Without UDP both are the one of IP.
    fn of_carrier(carrier: Carrier, ip_at: usize) -> [Self; 2] {
        let behind_ip = ip_at + carrier.ip();
        let ip = match carrier {
            Carrier::Ipv4 => Self::new(ip_at + ipv4::LENGTH, ip_at),
            Carrier::Ipv6 | Carrier::RouteHeader => Self::new(ip_at + ipv6::LENGTH, behind_ip),
        };
        let udp = Self::new(behind_ip + udp::LENGTH, behind_ip);
        [ip, if carrier.has_udp() { udp } else { ip }]
    }

    const fn new(at: usize, from: usize) -> Self {
        Self { at: at as u8, from: from as u8 }
    }

    /// Writes the field for a frame of `length` bytes. It cannot overflow, because the payload is at most 4096 bytes.
    #[inline]
    fn write(self, header: &mut [u8], length: usize) {
        put_u16(header, self.at.into(), (length - usize::from(self.from)) as u16);
    }
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
