//! Arbitrary bytes at every input: nothing panics, and the device accesses only allocated memory.

use super::host::Host;
use super::pair::Pair;
use super::verbs::{MR_SIZE, Node};
use crate::nic::NicConfig;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandQueueEntry};
use bareverbs_prm::doorbell::{init_segment, uar};
use bareverbs_prm::numbering::{CommandOpcode, WqeOpcode};
use bareverbs_prm::time::Duration;
use bareverbs_prm::wqe::ControlSegment;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const KNOWN: [u16; 85] = [
    0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x107, 0x108, 0x109, 0x10a, 0x10b, 0x10d, 0x200, 0x201, 0x202,
    0x301, 0x302, 0x303, 0x400, 0x401, 0x402, 0x403, 0x500, 0x501, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507,
    0x50a, 0x50b, 0x50c, 0x50e, 0x750, 0x754, 0x755, 0x760, 0x761, 0x800, 0x801, 0x802, 0x803, 0x805, 0x80d,
    0x203, 0x771, 0x772, 0x773, 0x816, 0x817, 0x900, 0x901, 0x902, 0x903, 0x904, 0x905, 0x906, 0x907, 0x908,
    0x909, 0x90a, 0x90b, 0x912, 0x913, 0x914, 0x915, 0x916, 0x917, 0x918, 0x919, 0x92f, 0x930, 0x931, 0x932,
    0x933, 0x934, 0x935, 0x936, 0x937, 0x938, 0x939, 0x93a, 0x93b, 0x93c,
];

/// The type of a command queue entry.
const PCI: u8 = 7;
/// Opcodes of the WQEs that have a good head: the first bytes of the control segment.
const OPCODES: [WqeOpcode; 4] =
    [WqeOpcode::RdmaWrite, WqeOpcode::Send, WqeOpcode::RdmaRead, WqeOpcode::AtomicCompareSwap];
const HEAD: usize = ControlSegment::FIELDS.signature.offset();

