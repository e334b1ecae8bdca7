//! Host memory with the queue entries and mailboxes of the boot trace at the addresses that Linux gave them.

use crate::boot_trace::{BLOCK_DATA, Dump, Exchange, blocks_for, input_pointer, next_block, output_pointer};
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_sim::nic::{DmaFault, HostMemory};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

const PAGE: u64 = 4096;
/// Where blocks go that are missing from the log.
const SYNTHETIC: u64 = 0x5_0000_0000;
/// The first page of a MANAGE_PAGES command whose list is missing from the log.
const SYNTHETIC_PAGE: u64 = 0x6_0000_0000;

/// Memory of a host where every address exists and is zero until it is written.
#[derive(Debug, Default)]
pub struct SparseMemory {
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl HostMemory for SparseMemory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        for (at, byte) in (iova..).zip(buffer) {
            *byte = self.pages.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE) as usize]);
        }
        Ok(())
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        for (at, &byte) in (iova..).zip(bytes) {
            self.pages.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]))
                [(at % PAGE) as usize] = byte;
        }
        Ok(())
    }
}

impl SparseMemory {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.write(at, bytes).expect("every address exists");
    }

    /// A structure at an address.
    pub fn get<T: FromBytes + IntoBytes>(&mut self, at: u64) -> T {
        let mut value = T::new_zeroed();
        self.read(at, value.as_mut_bytes()).expect("every address exists");
        value
    }

    /// Puts a command where Linux had it: its entry at `slot`, its mailboxes at their own addresses. Input
    /// blocks that the log lacks are made up: consecutive page addresses, or zeros.
    pub fn lay_out(&mut self, exchange: &Exchange, slot: u64) {
        let entry = &exchange.input.entry;
        self.put(slot, exchange.input.entry.as_bytes());
        let input = blocks_for(entry.input_length());
        self.put_chain(input_pointer(entry), &exchange.input, input, |data, number| {
            fill_in(exchange, data, number)
        });
        let output = blocks_for(entry.output_length());
        let empty = |data: &mut [u8; BLOCK_DATA], _| data.fill(0);
        self.put_chain(output_pointer(entry), &emptied(&exchange.output), output, empty);
    }

    fn put_chain(
        &mut self,
        first: u64,
        dump: &Dump,
        needed: usize,
        made_up: impl Fn(&mut [u8; BLOCK_DATA], usize),
    ) {
        let mut at = first;
        for number in 0..needed {
            let block = dump.blocks.get(number).copied().unwrap_or_else(|| {
                let mut data = [0; BLOCK_DATA];
                made_up(&mut data, number);
                let mut block = CommandMailbox::new();
                block.set_mailbox_data(data).set_token(dump.entry.token()).set_block_number(number as u32);
                set_next(&mut block, SYNTHETIC + (number as u64 + 1) * 1024);
                block
            });
            self.put(at, block.as_bytes());
            at = next_block(&block);
        }
    }

    /// The output that a device left for the command in `slot`.
    pub fn output(&mut self, slot: u64) -> Vec<u8> {
        let entry: CommandQueueEntry = self.get(slot);
        let mut bytes = entry.command_output_inline_data().to_vec();
        let mut at = output_pointer(&entry);
        for _ in 0..blocks_for(entry.output_length()) {
            let block: CommandMailbox = self.get(at);
            bytes.extend(block.mailbox_data());
            at = next_block(&block);
        }
        bytes.truncate(entry.output_length() as usize);
        bytes
    }
}

/// The blocks of an output before the device has written them.
fn emptied(dump: &Dump) -> Dump {
    let mut dump = dump.clone();
    dump.blocks.iter_mut().for_each(|block| {
        block.set_mailbox_data([0; BLOCK_DATA]);
    });
    dump
}

/// Made-up data: page addresses for MANAGE_PAGES, zeros for anything else.
fn fill_in(exchange: &Exchange, data: &mut [u8; BLOCK_DATA], number: usize) {
    const MANAGE_PAGES: u16 = 0x108;
    if exchange.opcode != MANAGE_PAGES {
        return;
    }
    for (index, word) in data.chunks_exact_mut(8).enumerate() {
        let page = SYNTHETIC_PAGE + (number * BLOCK_DATA / 8 + index) as u64 * PAGE;
        word.copy_from_slice(&page.to_be_bytes());
    }
}

fn set_next(block: &mut CommandMailbox, address: u64) {
    block.set_next_pointer_63_32((address >> 32) as u32).set_next_pointer_31_10(address as u32 >> 10);
}
