//! Chains of mailbox blocks: those of a command's input, and those that its output may need. A chain is
//! followed until the turn ends and then continues in the next turn.

use crate::nic::HostMemory;
use crate::nic::firmware_state::{CommandInput, MailboxChain, PendingCommand};
use crate::nic::mkey::WorkBudget;
use bareverbs_prm::command::entry::CommandMailbox;
use bareverbs_prm::numbering::DeliveryStatus;
use zerocopy::IntoBytes;

pub(super) const BLOCK_DATA: usize = 512;
const BLOCK: u64 = CommandMailbox::SIZE as u64;
/// How much of a turn a block of a chain costs.
const BLOCK_COST: u32 = 8;

/// Reads the input: 16 bytes inline, the rest from the chain. Its length decides how many blocks are read,
/// because drivers chain more blocks than a message needs. Returns whether the input is complete; otherwise
/// the turn is over.
pub(super) fn read_input(
    memory: &mut dyn HostMemory,
    command: &mut PendingCommand,
    checksums: bool,
    budget: &WorkBudget,
) -> Result<bool, DeliveryStatus> {
    let entry = &command.entry;
    if command.input.is_empty() {
        command.input = CommandInput::new(&entry.command_input_inline_data());
        command.chain = chain_at(entry.input_mailbox_pointer_63_32(), entry.input_mailbox_pointer_31_9());
    }
    let length = entry.input_length() as usize;
    let (begin, end) = (DeliveryStatus::InputPointerAlignment, DeliveryStatus::InputLength);
    while command.input.len() < length {
        if budget.is_spent() {
            return Ok(false);
        }
        let (_, block) = follow(memory, &mut command.chain, entry.token(), checksums, budget)
            .map_err(|error| error.status(begin, end))?;
        let take = BLOCK_DATA.min(length - command.input.len());
        command.input.push(&block.as_bytes()[..take]);
    }
    Ok(true)
}

/// Collects the addresses of the blocks that the output may need. Returns whether all are found; otherwise
/// the turn is over.
pub(super) fn find_output(
    memory: &mut dyn HostMemory,
    command: &mut PendingCommand,
    checksums: bool,
    budget: &WorkBudget,
) -> Result<bool, DeliveryStatus> {
    let entry = &command.entry;
    let blocks = (entry.output_length() as usize).saturating_sub(16).div_ceil(BLOCK_DATA);
    if command.output.is_empty() {
        command.chain = chain_at(entry.output_mailbox_pointer_63_32(), entry.output_mailbox_pointer_31_9());
    }
    let (begin, end) = (DeliveryStatus::OutputPointerAlignment, DeliveryStatus::OutputLength);
    while command.output.len() < blocks {
        if budget.is_spent() {
            return Ok(false);
        }
        let (address, _) = follow(memory, &mut command.chain, entry.token(), checksums, budget)
            .map_err(|error| error.status(begin, end))?;
        command.output.push(address);
    }
    Ok(true)
}

/// The chain at a pointer of a command queue entry: bits 63 to 32, and bits 31 to 9.
const fn chain_at(high: u32, low: u32) -> MailboxChain {
    MailboxChain { next: pointer(high, low << 9), number: 0 }
}

/// Why a chain cannot be followed further.
enum ChainError {
    /// It ended before its first block.
    NoBlock,
    /// It ended later.
    Ended,
    /// A pointer in it is misaligned.
    Misaligned,
    /// One of its blocks is invalid.
    Block(DeliveryStatus),
}

impl ChainError {
    /// `begin` is the status for an invalid first pointer, `end` that for a chain that is too short.
    const fn status(self, begin: DeliveryStatus, end: DeliveryStatus) -> DeliveryStatus {
        match self {
            Self::NoBlock | Self::Misaligned => begin,
            Self::Ended => end,
            Self::Block(status) => status,
        }
    }
}

/// The next block of a chain, and its address.
fn follow(
    memory: &mut dyn HostMemory,
    chain: &mut MailboxChain,
    token: u8,
    checksums: bool,
    budget: &WorkBudget,
) -> Result<(u64, CommandMailbox), ChainError> {
    let MailboxChain { next: address, number } = *chain;
    if address == 0 {
        return Err(if number == 0 { ChainError::NoBlock } else { ChainError::Ended });
    }
    budget.add(BLOCK_COST);
    let mut block = CommandMailbox::new();
    memory
        .read(address, block.as_mut_bytes())
        .map_err(|_| ChainError::Block(DeliveryStatus::FirmwareError))?;
    check_block(&block, token, number, checksums)?;
    *chain = MailboxChain {
        next: pointer(block.next_pointer_63_32(), block.dwords()[141].get()),
        number: number + 1,
    };
    Ok((address, block))
}

fn check_block(block: &CommandMailbox, token: u8, number: u32, checksums: bool) -> Result<(), ChainError> {
    let bytes = block.as_bytes();
    if checksums && (fold(&bytes[BLOCK_DATA..BLOCK as usize - 1]) != 0xff || fold(bytes) != 0xff) {
        return Err(ChainError::Block(DeliveryStatus::SignatureError));
    }
    if block.token() != token {
        return Err(ChainError::Block(DeliveryStatus::TokenError));
    }
    if block.block_number() != number {
        return Err(ChainError::Block(DeliveryStatus::BadBlockNumber));
    }
    if block.dwords()[141].get() & 0x1ff != 0 { Err(ChainError::Misaligned) } else { Ok(()) }
}

const fn pointer(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// XOR of all bytes; 0xff if the bytes are signed correctly.
pub(super) fn fold(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

pub(super) fn sign_block(memory: &mut dyn HostMemory, address: u64) -> Result<(), crate::nic::DmaFault> {
    let mut block = CommandMailbox::new();
    memory.read(address, block.as_mut_bytes())?;
    block.set_ctrl_signature(0).set_signature(0);
    block.set_ctrl_signature(!fold(&block.as_bytes()[BLOCK_DATA..BLOCK as usize - 1]));
    block.set_signature(!fold(block.as_bytes()));
    memory.write(address + BLOCK - 4, &block.as_bytes()[BLOCK as usize - 4..])
}
