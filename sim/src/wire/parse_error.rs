//! What is wrong with the bytes of a frame.

use super::opcode::BthOpcode;
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
