//! A turn of the device ends whatever it was asked to do: looped-back frames count, and so do pieces of
//! memory behind indirect keys.

use super::host::Host;
use super::pacing::{QKEY, make_datagram};
use super::verbs::{Node, data, remote, vector_to};
use crate::nic::{NicConfig, wqe};
use crate::wire::FrameBuffer;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut, CommandQueueEntry};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut};
use bareverbs_prm::cqe::ErrorEntry;
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::{
    CommandOpcode, CommandStatus, CqeOpcode, DeliveryStatus, MkeyAccessMode, WqeOpcode,
};
use zerocopy::{FromBytes, IntoBytes};

/// Maximum number of pieces in one access, and the number after which a turn ends.
const LONGEST: u64 = (1 << 18) + 1;
const TURN: u64 = 1 << 16;

/// A node whose queue pair is connected to itself.
fn alone() -> Node {
    let mut node = Node::new(1, NicConfig::default());
    node.connect((node.qp.qpn, node.gid, node.mac), |_| {});
    node
}

/// A key that repeats `piece` bytes of the node's region from `offset` on.
fn repeat(node: &mut Node, offset: u64, piece: u64, rounds: u64) -> Mkey {
    let words = [
        piece << 32 | 0x400,
        rounds << 32 | 1,
        piece << 32 | u64::from(node.mr.key.value()),
        node.mr.va + offset,
    ];
    let list: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut input = CreateMkeyIn::new();
    input.set_translations_octword_actual_size(2);
    let context = input.memory_key_mkey_entry_mut();
    context.set_lr(true).set_lw(true).set_rr(true).set_rw(true).set_pd(node.pd).set_mkey_7_0(0x33);
    context.set_access_mode_1_0(MkeyAccessMode::Klms.raw()).set_qpn(Qpn::from_low_bits(0xff_ffff));
    context.set_length(piece * rounds).set_translations_octword_size(2);
    let (output, _): (CreateMkeyOut, _) =
        node.host.command(CommandOpcode::CreateMkey, 0, input, &list, 16).unwrap();
    Mkey::from_parts(output.mkey_index(), 0x33)
}

fn segment(key: Mkey, length: u32) -> Vec<u8> {
    data(super::verbs::Sge { address: 0, length, key })
}

/// Polls the device for frames until it has nothing to do. Returns the pieces and the looped-back frames of
/// each call.
fn turns(node: &mut Node) -> Vec<(u64, u64)> {
    let (mut frame, mut turns) = (FrameBuffer::new(), Vec::new());
    let Host { nic, memory, now, .. } = &mut node.host;
    loop {
        let before = (nic.work_done(), nic.counters().frames_looped_back);
        assert!(nic.poll_transmit(*now, memory, &mut frame).is_none(), "no frame leaves the device");
        turns.push((nic.work_done() - before.0, nic.counters().frames_looped_back - before.1));
        if !nic.has_yielded() {
            return turns;
        }
    }
}

/// 30 messages of 32,768 pieces each are waiting, and each message is checked at its source and at its
/// destination. The device once checked as many messages in one turn as the requester took.
#[test]
fn messages_in_many_pieces_end_a_turn() {
    const LENGTH: u32 = 1 << 15;
    let mut node = alone();
    node.host.memory.put(node.mr.iova, &[0x5a]);
    let key = repeat(&mut node, 0, 1, LENGTH.into());
    let there = node.mr.va + 4096;
    let write = [remote(there, node.mr.key), segment(key, LENGTH)].concat();
    (0..30).for_each(|_| node.write_wqe(WqeOpcode::RdmaWrite, |_| {}, &write));
    node.ring();
    let turns = turns(&mut node);
    let most = turns.iter().map(|(pieces, _)| *pieces).max().unwrap();
    assert!(most < TURN + u64::from(LENGTH) + 1024, "{most} pieces in one call, of {turns:?}");
    assert!(turns.len() > 15, "{turns:?}");
    (0..30).for_each(|_| assert_eq!(node.expect().opcode(), CqeOpcode::Requester));
    let written = node.host.memory.slice(node.mr.iova + 4096, LENGTH as usize);
    assert!(written.iter().all(|byte| *byte == 0x5a));
}

