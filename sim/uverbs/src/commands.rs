//! The driver's side of the device's command queue: entry, mailbox blocks, doorbell, answer.

use crate::Errno;
use crate::kernel_memory::{DeviceView, KernelMemory, PAGE};
use crate::process::Process;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut, CommandMailbox, CommandQueueEntry};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{FrameOrigin, HostMemory, Nic, Transmit};
use bareverbs_sim::wire::FrameBuffer;
use core::fmt;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// `type` of an entry: PCIe command interface transport.
const PCIE_TRANSPORT: u8 = 7;
const INLINE: usize = 16;
const BLOCK_DATA: usize = 512;
/// Distance between the blocks of a mailbox chain.
const BLOCK_STRIDE: usize = 1024;
/// The slot in use. Commands run one after the other, so one is enough.
const SLOT: u32 = 0;
const SLOT_TOKEN: u8 = 1;

/// A failed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFailure {
    /// The command.
    pub opcode: CommandOpcode,
    /// Status from firmware; `None` if the command was not delivered.
    pub status: Option<CommandStatus>,
    /// Syndrome from firmware.
    pub syndrome: u32,
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{}: {status}, syndrome {:#x}", self.opcode, self.syndrome),
            None => write!(f, "{} was not delivered", self.opcode),
        }
    }
}

impl core::error::Error for CommandFailure {}

impl From<CommandFailure> for Errno {
    fn from(failure: CommandFailure) -> Self {
        failure.status.map_or(Self::Io, Self::from)
    }
}

/// A command before it is sent: input layout, the list after it, and room for the response.
#[derive(Debug)]
pub(crate) struct Command {
    opcode: CommandOpcode,
    input: Vec<u8>,
    list_length: usize,
}

impl Command {
    pub(crate) fn new<I: IntoBytes + Immutable>(opcode: CommandOpcode, op_mod: u16, input: &I) -> Self {
        let mut input = input.as_bytes().to_vec();
        if let Ok((header, _)) = CommandHeaderIn::mut_from_prefix(&mut input) {
            header.set_opcode(opcode).set_op_mod(op_mod);
        }
        Self { opcode, input, list_length: 0 }
    }

    /// A command that is complete.
    pub(crate) fn of_bytes(input: &[u8]) -> Self {
        let header: CommandHeaderIn = crate::uapi::read_extended(input);
        Self { opcode: header.opcode(), input: input.to_vec(), list_length: 0 }
    }

    /// Adds the list that follows the layout.
    pub(crate) fn list(mut self, bytes: &[u8]) -> Self {
        self.input.extend_from_slice(bytes);
        self
    }

    /// Makes room for `length` bytes after the layout of the response.
    pub(crate) fn answer_list(mut self, length: usize) -> Self {
        self.list_length = length;
        self
    }
}

/// A frame that left the device while the kernel waited for a command.
#[derive(Debug)]
pub(crate) struct EarlyFrame {
    pub(crate) transmit: Transmit,
    pub(crate) bytes: FrameBuffer,
    pub(crate) origin: Option<FrameOrigin>,
}

/// The device and its command queue.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    pub(crate) nic: Nic,
    pub(crate) kernel: KernelMemory,
    /// Frames that left the device while the kernel waited for a command. They are sent before any other.
    pub(crate) early_frames: VecDeque<EarlyFrame>,
    /// Origin of the last frame that was polled, if the device is observed.
    pub(crate) frame_origin: Option<FrameOrigin>,
    queue: u64,
    input_blocks: Vec<u64>,
    output_blocks: Vec<u64>,
}

impl CommandQueue {
    /// Tells the device where the queue is.
    pub(crate) fn new<P: Process>(nic: Nic, process: &mut P) -> Self {
        let mut kernel = KernelMemory::default();
        let queue = kernel.allocate(1);
        let (input_blocks, output_blocks, early_frames) = (Vec::new(), Vec::new(), VecDeque::new());
        let frame_origin = None;
        let mut commands =
            Self { nic, kernel, early_frames, frame_origin, queue, input_blocks, output_blocks };
        commands.write_segment(process, init_segment::CMDQ_ADDRESS_HIGH, (queue >> 32) as u32);
        commands.write_segment(process, init_segment::CMDQ_ADDRESS_LOW, queue as u32);
        commands
    }

