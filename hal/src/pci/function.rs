//! One PCI function.

use super::Tree;
use super::ids::{self, Support};
use core::fmt;
use core::str::FromStr;
use std::fs;
use std::path::{Path, PathBuf};

/// PCI address of a function: domain, bus, device, function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// Text that is not a PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a PCI address: write it as 0000:3b:00.0 or 3b:00.0")
    }
}

impl core::error::Error for AddressError {}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let hexadecimal = |text: &str| u32::from_str_radix(text, 16).map_err(|_| AddressError);
        let (rest, function) = text.rsplit_once('.').ok_or(AddressError)?;
        let mut parts = rest.rsplit(':');
        let device = hexadecimal(parts.next().ok_or(AddressError)?)?;
        let bus = hexadecimal(parts.next().ok_or(AddressError)?)?;
        let domain = parts.next().map_or(Ok(0), hexadecimal)?;
        let function = hexadecimal(function)?;
        if parts.next().is_some() || device > 31 || function > 7 {
            return Err(AddressError);
        }
        let bus = u8::try_from(bus).map_err(|_| AddressError)?;
        Ok(Self { domain, bus, device: device as u8, function: function as u8 })
    }
}

/// A function as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// PCI address.
    pub address: Address,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// Class code: class, subclass and programming interface.
    pub class: u32,
    /// Bound driver.
    pub driver: Option<String>,
    /// Contents of `driver_override`.
    pub driver_override: Option<String>,
    /// IOMMU group number.
    pub group: Option<u32>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Network interfaces of its driver.
    pub interfaces: Vec<String>,
    /// The physical function, if this is a virtual one.
    pub physical_function: Option<Address>,
    /// Name of its character device under `/dev/vfio/devices`, on kernels that have them.
    pub vfio_device: Option<String>,
}

impl Function {
    /// Product name.
    pub fn name(&self) -> &'static str {
        ids::name(self.vendor, self.device)
    }

    /// How well it is supported.
    pub fn support(&self) -> Support {
        ids::support(self.vendor, self.device)
    }

    /// Whether it is a bridge. Bridges do not make a group unviable.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }
}

/// Another function in an IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// The function.
    pub function: Function,
    /// Whether its driver makes the group unavailable to user space.
    pub in_the_way: bool,
}

/// The function does not exist or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionError(pub Address);

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no PCI function {}: see `bareverbs vfio list`", self.0)
    }
}

impl core::error::Error for FunctionError {}

impl Tree {
    /// Sysfs directory of a function.
    pub fn directory(&self, address: Address) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address.to_string())
    }

    /// All functions of vendor 15b3, sorted by address.
    pub fn functions(&self) -> Vec<Function> {
        let mut found: Vec<Function> = names(&self.path("sys/bus/pci/devices"))
            .iter()
            .filter_map(|name| self.function(name.parse().ok()?).ok())
            .filter(|function| function.vendor == ids::VENDOR)
            .collect();
        found.sort_by_key(|function| function.address);
        found
    }

    /// Reads a function from sysfs.
    pub fn function(&self, address: Address) -> Result<Function, FunctionError> {
        let directory = self.directory(address);
        let text =
            |name: &str| fs::read_to_string(directory.join(name)).ok().map(|text| text.trim().to_owned());
        let number = |name: &str| u32::from_str_radix(text(name)?.trim_start_matches("0x"), 16).ok();
        let missing = FunctionError(address);
        Ok(Function {
            address,
            vendor: number("vendor").and_then(|id| u16::try_from(id).ok()).ok_or(missing)?,
            device: number("device").and_then(|id| u16::try_from(id).ok()).ok_or(missing)?,
            class: number("class").unwrap_or(0),
            driver: link_name(&directory.join("driver")),
            driver_override: text("driver_override").filter(|name| !name.is_empty() && name != "(null)"),
            group: link_name(&directory.join("iommu_group")).and_then(|group| group.parse().ok()),
            numa_node: text("numa_node").and_then(|node| node.parse().ok()),
            interfaces: names(&directory.join("net")),
            physical_function: link_name(&directory.join("physfn")).and_then(|name| name.parse().ok()),
            vfio_device: names(&directory.join("vfio-dev")).pop(),
        })
    }

    /// The other functions in an IOMMU group.
    pub fn group_members(&self, group: u32, but: Address) -> Vec<GroupMember> {
        let directory = self.path(format!("sys/kernel/iommu_groups/{group}/devices"));
        let others = names(&directory);
        let others = others.iter().filter_map(|name| name.parse().ok()).filter(|address| *address != but);
        others
            .filter_map(|address| {
                let function = self.function(address).ok()?;
                let harmless = function.driver.as_deref().is_none_or(is_harmless) || function.is_bridge();
                Some(GroupMember { function, in_the_way: !harmless })
            })
            .collect()
    }
}

/// Drivers that leave a group viable: they do no DMA, or hand the function to user space.
fn is_harmless(driver: &str) -> bool {
    driver == "pci-stub" || driver == "pcieport" || driver.starts_with("vfio") || driver.ends_with("vfio-pci")
}

/// Sorted names in a directory; empty if there is no such directory.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Last component of a symbolic link's target.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let address = Address { domain: 0, bus: 0x3b, device: 0x1f, function: 7 };
        for text in ["0000:3b:1f.7", "3b:1f.7", "0:3b:1f.7"] {
            assert_eq!(text.parse(), Ok(address));
        }
        assert_eq!(address.to_string(), "0000:3b:1f.7");
        for text in
            ["", "3b", "3b:00", "3b:20.0", "3b:00.8", "100:00.0", "1:2:3:4.0", "3b:00.0.0", "../../etc"]
        {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
