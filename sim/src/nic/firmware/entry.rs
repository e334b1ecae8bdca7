//! The transport of commands: queue entries, mailbox chains, tokens, signatures, delivery status (PRM, command interface; Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`).

use super::call::Call;
use super::dispatch::execute;
use crate::nic::mkey::Effort;
use crate::nic::{HostMemory, Nic, strict};
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_prm::eqe::CommandEvent;
use bareverbs_prm::field::Layout;
use bareverbs_prm::ids::Eqn;
use bareverbs_prm::numbering::{DeliveryStatus, EventType, HealthSyndrome};
use bareverbs_prm::time::Time;
use zerocopy::IntoBytes;

/// `type` of an entry: PCIe command interface transport.
const PCIE_TRANSPORT: u8 = 7;
const INLINE: usize = 16;
const BLOCK_DATA: usize = 512;
const BLOCK: u64 = CommandMailbox::SIZE as u64;
/// Bytes that are set aside for an input before its blocks have been read; more grows as blocks turn up, so that a length
/// alone costs nothing.
const FIRST_ALLOCATION: usize = 1 << 16;
/// Longest input or output: the translation entries that all keys together may have, and what stands before them.
const LONGEST: u32 = (1 << 27) + 4096;
/// What a block of a chain costs of a turn.
const BLOCK_COST: u32 = 8;

/// The command doorbell: every slot whose bit is set is worked off, lowest first.
pub(in crate::nic) fn ring<M: HostMemory>(nic: &mut Nic, now: Time, memory: &mut M, vector: u32) {
    nic.firmware.rung |= vector;
    work_off(nic, now, memory);
}

/// Works off slots that were rung, for a turn; an alarm brings the next turn for those that are left.
pub(in crate::nic) fn work_off<M: HostMemory>(nic: &mut Nic, now: Time, memory: &mut M) {
    nic.mkeys.effort().begin_turn();
    while nic.firmware.rung != 0 && !nic.mkeys.effort().is_spent() {
        let slot = nic.firmware.rung.trailing_zeros();
        nic.firmware.rung &= !(1 << slot);
        handle_slot(nic, now, memory, slot);
    }
    if nic.firmware.rung != 0 {
        nic.schedule.wake_at(now);
    }
}

/// Works off one slot, if the device owns it.
fn handle_slot<M: HostMemory>(nic: &mut Nic, now: Time, memory: &mut M, slot: u32) {
    let Some(queue) = nic.firmware.queue else {
        nic.counters.doorbells_ignored += 1;
        return;
    };
    let address = queue.wrapping_add(u64::from(slot) * CommandQueueEntry::SIZE as u64);
    let mut entry = CommandQueueEntry::new();
    if memory.read(address, entry.as_mut_bytes()).is_err() {
        nic.firmware.health.set_synd(HealthSyndrome::IcmFetchPciErr);
        return;
    }
    if !entry.ownership() {
        nic.counters.doorbells_ignored += 1;
        return;
    }
    // Decided before the command runs, so that the CREATE_EQ of this very queue raises no event: Linux still polls then.
    let notified = nic.events.subscriber(EventType::Cmd);
    let delivery = deliver(nic, now, memory, &entry);
    let outcome = delivery
        .and_then(|(output, chain)| write_output(memory, &entry, address, &output, &chain, nic.checksums()));
    finish(nic, memory, address, &entry, outcome);
    notify(nic, memory, notified, slot);
}

/// Checks an entry, collects its input, finds its output blocks and runs the command.
fn deliver<M: HostMemory>(
    nic: &mut Nic,
    now: Time,
    memory: &mut M,
    entry: &CommandQueueEntry,
) -> Result<(Vec<u8>, Vec<u64>), DeliveryStatus> {
    check_entry(nic, entry)?;
    let checksums = nic.checksums();
    let effort = nic.mkeys.effort();
    let input = read_input(memory, entry, checksums, effort)?;
    let chain = find_output(memory, entry, checksums, effort)?;
    let mut call = Call::new(now, memory, &input, entry.output_length() as usize);
    let mut output = execute(nic, &mut call);
    output.truncate(entry.output_length() as usize);
    Ok((output, chain))
}

