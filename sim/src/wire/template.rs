//! The headers that all packets of a connection share, up to and including the BTH.
//!
//! A [`RouteTemplate`] has those of a route: the headers as the ICRC sees them, and the bits in which the headers on the
//! wire differ. A [`HeaderTemplate`] adds what a connection has for itself. Connections with the same addresses can
//! share the route, so that a device with very many of them need not fetch it from memory for every packet.

use super::bth::Bth;
use super::icrc::Carrier;
use super::packet::PacketHeader;
use super::route::{LocalRoute, Network, Route};
use super::service::ServiceClass;
use super::{ethernet, icrc, infiniband, ipv4, ipv6, udp};
use bareverbs_prm::ids::Qpn;
use core::borrow::Borrow;
use core::fmt;

/// Bytes of the longest headers up to and including the BTH, rounded up to a vector register.
pub(super) const MAX_HEADER: usize =
    (ethernet::MAX_SIZE + ipv6::SIZE + udp::SIZE + Bth::SIZE).next_multiple_of(16);
/// Bytes at the end of the headers that a connection has for itself: the UDP header, or as many bytes of what is in its
/// place, and the BTH.
const OWN: usize = udp::SIZE + Bth::SIZE;

/// The headers of a route.
///
/// ```
/// use bareverbs_sim::wire::{LocalRoute, Route, RouteTemplate};
///
/// let local = LocalRoute { source: 1, destination: 2, service_level: 0, virtual_lane: 0, global: None };
/// let template = RouteTemplate::new(&local.into());
/// assert!(template.is_of(&local.into()));
/// assert!(!template.is_of(&LocalRoute { destination: 3, ..local }.into()));
/// ```
#[derive(Clone)]
pub struct RouteTemplate {
    /// The headers as the ICRC sees them: ones before the IP header, lengths zero. The last [`OWN`] bytes are those of
    /// no connection.
    pub(super) masked: [u8; MAX_HEADER],
    /// Bits in which the headers on the wire differ. There the checksum is zero.
    pub(super) unmask: [u8; MAX_HEADER],
    size: u8,
    ip_at: u8,
    pub(super) ipv4_sum: u32,
    /// The length fields of Ethernet frames.
    pub(super) lengths: [LengthField; 2],
    pub(super) link: Link,
    /// The route as the peer decodes it, without a UDP source port.
    pub(super) route: Route,
    /// Its addresses in the packets of the peer.
    reversed: Network,
    /// CRC of no bytes. Creating one detects CPU features, which is too slow per packet.
    pub(super) crc: crc32fast::Hasher,
}

/// Offsets in a template's headers.
struct Geometry {
    size: usize,
    ip_at: usize,
    ipv4_sum: u32,
    link: Link,
}

/// A length in the headers: the bytes of the frame from an offset to the end of the ICRC.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LengthField {
    /// Offset of the field.
    at: u8,
    /// Offset of the first byte that it counts.
    from: u8,
}

/// The layers below the transport.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    Ethernet(Carrier),
    /// LRH, optional GRH, and VCRC.
    InfiniBand {
        global: bool,
    },
}

