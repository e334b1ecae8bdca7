//! Hand-made frames.

use super::super::checksum;
use super::super::headers::Headers;

/// An Ethernet header.
pub fn ethernet(destination: [u8; 6], ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&destination[..], &[2, 0, 0, 0, 0, 9], &ether_type.to_be_bytes(), rest].concat()
}

/// A tagged frame.
pub fn tagged(destination: [u8; 6], tag: u16, ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let rest = [&tag.to_be_bytes()[..], &ether_type.to_be_bytes(), rest].concat();
    ethernet(destination, 0x8100, &rest)
}

/// IPv4 with its checksum.
pub fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let total = (20 + rest.len()) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = !checksum::sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, rest.to_vec()].concat()
}

/// IPv6 without extension headers.
pub fn ipv6(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
    header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    header.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    [header, rest.to_vec()].concat()
}

/// TCP from port 1000 to port 2000 with sequence number `sequence`, without a checksum.
pub fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x03, 0xe8, 0x07, 0xd0, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    [header, payload.to_vec()].concat()
}

/// UDP from port 1000 to `port`, without a checksum.
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = port.to_be_bytes();
    let [c, d] = (8 + payload.len() as u16).to_be_bytes();
    [&[0x03, 0xe8, a, b, c, d, 0, 0][..], payload].concat()
}

/// The frame with both checksums.
pub fn checked(mut frame: Vec<u8>) -> Vec<u8> {
    let headers = Headers::parse(&frame).unwrap();
    checksum::fill_network(&mut frame, &headers);
    checksum::fill_transport(&mut frame, &headers);
    frame
}
