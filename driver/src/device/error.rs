//! Why a device could not be opened or closed.

use crate::boot_step::BootStep;
use crate::command::{CommandError, HealthReport};
use crate::hal::HalError;
use crate::page_supply::PageError;
use bareverbs_prm::time::Duration;
use core::fmt;

/// Why a device did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError {
    /// The step that failed. The driver has undone the steps before it.
    pub step: BootStep,
    /// Why it failed.
    pub cause: OpenCause,
}

/// Why a step of opening failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenCause {
    /// Firmware did not become ready.
    FirmwareNotReady {
        /// How long the driver waited.
        waited: Duration,
        /// What firmware reports about its health.
        health: HealthReport,
    },
    /// The revision of the command interface is not 5.
    UnknownInterface {
        /// Its revision.
        found: u16,
    },
    /// The command queue does not fit into a page, or has no slot besides the reserved one.
    BadQueueGeometry {
        /// log2 of its number of slots.
        log_size: u8,
        /// log2 of the distance between slots in bytes.
        log_stride: u8,
    },
    /// The window into BAR0 is too small.
    WindowTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes in the window.
        found: usize,
    },
    /// The device does not support ISSI 1.
    NoIssi1 {
        /// Bit mask of the ISSIs that it supports.
        supported: u32,
    },
    /// The device lacks a capability that this driver needs.
    Missing {
        /// The capability.
        feature: &'static str,
    },
    /// The device is already up: in this process, or under another driver.
    AlreadyOpen(CommandError),
    /// A command failed.
    Command(CommandError),
    /// The driver could not give the device its pages.
    Pages(PageError),
    /// The HAL has no memory left.
    Memory(HalError),
}

impl From<CommandError> for OpenCause {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<PageError> for OpenCause {
    fn from(error: PageError) -> Self {
        Self::Pages(error)
    }
}

impl From<HalError> for OpenCause {
    fn from(error: HalError) -> Self {
        Self::Memory(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opening the device failed at {:?}: {}", self.step, self.cause)
    }
}

impl fmt::Display for OpenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FirmwareNotReady { waited, health } => {
                write!(f, "firmware is not ready after {waited}; {health}")
            }
            Self::UnknownInterface { found } => {
                write!(
                    f,
                    "the command interface has revision {found}, this driver speaks 5: is this an mlx5 device?"
                )
            }
            Self::BadQueueGeometry { log_size, log_stride } => {
                write!(
                    f,
                    "the driver cannot use a command queue of 2^{log_size} slots of 2^{log_stride} bytes: update the firmware"
                )
            }
            Self::WindowTooSmall { needed, found } => {
                write!(f, "the window into BAR0 has {found} bytes, {needed} are needed: map the whole BAR")
            }
            Self::NoIssi1 { supported } => {
                write!(
                    f,
                    "the device does not support ISSI 1 (it supports the bits {supported:#x}): update the firmware"
                )
            }
            Self::Missing { feature } => {
                write!(f, "the device lacks {feature}: update the firmware, or use another device")
            }
            Self::AlreadyOpen(error) => write!(
                f,
                "the device is open already, in this process or by another driver: share the existing \
                 handle, close it first, or reset the device ({error})"
            ),
            Self::Command(error) => write!(f, "{error}"),
            Self::Pages(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// Why a device did not close cleanly. The driver never reuses memory that the device may still access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// A command failed.
    Command {
        /// The step that the command undoes.
        step: BootStep,
        /// The device's response.
        error: CommandError,
    },
    /// The driver could not reclaim its pages.
    Pages(PageError),
    /// The device is closed but did not return all pages.
    PagesKept {
        /// Pages that it keeps.
        held: u32,
    },
    /// The device still holds a command that timed out.
    CommandsUnderWay,
}

/// A failed close. It returns the HAL.
pub struct CloseError<H> {
    /// The cause.
    pub cause: CloseCause,
    /// The HAL.
    pub hal: H,
}

impl<H> fmt::Debug for CloseError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl<H> fmt::Display for CloseError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closing the device failed: ")?;
        match self.cause {
            CloseCause::Command { step, error } => write!(f, "undoing {step:?}: {error}"),
            CloseCause::Pages(error) => write!(f, "{error}"),
            CloseCause::PagesKept { held } => write!(f, "the device keeps {held} pages; reset it"),
            CloseCause::CommandsUnderWay => {
                f.write_str("the device still holds a command that timed out; reset it")
            }
        }
    }
}

impl<H> core::error::Error for CloseError<H> {}
