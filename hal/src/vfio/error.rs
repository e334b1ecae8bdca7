//! Errors of opening a device through VFIO, each with a remedy.

use crate::pci::{Address, Finding, FunctionError};
use bareverbs_core::hal::HalError;
use core::fmt;
use std::io;
use std::path::PathBuf;

/// Why a device could not be opened, or its configuration space not be accessed.
#[derive(Debug)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no such function.
    Missing(FunctionError),
    /// The preflight found obstacles.
    Preflight {
        /// The function.
        address: Address,
        /// The obstacles; at least one.
        obstacles: Vec<Finding>,
    },
    /// Opening a file failed.
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Kernel drivers hold other functions of the IOMMU group.
    GroupNotViable {
        /// The function.
        address: Address,
    },
    /// The kernel has no character device for the function.
    NoCharacterDevice {
        /// The function.
        address: Address,
    },
    /// The kernel does not allow no-IOMMU mode.
    NoUnsafeMode {
        /// The function.
        address: Address,
    },
    /// A system call failed.
    System {
        /// The operation.
        what: &'static str,
        /// The function.
        address: Address,
        /// The kernel's error.
        error: io::Error,
    },
    /// VFIO refused without an error number.
    Refused {
        /// The function.
        address: Address,
        /// Its message.
        why: String,
    },
    /// BAR0 cannot be mapped.
    NoWindow {
        /// The function.
        address: Address,
        /// Bytes of BAR0.
        size: u64,
    },
    /// A register of PCI configuration space did not take what was written.
    Configuration {
        /// The function.
        address: Address,
        /// What was written.
        wanted: u16,
        /// What it reads.
        found: u16,
    },
    /// Memory for the device could not be had.
    Memory {
        /// The function.
        address: Address,
        /// Why.
        error: HalError,
    },
}

impl fmt::Display for VfioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(error) => write!(f, "{error}"),
            Self::Preflight { address, obstacles } => {
                write!(f, "{address} cannot be opened")?;
                obstacles.iter().try_for_each(|obstacle| write!(f, "\n  {obstacle}"))
            }
            Self::Open { path, error } => {
                write!(f, "cannot open {}: {error}", path.display())?;
                f.write_str(match error.raw_os_error() {
                    Some(libc::EBUSY) => "; another process has the device: end it first",
                    Some(libc::EACCES | libc::EPERM) => {
                        "; give this user the file: sudo chown $USER FILE; or run this as root"
                    }
                    Some(libc::ENOENT) => "; is vfio-pci loaded? sudo modprobe vfio-pci",
                    _ => "",
                })
            }
            Self::GroupNotViable { address } => write!(
                f,
                "the IOMMU group of {address} is not viable: kernel drivers hold other functions of it; see: bareverbs vfio check {address}"
            ),
            Self::NoCharacterDevice { address } => write!(
                f,
                "{address} has no character device: this kernel has no VFIO_DEVICE_CDEV, or the device is \
                 not bound to vfio-pci; use the type 1 container"
            ),
            Self::NoUnsafeMode { address } => write!(
                f,
                "{address} cannot be opened without an IOMMU: the kernel needs CONFIG_VFIO_NOIOMMU and \
                 echo 1 | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode before the device is bound"
            ),
            Self::System { what, address, error } => {
                write!(f, "{address}: {what} failed: {error}")?;
                f.write_str(match error.raw_os_error() {
                    Some(libc::EPERM) => {
                        "; if interrupts cannot be remapped here: echo 1 | sudo tee \
                         /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
                    }
                    Some(libc::ENODEV) => "; the device has left the bus",
                    _ => "",
                })
            }
            Self::Refused { address, why } => write!(f, "VFIO refuses {address}: {why}"),
            Self::NoWindow { address, size } => {
                write!(
                    f,
                    "BAR0 of {address} ({size} bytes) cannot be mapped: did the firmware assign it an address?"
                )
            }
            Self::Configuration { address, wanted, found } => write!(
                f,
                "the PCI command register of {address} reads {found:#06x} after {wanted:#06x} was written: the device may \
                 have left the bus"
            ),
            Self::Memory { address, error } => {
                write!(f, "no memory for {address}: {error}")?;
                match error {
                    HalError::MapFailed { errno: libc::ENOMEM | libc::EAGAIN | libc::EPERM, .. } => {
                        f.write_str("; raise the limit of locked memory: ulimit -l unlimited")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl core::error::Error for VfioError {}

impl From<FunctionError> for VfioError {
    fn from(error: FunctionError) -> Self {
        Self::Missing(error)
    }
}
