//! Frames from another implementation, single-bit errors, arbitrary bytes.

use super::extension::MAX_EXTENSION_SIZE;
use super::icrc::Carrier;
use super::*;
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::psn::Psn;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

/// Built with scapy 2.8.0, `scapy.contrib.roce` (`Ether/IP/UDP/BTH/…`, ICRC by scapy), November 2026. scapy lacks
/// version 1, so the last frame comes from Python's `struct` and `zlib.crc32`.
mod outside {
    /// IPv4, RDMA WRITE Only of 64 bytes.
    pub const WRITE_V4: &str = "02000000000202000000000108004502007c000040004011266d0a0000010a000002c12312b700680000\
        0a40ffff000000128000123400007f001234567800180a0100000040000102030405060708090a0b0c0d0e0f1011121314151617\
        18191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3fcc9cf990";
    /// IPv6 with traffic class and flow label, Acknowledge.
    pub const ACK_V6: &str = "02000000000202000000000186dd66012345001c11fffe800000000000000000000000000001fe8000000000\
        00000000000000000002e00012b7001c00001140ffff00abcdef00ffffff1f0000072c41d1bd";
    /// 802.1Q, IPv4, SEND Only with Immediate, five bytes and three of padding.
    pub const SEND_VLAN_PAD: &str = "02000000000202000000000181006064080045000038000040000111f661c0a80101c0a80102c00012b7\
        0024000005f0ffff0000007780000000deadbeef68656c6c6f0000005bd69958";
    /// IPv6, FetchAdd.
    pub const FETCH_ADD_V6: &str = "02000000000202000000000186dd600000000034114020010db800000000000000000000000120010db8\
        000000000000000000000002c35012b7003400001440ffff000000030000000900000000000010000000005500000000000000010000000000\
        00000058936132";
    /// 802.1Q, RoCE version 1 between GIDs of two families, SEND Only of six bytes, padded.
    pub const SEND_V1: &str = "0200000000020200000000018100a123891565a1234500181b3ffe80000000000000020000fffe00000100000000000000000000ffff\
        0a00000204e0ffff00000abc8000fedc3031323334350000e25abe26";
    pub const ALL: [&str; 5] = [WRITE_V4, ACK_V6, SEND_VLAN_PAD, FETCH_ADD_V6, SEND_V1];
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter_map(|c| (c as char).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn write(route: &Route, bth: &Bth, header: &PacketHeader, payload: &[u8]) -> Vec<u8> {
    let template = HeaderTemplate::new(route, bth.destination, bth.partition_key).of_service(bth.service);
    let mut frame = FrameBuffer::from(vec![0xee; 7]);
    let mut writer = FrameWriter::begin(&mut frame, &template, header, payload.len()).unwrap();
    writer.payload_mut().copy_from_slice(payload);
    let icrc = writer.finish();
    assert_eq!(frame[frame.len() - 4..], icrc.to_le_bytes());
    assert_eq!(frame.len(), template.frame_size(header, payload.len()));
    frame.into_bytes()
}

fn header_of(packet: &Packet<'_>) -> PacketHeader {
    let Bth { opcode, psn, solicited, ack_request, .. } = packet.bth;
    let Packet { service_header, extension, .. } = *packet;
    PacketHeader { opcode, psn, solicited, ack_request, service_header, extension }
}

#[test]
fn write_of_scapy() {
    let frame = bytes(outside::WRITE_V4);
    let packet = parse(&frame).unwrap();
    assert_eq!(packet.bth.opcode, BthOpcode::WriteOnly);
    assert_eq!(packet.bth.destination, Qpn::from_low_bits(0x12));
    assert_eq!(packet.bth.psn, Psn::new(0x1234));
    assert!(packet.bth.ack_request && packet.bth.migration && !packet.bth.solicited);
    let reth = Reth { address: 0x7f00_1234_5678, rkey: 0x0018_0a01, length: 64 };
    assert_eq!(packet.extension, Extension::Reth(reth));
    assert_eq!(packet.payload, (0..64).collect::<Vec<u8>>());
    assert_eq!((packet.route.traffic_class, packet.route.hop_limit), (2, 64));
    assert_eq!(
        packet.to_string(),
        "10.0.0.1 → 10.0.0.2 RoCE RDMA WRITE Only QP=0x12 PSN=4660 va=0x7f0012345678 rkey=0x00180a01 dma=64 len=64 [ack]"
    );
}

#[test]
fn acknowledge_of_scapy() {
    let frame = bytes(outside::ACK_V6);
    let packet = parse(&frame).unwrap();
    assert_eq!(packet.extension, Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 7 }));
    assert_eq!((packet.route.traffic_class, packet.route.flow_label), (0x60, 0x1_2345));
    assert_eq!(packet.to_string(), "fe80::1 → fe80::2 RoCE Acknowledge QP=0xabcdef PSN=16777215 ACK MSN=7");
}

