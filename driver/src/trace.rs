//! Trace events about the driver's actions for an observer. The data path only reports the completions that it
//! discards.

use crate::boot_step::BootStep;
use crate::command::CommandFailure;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::CommandOpcode;

/// Receives trace events.
///
/// Called while the driver holds the command interface, so an observer must not call the device.
pub trait Observer: Sync {
    /// Handles an event.
    fn observe(&self, event: &TraceEvent);
}

/// An action of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A step of opening or closing the device begins.
    Step {
        /// The step.
        step: BootStep,
        /// Whether closing undoes the step.
        undo: bool,
    },
    /// The driver handed a command to the device.
    CommandSubmitted {
        /// The command.
        opcode: CommandOpcode,
        /// Its modifier.
        op_mod: u16,
        /// Slot of the command queue.
        slot: u8,
    },
    /// A command completed, failed or timed out.
    CommandFinished {
        /// The command.
        opcode: CommandOpcode,
        /// Slot of the command queue.
        slot: u8,
        /// Why it failed, if it did.
        failure: Option<CommandFailure>,
    },
    /// The driver gave pages to the device or, if the count is negative, took them back.
    PagesMoved {
        /// Number of pages.
        count: i32,
    },
    /// The driver discarded a completion because its queue pair is gone.
    CompletionDiscarded {
        /// The completion queue.
        cqn: Cqn,
        /// The queue pair that the completion named.
        qpn: Qpn,
    },
    /// The device refused to destroy an object. The driver never reuses its memory.
    ObjectLeaked {
        /// The command that failed.
        opcode: CommandOpcode,
        /// Number of the object.
        number: u32,
    },
}
