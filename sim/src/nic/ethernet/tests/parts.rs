//! Headers, checksums, segmentation.

use super::super::headers::{Headers, NetworkProtocol, TCP, UDP};
use super::super::segment::{NotSegmentable, SegmentedSend};
use super::super::{checksum, hash};
use super::frames::{checked, ethernet, ipv4, ipv6, tagged, tcp, udp};
use bareverbs_prm::command::ethernet_receive::TirContext;
use proptest::prelude::*;

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 1];

#[test]
fn headers_are_found_behind_a_tag() {
    let frame = tagged(PEER, 0x6005, 0x0800, &ipv4(TCP, &tcp(7, 0x18, b"abc")));
    let headers = Headers::parse(&frame).unwrap();
    assert_eq!((headers.network, headers.network_at, headers.vlan), (NetworkProtocol::V4, 18, Some(0x6005)));
    assert_eq!((headers.protocol, headers.transport_at), (TCP, Some(38)));
    assert_eq!(headers.ports(&frame), Some((1000, 2000)));
    let flow = headers.flow_headers(&frame);
    assert!(flow.cvlan_tag() && !flow.svlan_tag());
    assert_eq!((flow.first_prio(), flow.first_vid(), flow.ethertype()), (3, 5, 0x0800));
    assert_eq!(
        (flow.ip_version(), flow.ip_protocol(), flow.tcp_dport(), flow.tcp_flags()),
        (4, TCP, 2000, 0x18)
    );
    assert_eq!(flow.destination_ip()[12..], [10, 0, 0, 2]);
}

#[test]
fn extension_headers_are_stepped_over() {
    let hop_by_hop = [&[UDP, 0, 5, 2, 0, 0, 0, 0][..], &udp(53, b"x")].concat();
    let frame = ethernet(PEER, 0x86dd, &ipv6(0, &hop_by_hop));
    let headers = Headers::parse(&frame).unwrap();
    assert_eq!((headers.protocol, headers.transport_at), (UDP, Some(14 + 40 + 8)));
    assert_eq!(headers.ports(&frame), Some((1000, 53)));
}

#[test]
fn fragments_have_no_ports() {
    let mut frame = ethernet(PEER, 0x0800, &ipv4(UDP, &udp(53, b"x")));
    frame[14 + 6] = 0x20;
    let headers = Headers::parse(&frame).unwrap();
    assert_eq!(headers.transport_at, None);
    assert!(headers.flow_headers(&frame).frag());
    assert!(!checksum::transport_is_good(&frame, &headers));
}

/// A packet that claims to be longer than its frame still has headers, but its checksums cannot be verified.
#[test]
fn a_packet_that_is_cut_short_has_headers_but_no_good_checksum() {
    for whole in [
        ethernet(PEER, 0x0800, &ipv4(TCP, &tcp(7, 0, b"abc"))),
        ethernet(PEER, 0x86dd, &ipv6(TCP, &tcp(7, 0, b"abc"))),
    ] {
        let whole = checked(whole);
        let short = &whole[..whole.len() - 1];
        let (headers, all) = (Headers::parse(short).unwrap(), Headers::parse(&whole).unwrap());
        assert_eq!((headers.network, headers.end), (all.network, short.len()));
        assert_eq!(headers.flow_headers(short), all.flow_headers(&whole));
        assert!(checksum::network_is_good(&whole, &all) && checksum::transport_is_good(&whole, &all));
        assert!(!checksum::network_is_good(short, &headers) && !checksum::transport_is_good(short, &headers));
    }
}

/// Requirement: RoCEv2 A17.3.2.2: UDP packets to the well-known port 4791 are RoCE packets.
#[test]
fn roce_is_recognised_by_its_udp_port() {
    for (port, roce) in [(4791, true), (4790, false)] {
        let frame = ethernet(PEER, 0x0800, &ipv4(UDP, &udp(port, b"x")));
        assert_eq!(Headers::parse(&frame).unwrap().is_roce(&frame), roce);
    }
    let version1 = ethernet(PEER, 0x8915, &[0; 40]);
    assert!(Headers::parse(&version1).unwrap().is_roce(&version1));
}

#[test]
fn checksums_are_those_of_known_packets() {
    // RFC 1071 §3 sums these words to 0xddf2.
    assert_eq!(checksum::sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(checksum::sum(&[0x01]), 0x0100, "an odd byte is the high one");
    // A textbook IPv4 header with the checksum 0xb861.
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];
    assert_eq!(checksum::sum(&header), 0xffff);
}

#[test]
fn filled_checksums_are_good_and_a_changed_byte_is_noticed() {
    for body in [tcp(1, 0x18, b"some bytes"), udp(9, b"some more"), udp(9, b"")] {
        let protocol = if body.len() == 30 { TCP } else { UDP };
        for frame in [
            ethernet(PEER, 0x0800, &ipv4(protocol, &body)),
            ethernet(PEER, 0x86dd, &ipv6(protocol, &body)),
            tagged(PEER, 7, 0x0800, &ipv4(protocol, &body)),
        ] {
            let mut frame = checked(frame);
            let headers = Headers::parse(&frame).unwrap();
            assert!(
                checksum::network_is_good(&frame, &headers) && checksum::transport_is_good(&frame, &headers)
            );
            let port = headers.transport_at.unwrap() + 1;
            frame[port] ^= 1;
            assert!(!checksum::transport_is_good(&frame, &headers));
        }
    }
}

