//! The invariant CRC of RoCE. RoCEv2 A17.3.3, whose note 9 says how version 1 does it; IBTA v1.4 §7.8.1.
//!
//! CRC-32 of Ethernet over eight bytes of ones (in place of the LRH that RoCE has not), the IP header and the UDP
//! header, or the global route header of version 1, then the BTH and all that follows, with every field that may change
//! on the way replaced by ones. It travels with its low byte first.

use super::bth::Bth;
use super::masking::set_ones;
use super::udp;
use super::{ipv4, ipv6};

/// Bytes of ones in front of the IP header.
pub const PREFIX: usize = 8;
/// Bytes of the CRC.
pub const SIZE: usize = 4;

const MAX_HEAD: usize = PREFIX + ipv6::SIZE + udp::SIZE + Bth::SIZE;
/// Frames up to this size are copied, so that one pass over the CRC suffices.
const SMALL: usize = 256;

/// What is between Ethernet and the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// IPv4 and UDP.
    Ipv4,
    /// IPv6 and UDP.
    Ipv6,
    /// A global route header: RoCE version 1.
    RouteHeader,
}

impl Carrier {
    /// Bytes of the first header.
    pub const fn ip(self) -> usize {
        match self {
            Self::Ipv4 => ipv4::SIZE,
            Self::Ipv6 | Self::RouteHeader => ipv6::SIZE,
        }
    }

    /// Whether UDP follows.
    pub const fn has_udp(self) -> bool {
        !matches!(self, Self::RouteHeader)
    }

    /// Bytes up to the BTH.
    pub const fn size(self) -> usize {
        if self.has_udp() { self.ip() + udp::SIZE } else { self.ip() }
    }
}

/// Replaces by ones what may change on the way.
pub fn mask(datagram: &mut [u8], carrier: Carrier) {
    match carrier {
        Carrier::Ipv4 => ipv4::mask(datagram),
        Carrier::Ipv6 | Carrier::RouteHeader => ipv6::mask(datagram),
    }
    if carrier.has_udp() {
        set_ones(datagram, carrier.ip() + udp::CHECKSUM, 2);
    }
    set_ones(datagram, carrier.size() + Bth::CONGESTION, 1);
}

/// The CRC of a datagram without its ICRC field.
pub fn compute(datagram: &[u8], carrier: Carrier) -> u32 {
    if datagram.len() <= SMALL { compute_small(datagram, carrier) } else { compute_large(datagram, carrier) }
}

fn compute_small(datagram: &[u8], carrier: Carrier) -> u32 {
    let mut copy = [0xff; PREFIX + SMALL];
    let end = PREFIX + datagram.len();
    copy[PREFIX..end].copy_from_slice(datagram);
    mask(&mut copy[PREFIX..end], carrier);
    crc32fast::hash(&copy[..end])
}

fn compute_large(datagram: &[u8], carrier: Carrier) -> u32 {
    let mut head = [0xff; MAX_HEAD];
    let head_size = carrier.size() + Bth::SIZE;
    let (start, rest) = datagram.split_at(head_size);
    head[PREFIX..PREFIX + head_size].copy_from_slice(start);
    mask(&mut head[PREFIX..], carrier);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..PREFIX + head_size]);
    crc.update(rest);
    crc.finalize()
}
