//! A device that records every command before it passes it on to the simulated NIC.

use crate::boot_trace::{blocks_for, input_pointer, next_block};
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{HostMemory, Nic};
use bareverbs_sim::run::Device;
use bareverbs_sim::run::device::Transmit;
use bareverbs_sim::wire::FrameBuffer;
use zerocopy::{FromZeros, IntoBytes};

/// The simulated NIC with a tap on its command queue.
#[derive(Debug)]
pub struct Tap {
    nic: Nic,
    queue: u64,
    /// Inputs of commands, in the order of their doorbells.
    pub inputs: Vec<Vec<u8>>,
}

impl Tap {
    /// A tap on `nic`.
    pub fn new(nic: Nic) -> Self {
        Self { nic, queue: 0, inputs: Vec::new() }
    }

    fn note<M: HostMemory>(&mut self, memory: &mut M, slot: u64) {
        let mut entry = CommandQueueEntry::new_zeroed();
        memory.read(self.queue + slot * 64, entry.as_mut_bytes()).expect("the command queue is mapped");
        let mut input = entry.command_input_inline_data().to_vec();
        let mut at = input_pointer(&entry);
        for _ in 0..blocks_for(entry.input_length()) {
            let mut block = CommandMailbox::new_zeroed();
            memory.read(at, block.as_mut_bytes()).expect("mailboxes are mapped");
            input.extend(block.mailbox_data());
            at = next_block(&block);
        }
        input.truncate(entry.input_length() as usize);
        self.inputs.push(input);
    }
}

impl Device for Tap {
    fn vectors(&self) -> u16 {
        Device::vectors(&self.nic)
    }
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        self.nic.handle_mmio_read(now, offset)
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        match offset as usize {
            init_segment::CMDQ_ADDRESS_HIGH => self.queue = u64::from(word) << 32,
            init_segment::CMDQ_ADDRESS_LOW => self.queue |= u64::from(word & !0xfff),
            init_segment::COMMAND_DOORBELL => {
                (0..32).filter(|slot| word >> slot & 1 != 0).for_each(|slot| self.note(memory, slot));
            }
            _ => {}
        }
        self.nic.handle_mmio_write(now, memory, offset, bytes);
    }
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        Device::handle_frame(&mut self.nic, now, memory, frame);
    }
    fn handle_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        Device::handle_buffer(&mut self.nic, now, memory, frame);
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        Device::handle_timeout(&mut self.nic, now, memory);
    }
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        Device::poll_transmit(&mut self.nic, now, memory, frame)
    }
    fn has_transmit(&self) -> bool {
        Device::has_transmit(&self.nic)
    }
    fn has_yielded(&self) -> bool {
        Device::has_yielded(&self.nic)
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        Device::poll_interrupt(&mut self.nic)
    }
    fn poll_timeout(&self) -> Option<Time> {
        Device::poll_timeout(&self.nic)
    }
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool) {
        Device::set_link_up(&mut self.nic, now, memory, up);
    }
    fn bar_length(&self) -> u64 {
        Device::bar_length(&self.nic)
    }
}
