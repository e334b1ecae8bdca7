//! Host memory, and a driver that knows only command queue entries.

use crate::nic::{DmaFault, HostMemory, Nic, NicConfig};
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut, CommandMailbox, CommandQueueEntry};
use bareverbs_prm::command::hca::{EnableHcaIn, EnableHcaOut, InitHcaIn, InitHcaOut};
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, DeliveryStatus};
use bareverbs_prm::time::{Duration, Time};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// First valid memory address.
pub const BASE: u64 = 0x1_0000_0000;

/// Host memory. The device may access what was allocated; every other access faults and is recorded.
pub struct Memory {
    pub bytes: Vec<u8>,
    regions: Vec<(u64, u64)>,
    pub faults: Vec<DmaFault>,
    next: u64,
}

impl Memory {
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size], regions: Vec::new(), faults: Vec::new(), next: BASE }
    }

    /// Allocates zeroed bytes, aligned to pages, followed by an unmapped page.
    pub fn allocate(&mut self, length: u64) -> u64 {
        let address = self.next;
        self.next = (address + length).next_multiple_of(4096) + 4096;
        assert!(self.next - BASE <= self.bytes.len() as u64, "the test needs more memory");
        self.regions.push((address, address + length));
        address
    }

    /// Revokes a region, as an IOMMU does.
    pub fn revoke(&mut self, address: u64) {
        self.regions.retain(|&(start, _)| start != address);
    }

    pub fn slice(&self, address: u64, length: usize) -> &[u8] {
        &self.bytes[(address - BASE) as usize..][..length]
    }

    pub fn slice_mut(&mut self, address: u64, length: usize) -> &mut [u8] {
        &mut self.bytes[(address - BASE) as usize..][..length]
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.slice_mut(address, bytes.len()).copy_from_slice(bytes);
    }

    pub fn load<T: FromBytes + IntoBytes>(&self, address: u64) -> T {
        T::read_from_bytes(self.slice(address, size_of::<T>())).unwrap()
    }

    fn check(&mut self, iova: u64, length: usize, write: bool) -> Result<usize, DmaFault> {
        let end = iova.checked_add(length as u64);
        let inside = |&(start, stop): &(u64, u64)| iova >= start && end.is_some_and(|end| end <= stop);
        if self.regions.iter().rev().any(inside) {
            return Ok((iova - BASE) as usize);
        }
        let fault = DmaFault { iova, length, write };
        self.faults.push(fault);
        Err(fault)
    }
}

impl HostMemory for Memory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        let at = self.check(iova, buffer.len(), false)?;
        buffer.copy_from_slice(&self.bytes[at..at + buffer.len()]);
        Ok(())
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let at = self.check(iova, bytes.len(), true)?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A host with one device.
pub struct Host {
    pub nic: Nic,
    pub memory: Memory,
    pub now: Time,
    pub queue: u64,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    pub token: u8,
    pub sign: bool,
}

/// The result of a command.
pub type CommandResult<O> = Result<(O, Vec<u8>), (CommandStatus, u32)>;

impl Host {
    /// A host whose device is powered on and knows the address of the command queue.
    pub fn new(config: NicConfig) -> Self {
        Self::with_memory(config, 8 << 20)
    }

    pub fn with_memory(config: NicConfig, size: usize) -> Self {
        let mut memory = Memory::new(size);
        let queue = memory.allocate(4096);
        let mut blocks = |count| (0..count).map(|_| memory.allocate(1024)).collect::<Vec<_>>();
        let (inputs, outputs) = (blocks(12), blocks(12));
        let mut host = Self {
            nic: Nic::new(config),
            memory,
            now: Time::ZERO,
            queue,
            inputs,
            outputs,
            token: 0x5a,
            sign: false,
        };
        host.read(init_segment::INITIALIZING);
        host.now += config.firmware_ready_after;
        host.write(init_segment::CMDQ_ADDRESS_HIGH, (queue >> 32) as u32);
        host.write(init_segment::CMDQ_ADDRESS_LOW, queue as u32);
        host
    }

    /// A host whose device is initialized.
    pub fn booted(config: NicConfig) -> Self {
        let mut host = Self::new(config);
        host.boot();
        host
    }

    pub fn boot(&mut self) {
        self.run::<_, EnableHcaOut>(CommandOpcode::EnableHca, 0, EnableHcaIn::new()).unwrap();
        self.give_pages(1);
        self.give_pages(2);
        self.run::<_, InitHcaOut>(CommandOpcode::InitHca, 0, InitHcaIn::new()).unwrap();
    }

    /// Gives as many pages as the device requests.
    pub fn give_pages(&mut self, stage: u16) -> Vec<u64> {
        let (requested, _): (QueryPagesOut, _) =
            self.run(CommandOpcode::QueryPages, stage, QueryPagesIn::new()).unwrap();
        let pages: Vec<u64> = (0..requested.num_pages()).map(|_| self.memory.allocate(4096)).collect();
        let mut give = ManagePagesIn::new();
        give.set_input_num_entries(pages.len() as u32);
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        self.command::<_, ManagePagesOut>(CommandOpcode::ManagePages, 1, give, &list, 16).unwrap();
        pages
    }

    pub fn read(&mut self, offset: usize) -> u32 {
        self.nic.handle_mmio_read(self.now, offset as u64)
    }

    pub fn write(&mut self, offset: usize, value: u32) {
        self.write_bytes(offset as u64, &value.to_be_bytes());
    }

    pub fn write_bytes(&mut self, offset: u64, bytes: &[u8]) {
        self.nic.handle_mmio_write(self.now, &mut self.memory, offset, bytes);
    }

