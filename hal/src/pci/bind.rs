//! Giving a function to `vfio-pci`, and back to the driver that the kernel would choose.

use super::ids::Support;
use super::{Address, Duty, Function, FunctionError, Tree, VFIO_PCI};
use core::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Why a function did not change its driver.
#[derive(Debug)]
pub enum BindError {
    /// There is no such function.
    Missing(FunctionError),
    /// The function is not one that this driver runs on.
    Unsupported {
        /// Where it is.
        address: Address,
        /// Why.
        why: &'static str,
    },
    /// The running system needs it.
    InUse {
        /// Where it is.
        address: Address,
        /// For what.
        duties: Vec<Duty>,
    },
    /// The module of `vfio-pci` is not loaded.
    NoModule,
    /// A file of sysfs could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Everything was written, and the function has another driver than it should.
    NotTaken {
        /// Where it is.
        address: Address,
        /// The driver that should have taken it.
        wanted: &'static str,
        /// The driver that it has.
        found: Option<String>,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(error) => write!(f, "{error}"),
            Self::Unsupported { address, why } => {
                write!(f, "{address} is refused: {why}; --force takes it nevertheless")
            }
            Self::InUse { address, duties } => {
                write!(f, "{address} is in use")?;
                duties.iter().try_for_each(|duty| write!(f, ": {duty}"))?;
                f.write_str("; --force takes it nevertheless")
            }
            Self::NoModule => f.write_str("the kernel has no vfio-pci driver: sudo modprobe vfio-pci"),
            Self::Write { path, error } => {
                write!(f, "cannot write {}: {error}", path.display())?;
                if error.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str("; run this as root: sudo bareverbs vfio …")?;
                }
                Ok(())
            }
            Self::NotTaken { address, wanted, found } => write!(
                f,
                "{address} is not with {wanted} but with {}: look at the kernel's log (dmesg)",
                found.as_deref().unwrap_or("no driver")
            ),
        }
    }
}

impl core::error::Error for BindError {}

impl From<FunctionError> for BindError {
    fn from(error: FunctionError) -> Self {
        Self::Missing(error)
    }
}

impl Tree {
    /// Gives a function to `vfio-pci`. Without `force` only a supported one that the running system does not need. A
    /// function that is there already stays.
    pub fn bind(&self, address: Address, force: bool) -> Result<Function, BindError> {
        let function = self.function(address)?;
        if function.driver.as_deref() == Some(VFIO_PCI) {
            return Ok(function);
        }
        if !force {
            self.may_be_taken(&function)?;
        }
        if !self.path("sys/bus/pci/drivers").join(VFIO_PCI).is_dir() {
            return Err(BindError::NoModule);
        }
        self.write_for(address, "driver_override", VFIO_PCI)?;
        self.release(&function)?;
        self.probe(address)?;
        let now = self.function(address)?;
        if now.driver.as_deref() != Some(VFIO_PCI) {
            return Err(BindError::NotTaken { address, wanted: VFIO_PCI, found: now.driver });
        }
        Ok(now)
    }

    /// Takes a function from `vfio-pci` and lets the kernel choose its driver.
    pub fn unbind(&self, address: Address) -> Result<Function, BindError> {
        let function = self.function(address)?;
        self.write_for(address, "driver_override", "\n")?;
        if function.driver.as_deref() == Some(VFIO_PCI) {
            self.release(&function)?;
        }
        self.probe(address)?;
        let now = self.function(address)?;
        if now.driver.as_deref() == Some(VFIO_PCI) {
            return Err(BindError::NotTaken {
                address,
                wanted: "the kernel's own choice",
                found: now.driver,
            });
        }
        Ok(now)
    }

    fn may_be_taken(&self, function: &Function) -> Result<(), BindError> {
        let address = function.address;
        if let Support::Refused(why) = function.support() {
            return Err(BindError::Unsupported { address, why });
        }
        match self.duties(function) {
            duties if duties.is_empty() => Ok(()),
            duties => Err(BindError::InUse { address, duties }),
        }
    }

    fn release(&self, function: &Function) -> Result<(), BindError> {
        let Some(driver) = &function.driver else { return Ok(()) };
        let path = self.path("sys/bus/pci/drivers").join(driver).join("unbind");
        write(path, &function.address.to_string())
    }

    fn probe(&self, address: Address) -> Result<(), BindError> {
        write(self.path("sys/bus/pci/drivers_probe"), &address.to_string())
    }

    fn write_for(&self, address: Address, name: &str, text: &str) -> Result<(), BindError> {
        write(self.directory(address).join(name), text)
    }
}

/// Writes without making the file: what sysfs does not have stays away.
fn write(path: PathBuf, text: &str) -> Result<(), BindError> {
    let done = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    done.map_err(|error| BindError::Write { path, error })
}
