//! Frames at the port of a connected device. Some inputs ask for a valid ICRC and for addresses and a key
//! that exist, so that the fuzzer reaches everything behind the parser.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::pair::Pair;
use bareverbs_fuzz::verbs::MR_SIZE;
use bareverbs_fuzz::wire::extension::MAX_EXTENSION_SIZE;
use bareverbs_fuzz::wire::{
    BthOpcode, Extension, FrameBuffer, FrameWriter, HeaderTemplate, Network, PacketHeader, Route,
    ServiceHeader,
};
use bareverbs_prm::psn::Psn;
use libfuzzer_sys::fuzz_target;

/// A packet from the peer with a chosen header.
fn packet(pair: &Pair, input: &mut Bytes<'_>, frame: &mut FrameBuffer) -> Option<()> {
    let (a, b) = (&pair.a, &pair.b);
    let route = Route {
        source_mac: a.mac,
        destination_mac: b.mac,
        vlan: None,
        network: Network::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
        traffic_class: input.u8(),
        hop_limit: 64,
        flow_label: 0,
        udp_source_port: 0xc000,
    };
    let (opcode, flags, step) = (BthOpcode::from_raw(input.u8() & 0x1f), input.u8(), input.u8() as i8);
    let payload = usize::from(input.u8() & 0xf) * 64 + usize::from(flags >> 6);
    let mut extension = [0; MAX_EXTENSION_SIZE];
    let given = input.take(MAX_EXTENSION_SIZE.min(32));
    extension[..given.len()].copy_from_slice(given);
    if flags & 1 != 0 {
        let offset = u64::from(u16::from_le_bytes([extension[0], extension[1]]));
        extension[..8].copy_from_slice(&(b.mr.va + offset).to_be_bytes());
        extension[8..12].copy_from_slice(&b.mr.key.value().to_be_bytes());
        extension[12..14].fill(0);
    }
    let (extension, _) = Extension::split_from(opcode.extension(), &extension)?;
    let header = PacketHeader {
        opcode,
        psn: Psn::new(0xff_fff0_u32.wrapping_add_signed(step.into())),
        solicited: flags & 2 != 0,
        ack_request: flags & 4 != 0,
        service_header: ServiceHeader::None,
        extension,
    };
    let template = HeaderTemplate::new(&route, b.qp.qpn, 0xffff);
    let mut writer = FrameWriter::begin(frame, &template, &header, payload).ok()?;
    writer.payload_mut().fill(0x5a);
    writer.finish();
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let mut pair = Pair::new();
    let receives = [pair.b.mr.sge(0, 4096)];
    (0..input.u8() & 3).for_each(|_| pair.b.post_receive(&receives));
    for _ in 0..32 {
        if input.is_empty() {
            break;
        }
        let now = pair.b.host.now;
        let mut frame = FrameBuffer::new();
        let kind = input.u8();
        if kind & 3 != 0 {
            if packet(&pair, &mut input, &mut frame).is_none() {
                continue;
            }
            pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &frame);
        } else {
            let mut bytes = input.take(usize::from(kind)).to_vec();
            if kind & 4 != 0 && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(&pair.b.mac.0);
            }
            pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &bytes);
        }
        let mut answers = 0;
        while pair.b.host.nic.poll_transmit(now, &mut pair.b.host.memory, &mut frame).is_some() {
            answers += 1;
            assert!(answers < 100_000, "the device never stops answering");
        }
    }
    assert_eq!(pair.b.host.memory.faults, [], "the device accessed memory outside its memory keys");
    let _ = pair.b.host.memory.slice(pair.b.mr.iova, MR_SIZE as usize);
});