impl RouteTemplate {
    /// The headers for packets on `route`, whatever their UDP source port is.
    pub fn new(route: &Route) -> Self {
        match route.network {
            Network::V4 { source, destination } => {
                let header = ipv4::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv4, &header, ipv4::sum(&header))
            }
            Network::V6 { source, destination } => {
                let header = ipv6::header(route, source, destination);
                Self::ethernet(route, Carrier::Ipv6, &header, 0)
            }
            Network::Version1(global) => {
                let header = infiniband::route_header(route, &global);
                Self::ethernet(route, Carrier::RouteHeader, &header, 0)
            }
            Network::InfiniBand(local) => Self::infiniband(route, &local),
        }
    }

    /// `ipv4_sum` is the sum of the words of the IPv4 header.
    fn ethernet(route: &Route, carrier: Carrier, ip: &[u8], ipv4_sum: u32) -> Self {
        let mut wire = [0; MAX_HEADER];
        let ip_at = write_link_and_ip(route, ether_type(carrier), ip, &mut wire);
        if carrier.has_udp() {
            let udp_at = ip_at + ip.len();
            wire[udp_at..udp_at + udp::SIZE].copy_from_slice(&udp::header(0));
        }
        let size = ip_at + carrier.size() + Bth::SIZE;
        let mut masked = wire;
        masked[ip_at - icrc::PREFIX..ip_at].fill(0xff);
        icrc::mask(&mut masked[ip_at..size], carrier);
        let link = Link::Ethernet(carrier);
        Self::from_headers(route, &wire, masked, Geometry { size, ip_at, ipv4_sum, link })
    }

    /// Builds InfiniBand headers: the LRH takes the place of the ones that RoCE has before the IP header.
    fn infiniband(route: &Route, local: &LocalRoute) -> Self {
        let mut wire = [0; MAX_HEADER];
        let headers = infiniband::RouteHeaders::new(route, local);
        wire[..headers.as_bytes().len()].copy_from_slice(headers.as_bytes());
        let (ip_at, size) = (infiniband::LRH, headers.as_bytes().len() + Bth::SIZE);
        let (mut masked, global) = (wire, headers.has_global);
        infiniband::mask(&mut masked[..size], global);
        let link = Link::InfiniBand { global };
        Self::from_headers(route, &wire, masked, Geometry { size, ip_at, ipv4_sum: 0, link })
    }

    fn from_headers(
        route: &Route,
        wire: &[u8; MAX_HEADER],
        masked: [u8; MAX_HEADER],
        geometry: Geometry,
    ) -> Self {
        let Geometry { size, ip_at, ipv4_sum, link } = geometry;
        let mut unmask = masked;
        unmask.iter_mut().zip(wire).for_each(|(bits, wire)| *bits ^= wire);
        let lengths = match link {
            Link::Ethernet(carrier) => LengthField::of_carrier(carrier, ip_at),
            Link::InfiniBand { .. } => Default::default(),
        };
        let (size, ip_at) = (size as u8, ip_at as u8);
        let route = without_port(route);
        let reversed = route.network.reversed();
        let crc = crc32fast::Hasher::new();
        Self { masked, unmask, size, ip_at, ipv4_sum, lengths, link, route, reversed, crc }
    }

    /// Whether packets on this route have these headers. Their UDP source ports may differ.
    pub fn is_of(&self, route: &Route) -> bool {
        self.route == without_port(route)
    }

    /// The network addresses in the packets of the peer.
    #[inline]
    pub const fn reversed(&self) -> &Network {
        &self.reversed
    }

    /// Offset of the extension headers.
    pub(super) const fn size(&self) -> usize {
        self.size as usize
    }

    /// Offset of the bytes that a connection has for itself.
    const fn own_at(&self) -> usize {
        self.size() - OWN
    }

    /// Offset of the IP header or GRH.
    pub(super) const fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    /// Bytes of the checksums after the payload.
    pub(super) const fn trailer(&self) -> usize {
        match self.link {
            Link::Ethernet(_) => icrc::SIZE,
            Link::InfiniBand { .. } => icrc::SIZE + infiniband::VCRC,
        }
    }
}

impl fmt::Debug for RouteTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RouteTemplate {{ {} bytes, {} }}", self.size(), self.route)
    }
}

/// The route as a receiver decodes it, without the UDP source port, in which connections with the same addresses differ.
fn without_port(route: &Route) -> Route {
    Route { udp_source_port: 0, ..route.as_received() }
}

/// The headers of a connection up to and including the BTH. `R` is its route, or a pointer to one that connections share.
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
pub struct HeaderTemplate<R = RouteTemplate> {
    route: R,
    /// The last bytes of its headers as the ICRC sees them.
    own: [u8; OWN],
    bth: Bth,
    udp_source_port: u16,
}

impl HeaderTemplate {
    /// Headers for packets on `route` to queue pair `destination` of a reliable connection.
    pub fn new(route: &Route, destination: Qpn, partition_key: u16) -> Self {
        Self::on_route(RouteTemplate::new(route), route.udp_source_port, destination, partition_key)
    }

