//! Commands to a booted device: any opcode, any mailbox, and doorbells for whatever objects exist then.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::nic::NicConfig;
use bareverbs_fuzz::verbs::Node;
use bareverbs_fuzz::wire::FrameBuffer;
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::numbering::CommandOpcode;
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let strict = input.u8() & 1 != 0;
    let mut node = Node::new(1, NicConfig { strict, ..NicConfig::default() });
    for _ in 0..12 {
        if input.is_empty() {
            break;
        }
        let (opcode, op_mod) = (input.u16() & 0xfff, input.u8().into());
        let (length, room) = (usize::from(input.u8()) * 4, 16 + usize::from(input.u8()) * 4);
        let mut body = vec![0; 16 + length];
        let given = input.take(8 + length);
        body[8..8 + given.len()].copy_from_slice(given);
        let mut header = CommandHeaderIn::new();
        header.set_opcode(CommandOpcode::from_raw(opcode)).set_op_mod(op_mod);
        body[..8].copy_from_slice(&header.as_bytes()[..8]);
        node.host.execute(1, &body, room);
        node.ring();
        node.arm_cq(false);
        node.arm_eq();
        let mut frame = FrameBuffer::new();
        let mut frames = 0;
        while node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut frame).is_some() {
            frames += 1;
            assert!(frames < 100_000, "the device never stops sending");
        }
    }
});