#[test]
fn padded_send_of_scapy() {
    let frame = bytes(outside::SEND_VLAN_PAD);
    let packet = parse(&frame).unwrap();
    assert_eq!(packet.route.vlan, Some(VlanTag { id: 100, priority: 3, drop_eligible: false }));
    assert_eq!((packet.payload, packet.extension), (&b"hello"[..], Extension::Immediate(0xdead_beef)));
    assert!(packet.bth.solicited);
}

/// Requirement: RoCE A16: a packet has EtherType 0x8915, a global route header, transport headers and an ICRC.
#[test]
fn send_of_version_1() {
    let frame = bytes(outside::SEND_V1);
    let packet = parse(&frame).unwrap();
    let global = GlobalRoute {
        source: "fe80::200:ff:fe00:1".parse().unwrap(),
        destination: "::ffff:10.0.0.2".parse().unwrap(),
    };
    assert_eq!(packet.route.network, Network::Version1(global));
    assert_eq!(packet.route.vlan, Some(VlanTag { id: 0x123, priority: 5, drop_eligible: false }));
    let Route { traffic_class, hop_limit, flow_label, udp_source_port, .. } = packet.route;
    assert_eq!((traffic_class, hop_limit, flow_label, udp_source_port), (0x5a, 63, 0x1_2345, 0));
    assert_eq!((packet.payload, packet.bth.opcode), (&b"012345"[..], BthOpcode::SendOnly));
    assert_eq!(network_header(&frame), frame.get(18..58));
}

#[test]
fn a_route_header_without_transport_behind_it_is_refused() {
    let mut frame = bytes(outside::SEND_V1);
    frame[18 + 6] = 17;
    assert_eq!(parse(&frame), Err(ParseError::IpProtocol(17)));
}

#[test]
fn frames_from_outside_are_written_byte_for_byte() {
    for hex in outside::ALL {
        let frame = bytes(hex);
        let packet = parse(&frame).unwrap();
        assert_eq!(write(&packet.route, &packet.bth, &header_of(&packet), packet.payload), frame);
    }
}

#[test]
fn ethernet_padding_is_tolerated() {
    for hex in outside::ALL {
        let frame = bytes(hex);
        let mut padded = frame.clone();
        padded.extend([0; 18]);
        assert_eq!(parse(&padded), parse(&frame));
    }
}

/// Every flipped bit is detected, except in fields that may change in transit; then nothing else has changed.
#[test]
fn every_flipped_bit() {
    for hex in outside::ALL {
        let frame = bytes(hex);
        let good = parse(&frame).unwrap();
        let mut refused = 0;
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok(packet) = parse(&flipped) else {
                refused += 1;
                continue;
            };
            let bth = Bth { fecn: false, becn: false, ..packet.bth };
            assert_eq!((bth, packet.extension, packet.payload), (good.bth, good.extension, good.payload));
            assert_eq!(packet.route.network, good.route.network, "bit {bit}");
        }
        assert!(refused > frame.len() * 4, "{refused} of {} bits", frame.len() * 8);
    }
}

#[test]
fn every_truncation_is_refused() {
    for hex in outside::ALL {
        let frame = bytes(hex);
        for length in 0..frame.len() {
            assert!(parse(&frame[..length]).is_err(), "{length}");
        }
    }
}

#[test]
fn parse_errors_name_the_cause() {
    let good = bytes(outside::WRITE_V4);
    let mut arp = good.clone();
    arp[13] = 6;
    assert_eq!(parse(&arp), Err(ParseError::EtherType(0x0806)));
    let mut options = good.clone();
    options[14] = 0x46;
    assert_eq!(parse(&options), Err(ParseError::IpOptions(6)));
    let mut checksum = good.clone();
    checksum[22] = 63;
    assert_eq!(parse(&checksum), Err(ParseError::IpChecksum));
    let mut port = good.clone();
    port[37] = 0xb8;
    assert_eq!(parse(&port), Err(ParseError::UdpPort(4792)));
    // Checksums and ICRC are valid, so that they cannot be the reason.
    let mut fragment = good.clone();
    (fragment[20], fragment[21]) = (0x20, 0);
    reseal(&mut fragment, 14);
    assert_eq!(parse(&fragment), Err(ParseError::Fragment), "more fragments follow");
    (fragment[20], fragment[21]) = (0, 1);
    reseal(&mut fragment, 14);
    assert_eq!(parse(&fragment), Err(ParseError::Fragment), "not the first fragment");
    for length in [0x67, 0x69, 0] {
        let mut udp = good.clone();
        udp[39] = length;
        reseal(&mut udp, 14);
        assert_eq!(parse(&udp), Err(ParseError::UdpLength(length.into())));
    }
    let mut payload = good;
    payload[80] ^= 1;
    let error = parse(&payload).unwrap_err();
    assert!(matches!(error, ParseError::Icrc { received: 0x90f9_9ccc, .. }));
    assert!(error.to_string().starts_with("frame refused: ICRC 0x90f99ccc received"));
}

