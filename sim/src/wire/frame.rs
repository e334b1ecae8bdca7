//! Encodes a [`PacketHeader`] and a payload as a frame.
//!
//! A frame starts with the headers of a [`HeaderTemplate`] as the ICRC sees them, so that the CRC takes one pass; then
//! the bits are flipped in which the headers on the wire differ.

use super::bth::Bth;
use super::buffer::{Contents, FrameBuffer};
use super::extension::MAX_EXTENSION_SIZE;
use super::icrc::Carrier;
use super::packet::PacketHeader;
use super::service::{MAX_SERVICE_HEADER, ServiceHeader};
use super::template::{HeaderTemplate, Link, MAX_HEADER, RouteTemplate, pad, put_u16};
use super::{icrc, infiniband, ipv4};
use core::borrow::Borrow;
use core::fmt;

/// Largest payload of a packet: the largest path MTU.
pub const MAX_PAYLOAD: usize = 4096;

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
    route: &'a RouteTemplate,
}

impl<'a> FrameWriter<'a> {
    /// Starts a frame in `frame`, whose old contents are lost. The payload is unspecified until it is filled.
    // A call would write the header to memory first, which costs as much as encoding it.
    #[inline(always)]
    pub fn begin<R: Borrow<RouteTemplate>>(
        frame: &'a mut FrameBuffer,
        template: &'a HeaderTemplate<R>,
        header: &PacketHeader,
        payload_length: usize,
    ) -> Result<Self, PayloadTooLong> {
        if payload_length > MAX_PAYLOAD {
            return Err(PayloadTooLong { length: payload_length });
        }
        let length = template.frame_size(header, payload_length);
        let (bytes, contents) = frame.begin(length);
        template.decode_route(&mut contents.route);
        contents.bth = template.bth();
        set_own_fields(&mut contents.bth, header, pad(payload_length));
        contents.service_header = header.service_header;
        contents.extension = header.extension;
        template.write_masked(bytes, &contents.bth, length);
        let payload_at = write_extensions(bytes, template.route().size(), contents);
        (contents.payload_at, contents.payload_length) = (payload_at, payload_length);
        Ok(Self { frame, route: template.route() })
    }

    /// The payload to fill.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.frame.payload_mut()
    }

    /// Adds padding and checksums. Returns the ICRC.
    #[inline(always)]
    pub fn finish(self) -> u32 {
        let Self { frame, route } = self;
        let (length, payload_end) = (frame.len(), frame.payload_end());
        let bytes = frame.storage_mut();
        let end = length - route.trailer();
        // Up to three bytes of padding. The checksum, which follows, overwrites the rest.
        bytes[payload_end..][..icrc::SIZE].fill(0);
        let mut crc = route.crc.clone();
        crc.update(&bytes[route.ip_at() - icrc::PREFIX..end]);
        let crc = crc.finalize();
        bytes[end..][..icrc::SIZE].copy_from_slice(&crc.to_le_bytes());
        if let Some(header) = bytes.first_chunk_mut() {
            unmask_header(header, route, length);
        }
        if matches!(route.link, Link::InfiniBand { .. }) {
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
fn unmask_header(header: &mut [u8; MAX_HEADER], route: &RouteTemplate, length: usize) {
    header.iter_mut().zip(&route.unmask).for_each(|(byte, bits)| *byte ^= bits);
    if matches!(route.link, Link::Ethernet(Carrier::Ipv4)) {
        let ip_at = route.ip_at();
        let checksum = ipv4::checksum(route.ipv4_sum, (length - ip_at) as u16);
        put_u16(header, ip_at + ipv4::CHECKSUM, checksum);
    }
}

/// Sets the fields in which the packets of a connection differ.
fn set_own_fields(bth: &mut Bth, header: &PacketHeader, pad_count: usize) {
    (bth.opcode, bth.psn) = (header.opcode, header.psn);
    (bth.solicited, bth.ack_request) = (header.solicited, header.ack_request);
    bth.pad_count = pad_count as u8;
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