/// A peer can request as much work: a message is checked as a whole at its first packet, and each packet is
/// then written.
#[test]
fn the_pieces_of_a_remote_key_count() {
    const LENGTH: u32 = 2048;
    let mut node = alone();
    let key = repeat(&mut node, 0, 1, LENGTH.into());
    let write = [remote(0, key), data(node.mr.sge(0, LENGTH))].concat();
    (0..4).for_each(|_| node.post(WqeOpcode::RdmaWrite, &write));
    let pieces: u64 = turns(&mut node).iter().map(|(pieces, _)| *pieces).sum();
    assert_eq!(pieces, 4 * 2 * u64::from(LENGTH));
}

/// Two segments may each have half of the pieces of a message, and not one more.
#[test]
fn the_segments_of_a_message_have_the_pieces_of_one_message() {
    let half = (LONGEST / 2) as u32;
    for (second, is_refused) in [(half + 1, false), (half + 2, true)] {
        let mut node = alone();
        let here = repeat(&mut node, 0, 1, LONGEST);
        let there = repeat(&mut node, 0, 4096, LONGEST / 4096 + 1);
        let write = [remote(0, there), segment(here, half), segment(here, second)].concat();
        node.post(WqeOpcode::RdmaWrite, &write);
        turns(&mut node);
        let entry = node.expect();
        assert_eq!(entry.opcode() == CqeOpcode::RequesterError, is_refused, "{second}");
        if is_refused {
            let error: &ErrorEntry = zerocopy::transmute_ref!(&entry);
            assert_eq!(
                (error.syndrome(), error.vendor_syndrome()),
                (wqe::DATA_KEY.syndrome, wqe::DATA_KEY.vendor)
            );
        }
    }
}

/// Datagrams to their own queue pair never reach the wire, so the wire does not limit them.
#[test]
fn datagrams_that_come_back_end_a_turn() {
    let mut node = Node::new(1, NicConfig::default());
    make_datagram(&mut node);
    let mut vector = vector_to(node.qp.qpn, QKEY);
    vector.set_grh(true).set_sgid_index(1).set_rgid(node.gid.0).set_remote_mac(node.mac);
    let segments = [vector.as_bytes(), &data(node.mr.sge(0, 8))].concat();
    (0..30).for_each(|_| node.write_wqe(WqeOpcode::Send, |_| {}, &segments));
    node.ring();
    let looped: Vec<u64> = turns(&mut node).iter().map(|(_, frames)| *frames).collect();
    assert_eq!(looped, [16, 14]);
}

/// Blocks of the input of a long command, and their cost.
const BLOCKS: usize = 600;
const LONG_COMMAND: u64 = 8 * (BLOCKS as u64 + 2);

/// Writes the same long command into all slots: a list of keys that nothing uses.
fn fill_slots(node: &mut Node) {
    const OCTWORDS: u32 = BLOCKS as u32 * 32;
    let mut input = CreateMkeyIn::new();
    input.set_translations_octword_actual_size(OCTWORDS);
    let context = input.memory_key_mkey_entry_mut();
    context.set_free(true).set_umr_en(true).set_pd(node.pd).set_access_mode_1_0(MkeyAccessMode::Klms.raw());
    context.set_qpn(Qpn::from_low_bits(0xff_ffff)).set_translations_octword_size(OCTWORDS);
    let mut bytes = [input.as_bytes(), &vec![0; OCTWORDS as usize * 16]].concat();
    let mut header = CommandHeaderIn::new();
    header.set_opcode(CommandOpcode::CreateMkey);
    bytes[..16].copy_from_slice(header.as_bytes());
    (0..32).for_each(|slot| node.host.prepare(slot, &bytes, 16));
}

/// Rings the doorbell for all slots, runs the device's turns, and returns the cost of each.
fn ring_all(node: &mut Node) -> Vec<u64> {
    let mut before = node.host.nic.work_done();
    node.host.write(init_segment::COMMAND_DOORBELL, u32::MAX);
    let mut turns = Vec::new();
    loop {
        let Host { nic, memory, now, .. } = &mut node.host;
        turns.push(nic.work_done() - before);
        before = nic.work_done();
        if nic.poll_timeout().is_none_or(|due| due > *now) {
            return turns;
        }
        nic.handle_timeout(*now, memory);
    }
}