fn check_entry(nic: &Nic, entry: &CommandQueueEntry) -> Result<(), DeliveryStatus> {
    if entry.kind() != PCIE_TRANSPORT {
        return Err(DeliveryStatus::BadCommandDescriptor);
    }
    if nic.checksums() && fold(entry.as_bytes()) != 0xff {
        return Err(DeliveryStatus::SignatureError);
    }
    if (entry.input_length() as usize) < INLINE || entry.input_length() > LONGEST {
        return Err(DeliveryStatus::InputLength);
    }
    if entry.output_length() < 8 || entry.output_length() > LONGEST {
        return Err(DeliveryStatus::OutputLength);
    }
    // The low bits of both pointers are declared reserved; here they are an alignment error with a status of its own.
    if entry.dwords()[3].get() & 0x1ff != 0 {
        return Err(DeliveryStatus::InputPointerAlignment);
    }
    if entry.dwords()[13].get() & 0x1ff != 0 {
        return Err(DeliveryStatus::OutputPointerAlignment);
    }
    if nic.config.strict && !strict::is_clear(&CommandQueueEntry::INFO, entry.as_bytes(), 0..0) {
        return Err(DeliveryStatus::ReservedFieldNotClear);
    }
    Ok(())
}

/// The input: 16 bytes inline, the rest in the chain. Blocks are followed by length, never to the end of the chain:
/// drivers chain more blocks than a message needs.
fn read_input<M: HostMemory>(
    memory: &mut M,
    entry: &CommandQueueEntry,
    checksums: bool,
    effort: &Effort,
) -> Result<Vec<u8>, DeliveryStatus> {
    let length = entry.input_length() as usize;
    let mut input = Vec::with_capacity(length.min(FIRST_ALLOCATION));
    input.extend_from_slice(&entry.command_input_inline_data());
    let mut next = pointer(entry.input_mailbox_pointer_63_32(), entry.input_mailbox_pointer_31_9() << 9);
    let mut number = 0;
    while input.len() < length {
        if next == 0 {
            return Err(if number == 0 {
                DeliveryStatus::InputPointerAlignment
            } else {
                DeliveryStatus::InputLength
            });
        }
        effort.add(BLOCK_COST);
        let mut block = CommandMailbox::new();
        memory.read(next, block.as_mut_bytes()).map_err(|_| DeliveryStatus::FirmwareError)?;
        check_block(&block, entry.token(), number, checksums)
            .map_err(|e| e.unwrap_or(DeliveryStatus::InputPointerAlignment))?;
        let take = BLOCK_DATA.min(length - input.len());
        input.extend_from_slice(&block.as_bytes()[..take]);
        next = next_block(&block);
        number += 1;
    }
    Ok(input)
}

/// Addresses of the blocks that the output may need.
fn find_output<M: HostMemory>(
    memory: &mut M,
    entry: &CommandQueueEntry,
    checksums: bool,
    effort: &Effort,
) -> Result<Vec<u64>, DeliveryStatus> {
    let mut left = (entry.output_length() as usize).saturating_sub(INLINE);
    let mut next = pointer(entry.output_mailbox_pointer_63_32(), entry.output_mailbox_pointer_31_9() << 9);
    let mut chain = Vec::new();
    while left > 0 {
        if next == 0 {
            return Err(if chain.is_empty() {
                DeliveryStatus::OutputPointerAlignment
            } else {
                DeliveryStatus::OutputLength
            });
        }
        effort.add(BLOCK_COST);
        let mut block = CommandMailbox::new();
        memory.read(next, block.as_mut_bytes()).map_err(|_| DeliveryStatus::FirmwareError)?;
        check_block(&block, entry.token(), chain.len() as u32, checksums)
            .map_err(|e| e.unwrap_or(DeliveryStatus::OutputPointerAlignment))?;
        chain.push(next);
        next = next_block(&block);
        left = left.saturating_sub(BLOCK_DATA);
    }
    Ok(chain)
}

