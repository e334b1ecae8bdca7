//! Binds a function to `vfio-pci`, and back to the kernel's own driver.

use super::ids::Support;
use super::{Address, Function, FunctionError, SystemUse, Tree, VFIO_PCI};
use core::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Why a function's driver could not be changed.
#[derive(Debug)]
pub enum BindError {
    /// There is no such function.
    Missing(FunctionError),
    /// This driver does not support the function.
    Unsupported {
        /// The function.
        address: Address,
        /// Why.
        why: &'static str,
    },
    /// The running system needs it.
    InUse {
        /// The function.
        address: Address,
        /// What for.
        system_uses: Vec<SystemUse>,
    },
    /// The module `vfio-pci` is not loaded.
    NoModule,
    /// Writing a file of sysfs failed.
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// All writes succeeded, but the function has the wrong driver.
    NotTaken {
        /// The function.
        address: Address,
        /// The driver that it should have.
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
                write!(f, "{address} is refused: {why}; --force binds it anyway")
            }
            Self::InUse { address, system_uses } => {
                write!(f, "{address} is in use")?;
                system_uses.iter().try_for_each(|system_use| write!(f, ": {system_use}"))?;
                f.write_str("; --force binds it anyway")
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
                "{address} should be bound to {wanted} and is bound to {}: look at the kernel's log (dmesg)",
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
    /// Binds a function to `vfio-pci`. Without `force`, only a supported function that the running system does not
    /// need. Does nothing if it is already bound.
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

    /// Unbinds a function from `vfio-pci` and lets the kernel choose its driver.
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
        match self.system_uses(function) {
            system_uses if system_uses.is_empty() => Ok(()),
            system_uses => Err(BindError::InUse { address, system_uses }),
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

/// Writes to an existing file. Must not create one that sysfs does not have.
fn write(path: PathBuf, text: &str) -> Result<(), BindError> {
    let done = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    done.map_err(|error| BindError::Write { path, error })
}
