//! What the driver did, as typed events to an observer. The data path reports nothing but what it throws away.

use crate::command::CommandFailure;
use crate::device::BootStep;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::CommandOpcode;

/// Somebody who wants to know. Called with the command interface locked: it must not call the device back.
pub trait Observer: Sync {
    /// Something happened.
    fn observe(&self, event: &TraceEvent);
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A step of opening or closing the device begins.
    Step {
        /// The step.
        step: BootStep,
        /// Whether it is undone.
        undo: bool,
    },
    /// A command was handed to the device.
    CommandSubmitted {
        /// The command.
        opcode: CommandOpcode,
        /// Its modifier.
        op_mod: u16,
        /// Slot of the command queue.
        slot: u8,
    },
    /// A command is over.
    CommandFinished {
        /// The command.
        opcode: CommandOpcode,
        /// Slot of the command queue.
        slot: u8,
        /// Why it failed, if it did.
        failure: Option<CommandFailure>,
    },
    /// Pages were given to the device, or taken back if negative.
    PagesMoved {
        /// How many.
        count: i32,
    },
    /// A completion of a queue pair that is gone was thrown away.
    CompletionDiscarded {
        /// The queue it was in.
        cqn: Cqn,
        /// The queue pair it named.
        qpn: Qpn,
    },
    /// The device did not destroy an object although nothing uses it; its memory is never given back.
    ObjectLeaked {
        /// The command that failed.
        opcode: CommandOpcode,
        /// Number of the object.
        number: u32,
    },
}