#[test]
fn payload_beyond_the_largest_mtu_is_refused() {
    let packet_frame = bytes(outside::WRITE_V4);
    let packet = parse(&packet_frame).unwrap();
    let template = HeaderTemplate::new(&packet.route, packet.bth.destination, DEFAULT_PARTITION_KEY);
    let mut frame = FrameBuffer::new();
    let refused = FrameWriter::begin(&mut frame, &template, &header_of(&packet), MAX_PAYLOAD + 1).err();
    assert_eq!(refused, Some(PayloadTooLong { length: 4097 }));
}

fn any_route() -> impl Strategy<Value = Route> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
        .prop_map(|(s, d)| Network::V4 { source: Ipv4Addr::from(s), destination: Ipv4Addr::from(d) });
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
        .prop_map(|(s, d)| Network::V6 { source: Ipv6Addr::from(s), destination: Ipv6Addr::from(d) });
    let vlan = proptest::option::of(any::<u16>().prop_map(VlanTag::from_raw));
    let rest = (any::<u8>(), any::<u8>(), 0..1u32 << 20, any::<u16>());
    let v1 =
        (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(s, d)| Network::Version1(GlobalRoute::new(s, d)));
    (any::<[u8; 12]>(), vlan, prop_oneof![v4, v6, v1], rest).prop_map(|(macs, vlan, network, rest)| {
        let (source, destination) = macs.split_at(6);
        let flow_label = if matches!(network, Network::V4 { .. }) { 0 } else { rest.2 };
        let has_udp = !matches!(network, Network::Version1(_));
        Route {
            source_mac: MacAddress(source.try_into().unwrap()),
            destination_mac: MacAddress(destination.try_into().unwrap()),
            vlan,
            network,
            traffic_class: rest.0,
            hop_limit: rest.1,
            flow_label,
            udp_source_port: if has_udp { rest.3 } else { 0 },
        }
    })
}

fn any_header() -> impl Strategy<Value = (ServiceClass, PacketHeader)> {
    let operations = (0..6u8).prop_flat_map(|raw| {
        let class = ServiceClass::from_raw(raw);
        let known: Vec<_> = BthOpcode::ALL.iter().copied().filter(|opcode| class.has(*opcode)).collect();
        let known = if known.is_empty() { BthOpcode::ALL.to_vec() } else { known };
        let class = if class.has(known[0]) { class } else { ServiceClass::ReliableConnection };
        (Just(class), proptest::sample::select(known))
    });
    (operations, any::<u32>(), any::<bool>(), any::<bool>(), any::<[u8; MAX_EXTENSION_SIZE]>()).prop_map(
        |((class, opcode), psn, solicited, ack_request, mut raw)| {
            let (extension, _) = Extension::split_from(opcode.extension(), &raw).unwrap();
            // The byte before the source queue pair is reserved.
            raw[4] = 0;
            raw[0] = 0;
            let (service_header, _) = ServiceHeader::split_from(class, opcode, &raw).unwrap();
            let psn = Psn::new(psn);
            (class, PacketHeader { opcode, psn, solicited, ack_request, service_header, extension })
        },
    )
}

/// Routes from a careless caller: with fields that the network does not carry, and values that are too wide.
fn careless_route() -> impl Strategy<Value = Route> {
    let numbers =
        (any::<[u16; 2]>(), any::<[u8; 2]>(), any::<bool>(), any::<bool>(), any::<u32>(), any::<u8>());
    (any_route(), numbers).prop_map(|(route, (lids, levels, global, subnet, flow_label, priority))| {
        let vlan = route.vlan.map(|tag| VlanTag { id: 0xf000 | tag.id, priority, ..tag });
        let [source, destination] = lids;
        let [service_level, virtual_lane] = levels;
        let global = global.then(|| GlobalRoute::new([0xfe; 16], [0xfd; 16]));
        let local = LocalRoute { source, destination, service_level, virtual_lane, global };
        let network = if subnet { Network::InfiniBand(local) } else { route.network };
        Route { vlan, network, flow_label, udp_source_port: lids[0], ..route }
    })
}

