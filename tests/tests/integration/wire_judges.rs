//! tshark and an independent ICRC judge check frames of the wire layer and captures of whole conversations.

use bareverbs_prm::ids::{MacAddress, Qpn, Srqn};
use bareverbs_prm::psn::Psn;
use bareverbs_sim::wire::opcode::ExtensionKind;
use bareverbs_sim::wire::route::{GlobalRoute, VlanTag};
use bareverbs_sim::wire::{
    Aeth, AtomicEth, BthOpcode, Deth, Extension, FrameBuffer, FrameWriter, HeaderTemplate, MaskedAtomicEth,
    Network, OperationKind, PacketHeader, Position, Reth, Route, ServiceClass, ServiceHeader, Syndrome,
};
use bareverbs_tests::judges::{self, Version};
use bareverbs_tests::walk::{Conditions, walk_captured};

const ADDRESS: u64 = 0x0123_4567_89ab_cdef;
const RKEY: u32 = 0x1a2b_3c4d;
const IMMEDIATE: u32 = 0xdead_beef;
const MSN: u32 = 0x45_6789;
const DESTINATION: u32 = 0x12_3456;
const SOURCE: u32 = 0x65_4321;
const Q_KEY: u32 = 0x1122_3344;
/// Classes of service that are sent.
const CLASSES: [ServiceClass; 4] = [
    ServiceClass::ReliableConnection,
    ServiceClass::UnreliableConnection,
    ServiceClass::UnreliableDatagram,
    ServiceClass::ExtendedReliableConnection,
];

/// Headers and payload of one frame.
#[derive(Clone)]
struct Sample {
    route: Route,
    service: ServiceClass,
    header: PacketHeader,
    payload: Vec<u8>,
}

impl Sample {
    fn frame(&self) -> Vec<u8> {
        let template = HeaderTemplate::new(&self.route, Qpn::from_low_bits(DESTINATION), 0xffff)
            .of_service(self.service);
        let mut frame = FrameBuffer::new();
        let mut writer = FrameWriter::begin(&mut frame, &template, &self.header, self.payload.len()).unwrap();
        writer.payload_mut().copy_from_slice(&self.payload);
        writer.finish();
        frame.into_bytes()
    }
}

fn networks(version: Version) -> Vec<Network> {
    let v6 = |last| std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0202, 0xc9ff, 0xfe00, last);
    match version {
        Version::One => vec![Network::Version1(GlobalRoute { source: v6(1), destination: v6(2) })],
        Version::Two => vec![
            Network::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
            Network::V6 { source: v6(1), destination: v6(2) },
        ],
    }
}

fn route(network: Network, vlan: Option<VlanTag>) -> Route {
    Route {
        source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        vlan,
        network,
        traffic_class: 0x6a,
        hop_limit: 63,
        flow_label: if matches!(network, Network::V4 { .. }) { 0 } else { 0xf_edcb },
        udp_source_port: 0xc123,
    }
}

fn service_header(class: ServiceClass, opcode: BthOpcode) -> ServiceHeader {
    match class {
        ServiceClass::UnreliableDatagram => {
            ServiceHeader::Deth(Deth { q_key: Q_KEY, source: Qpn::from_low_bits(SOURCE) })
        }
        ServiceClass::ExtendedReliableConnection if !opcode.is_response() => {
            ServiceHeader::Xrceth(Srqn::from_low_bits(SOURCE))
        }
        _ => ServiceHeader::None,
    }
}

fn extension(kind: ExtensionKind, length: u32) -> Extension {
    let reth = Reth { address: ADDRESS, rkey: RKEY, length };
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: MSN };
    let atomic = AtomicEth { address: ADDRESS, rkey: RKEY, swap_or_add: 5, compare: 6 };
    match kind {
        ExtensionKind::None => Extension::None,
        ExtensionKind::Reth => Extension::Reth(reth),
        ExtensionKind::RethImmediate => Extension::RethImmediate(reth, IMMEDIATE),
        ExtensionKind::Immediate => Extension::Immediate(IMMEDIATE),
        ExtensionKind::Ieth => Extension::Ieth(RKEY),
        ExtensionKind::Aeth => Extension::Aeth(aeth),
        ExtensionKind::AtomicAck => Extension::AtomicAck(aeth, ADDRESS),
        ExtensionKind::AtomicEth => Extension::AtomicEth(atomic),
        ExtensionKind::MaskedAtomicEth => {
            Extension::MaskedAtomicEth(MaskedAtomicEth { atomic, swap_or_add_mask: 7, compare_mask: 8 })
        }
    }
}

