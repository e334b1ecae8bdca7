//! The invariant CRC (ICRC) of RoCE. RoCEv2 A17.3.3 (its note 9 covers version 1); IBTA v1.4 §7.8.1.
//!
//! Ethernet's CRC-32 over eight bytes of ones (in place of the LRH, which RoCE lacks), the IP and UDP headers or
//! version 1's GRH, the BTH and all that follows. Fields that may change in transit count as ones. Transmitted least
//! significant byte first.

use super::bth::Bth;
use super::masking::set_ones;
use super::udp;
use super::{ipv4, ipv6};

/// Bytes of ones before the IP header.
pub const PREFIX: usize = 8;
/// Bytes of the CRC.
pub const SIZE: usize = 4;

const MAX_HEAD: usize = PREFIX + ipv6::SIZE + udp::SIZE + Bth::SIZE;
/// Frames up to this size are copied, so that the CRC takes a single pass.
const SMALL: usize = 256;

/// What is between the Ethernet header and the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// IPv4 and UDP.
    Ipv4,
    /// IPv6 and UDP.
    Ipv6,
    /// GRH: RoCE version 1.
    RouteHeader,
}

impl Carrier {
    /// Length of the IP header or GRH in bytes.
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

/// Sets the fields to ones that may change in transit.
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

/// Computes the CRC of a datagram without its ICRC field.
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