/// Recomputes a frame's checksums, so that the parser gets past them.
fn reseal(frame: &mut [u8], ip_at: usize) {
    let version_1 = frame.get(ip_at - 2..ip_at) == Some(&ethernet::ROCE.to_be_bytes());
    let Some(datagram) = frame.get_mut(ip_at..) else { return };
    let carrier = match datagram.first().map(|byte| byte >> 4) {
        _ if version_1 => Carrier::RouteHeader,
        Some(4) => Carrier::Ipv4,
        _ => Carrier::Ipv6,
    };
    if carrier == Carrier::Ipv4 && datagram.len() >= ipv4::SIZE {
        datagram[ipv4::CHECKSUM..ipv4::CHECKSUM + 2].fill(0);
        let header: [u8; ipv4::SIZE] = datagram[..ipv4::SIZE].try_into().unwrap();
        let checksum = ipv4::checksum(ipv4::sum(&header), 0).to_be_bytes();
        datagram[ipv4::CHECKSUM..ipv4::CHECKSUM + 2].copy_from_slice(&checksum);
    }
    let Some(end) = datagram.len().checked_sub(4).filter(|end| *end >= carrier.size() + Bth::SIZE) else {
        return;
    };
    let crc = icrc::compute(&datagram[..end], carrier).to_le_bytes();
    datagram[end..].copy_from_slice(&crc);
}

proptest! {
    #[test]
    fn written_text_is_parsed(
        route in any_route(),
        (service, header) in any_header(),
        qpn in any::<u32>(),
        payload in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let bth = Bth { service, destination: Qpn::from_low_bits(qpn), ..parse(&bytes(outside::ACK_V6)).unwrap().bth };
        let frame = write(&route, &bth, &header, &payload);
        let packet = parse(&frame).unwrap();
        prop_assert_eq!(packet.route, route);
        prop_assert_eq!((packet.bth.service, packet.bth.destination), (service, bth.destination));
        prop_assert_eq!(header_of(&packet), header);
        prop_assert_eq!(packet.payload, payload);
    }

    /// A buffer's packet equals what parsing its bytes returns, whatever the frame was made of.
    #[test]
    fn the_packet_of_a_buffer_is_that_of_its_bytes(
        route in careless_route(),
        (service, header) in any_header(),
        other in any_header(),
        (mixed, congested, msn) in (any::<bool>(), any::<bool>(), any::<u32>()),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut header = PacketHeader { extension: if mixed { other.1.extension } else { header.extension }, ..header };
        if let Extension::Aeth(aeth) = &mut header.extension {
            aeth.msn = msn;
        }
        let template = HeaderTemplate::new(&route, Qpn::from_low_bits(7), 0x8001).of_service(service);
        let template = if congested { template.with_backward_notification() } else { template };
        let mut frame = FrameBuffer::new();
        let mut writer = FrameWriter::begin(&mut frame, &template, &header, payload.len()).unwrap();
        writer.payload_mut().copy_from_slice(&payload);
        writer.finish();
        let parsed = match route.network {
            Network::InfiniBand(_) => infiniband::parse(&frame),
            _ => parse(&frame),
        };
        let regular = !mixed && msn >> 24 == 0;
        prop_assert!(frame.packet().is_some() || !regular, "a regular frame without a packet");
        if let Some(packet) = frame.packet() {
            prop_assert_eq!(parsed, Ok(packet));
        }
        let mut copy = FrameBuffer::new();
        copy.copy_from(&frame);
        prop_assert_eq!(copy.packet(), frame.packet());
        let at = flipped.index(copy.len());
        copy[at] ^= 1;
        prop_assert_eq!(copy.packet(), None, "somebody may have changed a byte");
        copy[at] ^= 1;
        prop_assert_eq!((copy.packet(), &copy), (None, &frame));
    }

    #[test]
    fn arbitrary_bytes_never_panic(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&frame).map(|packet| packet.to_string());
    }

    #[test]
    fn mutated_frames_never_panic(
        which in 0..5usize,
        length in 0..160usize,
        changes in proptest::collection::vec((12..160usize, any::<u8>()), 0..4),
    ) {
        let mut frame = bytes(outside::ALL[which]);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        if length < frame.len() && length & 1 == 1 {
            frame.truncate(length);
        }
        reseal(&mut frame, if matches!(which, 2 | 4) { 18 } else { 14 });
        match parse(&frame) {
            Ok(packet) => prop_assert!(packet.payload.len() < frame.len() && !packet.to_string().is_empty()),
            Err(error) => prop_assert!(error.to_string().starts_with("frame refused: ")),
        }
    }
}
