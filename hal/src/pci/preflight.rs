//! Checks for obstacles to opening a device, with the commands that remove them.

use super::ids::Support;
use super::{Address, Function, FunctionError, Tree, VFIO_PCI};
use crate::memory::{HugePagePool, PageKind, huge_page_command};
use core::fmt;
use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// The checks, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The device ID is a supported one.
    DeviceId,
    /// The function is bound to `vfio-pci`.
    Driver,
    /// There is an IOMMU, and the function is in one of its groups.
    Iommu,
    /// No other function makes the group unviable.
    Group,
    /// This process may open the device.
    Permission,
    /// This process may lock as much memory as the device needs.
    LockedMemory,
    /// Huge pages are available.
    HugePages,
    /// The device's NUMA node is known.
    Numa,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceId => "device id",
            Self::Driver => "driver",
            Self::Iommu => "IOMMU",
            Self::Group => "IOMMU group",
            Self::Permission => "permission",
            Self::LockedMemory => "locked memory",
            Self::HugePages => "huge pages",
            Self::Numa => "NUMA node",
        })
    }
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All is well.
    Good,
    /// The device works, but not at its best.
    Warning,
    /// The device cannot be opened.
    Bad,
}

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// The result.
    pub state: State,
    /// What was found.
    pub seen: String,
    /// The command or action that repairs it.
    pub repair: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.seen)?;
        match &self.repair {
            Some(repair) => write!(f, "; repair: {repair}"),
            None => Ok(()),
        }
    }
}

/// Requirements of the program that will open the device.
///
/// ```
/// use bareverbs_hal::pci::{Need, State, Tree};
///
/// /// Whether a function can be opened with 64 MiB of memory. What is in the way is printed.
/// fn can_be_opened(address: &str) -> Result<bool, Box<dyn std::error::Error>> {
///     let need = Need::of_this_process(64 << 20, false);
///     let findings = Tree::default().preflight(address.parse()?, &need)?;
///     let bad = findings.iter().filter(|finding| finding.state == State::Bad);
///     Ok(bad.inspect(|finding| eprintln!("{finding}")).count() == 0)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes of DMA memory needed from the start.
    pub memory: usize,
    /// Whether to run without an IOMMU.
    pub no_iommu: bool,
    /// Bytes that this process may lock; `None` means unlimited.
    pub locked_limit: Option<u64>,
}

impl Need {
    /// `memory` bytes, with the limits of this process.
    pub fn of_this_process(memory: usize, no_iommu: bool) -> Self {
        Self { memory, no_iommu, locked_limit: locked_limit() }
    }
}

/// Bytes that this process may lock; `None` means unlimited.
fn locked_limit() -> Option<u64> {
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    match capabilities >> IPC_LOCK & 1 {
        1 => None,
        _ => getrlimit(Resource::Memlock).current,
    }
}

fn good(check: Check, seen: impl Into<String>) -> Finding {
    Finding { check, state: State::Good, seen: seen.into(), repair: None }
}

fn bad(check: Check, seen: impl Into<String>, repair: impl Into<String>) -> Finding {
    Finding { check, state: State::Bad, seen: seen.into(), repair: Some(repair.into()) }
}

fn warning(check: Check, seen: impl Into<String>, repair: impl Into<String>) -> Finding {
    Finding { state: State::Warning, ..bad(check, seen, repair) }
}

impl Tree {
    /// Checks everything that must hold before a function can be opened through VFIO.
    pub fn preflight(&self, address: Address, need: &Need) -> Result<Vec<Finding>, FunctionError> {
        let function = self.function(address)?;
        Ok(vec![
            device_id(&function),
            driver(&function),
            self.iommu(&function, need),
            self.group(&function),
            self.permission(&function, need),
            locked_memory(need),
            self.huge_pages(need),
            numa(&function),
        ])
    }

    fn iommu(&self, function: &Function, need: &Need) -> Finding {
        let groups = super::function::names(&self.path("sys/kernel/iommu_groups")).len();
        match function.group {
            Some(group) if !need.no_iommu => good(Check::Iommu, format!("group {group} of {groups}")),
            Some(group) => good(Check::Iommu, format!("group {group}, used without protection")),
            None if need.no_iommu => {
                good(Check::Iommu, "none, as requested: the device can reach all memory")
            }
            None if groups == 0 => bad(
                Check::Iommu,
                "this machine has no IOMMU, or it is switched off",
                "switch VT-d or AMD-Vi on in the firmware, boot Linux with intel_iommu=on (Intel) or without \
                 amd_iommu=off (AMD); or give up protection: --no-iommu, after \
                 echo 1 | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
            ),
            None => bad(
                Check::Iommu,
                format!("the IOMMU has {groups} groups, but {} is in none", function.address),
                "look for DMAR or AMD-Vi in the kernel's log: sudo dmesg | grep -iE 'dmar|amd-vi'",
            ),
        }
    }