/// Payload lengths that an op-code may carry: every padding, one packet of several, the largest.
fn lengths(opcode: BthOpcode) -> &'static [usize] {
    use OperationKind::*;
    match (opcode.kind(), opcode.position()) {
        (Send | Write | ReadResponse | RpcWrite, Position::First | Position::Middle) => &[256, 4096],
        (Send | Write | ReadResponse | RpcParams | RpcWrite, _) => &[1, 2, 3, 4, 64, 1021, 4096],
        _ => &[0],
    }
}

fn samples(version: Version) -> Vec<Sample> {
    let vlans = [None, Some(VlanTag { id: 0x5a5, priority: 5, drop_eligible: false })];
    let mut samples = Vec::new();
    let operations = CLASSES.iter().flat_map(|&class| {
        BthOpcode::ALL.iter().filter(move |&&opcode| class.has(opcode)).map(move |&opcode| (class, opcode))
    });
    for (number, (service, opcode)) in operations.enumerate() {
        for network in networks(version) {
            for (&length, vlan) in lengths(opcode).iter().zip(vlans.iter().cycle()) {
                let header = PacketHeader {
                    opcode,
                    psn: Psn::new(0xff_fff0u32.wrapping_add(number as u32)),
                    solicited: length % 2 == 1,
                    ack_request: length % 4 == 0,
                    service_header: service_header(service, opcode),
                    extension: extension(opcode.extension(), length as u32),
                };
                let payload = (0..length).map(|i| 0xe0 | (i * 7 + number) as u8).collect();
                samples.push(Sample { route: route(network, *vlan), service, header, payload });
            }
        }
    }
    samples
}

/// Writes the samples to a capture and gives its path.
fn capture(name: &str, samples: &[Sample]) -> std::path::PathBuf {
    let path = judges::capture_path(env!("CARGO_TARGET_TMPDIR"), name);
    let frames: Vec<_> = samples.iter().map(Sample::frame).collect();
    judges::write_capture(&path, &frames);
    path
}

/// Requirement: RoCEv2 A17.3.3: the ICRC covers the packet with its variant fields replaced by ones
/// Requirement: RoCE A16: the ICRC covers the packet from the global route header on, with its variant fields replaced by ones
#[test]
fn the_icrc_of_every_kind_of_frame_is_the_judges() {
    for version in [Version::One, Version::Two] {
        let samples = samples(version);
        let capture = capture(&format!("icrc-{version:?}"), &samples);
        judges::python_agrees_on_every_icrc(version, &capture, samples.len());
    }
}

#[test]
fn the_icrc_judge_sees_one_wrong_bit() {
    for version in [Version::One, Version::Two] {
        let path = judges::capture_path(env!("CARGO_TARGET_TMPDIR"), &format!("wrong-bit-{version:?}"));
        let mut frames: Vec<_> = samples(version).iter().take(20).map(Sample::frame).collect();
        let last = frames[7].len() - 5;
        frames[7][last] ^= 1;
        judges::write_capture(&path, &frames);
        if let Some(output) = judges::icrc_judge(version, &path, frames.len()) {
            assert!(String::from_utf8_lossy(&output.stdout).contains("20 frames, 1 faults"), "{output:?}");
            assert!(!output.status.success());
        }
    }
}

#[test]
fn tshark_dissects_every_kind_of_frame() {
    for version in [Version::One, Version::Two] {
        let samples = samples(version);
        let capture = capture(&format!("kinds-{version:?}"), &samples);
        judges::tshark_accepts(version, &capture, samples.len());
    }
}

/// Header fields as tshark names them, and their expected values for a sample.
const FIELDS: [&str; 17] = [
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "infiniband.bth.p_key",
    "infiniband.bth.padcnt",
    "infiniband.bth.se",
    "infiniband.bth.a",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomicacketh.origremdt",
];

/// What tshark reads in the global route header of version 1.
const ROUTE_FIELDS: [&str; 7] = [
    "infiniband.grh.ipver",
    "infiniband.grh.tclass",
    "infiniband.grh.flowlabel",
    "infiniband.grh.paylen",
    "infiniband.grh.nxthdr",
    "infiniband.grh.hoplmt",
    "infiniband.grh.dgid",
];