    /// Writes a register of the initialization segment.
    fn write_segment<P: Process>(&mut self, process: &mut P, offset: usize, value: u32) {
        let now = process.now();
        self.write_register(now, process, offset as u64, &value.to_be_bytes());
    }

    /// Writes 4 or 8 bytes to BAR0, in the order of the bus.
    pub(crate) fn write_register<P: Process>(
        &mut self,
        now: Time,
        process: &mut P,
        offset: u64,
        bytes: &[u8],
    ) {
        self.with_device(process, |nic, memory| nic.handle_mmio_write(now, memory, offset, bytes));
    }

    /// Gives the device an input, with access to the memory that it sees.
    pub(crate) fn with_device<P: Process, R>(
        &mut self,
        process: &mut P,
        input: impl FnOnce(&mut Nic, &mut DeviceView<'_, P>) -> R,
    ) -> R {
        input(&mut self.nic, &mut DeviceView { kernel: &mut self.kernel, program: process })
    }

    /// Lets the device send its next packet. Returns whether it had work.
    pub(crate) fn send_early<P: Process>(&mut self, process: &mut P) -> bool {
        let now = process.now();
        let mut frame = FrameBuffer::new();
        match self.with_device(process, |nic, memory| nic.poll_transmit(now, memory, &mut frame)) {
            Some(transmit) => {
                let origin = self.nic.take_frame_origin();
                self.early_frames.push_back(EarlyFrame { transmit, bytes: frame, origin });
            }
            None => return self.nic.has_yielded(),
        }
        true
    }

    /// Runs a command of the program as it is. The response has `room` bytes; `None` if the command was not delivered.
    pub(crate) fn run_bytes<P: Process>(
        &mut self,
        process: &mut P,
        input: &[u8],
        room: usize,
    ) -> Option<Vec<u8>> {
        self.deliver(process, &Command::of_bytes(input), room)
    }

    /// Runs a command whose response is its layout.
    pub(crate) fn run<P: Process, O: FromBytes + FromZeros + IntoBytes>(
        &mut self,
        process: &mut P,
        command: &Command,
    ) -> Result<O, CommandFailure> {
        self.run_with_list(process, command).map(|(layout, _)| layout)
    }

    /// Runs a command whose response is its layout and a list.
    pub(crate) fn run_with_list<P: Process, O: FromBytes + FromZeros + IntoBytes>(
        &mut self,
        process: &mut P,
        command: &Command,
    ) -> Result<(O, Vec<u8>), CommandFailure> {
        let opcode = command.opcode;
        let undelivered = CommandFailure { opcode, status: None, syndrome: 0 };
        let response = self.deliver(process, command, size_of::<O>()).ok_or(undelivered)?;
        let header: CommandHeaderOut = crate::uapi::read_extended(&response);
        if header.status() != CommandStatus::Ok {
            return Err(CommandFailure {
                opcode,
                status: Some(header.status()),
                syndrome: header.syndrome(),
            });
        }
        let list = response.get(size_of::<O>()..).unwrap_or(&[]).to_vec();
        Ok((crate::uapi::read_extended(&response), list))
    }

    /// Writes the entry, rings the doorbell, and collects the response. The device has finished when the doorbell write
    /// returns.
    fn deliver<P: Process>(&mut self, process: &mut P, command: &Command, layout: usize) -> Option<Vec<u8>> {
        let output_length = layout + command.list_length;
        let entry = self.prepare(&command.input, output_length)?;
        self.kernel.write(self.queue, entry.as_bytes()).ok()?;
        self.write_segment(process, init_segment::COMMAND_DOORBELL, 1 << SLOT);
        let mut entry = CommandQueueEntry::new();
        self.kernel.read(self.queue, entry.as_mut_bytes()).ok()?;
        if entry.ownership() || entry.status() != 0 {
            return None;
        }
        self.collect(&entry, output_length)
    }

    fn prepare(&mut self, input: &[u8], output_length: usize) -> Option<CommandQueueEntry> {
        let mut inline = [0; INLINE];
        let head = input.len().min(INLINE);
        inline[..head].copy_from_slice(&input[..head]);
        let outside = output_length.saturating_sub(INLINE);
        let first_in = self.chain(Direction::Input, &input[head..], input.len() - head)?;
        let first_out = self.chain(Direction::Output, &[], outside)?;
        let mut entry = CommandQueueEntry::new();
        entry.set_kind(PCIE_TRANSPORT).set_token(SLOT_TOKEN).set_ownership(true);
        entry.set_input_length(u32::try_from(input.len()).ok()?);
        entry.set_output_length(u32::try_from(output_length).ok()?);
        entry.set_input_mailbox_pointer_63_32((first_in >> 32) as u32);
        entry.set_input_mailbox_pointer_31_9((first_in as u32) >> 9);
        entry.set_output_mailbox_pointer_63_32((first_out >> 32) as u32);
        entry.set_output_mailbox_pointer_31_9((first_out as u32) >> 9);
        entry.set_command_input_inline_data(inline);
        Some(entry)
    }

    /// Chains as many blocks as `length` bytes need, filled with `data`, and returns the address of the
    /// first.
    fn chain(&mut self, direction: Direction, data: &[u8], length: usize) -> Option<u64> {
        let needed = length.div_ceil(BLOCK_DATA);
        self.grow(direction, needed);
        let blocks = self.blocks(direction);
        let blocks: Vec<u64> = blocks.get(..needed)?.to_vec();
        for (number, &block) in blocks.iter().enumerate() {
            let next = blocks.get(number + 1).copied().unwrap_or(0);
            let rest = data.get(number * BLOCK_DATA..).unwrap_or(&[]);
            let mailbox = mailbox(&rest[..rest.len().min(BLOCK_DATA)], number as u32, next);
            self.kernel.write(block, mailbox.as_bytes()).ok()?;
        }
        Some(blocks.first().copied().unwrap_or(0))
    }

    fn grow(&mut self, direction: Direction, needed: usize) {
        while self.blocks(direction).len() < needed {
            let page = self.kernel.allocate(1);
            let blocks = (page..page + PAGE).step_by(BLOCK_STRIDE);
            self.blocks(direction).extend(blocks);
        }
    }

    fn blocks(&mut self, direction: Direction) -> &mut Vec<u64> {
        match direction {
            Direction::Input => &mut self.input_blocks,
            Direction::Output => &mut self.output_blocks,
        }
    }

    fn collect(&mut self, entry: &CommandQueueEntry, length: usize) -> Option<Vec<u8>> {
        let mut output = entry.command_output_inline_data().to_vec();
        for &block in self.output_blocks.iter().take(length.saturating_sub(INLINE).div_ceil(BLOCK_DATA)) {
            let mut data = [0; BLOCK_DATA];
            self.kernel.read(block, &mut data).ok()?;
            output.extend_from_slice(&data);
        }
        output.truncate(length);
        Some(output)
    }
}

/// Direction of the bytes in a mailbox chain.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Input,
    Output,
}

fn mailbox(data: &[u8], number: u32, next: u64) -> CommandMailbox {
    let mut bytes = [0; BLOCK_DATA];
    bytes[..data.len()].copy_from_slice(data);
    let mut mailbox = CommandMailbox::new();
    mailbox.set_mailbox_data(bytes).set_block_number(number).set_token(SLOT_TOKEN);
    mailbox.set_next_pointer_63_32((next >> 32) as u32).set_next_pointer_31_10((next as u32) >> 10);
    mailbox
}