/// Checks a block. `Err(None)` is a misaligned next pointer, whose status depends on the direction.
fn check_block(
    block: &CommandMailbox,
    token: u8,
    number: u32,
    checksums: bool,
) -> Result<(), Option<DeliveryStatus>> {
    let bytes = block.as_bytes();
    if checksums && (fold(&bytes[BLOCK_DATA..BLOCK as usize - 1]) != 0xff || fold(bytes) != 0xff) {
        return Err(Some(DeliveryStatus::SignatureError));
    }
    if block.token() != token {
        return Err(Some(DeliveryStatus::TokenError));
    }
    if block.block_number() != number {
        return Err(Some(DeliveryStatus::BadBlockNumber));
    }
    if block.dwords()[141].get() & 0x1ff != 0 {
        return Err(None);
    }
    Ok(())
}

fn next_block(block: &CommandMailbox) -> u64 {
    pointer(block.next_pointer_63_32(), block.dwords()[141].get())
}

const fn pointer(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Exclusive or of all bytes; 0xff over signed bytes.
fn fold(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Writes the output: blocks first, then what is inline.
fn write_output<M: HostMemory>(
    memory: &mut M,
    entry: &CommandQueueEntry,
    address: u64,
    output: &[u8],
    chain: &[u64],
    checksums: bool,
) -> Result<[u8; INLINE], DeliveryStatus> {
    let mut inline = entry.command_output_inline_data();
    let (head, tail) = output.split_at(output.len().min(INLINE));
    inline[..head.len()].copy_from_slice(head);
    for (&block, data) in chain.iter().zip(tail.chunks(BLOCK_DATA)) {
        memory.write(block, data).map_err(|_| DeliveryStatus::FirmwareError)?;
        if checksums {
            sign_block(memory, block).map_err(|_| DeliveryStatus::FirmwareError)?;
        }
    }
    memory.write(address + 0x20, &inline).map_err(|_| DeliveryStatus::FirmwareError)?;
    Ok(inline)
}

fn sign_block<M: HostMemory>(memory: &mut M, address: u64) -> Result<(), crate::nic::DmaFault> {
    let mut block = CommandMailbox::new();
    memory.read(address, block.as_mut_bytes())?;
    block.set_ctrl_signature(0).set_signature(0);
    block.set_ctrl_signature(!fold(&block.as_bytes()[BLOCK_DATA..BLOCK as usize - 1]));
    block.set_signature(!fold(block.as_bytes()));
    memory.write(address + BLOCK - 4, &block.as_bytes()[BLOCK as usize - 4..])
}

/// Gives the entry back to software: the byte with status and owner is the last that is written.
fn finish<M: HostMemory>(
    nic: &mut Nic,
    memory: &mut M,
    address: u64,
    entry: &CommandQueueEntry,
    outcome: Result<[u8; INLINE], DeliveryStatus>,
) {
    let status = outcome.err().unwrap_or(DeliveryStatus::Ok);
    if status != DeliveryStatus::Ok {
        nic.counters.deliveries_refused += 1;
    }
    let mut entry = *entry;
    if let Ok(inline) = outcome {
        entry.set_command_output_inline_data(inline);
    }
    entry.set_status(status.raw()).set_ownership(false);
    if nic.checksums() {
        entry.set_signature(0);
        entry.set_signature(!fold(entry.as_bytes()));
    }
    if memory.write(address + 0x3c, &entry.as_bytes()[0x3c..]).is_err() {
        nic.firmware.health.set_synd(HealthSyndrome::IcmFetchPciErr);
    }
}

fn notify<M: HostMemory>(nic: &mut Nic, memory: &mut M, before: Option<Eqn>, slot: u32) {
    let Some(eqn) = before.filter(|&eqn| nic.events.subscriber(EventType::Cmd) == Some(eqn)) else { return };
    let mut data = CommandEvent::new();
    data.set_vector(1 << slot);
    nic.events.post_to(memory, eqn, crate::nic::event::entry(EventType::Cmd, 0, &data));
}