    /// Advances the time and runs what is due.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(due) = self.nic.poll_timeout().filter(|&due| due <= until) {
            self.now = self.now.max(due);
            self.nic.handle_timeout(self.now, &mut self.memory);
        }
        self.now = until;
    }

    /// Runs a command without a list, whose output has the size of its layout.
    pub fn run<I, O>(&mut self, opcode: CommandOpcode, op_mod: u16, input: I) -> CommandResult<O>
    where
        I: IntoBytes + Immutable,
        O: FromBytes + FromZeros + IntoBytes,
    {
        self.command(opcode, op_mod, input, &[], size_of::<O>())
    }

    /// Runs a command to its end. The output is split into its layout and the rest.
    pub fn command<I, O>(
        &mut self,
        opcode: CommandOpcode,
        op_mod: u16,
        input: I,
        list: &[u8],
        output_length: usize,
    ) -> CommandResult<O>
    where
        I: IntoBytes + Immutable,
        O: FromBytes + FromZeros + IntoBytes,
    {
        let mut bytes = input.as_bytes().to_vec();
        bytes.extend_from_slice(list);
        let mut header = CommandHeaderIn::read_from_prefix(&bytes).unwrap().0;
        header.set_opcode(opcode).set_op_mod(op_mod);
        bytes[..16].copy_from_slice(header.as_bytes());
        let (delivery, output) = self.execute(3, &bytes, output_length);
        assert_eq!(delivery, DeliveryStatus::Ok, "{opcode}");
        let header = CommandHeaderOut::read_from_prefix(&pad(&output, 16)).unwrap().0;
        if header.status() != CommandStatus::Ok {
            return Err((header.status(), header.syndrome()));
        }
        let mut fixed = O::new_zeroed();
        let length = output.len().min(size_of::<O>());
        fixed.as_mut_bytes()[..length].copy_from_slice(&output[..length]);
        Ok((fixed, output[length..].to_vec()))
    }

    /// Writes a command into a slot, rings the doorbell, and reads the result.
    pub fn execute(&mut self, slot: u32, input: &[u8], output_length: usize) -> (DeliveryStatus, Vec<u8>) {
        self.prepare(slot, input, output_length);
        self.write(init_segment::COMMAND_DOORBELL, 1 << slot);
        self.finish(slot, output_length)
    }

    /// Writes a command into a slot.
    pub fn prepare(&mut self, slot: u32, input: &[u8], output_length: usize) {
        let mut entry = CommandQueueEntry::new();
        let mut inline = [0; 16];
        let head = input.len().min(16);
        inline[..head].copy_from_slice(&input[..head]);
        let first_in = self.fill_chain(true, &input[head..]);
        let first_out = self.fill_chain(false, &vec![0; output_length.saturating_sub(16)]);
        entry.set_kind(7).set_input_length(input.len() as u32).set_output_length(output_length as u32);
        entry.set_input_mailbox_pointer_63_32((first_in >> 32) as u32);
        entry.set_input_mailbox_pointer_31_9((first_in as u32) >> 9);
        entry.set_output_mailbox_pointer_63_32((first_out >> 32) as u32);
        entry.set_output_mailbox_pointer_31_9((first_out as u32) >> 9);
        entry.set_command_input_inline_data(inline).set_token(self.token).set_ownership(true);
        if self.sign {
            let signature = !entry.as_bytes().iter().fold(0, |sum, byte| sum ^ byte);
            entry.set_signature(signature);
        }
        self.memory.put(self.queue + u64::from(slot) * 64, entry.as_bytes());
    }

    /// Reads the output of a slot.
    pub fn finish(&mut self, slot: u32, output_length: usize) -> (DeliveryStatus, Vec<u8>) {
        let entry: CommandQueueEntry = self.memory.load(self.queue + u64::from(slot) * 64);
        assert!(!entry.ownership(), "the device still owns the entry");
        let mut output = entry.command_output_inline_data().to_vec();
        for &block in &self.outputs {
            output.extend_from_slice(self.memory.slice(block, 512));
        }
        output.truncate(output_length);
        (DeliveryStatus::from_raw(entry.status()), output)
    }

    /// Fills mailbox blocks with bytes and chains one more than needed, as the kernel does.
    fn fill_chain(&mut self, input: bool, bytes: &[u8]) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let needed = bytes.len().div_ceil(512) + 1;
        let pool = if input { &mut self.inputs } else { &mut self.outputs };
        while pool.len() < needed {
            pool.push(self.memory.allocate(1024));
        }
        let blocks = pool[..needed].to_vec();
        for (i, &block) in blocks.iter().enumerate() {
            let next = blocks.get(i + 1).copied().unwrap_or(0);
            let data = bytes.get(i * 512..).map_or(&[][..], |rest| &rest[..rest.len().min(512)]);
            let mailbox = self.mailbox(data, i as u32, next);
            self.memory.put(block, mailbox.as_bytes());
        }
        blocks[0]
    }

    fn mailbox(&self, data: &[u8], number: u32, next: u64) -> CommandMailbox {
        let mut mailbox = CommandMailbox::new();
        let mut bytes = [0; 512];
        bytes[..data.len()].copy_from_slice(data);
        mailbox.set_mailbox_data(bytes).set_block_number(number).set_token(self.token);
        mailbox.set_next_pointer_63_32((next >> 32) as u32).set_next_pointer_31_10((next as u32) >> 10);
        if self.sign {
            let fold = |bytes: &[u8]| !bytes.iter().fold(0, |sum, byte| sum ^ byte);
            let control = fold(&mailbox.as_bytes()[512..574]);
            mailbox.set_ctrl_signature(control);
            let all = fold(&mailbox.as_bytes()[..575]);
            mailbox.set_signature(all);
        }
        mailbox
    }
}

fn pad(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(length), 0);
    bytes
}
