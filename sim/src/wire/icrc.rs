//! The invariant CRC of RoCEv2. RoCEv2 A17.3.3.
//!
//! CRC-32 of Ethernet over eight bytes of ones (in place of the LRH that RoCEv2 has not), the IP header, the UDP
//! header, the BTH and all that follows, with every field that may change on the way replaced by ones. It travels
//! with its low byte first.

use super::bth::Bth;
use super::udp;
use super::{ipv4, ipv6};

/// Bytes of ones in front of the IP header.
pub const PREFIX: usize = 8;
/// Bytes of the CRC.
pub const SIZE: usize = 4;

const MAX_HEAD: usize = PREFIX + ipv6::SIZE + udp::SIZE + Bth::SIZE;
/// Frames up to this size are copied, so that one pass over the CRC suffices.
const SMALL: usize = 256;

/// Replaces by ones what may change on the way. `datagram` begins with an IP header of `ip_size` bytes.
pub fn mask(datagram: &mut [u8], ip_size: usize) {
    if ip_size == ipv4::SIZE {
        ipv4::mask(datagram);
    } else {
        ipv6::mask(datagram);
    }
    set_ones(datagram, ip_size + udp::CHECKSUM, 2);
    set_ones(datagram, ip_size + udp::SIZE + Bth::CONGESTION, 1);
}

/// Sets `count` bytes from `at` on to ones, as far as there are such bytes.
pub fn set_ones(bytes: &mut [u8], at: usize, count: usize) {
    if let Some(field) = bytes.get_mut(at..at + count) {
        field.fill(0xff);
    }
}

/// The CRC of a datagram without its ICRC field.
pub fn compute(datagram: &[u8], ip_size: usize) -> u32 {
    if datagram.len() <= SMALL { compute_small(datagram, ip_size) } else { compute_large(datagram, ip_size) }
}

fn compute_small(datagram: &[u8], ip_size: usize) -> u32 {
    let mut copy = [0xff; PREFIX + SMALL];
    let end = PREFIX + datagram.len();
    copy[PREFIX..end].copy_from_slice(datagram);
    mask(&mut copy[PREFIX..end], ip_size);
    crc32fast::hash(&copy[..end])
}

fn compute_large(datagram: &[u8], ip_size: usize) -> u32 {
    let mut head = [0xff; MAX_HEAD];
    let head_size = ip_size + udp::SIZE + Bth::SIZE;
    let (start, rest) = datagram.split_at(head_size);
    head[PREFIX..PREFIX + head_size].copy_from_slice(start);
    mask(&mut head[PREFIX..], ip_size);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..PREFIX + head_size]);
    crc.update(rest);
    crc.finalize()
}