#[test]
fn a_train_has_the_whole_payload_in_order() {
    let payload: Vec<u8> = (0..250u8).collect();
    for (ether_type, whole) in
        [(0x0800, ipv4(TCP, &tcp(1000, 0x99, &[]))), (0x86dd, ipv6(TCP, &tcp(1000, 0x99, &[])))]
    {
        let header = ethernet(PEER, ether_type, &whole);
        let send = SegmentedSend::new(header.clone(), payload.clone(), 100).unwrap();
        let whole = send.bytes();
        let frames: Vec<Vec<u8>> = send.collect();
        assert_eq!(whole, frames.iter().map(Vec::len).sum::<usize>());
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 50].map(|n| header.len() + n));
        let carried: Vec<u8> = frames.iter().flat_map(|frame| frame[header.len()..].to_vec()).collect();
        assert_eq!(carried, payload);
        for (index, frame) in frames.iter().enumerate() {
            let headers = Headers::parse(frame).unwrap();
            let at = headers.transport_at.unwrap();
            assert!(
                checksum::network_is_good(frame, &headers) && checksum::transport_is_good(frame, &headers)
            );
            assert_eq!(headers.end, frame.len());
            assert_eq!(frame[at + 4..at + 8], (1000 + 100 * index as u32).to_be_bytes());
            // FIN and PSH in the last segment, CWR in the first, ACK in all.
            assert_eq!(frame[at + 13], [0x90, 0x10, 0x19][index]);
            if ether_type == 0x0800 {
                assert_eq!(frame[18..20], (0x1234 + index as u16).to_be_bytes());
            }
        }
    }
}

#[test]
fn only_tcp_packets_are_segmented() {
    let header = ethernet(PEER, 0x0800, &ipv4(UDP, &udp(9, b"")));
    assert_eq!(SegmentedSend::new(header, vec![0; 10], 4).err(), Some(NotSegmentable));
    let header = ethernet(PEER, 0x0800, &ipv4(TCP, &tcp(1, 0, &[])));
    assert_eq!(SegmentedSend::new(header.clone(), vec![0; 10], 0).err(), Some(NotSegmentable));
    assert_eq!(SegmentedSend::new(header[..40].to_vec(), vec![0; 10], 4).err(), Some(NotSegmentable));
}

fn spreading(symmetric: bool) -> TirContext {
    let mut tir = TirContext::new();
    tir.set_rx_hash_fn(hash::TOEPLITZ)
        .set_rx_hash_toeplitz_key(core::array::from_fn(|i| (i * 37 + 1) as u8))
        .set_rx_hash_symmetric(symmetric);
    tir.set_rx_hash_field_selector_outer_selected_fields(0xf);
    tir
}

#[test]
fn only_packets_of_the_selected_kind_are_hashed() {
    let stream = ethernet(PEER, 0x0800, &ipv4(TCP, &tcp(1, 0, b"x")));
    let other = ethernet(PEER, 0x0800, &ipv4(UDP, &udp(1, b"x")));
    let hash = |tir: &TirContext, frame: &[u8]| hash::compute(tir, frame, &Headers::parse(frame).unwrap());
    assert_eq!(hash(&spreading(false), &stream).kind, 1 << 6 | 1 << 2);
    assert_eq!(hash(&spreading(false), &other), hash::Hash::default());
    // A symmetric hash treats both directions of a stream as one flow.
    let mut back = stream.clone();
    let (addresses, ports) = (&mut back[26..34], &mut [0; 4]);
    addresses.rotate_left(4);
    ports.copy_from_slice(&stream[34..38]);
    ports.rotate_left(2);
    back[34..38].copy_from_slice(ports);
    assert_eq!(hash(&spreading(true), &stream), hash(&spreading(true), &back));
    assert_ne!(hash(&spreading(false), &stream), hash(&spreading(false), &back));
}

proptest! {
    #[test]
    fn arbitrary_frames_harm_nothing(
        start in prop_oneof![
            Just(vec![]),
            Just(ethernet(PEER, 0x0800, &[0x45])),
            Just(ethernet(PEER, 0x86dd, &[0x60, 0, 0, 0, 0, 40, 0])),
            Just(tagged(PEER, 1, 0x0800, &[0x4f])),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..120),
        mss in 0usize..100,
    ) {
        let mut frame = [start, rest].concat();
        if let Some(headers) = Headers::parse(&frame) {
            headers.flow_headers(&frame);
            headers.is_roce(&frame);
            hash::compute(&spreading(true), &frame, &headers);
            checksum::transport_is_good(&frame, &headers);
            checksum::fill_network(&mut frame, &headers);
            checksum::fill_transport(&mut frame, &headers);
        }
        let (header, payload) = frame.split_at(frame.len().min(54));
        if let Ok(send) = SegmentedSend::new(header.to_vec(), payload.to_vec(), mss) {
            prop_assert_eq!(send.bytes(), send.map(|frame| frame.len()).sum::<usize>());
        }
    }
}
