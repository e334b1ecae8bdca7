//! Linux error numbers that methods return.

use bareverbs_prm::numbering::CommandStatus;
use bareverbs_sim::nic::DmaFault;
use core::fmt;

/// Why a request failed. The numbers are Linux's on every architecture that mlx5 supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Errno {
    /// The caller lacks privileges.
    Permission = 1,
    /// An object does not exist.
    NoEntry = 2,
    /// The device failed, or is gone.
    Io = 5,
    /// A descriptor is of the wrong kind.
    BadDescriptor = 9,
    /// None is available now.
    Again = 11,
    /// A limit is reached.
    NoMemory = 12,
    /// An address of the program is not mapped.
    Fault = 14,
    /// The object is in use.
    Busy = 16,
    /// There is no such device.
    NoDevice = 19,
    /// An argument is invalid.
    Invalid = 22,
    /// A structure is shorter than the command needs.
    NoSpace = 28,
    /// The command does not exist.
    NoCommand = 38,
    /// An entry of a table is empty.
    NoData = 61,
    /// The request does not exist.
    ProtocolNotSupported = 93,
    /// Not supported by the device or this crate.
    NotSupported = 95,
    /// Unknown address family.
    AddressFamily = 97,
    /// The port is taken.
    AddressInUse = 98,
    /// The host does not have the address.
    AddressNotAvailable = 99,
    /// Nobody has the address.
    TimedOut = 110,
    /// Firmware refused a command of the program; status and syndrome are in its output.
    RemoteIo = 121,
}

impl Errno {
    /// The number.
    pub const fn raw(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {} ({self:?})", self.raw())
    }
}

impl core::error::Error for Errno {}

impl From<DmaFault> for Errno {
    fn from(_: DmaFault) -> Self {
        Self::Fault
    }
}

impl From<CommandStatus> for Errno {
    /// Translates a command status like `mlx5_core` does.
    fn from(status: CommandStatus) -> Self {
        match status {
            CommandStatus::InternalError
            | CommandStatus::BadSystemState
            | CommandStatus::BadInputLength
            | CommandStatus::BadOutputLength => Self::Io,
            CommandStatus::ResourceBusy => Self::Busy,
            CommandStatus::ExceedsLimit => Self::NoMemory,
            CommandStatus::NoResources => Self::Again,
            _ => Self::Invalid,
        }
    }
}
