//! UDP. RoCEv2 A17.3.2: the checksum is sent as zero and ignored on receipt.

use super::parse_error::ParseError;
use super::route::ROCE_UDP_PORT;
use bareverbs_prm::mutation::mutated;

/// Bytes of the header.
pub const SIZE: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;
/// Offset of the length.
pub const LENGTH: usize = 4;

/// Splits off the header and returns its source port. `datagram` is the whole IP payload.
pub fn split(datagram: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    let (header, payload) = datagram.split_first_chunk::<SIZE>().ok_or(ParseError::Truncated)?;
    let [s0, s1, d0, d1, l0, l1, _, _] = *header;
    let port = u16::from_be_bytes([d0, d1]);
    if port != ROCE_UDP_PORT {
        return Err(ParseError::UdpPort(port));
    }
    let length = u16::from_be_bytes([l0, l1]);
    if usize::from(length) != datagram.len() && !mutated("any_udp_length") {
        return Err(ParseError::UdpLength(length));
    }
    Ok((u16::from_be_bytes([s0, s1]), payload))
}

/// Builds the header with length and checksum zero.
pub fn header(source_port: u16) -> [u8; SIZE] {
    let [s0, s1] = source_port.to_be_bytes();
    let [d0, d1] = ROCE_UDP_PORT.to_be_bytes();
    [s0, s1, d0, d1, 0, 0, 0, 0]
}
