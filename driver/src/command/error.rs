//! Errors of commands, and what firmware reports about its health.

use crate::dma::RangeError;
use crate::hal::{Hal, Mmio};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::init_segment::HealthBuffer;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, DeliveryStatus, HealthSyndrome};
use bareverbs_prm::time::Duration;
use core::fmt;
use zerocopy::IntoBytes;

/// A command that failed: what was attempted, with which values, and what the device answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandError {
    /// The command.
    pub opcode: CommandOpcode,
    /// Its modifier.
    pub op_mod: u16,
    /// The two words after the header, whose meaning depends on the command: number of the object, register,
    /// count.
    pub arguments: [u32; 2],
    /// Why it failed.
    pub failure: CommandFailure,
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandFailure {
    /// Input and output need more mailbox blocks than are free.
    NoMailbox {
        /// Blocks needed.
        needed: u32,
        /// Blocks in the pool.
        pool: u32,
    },
    /// All slots of the command queue are in use.
    NoSlot,
    /// Another thread held the command interface until the deadline.
    InterfaceBusy(InterfaceBusy),
    /// The device did not answer.
    TimedOut {
        /// How long the driver waited.
        waited: Duration,
        /// The health buffer at that time.
        health: HealthReport,
    },
    /// The device is gone. Either nothing was sent, or what was sent will never be answered. Later commands
    /// fail without waiting.
    DeviceLost(DeviceLoss),
    /// The device did not accept the command queue entry.
    NotDelivered(DeliveryStatus),
    /// The device refused or failed to execute the command.
    Refused {
        /// Status of the output.
        status: CommandStatus,
        /// Syndrome of the output: the firmware's own code.
        syndrome: u32,
    },
    /// The response carries the token of another command.
    WrongToken {
        /// Token sent.
        expected: u8,
        /// Token received.
        found: u8,
    },
    /// The response fails its checksum.
    WrongSignature,
    /// The response is longer or shorter than this command's should be.
    OutputLength {
        /// Bytes that were expected.
        asked: u32,
        /// Bytes that the device returned.
        found: u32,
    },
    /// A number in the response is impossible.
    BadOutput {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The ticket belongs to a command that has already ended.
    StaleTicket,
    /// The driver's own buffers do not match: a bug in the driver.
    Internal(RangeError),
}

impl CommandError {
    /// The status of the output, if the device gave one.
    pub const fn status(&self) -> Option<CommandStatus> {
        match self.failure {
            CommandFailure::Refused { status, .. } => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.arguments;
        write!(f, "{} (op_mod {:#x}, arguments {a:#x} {b:#x}): {}", self.opcode, self.op_mod, self.failure)
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoMailbox { needed, pool } => write!(
                f,
                "needs {needed} consecutive mailbox blocks from a pool of {pool}: raise DeviceConfig::mailbox_blocks or use larger pages"
            ),
            Self::NoSlot => f.write_str("all command slots are in use: poll the outstanding commands first"),
            Self::InterfaceBusy(busy) => write!(f, "{busy}"),
            Self::TimedOut { waited, health } => write!(f, "no answer for {waited}; {health}"),
            Self::DeviceLost(loss) => write!(f, "{loss}"),
            Self::NotDelivered(status) => write!(
                f,
                "not accepted, delivery status {status}: open the device again; if it comes back, report it as a bug of the driver"
            ),
            Self::Refused { status, syndrome } => {
                write!(f, "the device answered {status}, syndrome {syndrome:#010x}: {}", hint(status))
            }
            Self::WrongToken { expected, found } => write!(
                f,
                "the answer has token {found:#x}, expected {expected:#x}: check the DMA path and that nobody else drives the device"
            ),
            Self::WrongSignature => f.write_str("the answer fails its checksum: check the DMA path"),
            Self::OutputLength { asked, found } => {
                write!(f, "asked for {asked} bytes of output, {found} answered: update the firmware")
            }
            Self::BadOutput { field, value } => {
                write!(f, "the device answered {field} = {value:#x}, which cannot be: update the firmware")
            }
            Self::StaleTicket => f.write_str(
                "this command has been polled to its end before: submit it again for a new ticket",
            ),
            Self::Internal(range) => write!(f, "the driver's buffer is wrong: {range}; report it as a bug"),
        }
    }
}

/// What to try after the device has refused a command with a status.
const fn hint(status: CommandStatus) -> &'static str {
    match status {
        CommandStatus::InternalError => "the firmware failed, look at Device::health and reset the device",
        CommandStatus::BadOpcode => "the firmware does not know the command, update it",
        CommandStatus::BadParameter => {
            "a value is outside its range, compare the arguments with Capabilities"
        }
        CommandStatus::BadSystemState => "the device is not in a state for it, open it again",
        CommandStatus::BadResource => "the object is gone or of another kind, make a new one",
        CommandStatus::ResourceBusy => "something still uses the object, drop its users first",
        CommandStatus::NotReady => "the device is not ready yet, try again later",
        CommandStatus::ExceedsLimit => "it exceeds a limit of the device, ask for less",
        CommandStatus::BadResourceState => "the object is in another state, query it",
        CommandStatus::BadIndex => "there is no entry of that index, compare it with the table's size",
        CommandStatus::NoResources => "the device has no room left, drop objects or ask for less",
        CommandStatus::BadQpState => {
            "the queue pair is in another state, query it; reset leads out of every state"
        }
        CommandStatus::BadPacket => {
            "the device cannot use the management packet, check its class and attribute"
        }
        CommandStatus::BadSizeOutstandingCqes => "more completions are outstanding than fit, poll first",
        CommandStatus::BadInputLength | CommandStatus::BadOutputLength => {
            "the firmware and the driver disagree about the layout, update the firmware"
        }
        _ => "this driver does not know the status, look it up in the firmware's release notes",
    }
}

