//! The device's side of the command queue: reads what the driver has put into a slot, and writes the answer there.

use super::memory::KernelMemory;
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_prm::numbering::DeliveryStatus;
use zerocopy::IntoBytes;

/// log2 of the number of slots and of the distance between them.
pub(super) const LOG_SLOTS: u32 = 5;
pub(super) const LOG_STRIDE: u32 = 6;
/// Bytes of input and output that the entry carries.
const INLINE: usize = 16;
/// Bytes of data in a mailbox block.
const BLOCK_DATA: usize = 512;
/// Longest message: as much as the driver's mailboxes can hold.
const LONGEST: usize = 1024 * BLOCK_DATA;
/// Offset of the byte of an entry that holds delivery status and ownership, which goes last.
const OWNER: usize = 63;

/// A command in a slot.
#[derive(Debug)]
pub(super) struct Submitted {
    /// Address of the entry.
    at: u64,
    entry: CommandQueueEntry,
    /// The whole input.
    pub(super) input: Vec<u8>,
    /// Room for output.
    pub(super) room: usize,
}

/// Reads the command in an entry. `None` if the driver has left no entry there that could be answered.
pub(super) fn read(memory: &KernelMemory, at: u64) -> Option<Result<Submitted, Undelivered>> {
    let mut entry = CommandQueueEntry::new();
    memory.read(at, entry.as_mut_bytes()).ok()?;
    if !entry.ownership() {
        return None;
    }
    let (length, room) = (entry.input_length() as usize, entry.output_length() as usize);
    let refused = |status| Some(Err(Undelivered { at, entry, status }));
    if !(INLINE..=LONGEST).contains(&length) {
        return refused(DeliveryStatus::InputLength);
    }
    if !(INLINE..=LONGEST).contains(&room) {
        return refused(DeliveryStatus::OutputLength);
    }
    let mut input = entry.command_input_inline_data().to_vec();
    let mut block = first_input(&entry);
    while input.len() < length {
        let mut mailbox = CommandMailbox::new();
        if memory.read(block, mailbox.as_mut_bytes()).is_err() {
            return refused(DeliveryStatus::InputPointerAlignment);
        }
        let left = (length - input.len()).min(BLOCK_DATA);
        input.extend_from_slice(&mailbox.mailbox_data()[..left]);
        block = next(&mailbox);
    }
    Some(Ok(Submitted { at, entry, input, room }))
}

fn first_input(entry: &CommandQueueEntry) -> u64 {
    u64::from(entry.input_mailbox_pointer_63_32()) << 32 | u64::from(entry.input_mailbox_pointer_31_9()) << 9
}

fn first_output(entry: &CommandQueueEntry) -> u64 {
    u64::from(entry.output_mailbox_pointer_63_32()) << 32
        | u64::from(entry.output_mailbox_pointer_31_9()) << 9
}

fn next(mailbox: &CommandMailbox) -> u64 {
    u64::from(mailbox.next_pointer_63_32()) << 32 | u64::from(mailbox.next_pointer_31_10()) << 10
}

/// A command that cannot be executed, because it cannot be read.
#[derive(Debug)]
pub(super) struct Undelivered {
    at: u64,
    entry: CommandQueueEntry,
    status: DeliveryStatus,
}

impl Undelivered {
    /// Returns the slot to the driver.
    pub(super) fn answer(mut self, memory: &KernelMemory) {
        give_back(memory, self.at, &mut self.entry, self.status);
    }
}

impl Submitted {
    /// Writes the output, as much as there is room for, and returns the slot to the driver.
    pub(super) fn answer(mut self, memory: &KernelMemory, output: &[u8]) {
        let output = &output[..output.len().min(self.room)];
        let (head, rest) = output.split_at(output.len().min(INLINE));
        let mut inline = [0; INLINE];
        inline[..head.len()].copy_from_slice(head);
        let mut block = first_output(&self.entry);
        let mut status = DeliveryStatus::Ok;
        for part in rest.chunks(BLOCK_DATA) {
            let mut mailbox = CommandMailbox::new();
            if memory.read(block, mailbox.as_mut_bytes()).is_err() || memory.write(block, part).is_err() {
                status = DeliveryStatus::OutputPointerAlignment;
                break;
            }
            block = next(&mailbox);
        }
        self.entry.set_command_output_inline_data(inline);
        give_back(memory, self.at, &mut self.entry, status);
    }
}

/// Writes an entry, the owner's byte last. A driver that has taken the entry's memory away gets nothing.
fn give_back(memory: &KernelMemory, at: u64, entry: &mut CommandQueueEntry, status: DeliveryStatus) {
    entry.set_ownership(false).set_status(status.raw());
    let (bytes, owner) = entry.as_bytes().split_at(OWNER);
    if memory.write(at, bytes).is_ok() {
        let _ = memory.write(at + OWNER as u64, owner);
    }
}
