//! A device that replays a recording: it compares each command with the next one of a trace and answers as
//! the ConnectX-4 did.

use crate::boot_trace::{
    Exchange, INLINE, blocks_for, input_pointer, next_block, output_pointer, signature_of,
};
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;
use bareverbs_sim::run::Device;
use bareverbs_sim::run::device::Transmit;
use bareverbs_sim::wire::FrameBuffer;
use zerocopy::{FromBytes, IntoBytes};

/// How much was compared.
#[derive(Debug, Default)]
pub struct Tally {
    /// Commands.
    pub commands: usize,
    /// Bytes of queue entries and mailbox blocks that agreed with the trace.
    pub bytes: usize,
    /// One line for each difference.
    pub faults: Vec<String>,
}

/// The device.
#[derive(Debug)]
pub struct ReplayDevice {
    script: std::vec::IntoIter<Exchange>,
    queue: u64,
    log_stride: u32,
    /// What was compared so far.
    pub tally: Tally,
}

impl ReplayDevice {
    /// A device that expects these commands, in this order, in a queue with `1 << log_stride` bytes per
    /// entry.
    pub fn new(script: Vec<Exchange>, log_stride: u32) -> Self {
        Self { script: script.into_iter(), queue: 0, log_stride, tally: Tally::default() }
    }

    /// How many commands of the script were not sent.
    pub fn left(&self) -> usize {
        self.script.len()
    }

    fn serve<M: HostMemory>(&mut self, memory: &mut M, slot: u32) {
        let at = self.queue + (u64::from(slot) << self.log_stride);
        let mut entry: CommandQueueEntry = read(memory, at);
        let Some(exchange) = self.script.next() else {
            self.tally.faults.push(format!("a command after the end of the script: {entry:?}"));
            return;
        };
        self.compare_entry(&exchange, &entry);
        self.compare_input(memory, &exchange, &entry);
        answer(memory, &exchange, &mut entry);
        memory.write(at, entry.as_bytes()).expect("the queue is mapped");
        self.tally.commands += 1;
    }

    /// Compares the entry with the trace's entry after the token and addresses of this driver were filled in
    /// and it was signed again.
    fn compare_entry(&mut self, exchange: &Exchange, entry: &CommandQueueEntry) {
        let mut wanted = exchange.input.entry;
        wanted
            .set_token(entry.token())
            .set_input_mailbox_pointer_63_32(entry.input_mailbox_pointer_63_32())
            .set_input_mailbox_pointer_31_9(entry.input_mailbox_pointer_31_9())
            .set_output_mailbox_pointer_63_32(entry.output_mailbox_pointer_63_32())
            .set_output_mailbox_pointer_31_9(entry.output_mailbox_pointer_31_9());
        wanted.set_signature(signature_of(wanted.as_bytes()));
        let name = format!("{:#x}: queue entry", exchange.opcode);
        self.compare(&name, wanted.as_bytes(), entry.as_bytes());
        let (input, output) = (input_pointer(entry), output_pointer(entry));
        let needs = |length: u32| length as usize > INLINE;
        if (input != 0) != needs(entry.input_length()) || (output != 0) != needs(entry.output_length()) {
            self.tally.faults.push(format!("{name}: mailboxes {input:#x} and {output:#x}"));
        }
    }

    /// Compares data, numbers and tokens of the blocks that the trace has. Signatures may differ: Linux
    /// leaves them zero, and a driver may sign.
    fn compare_input<M: HostMemory>(
        &mut self,
        memory: &mut M,
        exchange: &Exchange,
        entry: &CommandQueueEntry,
    ) {
        let blocks = blocks_for(entry.input_length());
        let mut next = input_pointer(entry);
        for (number, wanted) in exchange.input.blocks.iter().take(blocks).enumerate() {
            let mut block: CommandMailbox = read(memory, next);
            let signed = (block.ctrl_signature(), block.signature()) != (0, 0);
            next = next_block(&block);
            let mut wanted = *wanted;
            wanted.set_token(entry.token());
            wanted.set_next_pointer_63_32(0).set_next_pointer_31_10(0);
            block.set_next_pointer_63_32(0).set_next_pointer_31_10(0).set_ctrl_signature(0).set_signature(0);
            let name = format!("{:#x}: block {number} (signed: {signed})", exchange.opcode);
            self.compare(&name, wanted.as_bytes(), block.as_bytes());
        }
    }

    fn compare(&mut self, name: &str, wanted: &[u8], found: &[u8]) {
        let differing: Vec<_> = (0..wanted.len()).filter(|&i| wanted[i] != found[i]).collect();
        match differing[..] {
            [] => self.tally.bytes += wanted.len(),
            [first, ..] => self.tally.faults.push(format!(
                "{name}: {} bytes differ, the first at {first:#x}: trace {:02x?}, driver {:02x?}",
                differing.len(),
                &wanted[first & !3..(first & !3) + 4],
                &found[first & !3..(first & !3) + 4]
            )),
        }
    }
}

fn read<T: FromBytes + IntoBytes, M: HostMemory>(memory: &mut M, at: u64) -> T {
    let mut value = T::new_zeroed();
    memory.read(at, value.as_mut_bytes()).expect("a command is in mapped memory");
    value
}

/// Writes the recorded output into the chain that the driver gave, and returns the entry to software.
fn answer<M: HostMemory>(memory: &mut M, exchange: &Exchange, entry: &mut CommandQueueEntry) {
    let recorded = &exchange.output.entry;
    let mut next = output_pointer(entry);
    let blocks = blocks_for(entry.output_length());
    for recorded in exchange.output.blocks.iter().take(blocks) {
        let block: CommandMailbox = read(memory, next);
        memory.write(next, &recorded.mailbox_data()).expect("an output block is mapped");
        next = next_block(&block);
    }
    entry.set_command_output_inline_data(recorded.command_output_inline_data());
    entry.set_status(recorded.status()).set_ownership(false);
}

impl Device for ReplayDevice {
    fn handle_mmio_read(&mut self, _: Time, _: u64) -> u32 {
        0
    }

    fn handle_mmio_write<M: HostMemory>(&mut self, _: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        match offset as usize {
            init_segment::CMDQ_ADDRESS_HIGH => self.queue = u64::from(word) << 32,
            init_segment::CMDQ_ADDRESS_LOW => self.queue |= u64::from(word),
            init_segment::COMMAND_DOORBELL => {
                (0..32).filter(|slot| word >> slot & 1 != 0).for_each(|slot| self.serve(memory, slot));
            }
            _ => {}
        }
    }

    fn handle_frame<M: HostMemory>(&mut self, _: Time, _: &mut M, _: &[u8]) {}
    fn handle_timeout<M: HostMemory>(&mut self, _: Time, _: &mut M) {}
    fn poll_transmit<M: HostMemory>(&mut self, _: Time, _: &mut M, _: &mut FrameBuffer) -> Option<Transmit> {
        None
    }
    fn has_transmit(&self) -> bool {
        false
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn set_link_up<M: HostMemory>(&mut self, _: Time, _: &mut M, _: bool) {}
    fn bar_length(&self) -> u64 {
        32 << 20
    }
}