/// A doorbell may ring for 32 commands of any length; each turn executes as many as it has room for.
#[test]
fn commands_of_a_doorbell_end_a_turn() {
    let mut node = Node::new(1, NicConfig::default());
    fill_slots(&mut node);
    let turns = ring_all(&mut node);
    assert!(turns.iter().all(|cost| *cost < TURN + LONG_COMMAND), "{turns:?}");
    assert_eq!(turns.len(), 3, "{turns:?}");
    for slot in 0..32 {
        let (delivery, output) = node.host.finish(slot, 16);
        assert_eq!(delivery, DeliveryStatus::Ok);
        assert_eq!(CommandHeaderOut::read_from_bytes(&output).unwrap().status(), CommandStatus::Ok);
    }
}

/// Words of a list whose command is longer than a turn, and its total cost: blocks of 64 words, and then the
/// words themselves.
const WORDS: usize = 9000 * 64;
const LIST_COST: u64 = 9000 * 8 + WORDS as u64 / 256;

/// A host with a page list of [`WORDS`] words in slot 3, before its doorbell is rung.
fn with_long_command() -> Host {
    let mut host = Host::with_memory(NicConfig::default(), 80 << 20);
    host.boot();
    let (pd, _): (AllocPdOut, _) = host.run(CommandOpcode::AllocPd, 0, AllocPdIn::new()).unwrap();
    let mut input = CreateMkeyIn::new();
    input.set_opcode(CommandOpcode::CreateMkey).set_translations_octword_actual_size(WORDS as u32 / 2);
    let context = input.memory_key_mkey_entry_mut();
    context.set_lr(true).set_pd(pd.pd()).set_access_mode_1_0(MkeyAccessMode::Mtt.raw()).set_log_page_size(12);
    context.set_qpn(Qpn::from_low_bits(0xff_ffff)).set_translations_octword_size(WORDS as u32 / 2);
    context.set_length((WORDS as u64) << 12);
    let list: Vec<u8> = (0..WORDS as u64).flat_map(|page| (page << 12).to_be_bytes()).collect();
    host.prepare(3, &[input.as_bytes(), &list].concat(), 16);
    host
}

/// Runs one more turn and returns its cost and whether the device wants another one.
fn turn(host: &mut Host) -> (u64, bool) {
    let before = host.nic.work_done();
    host.nic.handle_timeout(host.now, &mut host.memory);
    (host.nic.work_done() - before, host.nic.poll_timeout().is_some_and(|due| due <= host.now))
}

/// One command may be longer than a turn: it is read over several turns, with other work in between.
#[test]
fn a_long_command_is_read_in_turns() {
    let mut host = with_long_command();
    let before = host.nic.work_done();
    host.write(init_segment::COMMAND_DOORBELL, 1 << 3);
    let first = host.nic.work_done() - before;
    assert!((TURN..TURN + 8).contains(&first), "{first}");
    let entry: CommandQueueEntry = host.memory.load(host.queue + 3 * 64);
    assert!(entry.ownership(), "a command that has not run was already completed");
    assert_eq!(turn(&mut host), (LIST_COST + 8 - first, false));
    let (delivery, output) = host.finish(3, 16);
    assert_eq!((delivery, output[0]), (DeliveryStatus::Ok, 0));
}

/// A partly read command is dropped together with its queue.
#[test]
fn a_command_that_is_half_read_is_forgotten_with_its_queue() {
    let mut host = with_long_command();
    host.write(init_segment::COMMAND_DOORBELL, 1 << 3);
    host.write(init_segment::CMDQ_ADDRESS_LOW, host.queue as u32);
    assert_eq!(turn(&mut host), (0, false));
    assert!(host.execute(0, &[0; 16], 16).0 == DeliveryStatus::Ok, "the queue works");
    let entry: CommandQueueEntry = host.memory.load(host.queue + 3 * 64);
    assert!(entry.ownership());
}

/// Waiting commands belong to the queue for which the doorbell was rung, not to one that replaces it.
#[test]
fn commands_that_wait_are_forgotten_with_their_queue() {
    let mut node = Node::new(1, NicConfig::default());
    fill_slots(&mut node);
    node.host.write(init_segment::COMMAND_DOORBELL, u32::MAX);
    let (done, queue) = (node.host.nic.work_done(), node.host.queue);
    node.host.write(init_segment::CMDQ_ADDRESS_LOW, queue as u32);
    let Host { nic, memory, now, .. } = &mut node.host;
    nic.handle_timeout(*now, memory);
    assert_eq!(nic.work_done(), done);
    assert!(node.host.execute(0, &[0; 16], 16).0 == DeliveryStatus::Ok, "the queue works");
}
