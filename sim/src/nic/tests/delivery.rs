//! Command queue entries and mailboxes: every delivery status, signatures, several slots, the command event.

use super::host::Host;
use super::verbs::{create_eq, poll_eq};
use crate::nic::NicConfig;
use bareverbs_prm::command::caps::{
    GeneralCapabilities, QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, SetHcaCapOut,
};
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandMailbox, CommandQueueEntry};
use bareverbs_prm::command::hca::{EnableHcaIn, EnableHcaOut, NopIn, NopOut};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::eqe::CommandEvent;
use bareverbs_prm::numbering::{CommandOpcode, DeliveryStatus, EventType};
use zerocopy::{FromBytes, IntoBytes};

fn header(opcode: CommandOpcode, op_mod: u16) -> CommandHeaderIn {
    let mut header = CommandHeaderIn::new();
    header.set_opcode(opcode).set_op_mod(op_mod);
    header
}

/// Prepares a QUERY_HCA_CAP, corrupts entry and blocks, and returns the delivery status.
fn spoiled(
    config: NicConfig,
    entry: impl Fn(&mut CommandQueueEntry),
    block: impl Fn(&mut CommandMailbox),
) -> DeliveryStatus {
    let mut host = Host::booted(config);
    let input = header(CommandOpcode::QueryHcaCap, 1);
    host.prepare(0, input.as_bytes(), 4112);
    let mut bytes: CommandQueueEntry = host.memory.load(host.queue);
    let second = u64::from(bytes.output_mailbox_pointer_63_32()) << 32
        | u64::from(bytes.output_mailbox_pointer_31_9() << 9);
    let mut mailbox: CommandMailbox = host.memory.load(second);
    entry(&mut bytes);
    block(&mut mailbox);
    let queue = host.queue;
    host.memory.put(queue, bytes.as_bytes());
    host.memory.put(second, mailbox.as_bytes());
    host.write(init_segment::COMMAND_DOORBELL, 1);
    let done: CommandQueueEntry = host.memory.load(host.queue);
    assert!(!done.ownership());
    DeliveryStatus::from_raw(done.status())
}

#[test]
fn every_delivery_status_has_its_cause() {
    let config = NicConfig::default();
    let strict = NicConfig { strict: true, ..config };
    assert_eq!(spoiled(config, |_| {}, |_| {}), DeliveryStatus::Ok);
    assert_eq!(spoiled(strict, |_| {}, |_| {}), DeliveryStatus::Ok);
    let bad_kind = |e: &mut CommandQueueEntry| {
        e.set_kind(6);
    };
    assert_eq!(spoiled(config, bad_kind, |_| {}), DeliveryStatus::BadCommandDescriptor);
    let short_in = |e: &mut CommandQueueEntry| {
        e.set_input_length(8);
    };
    assert_eq!(spoiled(config, short_in, |_| {}), DeliveryStatus::InputLength);
    let short_out = |e: &mut CommandQueueEntry| {
        e.set_output_length(4);
    };
    assert_eq!(spoiled(config, short_out, |_| {}), DeliveryStatus::OutputLength);
    let crooked_in = |e: &mut CommandQueueEntry| e.as_mut_bytes()[0x0f] = 1;
    assert_eq!(spoiled(config, crooked_in, |_| {}), DeliveryStatus::InputPointerAlignment);
    let crooked_out = |e: &mut CommandQueueEntry| e.as_mut_bytes()[0x37] = 4;
    assert_eq!(spoiled(config, crooked_out, |_| {}), DeliveryStatus::OutputPointerAlignment);
    let no_out = |e: &mut CommandQueueEntry| {
        e.set_output_mailbox_pointer_63_32(0).set_output_mailbox_pointer_31_9(0);
    };
    assert_eq!(spoiled(config, no_out, |_| {}), DeliveryStatus::OutputPointerAlignment);
    let no_in = |e: &mut CommandQueueEntry| {
        e.set_input_length(64);
    };
    assert_eq!(spoiled(config, no_in, |_| {}), DeliveryStatus::InputPointerAlignment);
    let unmapped = |e: &mut CommandQueueEntry| {
        e.set_output_mailbox_pointer_63_32(0xffff);
    };
    assert_eq!(spoiled(config, unmapped, |_| {}), DeliveryStatus::FirmwareError);
    let too_long = |e: &mut CommandQueueEntry| {
        e.set_output_length(u32::MAX);
    };
    assert_eq!(spoiled(config, too_long, |_| {}), DeliveryStatus::OutputLength);
    assert_eq!(
        spoiled(
            config,
            |_| {},
            |b| {
                b.set_token(1);
            }
        ),
        DeliveryStatus::TokenError
    );
    assert_eq!(
        spoiled(
            config,
            |_| {},
            |b| {
                b.set_block_number(1);
            }
        ),
        DeliveryStatus::BadBlockNumber
    );
    let crooked_next = |b: &mut CommandMailbox| b.as_mut_bytes()[0x237] = 1;
    assert_eq!(spoiled(config, |_| {}, crooked_next), DeliveryStatus::OutputPointerAlignment);
    let reserved = |e: &mut CommandQueueEntry| e.as_mut_bytes()[1] = 1;
    assert_eq!(spoiled(strict, reserved, |_| {}), DeliveryStatus::ReservedFieldNotClear);
    assert_eq!(spoiled(config, reserved, |_| {}), DeliveryStatus::Ok, "tolerated unless strict");
}

