//! InfiniBand packets, checked against a bitwise VCRC and by round trip.

use super::*;
use crate::wire::{
    BthOpcode, Deth, Extension, FrameBuffer, FrameWriter, HeaderTemplate, PacketHeader, ServiceClass,
    ServiceHeader,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use proptest::prelude::*;

fn local(global: bool) -> LocalRoute {
    let global = global.then(|| GlobalRoute::new([0xfe; 16], [0xfd; 16]));
    LocalRoute { source: 3, destination: 0x17, service_level: 5, virtual_lane: 0, global }
}

fn frame(global: bool, payload: &[u8]) -> Vec<u8> {
    let route = route(local(global), 0, if global { 63 } else { 0 }, 0);
    let template = HeaderTemplate::new(&route, Qpn::from_low_bits(0x48), 0xffff)
        .of_service(ServiceClass::UnreliableDatagram);
    let header = PacketHeader {
        opcode: BthOpcode::SendOnly,
        psn: Psn::new(9),
        solicited: false,
        ack_request: false,
        service_header: ServiceHeader::Deth(Deth { q_key: 0x1111_1111, source: Qpn::from_low_bits(0x49) }),
        extension: Extension::None,
    };
    let mut frame = FrameBuffer::new();
    let mut writer = FrameWriter::begin(&mut frame, &template, &header, payload.len()).expect("it fits");
    writer.payload_mut().copy_from_slice(payload);
    writer.finish();
    frame.into_bytes()
}

/// The VCRC by bitwise division, least significant bit first. No packet from another implementation is available.
fn divided(bytes: &[u8]) -> [u8; VCRC] {
    let mut register = 0xffff_u16;
    for bit in bytes.iter().flat_map(|byte| (0..8).map(move |n| u16::from(byte >> n & 1))) {
        let carry = (register >> 15) ^ bit;
        register = (register << 1) ^ (carry * 0x100b);
    }
    (!register.reverse_bits()).to_le_bytes()
}

/// Requirement: IBTA v1.4 §7.8.2: the variant CRC has the polynomial 0x100B and covers the packet from the first byte of
/// the local route header to the last byte of the invariant CRC.
#[test]
fn the_variant_crc_is_that_of_its_polynomial_over_all_before_it() {
    assert_eq!(variant_crc(b"123456789"), divided(b"123456789"));
    assert_eq!(variant_crc(b"123456789"), VARIANT_ALGORITHM.check.to_le_bytes());
    for (global, payload) in [(false, &b""[..]), (false, b"hello"), (true, b"hello"), (true, &[0; 256])] {
        let frame = frame(global, payload);
        let (covered, crc) = frame.split_at(frame.len() - VCRC);
        assert_eq!(crc, divided(covered));
        assert_eq!(
            covered[..2],
            [0, if global { 0x53 } else { 0x52 }],
            "it begins with the local route header"
        );
    }
}

/// Requirement: IBTA v1.4 §7.7.3: the packet length counts words from the local route header to the word before the
/// variant CRC.
/// Requirement: IBTA v1.4 §8.3: a global route header with next header 0x1B precedes the base transport header.
#[test]
fn headers_are_where_the_specification_has_them() {
    let frame = frame(true, b"hello");
    assert_eq!(frame.len(), 8 + 40 + 12 + 8 + 8 + 4 + 2);
    assert_eq!(frame[..8], [0, 0x53, 0, 0x17, 0, 20, 0, 3]);
    assert_eq!((frame[8] >> 4, &frame[12..16]), (6, &[0, 32, 0x1b, 63][..]));
    assert_eq!((destination_lid(&frame), virtual_lane(&frame)), (Some(0x17), Some(0)));
}

/// Requirement: IBTA v1.4 §7.8.1: the invariant CRC treats virtual lane, traffic class, flow label and hop limit as ones.
#[test]
fn variant_fields_do_not_change_the_invariant_crc() {
    let mut frame = frame(true, b"hello");
    frame[0] |= 0x30;
    frame[9..12].fill(0x5a);
    frame[15] = 1;
    frame[8 + 40 + 4] = 0x80;
    assert_eq!(parse(&frame), Err(ParseError::VariantCrc));
    let end = frame.len() - VCRC;
    let crc = variant_crc(&frame[..end]);
    frame[end..].copy_from_slice(&crc);
    assert!(parse(&frame).is_ok());
    frame[3] ^= 1;
    let crc = variant_crc(&frame[..end]);
    frame[end..].copy_from_slice(&crc);
    assert!(matches!(parse(&frame), Err(ParseError::Icrc { .. })));
}

proptest! {
    #[test]
    fn written_text_is_parsed(global: bool, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let frame = frame(global, &payload);
        let packet = parse(&frame).expect("our own packet");
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert_eq!(packet.route.network, Network::InfiniBand(local(global)));
        prop_assert_eq!(packet.bth.destination.value(), 0x48);
    }

    #[test]
    fn a_packet_with_a_changed_byte_is_refused(global: bool, at: prop::sample::Index, bit in 0u8..8) {
        let mut frame = frame(global, b"payload");
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        prop_assert!(parse(&frame).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_parsed(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), seal: bool) {
        if let (true, Some(end)) = (seal, bytes.len().checked_sub(VCRC)) {
            if let Some(length) = bytes.get_mut(4..6) {
                length.copy_from_slice(&((end / 4) as u16).to_be_bytes());
            }
            let crc = variant_crc(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc);
        }
        let _ = parse(&bytes);
    }
}