    /// The same headers with BECN set (RoCEv2 A17.9.3).
    #[must_use]
    pub const fn with_backward_notification(mut self) -> Self {
        self.bth.becn = true;
        self.route.unmask[self.route.size() - Bth::SIZE + Bth::CONGESTION] = !Bth::BECN;
        self
    }
}

impl<R: Borrow<RouteTemplate>> HeaderTemplate<R> {
    /// Headers for packets on this route to queue pair `destination` of a reliable connection.
    pub fn on_route(route: R, udp_source_port: u16, destination: Qpn, partition_key: u16) -> Self {
        let (shared, bth) = (route.borrow(), blank_bth(destination, partition_key));
        let mut own = [0; OWN];
        own.copy_from_slice(&shared.masked[shared.own_at()..shared.size()]);
        let has_udp = matches!(shared.link, Link::Ethernet(carrier) if carrier.has_udp());
        let udp_source_port = if has_udp { udp_source_port } else { 0 };
        if has_udp {
            own[..2].copy_from_slice(&udp_source_port.to_be_bytes());
        }
        let congestion = own[udp::SIZE + Bth::CONGESTION];
        own[udp::SIZE..].copy_from_slice(&bth.to_bytes());
        own[udp::SIZE + Bth::CONGESTION] = congestion;
        Self { route, own, bth, udp_source_port }
    }

    /// The same headers for another service class.
    #[must_use]
    pub fn of_service(mut self, service: ServiceClass) -> Self {
        self.bth.service = service;
        self.own[udp::SIZE] = service.join(self.bth.opcode);
        self
    }

    /// The route.
    #[inline]
    pub fn route(&self) -> &RouteTemplate {
        self.route.borrow()
    }

    /// The P_Key.
    #[inline]
    pub const fn partition_key(&self) -> u16 {
        self.bth.partition_key
    }

    /// The BTH of its packets, without what differs between them.
    #[inline]
    pub(super) const fn bth(&self) -> Bth {
        self.bth
    }

    /// Sets `route` to what the peer decodes. A result would be stored twice.
    #[inline]
    pub(super) fn decode_route(&self, route: &mut Route) {
        *route = self.route().route;
        route.udp_source_port = self.udp_source_port;
    }

    /// Frame length in bytes for a packet with `payload_length` bytes of payload.
    pub fn frame_size(&self, header: &PacketHeader, payload_length: usize) -> usize {
        let (route, extensions) =
            (self.route(), header.service_header.size() + header.extension.kind().size());
        route.size() + extensions + payload_length + pad(payload_length) + route.trailer()
    }

    /// Writes the headers of a frame of `length` bytes up to and including the BTH as the ICRC sees them. May overwrite
    /// bytes after them.
    #[inline(always)] // For every frame.
    pub(super) fn write_masked(&self, bytes: &mut [u8], bth: &Bth, length: usize) {
        let route = self.route();
        let header = &mut bytes[..MAX_HEADER];
        header.copy_from_slice(&route.masked);
        if let Some(own) = header[route.own_at()..].first_chunk_mut() {
            *own = self.own;
            if let Some(bytes) = own.last_chunk_mut() {
                bth.write_own(bytes);
            }
        }
        match route.link {
            Link::Ethernet(_) => route.lengths.iter().for_each(|field| field.write(header, length)),
            Link::InfiniBand { global } => infiniband::write_lengths(header, length, global),
        }
    }
}

impl<R> fmt::Debug for HeaderTemplate<R>
where
    R: Borrow<RouteTemplate>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderTemplate {{ {} bytes to QP {} }}", self.route().size(), self.bth.destination)
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

pub(super) const fn pad(payload_length: usize) -> usize {
    payload_length.wrapping_neg() & 3
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
    pub(super) fn write(self, header: &mut [u8], length: usize) {
        put_u16(header, self.at.into(), (length - usize::from(self.from)) as u16);
    }
}

pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
