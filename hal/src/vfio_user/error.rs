//! Errors of opening a served device.

use super::client::ClientError;
use bareverbs_core::hal::HalError;
use core::fmt;

/// Why a served device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum VfioUserError {
    /// Talking to the server failed.
    Client(ClientError),
    /// The server's device is not a supported mlx5 device.
    Unsupported {
        /// PCI vendor and device ID.
        id: (u16, u16),
        /// Why.
        why: &'static str,
    },
    /// The device has no readable and writable BAR0.
    NoWindow,
    /// There is no memory, or the server does not map it.
    Memory(HalError),
    /// The PCI command register did not take what was written.
    Configuration {
        /// What was written.
        wanted: u16,
        /// What it reads.
        found: u16,
    },
    /// Mapping the server's pages, or creating event file descriptors, failed.
    System(std::io::Error),
}

impl fmt::Display for VfioUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => write!(f, "{error}"),
            Self::Unsupported { id: (vendor, device), why } => {
                write!(f, "{vendor:04x}:{device:04x} is refused: {why}")
            }
            Self::NoWindow => f.write_str("the served device has no BAR0 that can be read and written"),
            Self::Memory(error) => write!(f, "no memory for the served device: {error}"),
            Self::Configuration { wanted, found } => {
                write!(
                    f,
                    "the PCI command register of the served device reads {found:#06x} after {wanted:#06x} was written"
                )
            }
            Self::System(error) => write!(f, "cannot share pages or events with the server: {error}"),
        }
    }
}

impl core::error::Error for VfioUserError {}

impl From<ClientError> for VfioUserError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}