#[test]
fn signatures_count_once_they_are_switched_on() {
    let mut host = Host::booted_enabled();
    let (page, _): (QueryHcaCapOut, _) =
        host.run(CommandOpcode::QueryHcaCap, 1, QueryHcaCapIn::new()).unwrap();
    let (mut general, _) = GeneralCapabilities::read_from_prefix(&page.as_bytes()[16..]).unwrap();
    general.set_cmdif_checksum(3);
    let mut input = SetHcaCapIn::new();
    input.as_mut_bytes()[16..272].copy_from_slice(general.as_bytes());
    host.run::<_, SetHcaCapOut>(CommandOpcode::SetHcaCap, 0, input).unwrap();

    let nop = header(CommandOpcode::Nop, 0);
    assert_eq!(host.execute(0, nop.as_bytes(), 16).0, DeliveryStatus::SignatureError);
    host.sign = true;
    let query = header(CommandOpcode::QueryHcaCap, 1);
    let (status, output) = host.execute(0, query.as_bytes(), 4112);
    assert_eq!(status, DeliveryStatus::Ok);
    assert_eq!(output[16..272], *general.as_bytes());
    let fold = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
    let entry: CommandQueueEntry = host.memory.load(host.queue);
    assert_eq!(fold(entry.as_bytes()), 0xff, "the answer is signed");
    let block = u64::from(entry.output_mailbox_pointer_63_32()) << 32
        | u64::from(entry.output_mailbox_pointer_31_9() << 9);
    let mailbox: CommandMailbox = host.memory.load(block);
    assert_eq!(fold(mailbox.as_bytes()), 0xff);
    assert_eq!(fold(&mailbox.as_bytes()[512..575]), 0xff);
}

impl Host {
    fn booted_enabled() -> Self {
        let mut host = Self::new(NicConfig::default());
        host.run::<_, EnableHcaOut>(CommandOpcode::EnableHca, 0, EnableHcaIn::new()).unwrap();
        host
    }
}

#[test]
fn one_doorbell_starts_several_slots() {
    let mut host = Host::booted(NicConfig::default());
    let alloc = header(CommandOpcode::AllocUar, 0);
    for slot in [0, 7, 31] {
        host.prepare(slot, alloc.as_bytes(), 16);
    }
    host.write(init_segment::COMMAND_DOORBELL, 1 << 31 | 1 << 7 | 1 | 1 << 9);
    let uars: Vec<u32> = [0, 7, 31]
        .map(|slot| {
            let (status, output) = host.finish(slot, 16);
            assert_eq!((status, output[0]), (DeliveryStatus::Ok, 0));
            u32::from_be_bytes([0, output[9], output[10], output[11]])
        })
        .to_vec();
    assert!(uars[0] >= 0x10 && uars[0] < uars[1] && uars[1] < uars[2], "{uars:?}");
    let entry: CommandQueueEntry = host.memory.load(host.queue + 9 * 64);
    assert_eq!(entry.as_bytes(), [0; 64], "a slot that software owns stays untouched");
}

#[test]
fn the_command_event_comes_for_every_command_but_the_one_that_made_its_queue() {
    let mut host = Host::booted(NicConfig::default());
    let (uar, _): (AllocUarOut, _) = host.run(CommandOpcode::AllocUar, 0, AllocUarIn::new()).unwrap();
    let mut eq = create_eq(&mut host, uar.uar(), 4, 1 << EventType::Cmd.raw()).unwrap();
    assert_eq!(poll_eq(&host, &mut eq), None, "no event for the CREATE_EQ itself");
    host.run::<_, NopOut>(CommandOpcode::Nop, 0, NopIn::new()).unwrap();
    let event = poll_eq(&host, &mut eq).expect("an event for the NOP");
    assert_eq!(event.kind(), EventType::Cmd);
    let (data, _) = CommandEvent::read_from_prefix(&event.data()).unwrap();
    assert_eq!(data.vector(), 1 << 3);
    assert_eq!(poll_eq(&host, &mut eq), None);
}

#[test]
fn a_command_queue_that_is_gone_shows_in_the_health_buffer() {
    let mut host = Host::booted(NicConfig::default());
    let queue = host.queue;
    host.memory.revoke(queue);
    host.write(init_segment::COMMAND_DOORBELL, 1);
    assert_eq!(host.read(0x23c) >> 16 & 0xff, 0x0a);
}