/// Requirement: RoCE A16: the global route header carries the GIDs and the length of what follows, including the ICRC.
#[test]
fn tshark_reads_the_route_header_of_version_1() {
    let samples = samples(Version::One);
    let Some(rows) = judges::tshark_fields(&capture("route-fields", &samples), &ROUTE_FIELDS) else { return };
    assert_eq!(rows.len(), samples.len());
    for (sample, row) in samples.iter().zip(&rows) {
        let link = if sample.route.vlan.is_some() { 18 } else { 14 };
        let carried = (sample.frame().len() - link - 40).to_string();
        let wanted = ["6", "106", "1043915", &carried, "27", "63", "fe80::202:c9ff:fe00:2"];
        assert_eq!(row, &wanted, "{}", sample.header);
    }
}

fn expected(sample: &Sample) -> [String; FIELDS.len()] {
    let PacketHeader { opcode, psn, solicited, ack_request, service_header, extension } = sample.header;
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    let (reth, atomic) = match extension {
        Extension::AtomicEth(a) => (Some((a.address, a.rkey, None)), Some(a)),
        other => (other.reth().map(|r| (r.address, r.rkey, Some(r.length))), None),
    };
    [
        sample.service.join(opcode).to_string(),
        psn.value().to_string(),
        format!("{DESTINATION:#08x}"),
        "65535".to_owned(),
        (sample.payload.len().wrapping_neg() & 3).to_string(),
        u8::from(solicited).to_string(),
        u8::from(ack_request).to_string(),
        or_empty(service_header.deth().map(|deth| format!("{:#018x}", deth.q_key))),
        or_empty(service_header.deth().map(|deth| format!("{:#010x}", deth.source.value()))),
        or_empty(reth.map(|(address, ..)| format!("{address:#018x}"))),
        or_empty(reth.map(|(_, rkey, _)| format!("{rkey:#010x}"))),
        or_empty(reth.and_then(|(.., length)| length).map(|length| length.to_string())),
        or_empty(extension.aeth().map(|aeth| aeth.msn.to_string())),
        or_empty(extension.immediate().map(|data| format!("{data:08x}"))),
        or_empty(extension.invalidate().map(|key| format!("{key:08x}"))),
        or_empty(atomic.map(|a| a.swap_or_add.to_string())),
        or_empty(matches!(extension, Extension::AtomicAck(..)).then(|| ADDRESS.to_string())),
    ]
}

/// StRoM's op-codes and masked atomics are not in the standard, and tshark does not know those of extended
/// reliable connections, so it cannot dissect what follows their BTH.
fn is_known_to_tshark(sample: &Sample) -> bool {
    use OperationKind::{RpcParams, RpcWrite};
    let rpc = matches!(sample.header.opcode.kind(), RpcParams | RpcWrite);
    let masked = matches!(sample.header.extension, Extension::MaskedAtomicEth(_));
    !rpc && !masked && sample.service != ServiceClass::ExtendedReliableConnection
}

/// Requirement: IBTA v1.4 §9.2: the base transport header and the headers after it are where the specification puts them.
#[test]
fn tshark_reads_every_header_field_as_it_was_meant() {
    let both = [Version::One, Version::Two].into_iter().flat_map(samples);
    let samples: Vec<_> = both.filter(is_known_to_tshark).collect();
    let Some(rows) = judges::tshark_fields(&capture("fields", &samples), &FIELDS) else { return };
    assert_eq!(rows.len(), samples.len());
    for (sample, row) in samples.iter().zip(&rows) {
        for ((field, wanted), read) in FIELDS.iter().zip(expected(sample)).zip(row) {
            // tshark shows immediate data twice.
            let read = read.split(';').next();
            assert_eq!(read, Some(wanted.as_str()), "{field} of {}", sample.header);
        }
    }
    println!("tshark: {} fields of {} frames as they were meant", rows.len() * FIELDS.len(), rows.len());
}

/// A walk with duplicates and reordering (odd seeds), but without flipped bits, over the given network.
fn disturbed(ipv6: bool) -> Conditions {
    let of = |seed| Conditions::of(seed, 0, 60);
    (1..).step_by(2).map(of).find(|conditions| conditions.ipv6 == ipv6).expect("every second seed or so")
}

#[test]
fn the_judges_agree_with_captures_of_whole_conversations() {
    for ipv6 in [false, true] {
        let path =
            judges::capture_path(env!("CARGO_TARGET_TMPDIR"), if ipv6 { "walk-ipv6" } else { "walk-ipv4" });
        let frames = walk_captured(&disturbed(ipv6), &path) as usize;
        assert!(frames > 100, "{frames} frames");
        judges::tshark_accepts(Version::Two, &path, frames);
        judges::python_agrees_on_every_icrc(Version::Two, &path, frames);
    }
}
