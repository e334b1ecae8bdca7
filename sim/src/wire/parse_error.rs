//! Parse errors.

use super::opcode::BthOpcode;
use core::fmt;

/// Why a frame is not a valid RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// It ends inside a header.
    Truncated,
    /// EtherType of another protocol: neither IPv4, IPv6 nor RoCE version 1.
    EtherType(u16),
    /// The IP version contradicts the EtherType.
    IpVersion(u8),
    /// IPv4 header length in dwords, which is not five.
    IpOptions(u8),
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// The IP length exceeds the frame, or is less than the header.
    IpLength(u16),
    /// An IPv4 fragment.
    Fragment,
    /// Not UDP, or, in a GRH, not the InfiniBand transport.
    IpProtocol(u8),
    /// Not RoCEv2's UDP port.
    UdpPort(u16),
    /// The UDP length contradicts the IP length.
    UdpLength(u16),
    /// The invariant CRC is wrong.
    Icrc {
        /// As received.
        received: u32,
        /// As computed.
        computed: u32,
    },
    /// The packet length of the LRH, in words, contradicts the frame.
    LinkLength(u16),
    /// Link version other than 0.
    LinkVersion(u8),
    /// Neither a BTH nor a GRH follows the LRH.
    LinkNextHeader(u8),
    /// The VCRC is wrong.
    VariantCrc,
    /// An unknown transport header version.
    TransportVersion(u8),
    /// The frame is too short for the opcode's extension headers.
    Extension(BthOpcode),
    /// The length of payload plus padding is not a multiple of four, or is less than the padding.
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
            Self::LinkNextHeader(n) => write!(f, "link next header {n} is not an InfiniBand transport"),
            Self::VariantCrc => f.write_str("the variant CRC is wrong"),
            Self::TransportVersion(v) => write!(f, "transport header version {v}, only 0 is known"),
            Self::Extension(o) => write!(f, "no room for the extension headers of {o}"),
            Self::Pad(n) => write!(f, "pad count {n} does not fit the payload"),
        }
    }
}

impl core::error::Error for ParseError {}