fn words(count: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(0u8), 1 => Just(0xff), 2 => any::<u8>()];
    proptest::collection::vec(byte, 0..count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_commands(
        commands in proptest::collection::vec((0..KNOWN.len(), 0u16..4, words(600), 8usize..600), 1..12),
        strict: bool,
    ) {
        let mut node = Node::new(1, NicConfig { strict, ..NicConfig::default() });
        for (which, op_mod, mut body, room) in commands {
            body.resize(body.len().max(16), 0);
            let mut header = CommandHeaderIn::new();
            header.set_opcode(CommandOpcode::from_raw(KNOWN[which])).set_op_mod(op_mod);
            body[..8].copy_from_slice(&header.as_bytes()[..8]);
            node.host.execute(1, &body, room);
            // Whatever the objects are now, their doorbells must be harmless too.
            node.ring();
            node.arm_cq(false);
            node.arm_eq();
            let mut frame = crate::wire::FrameBuffer::new();
            while node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut frame).is_some() {}
        }
    }

    #[test]
    fn arbitrary_queue_entries(entry in proptest::array::uniform32(any::<u8>()), rest in proptest::array::uniform32(any::<u8>())) {
        let mut host = Host::booted(NicConfig::default());
        let mut entry: CommandQueueEntry = zerocopy::transmute!([entry, rest]);
        entry.set_kind(PCI).set_ownership(true);
        let queue = host.queue;
        host.memory.put(queue, entry.as_bytes());
        host.write(init_segment::COMMAND_DOORBELL, 1);
        prop_assert!(host.memory.faults.iter().all(|fault| !fault.write));
    }

    #[test]
    fn arbitrary_wqes(
        blocks in proptest::collection::vec((any::<[u8; 32]>(), any::<[u8; 32]>()), 1..8),
        good_head: bool,
        strict: bool,
        jump in 0u16..80,
    ) {
        let mut pair = Pair::with(NicConfig { strict, ..NicConfig::default() }, |_| {});
        for (first, second) in blocks {
            let mut block = [first, second].concat();
            if good_head {
                let (drawn, _) = ControlSegment::read_from_prefix(&block).unwrap();
                let mut head = ControlSegment::new();
                head.set_wqe_index(pair.a.qp.posted).set_opcode(OPCODES[usize::from(drawn.opcode().raw()) & 3]);
                head.set_qpn(pair.a.qp.qpn).set_ds(drawn.ds() & 7);
                block[..HEAD].copy_from_slice(&head.as_bytes()[..HEAD]);
            }
            pair.a.write_blocks(&block);
        }
        pair.a.host.memory.put(pair.a.qp.record + 6, &pair.a.qp.posted.wrapping_add(jump).to_be_bytes());
        pair.a.ring();
        pair.run();
        pair.pass_time(Duration::from_millis(10), 3);
        while pair.a.poll().is_some() {}
        // Random keys name nothing, so neither device tries to write outside its memory.
        let inside = |fault: &crate::nic::DmaFault| !fault.write;
        prop_assert!(pair.a.host.memory.faults.iter().all(inside), "{:?}", pair.a.host.memory.faults);
        prop_assert!(pair.b.host.memory.faults.iter().all(inside), "{:?}", pair.b.host.memory.faults);
    }

    #[test]
    fn arbitrary_register_writes(writes in proptest::collection::vec((any::<u32>(), any::<u64>(), 0usize..4), 1..40)) {
        let mut node = Node::new(1, NicConfig::default());
        let page = u64::from(node.uar.value()) * 4096;
        for (at, value, length) in writes {
            let offset = match at & 3 {
                0 => u64::from(at >> 8),
                1 => page + u64::from(at >> 8 & 0xfff),
                2 => page + uar::SEND as u64,
                _ => 0x10 + u64::from(at >> 8 & 0xc),
            };
            let bytes = [value.to_be_bytes(); 8].concat();
            let length = [4, 8, 64, 12][length];
            node.host.write_bytes(offset, &bytes[..length]);
            node.host.nic.handle_mmio_read(node.host.now, offset);
            node.host.nic.handle_config_read(at as u16, length as u8);
            node.host.nic.handle_config_write(node.host.now, at as u16, length as u8, value as u32);
        }
    }

    #[test]
    fn arbitrary_frames(frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), any::<bool>()), 1..20)) {
        let mut pair = Pair::new();
        for (mut frame, ours) in frames {
            if ours && frame.len() >= 6 {
                frame[..6].copy_from_slice(&pair.b.mac.0);
            }
            let now = pair.b.host.now;
            pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &frame);
        }
        prop_assert_eq!(pair.b.host.nic.counters().frames_received, 0);
    }

    /// Well-formed frames with arbitrary transport headers. The invariant CRC is corrected, so that the code
    /// behind the parser runs.
    #[test]
    fn arbitrary_packets(
        packets in proptest::collection::vec((0u8..32, any::<u32>(), any::<[u8; 32]>(), 0usize..9, -3i32..4), 1..24),
    ) {
        let mut pair = Pair::new();
        let receives = [pair.b.mr.sge(0, 4096)];
        pair.b.post_receive(&receives);
        let (a, b) = (&pair.a, &pair.b);
        let route = crate::wire::Route {
            source_mac: a.mac,
            destination_mac: b.mac,
            vlan: None,
            network: crate::wire::Network::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_source_port: 0xc000,
        };
        let template = crate::wire::HeaderTemplate::new(&route, b.qp.qpn, 0xffff);
        let (key, va) = (b.mr.key.value(), b.mr.va);
        for (opcode, noise, bytes, payload, step) in packets {
            let opcode = crate::wire::BthOpcode::from_raw(opcode);
            let mut extension = bytes.to_vec();
            extension.resize(crate::wire::extension::MAX_EXTENSION_SIZE, 0x11);
            if noise & 1 == 0 {
                extension[..8].copy_from_slice(&(va + u64::from(noise >> 20)).to_be_bytes());
                extension[8..12].copy_from_slice(&key.to_be_bytes());
                extension[12..16].copy_from_slice(&(noise >> 16 & 0xfff).to_be_bytes());
            }
            let Some((extension, _)) = crate::wire::Extension::split_from(opcode.extension(), &extension) else { continue };
            let psn = bareverbs_prm::psn::Psn::new(0xff_fff0u32.wrapping_add_signed(step));
            let service_header = crate::wire::ServiceHeader::None;
            let (solicited, ack_request) = (false, true);
            let header = crate::wire::PacketHeader { opcode, psn, solicited, ack_request, service_header, extension };
            let mut frame = crate::wire::FrameBuffer::new();
            let mut writer = crate::wire::FrameWriter::begin(&mut frame, &template, &header, payload * 128).unwrap();
            writer.payload_mut().fill(0x5a);
            writer.finish();
            let now = pair.b.host.now;
            pair.b.host.nic.handle_frame(now, &mut pair.b.host.memory, &frame);
            while pair.b.host.nic.poll_transmit(now, &mut pair.b.host.memory, &mut frame).is_some() {}
        }
        prop_assert!(pair.b.host.nic.counters().frames_received > 0);
        prop_assert_eq!(&pair.b.host.memory.faults, &vec![]);
        let touched = pair.b.host.memory.slice(pair.b.mr.iova, MR_SIZE as usize);
        prop_assert!(touched[8192..].iter().all(|&byte| byte == 0), "a write beyond the longest request");
    }
}
