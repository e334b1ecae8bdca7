//! Records of commands and their results, for watching a driver.

use super::observer::DeviceEvent;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use core::fmt;
use std::collections::VecDeque;

/// The maximum number of records kept until someone fetches them.
const KEPT: usize = 4096;

/// A command and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRecord {
    /// The command.
    pub opcode: CommandOpcode,
    /// Its modifier.
    pub op_mod: u16,
    /// First word of the input after the header; for most commands it identifies their object.
    pub subject: u32,
    /// Input length in bytes.
    pub input_length: usize,
    /// Room for output in bytes.
    pub output_length: usize,
    /// Resulting status.
    pub status: CommandStatus,
    /// Syndrome, if it was refused.
    pub syndrome: u32,
}

impl CommandRecord {
    /// The event that reports the record to an observer.
    pub(super) const fn event(&self) -> DeviceEvent {
        DeviceEvent::CommandExecuted { opcode: self.opcode, status: self.status }
    }

    /// Whether the command succeeded.
    pub fn is_success(&self) -> bool {
        self.status == CommandStatus::Ok
    }
}

impl fmt::Display for CommandRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opcode, op_mod, subject, input_length, output_length, status, syndrome } = self;
        write!(
            f,
            "{opcode:?} {:#05x}/{op_mod:#x} {subject:#010x} in {input_length} out {output_length}: ",
            opcode.raw()
        )?;
        if self.is_success() { f.write_str("ok") } else { write!(f, "{status:?}, syndrome {syndrome:#x}") }
    }
}

/// Records that have not been fetched yet.
#[derive(Debug, Default)]
pub(super) struct CommandTrace {
    on: bool,
    records: VecDeque<CommandRecord>,
}

impl CommandTrace {
    /// Starts or stops keeping records.
    pub(super) const fn set_on(&mut self, on: bool) {
        self.on = on;
    }

    /// The oldest record that has not been fetched.
    pub(super) fn pop(&mut self) -> Option<CommandRecord> {
        self.records.pop_front()
    }

    pub(super) fn push(&mut self, record: CommandRecord) {
        if !self.on {
            return;
        }
        if self.records.len() == KEPT {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }
}
