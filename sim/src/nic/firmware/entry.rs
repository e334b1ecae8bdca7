//! Transports commands: queue entries, mailbox chains, tokens, signatures, delivery status (PRM, command
//! interface; Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`).

use super::call::Call;
use super::dispatch::execute;
use super::mailbox::{self, BLOCK_DATA, fold, sign_block};
use crate::nic::firmware_state::{CommandInput, PendingCommand};
use crate::nic::{HostMemory, Nic, strict};
use bareverbs_prm::command::entry::CommandQueueEntry;
use bareverbs_prm::eqe::CommandEvent;
use bareverbs_prm::field::Layout;
use bareverbs_prm::ids::Eqn;
use bareverbs_prm::numbering::{DeliveryStatus, EventType, HealthSyndrome};
use bareverbs_prm::time::Time;
use zerocopy::IntoBytes;

/// `type` of an entry: PCIe command interface transport.
const PCIE_TRANSPORT: u8 = 7;
const INLINE: usize = 16;
/// Longest input or output: all translation entries that the device has room for, and the bytes before them.
const LONGEST: u32 = (1 << 27) + 4096;
/// How many words of a list cost as much as a piece of memory when their command runs. The words are read
/// once, in order.
const WORDS_A_PIECE: usize = 256;

/// Handles the command doorbell: processes every slot whose bit is set, lowest first.
#[cold]
pub(in crate::nic) fn ring(nic: &mut Nic, now: Time, memory: &mut dyn HostMemory, vector: u32) {
    nic.firmware.rung |= vector;
    work_off(nic, now, memory);
}

/// Processes slots for one turn. If work is left, even within a long command, an alarm starts the next turn.
#[cold]
pub(in crate::nic) fn work_off(nic: &mut Nic, now: Time, memory: &mut dyn HostMemory) {
    nic.shared.mkeys.budget().begin_turn();
    while nic.firmware.has_commands() && !nic.shared.mkeys.budget().is_spent() {
        let Some(command) = nic.firmware.pending.take().or_else(|| take_slot(nic, memory)) else {
            continue;
        };
        nic.firmware.pending = go_on(nic, now, memory, command);
    }
    if nic.firmware.has_commands() {
        nic.schedule.wake_at(now);
    }
}

/// The command in the lowest slot whose doorbell was rung, if the device owns that slot.
fn take_slot(nic: &mut Nic, memory: &mut dyn HostMemory) -> Option<Box<PendingCommand>> {
    let slot = nic.firmware.rung.trailing_zeros();
    nic.firmware.rung &= nic.firmware.rung.wrapping_sub(1);
    let Some(queue) = nic.firmware.queue else {
        nic.shared.counters.doorbells_ignored += 1;
        return None;
    };
    let address = queue.wrapping_add(u64::from(slot) * CommandQueueEntry::SIZE as u64);
    let mut entry = CommandQueueEntry::new();
    if memory.read(address, entry.as_mut_bytes()).is_err() {
        nic.firmware.health.set_synd(HealthSyndrome::IcmFetchPciErr);
        return None;
    }
    if !entry.ownership() {
        nic.shared.counters.doorbells_ignored += 1;
        return None;
    }
    // Decide this before the command runs: CREATE_EQ must not raise an event on the queue that it creates,
    // because Linux still polls then.
    let notified = nic.shared.events.subscriber(EventType::Cmd);
    Some(Box::new(PendingCommand::new(slot, address, entry, notified)))
}

/// Continues a command. Returns it if the turn ends before all its blocks have been read.
fn go_on(
    nic: &mut Nic,
    now: Time,
    memory: &mut dyn HostMemory,
    mut command: Box<PendingCommand>,
) -> Option<Box<PendingCommand>> {
    let outcome = match collect(nic, memory, &mut command) {
        Ok(false) => return Some(command),
        Ok(true) => run(nic, now, memory, &mut command),
        Err(status) => Err(status),
    };
    finish(nic, memory, &command, outcome);
    notify(nic, memory, command.notified, command.slot);
    None
}

/// Checks an entry and follows both chains of its blocks. Returns whether both are complete.
fn collect(
    nic: &Nic,
    memory: &mut dyn HostMemory,
    command: &mut PendingCommand,
) -> Result<bool, DeliveryStatus> {
    if command.input.is_empty() {
        check_entry(nic, &command.entry)?;
    }
    let (checksums, budget) = (nic.checksums(), nic.shared.mkeys.budget());
    Ok(mailbox::read_input(memory, command, checksums, budget)?
        && mailbox::find_output(memory, command, checksums, budget)?)
}

/// Runs a command whose blocks are complete, and writes its output.
fn run(
    nic: &mut Nic,
    now: Time,
    memory: &mut dyn HostMemory,
    command: &mut PendingCommand,
) -> Result<[u8; INLINE], DeliveryStatus> {
    let CommandInput { bytes, list, .. } = core::mem::take(&mut command.input);
    let length = command.entry.output_length() as usize;
    nic.shared.mkeys.budget().add((list.len() / WORDS_A_PIECE) as u32);
    let mut call = Call::new(now, memory, &bytes, list, length);
    let mut output = execute(nic, &mut call);
    output.truncate(length);
    write_output(memory, command, &output, nic.checksums())
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
    // The low bits of both pointers are declared as reserved, but here they are an alignment error with its
    // own status.
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

/// Writes the output: first the blocks, then the inline part.
fn write_output(
    memory: &mut dyn HostMemory,
    command: &PendingCommand,
    output: &[u8],
    checksums: bool,
) -> Result<[u8; INLINE], DeliveryStatus> {
    let mut inline = command.entry.command_output_inline_data();
    let (head, tail) = output.split_at(output.len().min(INLINE));
    inline[..head.len()].copy_from_slice(head);
    for (&block, data) in command.output.iter().zip(tail.chunks(BLOCK_DATA)) {
        memory.write(block, data).map_err(|_| DeliveryStatus::FirmwareError)?;
        if checksums {
            sign_block(memory, block).map_err(|_| DeliveryStatus::FirmwareError)?;
        }
    }
    memory.write(command.address + 0x20, &inline).map_err(|_| DeliveryStatus::FirmwareError)?;
    Ok(inline)
}

/// Returns the entry to software. The byte with status and owner is written last.
fn finish(
    nic: &mut Nic,
    memory: &mut dyn HostMemory,
    command: &PendingCommand,
    outcome: Result<[u8; INLINE], DeliveryStatus>,
) {
    let status = outcome.err().unwrap_or(DeliveryStatus::Ok);
    if status != DeliveryStatus::Ok {
        nic.shared.counters.deliveries_refused += 1;
    }
    let mut entry = command.entry;
    if let Ok(inline) = outcome {
        entry.set_command_output_inline_data(inline);
    }
    entry.set_status(status.raw()).set_ownership(false);
    if nic.checksums() {
        entry.set_signature(0);
        entry.set_signature(!fold(entry.as_bytes()));
    }
    if memory.write(command.address + 0x3c, &entry.as_bytes()[0x3c..]).is_err() {
        nic.firmware.health.set_synd(HealthSyndrome::IcmFetchPciErr);
    }
}

fn notify(nic: &mut Nic, memory: &mut dyn HostMemory, before: Option<Eqn>, slot: u32) {
    let Some(eqn) = before.filter(|&eqn| nic.shared.events.subscriber(EventType::Cmd) == Some(eqn)) else {
        return;
    };
    let mut data = CommandEvent::new();
    data.set_vector(1 << slot);
    nic.shared.events.post_to(memory, eqn, crate::nic::event::entry(EventType::Cmd, 0, &data));
}
