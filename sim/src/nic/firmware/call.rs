//! One command during its execution by the firmware.

use crate::nic::HostMemory;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use bareverbs_prm::time::Time;
use zerocopy::{FromBytes, IntoBytes};

/// Input, output and context of one command.
pub(crate) struct Call<'a> {
    pub(crate) now: Time,
    pub(crate) memory: &'a mut dyn HostMemory,
    /// The bytes of the input, at least 16, without the list if that is in `list`.
    pub(crate) input: &'a [u8],
    /// The list of 64-bit words at the end of the input, for commands that may have a long one.
    list: Vec<u64>,
    /// Room that the driver provides for output, in bytes.
    pub(crate) output_length: usize,
    /// What follows the fixed part of the output.
    pub(crate) tail: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl<'a> Call<'a> {
    pub(crate) const fn new(
        now: Time,
        memory: &'a mut dyn HostMemory,
        input: &'a [u8],
        list: Vec<u64>,
        output_length: usize,
    ) -> Self {
        Self { now, memory, input, list, output_length, tail: Vec::new(), output: Vec::new() }
    }

    /// Bytes of the whole input.
    pub(super) const fn input_length(&self) -> usize {
        self.input.len() + self.list.len() * 8
    }

    fn header(&self) -> CommandHeaderIn {
        CommandHeaderIn::read_from_prefix(self.input).map(|(header, _)| header).unwrap_or_default()
    }

    pub(crate) fn opcode(&self) -> CommandOpcode {
        self.header().opcode()
    }

    pub(crate) fn op_mod(&self) -> u16 {
        self.header().op_mod()
    }

    /// The user context that issued the command; zero is the driver.
    pub(crate) fn uid(&self) -> u16 {
        self.header().uid()
    }

    /// Refuses every `op_mod` but 0.
    pub(crate) fn expect_no_op_mod(&self) -> Result<(), Refusal> {
        if self.op_mod() == 0 { Ok(()) } else { Err(syndrome::BAD_OP_MOD) }
    }

    /// Takes `count` 64-bit addresses from the list that starts at byte `offset` of the input.
    pub(crate) fn list(&mut self, offset: usize, count: u64) -> Result<Vec<u64>, Refusal> {
        let bytes = self.input.get(offset..).unwrap_or(&[]);
        if count > (bytes.len() / 8).max(self.list.len()) as u64 {
            return Err(syndrome::LIST_TOO_SHORT);
        }
        if self.list.is_empty() {
            let entries = bytes.chunks_exact(8).take(count as usize);
            return Ok(entries.filter_map(|entry| entry.try_into().ok().map(u64::from_be_bytes)).collect());
        }
        let mut list = core::mem::take(&mut self.list);
        list.truncate(count as usize);
        Ok(list)
    }

    /// Bytes of the input whose meaning depends on other fields, so their reserved bits are not checked.
    pub(crate) fn open_part(&self) -> core::ops::Range<usize> {
        match self.opcode() {
            CommandOpcode::SetHcaCap => 16..4112,
            CommandOpcode::ModifyNicVportContext => 256..512,
            _ => 0..0,
        }
    }

    /// Sets the output of a successful command.
    pub(super) fn answer(&mut self, fixed: &[u8]) {
        self.output.clear();
        self.output.extend_from_slice(fixed);
        self.output.append(&mut self.tail);
    }

    /// Sets the output of a refused command.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.output = refusal_bytes(refusal);
    }
}

/// The output of a refused command: only status and syndrome.
fn refusal_bytes(refusal: Refusal) -> Vec<u8> {
    let mut header = CommandHeaderOut::new();
    header.set_status(refusal.status).set_syndrome(refusal.syndrome);
    debug_assert_ne!(refusal.status, CommandStatus::Ok);
    header.as_bytes().to_vec()
}
