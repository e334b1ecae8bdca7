//! Internet checksums: of IPv4 headers, of TCP and UDP, and over whole packets (RFC 1071).

use super::headers::{Headers, NetworkProtocol, TCP, UDP};

const IPV4_CHECKSUM: usize = 10;
/// Offset of the checksum in the transport header.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// Ones' complement sum of bytes, as big-endian words; an odd byte is padded with zero. Not inverted.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    fold(add(bytes))
}

fn add(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    words.map(|word| u64::from(word[0]) << 8 | u64::from(word[1])).sum::<u64>() + odd
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum over pseudo-header, transport header and payload; 0xffff if the checksum that they contain is
/// correct.
fn transport_sum(frame: &[u8], headers: &Headers, at: usize) -> Option<u16> {
    let segment = frame.get(at..headers.end)?;
    let (source, destination) = headers.addresses();
    let pseudo = add(source) + add(destination) + u64::from(headers.protocol) + segment.len() as u64;
    Some(fold(pseudo + add(segment)))
}

/// Bytes of the IPv4 header.
fn ipv4_header<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let length = usize::from(frame.get(headers.network_at)? & 0xf) * 4;
    frame.get(headers.network_at..headers.network_at + length)
}

/// Whether the packet is complete and the checksum of its network header is correct or does not exist.
pub(crate) fn network_is_good(frame: &[u8], headers: &Headers) -> bool {
    headers.is_whole
        && match headers.network {
            NetworkProtocol::V4 => ipv4_header(frame, headers).is_some_and(|header| sum(header) == 0xffff),
            NetworkProtocol::V6 => true,
            NetworkProtocol::Other => false,
        }
}

/// Whether the packet is TCP or UDP with a correct checksum. UDP over IPv4 may have none.
pub(crate) fn transport_is_good(frame: &[u8], headers: &Headers) -> bool {
    let Some((at, place)) = place(headers).filter(|_| headers.is_whole) else { return false };
    let without = headers.protocol == UDP && headers.network == NetworkProtocol::V4;
    if without && frame.get(place..place + 2) == Some(&[0, 0]) {
        return true;
    }
    place + 2 <= headers.end && transport_sum(frame, headers, at) == Some(0xffff)
}

/// Where the transport header and its checksum are.
fn place(headers: &Headers) -> Option<(usize, usize)> {
    let at = headers.transport_at?;
    match headers.protocol {
        TCP => Some((at, at + TCP_CHECKSUM)),
        UDP => Some((at, at + UDP_CHECKSUM)),
        _ => None,
    }
}

/// Computes the checksum of an IPv4 header. Other frames are left unchanged.
pub(crate) fn fill_network(frame: &mut [u8], headers: &Headers) {
    if headers.network != NetworkProtocol::V4 {
        return;
    }
    put(frame, headers.network_at + IPV4_CHECKSUM, 0);
    if let Some(header) = ipv4_header(frame, headers) {
        let checksum = !sum(header);
        put(frame, headers.network_at + IPV4_CHECKSUM, checksum);
    }
}

/// Computes the checksum of TCP or UDP from scratch. Other frames are left unchanged.
pub(crate) fn fill_transport(frame: &mut [u8], headers: &Headers) {
    let fits = |(_, place): &(usize, usize)| headers.is_whole && place + 2 <= headers.end;
    let Some((at, place)) = place(headers).filter(fits) else { return };
    put(frame, place, 0);
    let Some(sum) = transport_sum(frame, headers, at) else { return };
    // In UDP, zero would mean that there is no checksum (RFC 768).
    let checksum = if headers.protocol == UDP && sum == 0xffff { 0xffff } else { !sum };
    put(frame, place, checksum);
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(bytes) = frame.get_mut(at..at + 2) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
}