    fn group(&self, function: &Function) -> Finding {
        let Some(group) = function.group else { return good(Check::Group, "none") };
        let members = self.group_members(group, function.address);
        let blocking: Vec<_> = members.iter().filter(|member| member.in_the_way).collect();
        let names = |members: &[&super::GroupMember]| -> String {
            let shown = members.iter().map(|member| {
                let driver = member.function.driver.as_deref().unwrap_or("no driver");
                format!("{} ({driver})", member.function.address)
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        if blocking.is_empty() {
            let all: Vec<_> = members.iter().collect();
            let rest = if all.is_empty() { "nobody else".to_owned() } else { names(&all) };
            return good(Check::Group, format!("group {group}: {rest} in it"));
        }
        let commands: Vec<String> = blocking
            .iter()
            .map(|member| format!("sudo bareverbs vfio bind --force {}", member.function.address))
            .collect();
        bad(
            Check::Group,
            format!("group {group} is not viable: kernel drivers hold {}", names(&blocking)),
            format!("{}; or move the card to a slot that has its own group", commands.join("; ")),
        )
    }

    fn permission(&self, function: &Function, need: &Need) -> Finding {
        let Some(group) = function.group.filter(|_| function.driver.as_deref() == Some(VFIO_PCI)) else {
            return good(Check::Permission, "no file to open yet");
        };
        let cdev = function.vfio_device.as_ref().filter(|_| self.path("dev/iommu").exists());
        let files = match cdev {
            Some(name) => vec![format!("dev/vfio/devices/{name}"), "dev/iommu".to_owned()],
            None if need.no_iommu => vec![format!("dev/vfio/noiommu-{group}"), "dev/vfio/vfio".to_owned()],
            None => vec![format!("dev/vfio/{group}"), "dev/vfio/vfio".to_owned()],
        };
        match files.iter().find(|file| !may_use(&self.path(file))) {
            None => good(Check::Permission, format!("/{} can be opened", files[0])),
            Some(file) if !self.path(file).exists() => {
                bad(Check::Permission, format!("/{file} is missing"), "sudo modprobe vfio-pci")
            }
            Some(file) => bad(
                Check::Permission,
                format!("this process may not open /{file}"),
                format!("sudo chown $USER /{file}; or run this as root"),
            ),
        }
    }

    fn huge_pages(&self, need: &Need) -> Finding {
        let pool = HugePagePool::read(self.root(), PageKind::Huge);
        let gigantic = HugePagePool::read(self.root(), PageKind::Gigantic);
        let seen = format!(
            "{} of {} of 2 MiB and {} of {} of 1 GiB are free",
            pool.free, pool.total, gigantic.free, gigantic.total
        );
        let bytes = pool.free.saturating_mul(PageKind::Huge.bytes() as u64);
        if bytes >= need.memory as u64 {
            return good(Check::HugePages, seen);
        }
        warning(Check::HugePages, format!("{seen}; 4 KiB pages will be used"), huge_page_command(need.memory))
    }
}

fn device_id(function: &Function) -> Finding {
    let seen = format!("{:04x}:{:04x}, {}", function.vendor, function.device, function.name());
    match function.support() {
        Support::Supported => good(Check::DeviceId, seen),
        Support::Refused(why) => {
            bad(Check::DeviceId, format!("{seen}: {why}"), "choose another device: bareverbs vfio list")
        }
    }
}

fn driver(function: &Function) -> Finding {
    let command = format!("sudo modprobe vfio-pci; sudo bareverbs vfio bind {}", function.address);
    match function.driver.as_deref() {
        Some(VFIO_PCI) => good(Check::Driver, VFIO_PCI),
        Some(driver) => {
            bad(Check::Driver, format!("the kernel driver {driver} is bound to the device"), command)
        }
        None => bad(Check::Driver, "no driver is bound to the device", command),
    }
}

fn locked_memory(need: &Need) -> Finding {
    let Some(limit) = need.locked_limit else { return good(Check::LockedMemory, "no limit") };
    let seen = format!("this process may lock {} KiB", limit >> 10);
    if limit >= need.memory as u64 {
        return good(Check::LockedMemory, seen);
    }
    bad(
        Check::LockedMemory,
        format!("{seen}, but the device needs {} KiB from the start", need.memory >> 10),
        "ulimit -l unlimited (in the shell); LimitMEMLOCK=infinity (systemd); --ulimit memlock=-1 (docker)",
    )
}

fn numa(function: &Function) -> Finding {
    good(Check::Numa, function.numa_node.map_or("not reported".to_owned(), |node| node.to_string()))
}

fn may_use(path: &Path) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}