impl core::error::Error for CommandError {}

/// How a device was lost. Its objects are gone with it; the driver never reuses their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceLoss {
    /// Its registers read as all ones: the device has left the bus, or its slot or link has no power.
    Removed,
    /// Something else reset it, so it no longer knows this driver.
    Reset,
}

impl fmt::Display for DeviceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => {
                "the device has left the bus, all registers read as ones: drop everything that belongs to it, and check slot and link"
            }
            Self::Reset => {
                "the device was reset from outside and no longer knows this driver: drop everything that belongs to it and open it again"
            }
        })
    }
}

impl core::error::Error for DeviceLoss {}

/// Another thread held the command interface until the deadline. No command was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceBusy {
    /// How long the caller waited.
    pub waited: Duration,
}

impl fmt::Display for InterfaceBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = self.waited;
        write!(f, "the command interface was busy for {waited}: raise DeviceConfig::command_timeout")
    }
}

impl core::error::Error for InterfaceBusy {}

/// What firmware reports about itself in the health buffer of the initialization segment.
///
/// ```
/// use bareverbs_core::Device;
/// use bareverbs_core::hal::Hal;
///
/// /// Whether the firmware of a device needs somebody's help.
/// fn is_ill<H: Hal>(device: &Device<H>) -> bool {
///     let health = device.health();
///     if health.syndrome.raw() != 0 {
///         eprintln!("{health}");
///     }
///     health.device_gone || health.reset_requested
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthReport {
    /// The problem; 0 if there is none.
    pub syndrome: HealthSyndrome,
    /// Further information about the problem.
    pub extended_syndrome: u16,
    /// The severity of the problem.
    pub severity: u8,
    /// Whether firmware requests a reset.
    pub reset_requested: bool,
    /// The firmware version.
    pub firmware_version: u32,
    /// The address at which firmware stopped.
    pub assert_exit_pointer: u32,
    /// Whether all bits read as ones, as they do after a device has left the bus.
    pub device_gone: bool,
}

impl HealthReport {
    /// Reads the health buffer.
    pub fn read<H: Hal>(hal: &H) -> Self {
        let mut buffer = HealthBuffer::new();
        let mut gone = true;
        for (i, dword) in buffer.as_mut_bytes().chunks_exact_mut(4).enumerate() {
            let value = hal.mmio().read32(init_segment::HEALTH_BUFFER + 4 * i);
            gone &= value == u32::MAX;
            dword.copy_from_slice(&value.to_be_bytes());
        }
        Self {
            syndrome: buffer.synd(),
            extended_syndrome: buffer.ext_synd(),
            severity: buffer.severity(),
            reset_requested: buffer.rfr(),
            firmware_version: buffer.fw_version(),
            assert_exit_pointer: buffer.assert_existptr(),
            device_gone: gone,
        }
    }
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.device_gone {
            return f.write_str("all registers read as ones: the device has left the bus");
        }
        if self.syndrome.raw() == 0 {
            return f.write_str("the health buffer reports no fault");
        }
        let Self { syndrome, extended_syndrome, severity, firmware_version, assert_exit_pointer, .. } = self;
        write!(
            f,
            "health {syndrome}, extended {extended_syndrome:#x}, severity {severity}, firmware {firmware_version:#x}, \
             stopped at {assert_exit_pointer:#x}{}",
            if self.reset_requested { ", asks for a reset" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_refusal_says_what_to_try() {
        let text = |status| {
            CommandFailure::Refused { status: CommandStatus::from_raw(status), syndrome: 7 }.to_string()
        };
        assert_eq!(
            text(0xf),
            "the device answered NO_RES_ERR(0xf), syndrome 0x00000007: the device has no room left, drop objects or ask for less"
        );
        assert!(text(0x2).ends_with("update it"), "{}", text(2));
        assert!(text(0xee).contains("does not know the status"), "{}", text(0xee));
        let hints: std::collections::BTreeSet<_> =
            (1..=0x51).map(|raw| hint(CommandStatus::from_raw(raw))).collect();
        // One for each known status, of which two lengths share one, and one for the unknown.
        assert_eq!(hints.len(), 16);
    }
}
