//! The device that a subcommand works on, and how to open it: a PCI function over VFIO, a device that the kernel owns (feature `uverbs`), a
//! device served by another process, or one simulated in this process.

use crate::Failure;
#[cfg(feature = "uverbs")]
use crate::any_place::of_kernel;
use crate::any_place::{AnyHal, of_vfio, of_vfio_user, of_world};
use anyhow::{Context as _, anyhow, bail};
use bareverbs_core::command::CommandError;
use bareverbs_core::device::OpenError;
use bareverbs_core::hal::Hal;
use bareverbs_core::port::{PortAttributes, PortState};
use bareverbs_core::port_link::PortLink;
use bareverbs_core::{Device, DeviceConfig, GidEntry};
use bareverbs_hal::pci::Address;
#[cfg(feature = "uverbs")]
use bareverbs_hal::uverbs::{UverbsConfig, UverbsHal, query_capabilities, query_port, resolve_neighbour};
use bareverbs_hal::vfio::{VfioConfig, VfioHal};
use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CommandStatus, PathMtu};
use bareverbs_sim::nic::{LinkLayer, Nic, NicConfig};
use bareverbs_sim::run::preset::Preset;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// MAC addresses of the simulated device and of its neighbour at the other end of the cable.
const SIMULATED: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];

/// What to do instead of a command that the kernel lets no program send.
const KEPT_BY_KERNEL: &str = "; the kernel does not let programs send this command: `ibv_devinfo -v`, `rdma \
                              link` and `ethtool` show the port, and `ip address` gives it addresses";

/// How to name a device on the command line.
#[cfg(not(feature = "uverbs"))]
pub const SELECTOR_HELP: &str = "0000:3b:00.0 (a PCI function with vfio-pci), vfio-user:PATH (a socket of `bareverbs serve`), \
                                 sim, sim:ethernet or sim:infiniband";

/// How to name a device on the command line.
#[cfg(feature = "uverbs")]
pub const SELECTOR_HELP: &str = "0000:3b:00.0 (a PCI function with vfio-pci), uverbs:mlx5_0 (a device that the kernel owns, by DEVX), \
                                 vfio-user:PATH (a socket of `bareverbs serve`), sim, sim:ethernet or sim:infiniband";

/// A device named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSelector {
    /// A PCI function bound to `vfio-pci`.
    Pci(Address),
    /// The name of an RDMA device that the kernel owns.
    #[cfg(feature = "uverbs")]
    Kernel(String),
    /// The socket of a process that serves a device.
    VfioUser(PathBuf),
    /// A device simulated in this process, with a cable to another one.
    Simulated(LinkLayer),
}

/// What the kernel reports of a device that it owns. It passes on no register of the port, and this place hides capabilities that programs lack.
#[derive(Debug, Clone)]
pub(crate) struct KernelView {
    pub(crate) general: GeneralCapabilities,
    pub(crate) state: PortState,
    pub(crate) link: PortLink,
    pub(crate) max_mtu: PathMtu,
    pub(crate) active_mtu: PathMtu,
    /// `None` on Ethernet.
    pub(crate) virtual_lanes: Option<u8>,
    /// Entry 0 of the GID table.
    pub(crate) gid: Gid,
    pub(crate) partition_keys: Vec<u16>,
}

impl KernelView {
    /// The port as the kernel describes it, with what the device told of it, and its link.
    pub(crate) fn describe(&self, told: PortAttributes) -> (PortAttributes, PortLink) {
        (PortAttributes { state: self.state, active_mtu: self.active_mtu, ..told }, self.link)
    }
}

/// The routes and neighbours of a device that the kernel owns, for one of its addresses. Asking may take a second.
#[derive(Debug, Clone)]
pub(crate) struct KernelRoutes {
    device: DeviceSelector,
    gid_index: u8,
    /// The MAC address of the port, with that entry.
    source: MacAddress,
    /// The addresses of the port.
    own: Vec<Gid>,
}

impl KernelRoutes {
    /// The routes from an entry of the RoCE address table of a device, whose table has these entries.
    pub(crate) fn new(device: DeviceSelector, gid_index: u8, source: &GidEntry, table: &[GidEntry]) -> Self {
        let own = table.iter().map(|entry| entry.gid).collect();
        Self { device, gid_index, source: source.mac, own }
    }

    /// The MAC address of the peer with a GID, or of the router to it.
    pub(crate) fn mac_of(&self, gid: Gid) -> anyhow::Result<MacAddress> {
        let mac = self.device.ask_kernel(self.gid_index, gid)?;
        if self.is_other_port_here(gid, mac) {
            bail!(
                "the address of {gid} belongs to this machine, so Linux reports the MAC address of {} \
                 itself, {mac}, and packets would never leave it. Move the interface of the other port into a network namespace of its own (`ip link set IF netns NAME`)",
                self.device
            );
        }
        Ok(mac)
    }

    /// Whether the peer is another port of this machine. Linux routes an IPv6 address of its own over its loopback
    /// interface, and then reports the MAC address of the sender.
    fn is_other_port_here(&self, gid: Gid, mac: MacAddress) -> bool {
        mac == self.source && !self.own.contains(&gid)
    }
}

/// Work on an open device, whatever its HAL.
pub trait DeviceTask {
    /// What comes out.
    type Output;
    /// Does it.
    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, CommandError>;
}

impl FromStr for DeviceSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "sim" => Ok(Self::Simulated(LinkLayer::Ethernet)),
            Some(("sim", "ethernet" | "eth")) => Ok(Self::Simulated(LinkLayer::Ethernet)),
            Some(("sim", "infiniband" | "ib")) => Ok(Self::Simulated(LinkLayer::InfiniBand)),
            Some(("sim", other)) => {
                Err(format!("there is no simulated device {other:?}: use sim:ethernet or sim:infiniband"))
            }
            #[cfg(feature = "uverbs")]
            Some(("uverbs", "")) => {
                Err("uverbs: needs the name of a device after the colon, such as mlx5_0".into())
            }
            #[cfg(feature = "uverbs")]
            Some(("uverbs", name)) => Ok(Self::Kernel(name.into())),
            #[cfg(not(feature = "uverbs"))]
            Some(("uverbs", _)) => {
                Err("this bareverbs cannot share a device with the kernel: build it with `--features uverbs`"
                    .into())
            }
            Some(("vfio-user", "")) => Err("vfio-user: needs the path of a socket after the colon".into()),
            Some(("vfio-user", path)) => Ok(Self::VfioUser(path.into())),
            _ => text
                .parse()
                .map(Self::Pci)
                .map_err(|_| format!("{text:?} does not name a device: use {SELECTOR_HELP}")),
        }
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => write!(f, "{address}"),
            #[cfg(feature = "uverbs")]
            Self::Kernel(name) => write!(f, "uverbs:{name}"),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Simulated(LinkLayer::Ethernet) => f.write_str("sim:ethernet"),
            Self::Simulated(LinkLayer::InfiniBand) => f.write_str("sim:infiniband"),
        }
    }
}

impl DeviceSelector {
    /// The device that `sim` names.
    pub(crate) const SIMULATED: Self = Self::Simulated(LinkLayer::Ethernet);

    /// Whether the kernel owns the device, and so its addresses.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.kernel_name().is_some()
    }

    /// The kernel's name of a device that it owns.
    pub(crate) fn kernel_name(&self) -> Option<&str> {
        #[cfg(feature = "uverbs")]
        if let Self::Kernel(name) = self {
            return Some(name);
        }
        None
    }

    /// Asks the kernel what a device of its own is. `None` if the kernel does not own the device.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no such device, or the kernel refuses.
    pub(crate) fn kernel_view(&self) -> Result<Option<KernelView>, Failure> {
        #[cfg(feature = "uverbs")]
        if let Self::Kernel(name) = self {
            let view = kernel_view(name).with_context(|| format!("opening {self}"));
            return view.map(Some).map_err(Failure::Input);
        }
        Ok(None)
    }

    /// Asks the kernel of its own device where packets from an entry of the RoCE address table to a GID go.
    ///
    /// # Errors
    /// The kernel does not own the device, or does not know.
    pub(crate) fn ask_kernel(&self, gid_index: u8, gid: Gid) -> anyhow::Result<MacAddress> {
        #[cfg(feature = "uverbs")]
        if let Self::Kernel(name) = self {
            return Ok(resolve_neighbour(name, gid_index, gid)?);
        }
        bail!(
            "{self} is not a device of the kernel, so the kernel cannot say where packets from GID index {gid_index} to {gid} go"
        )
    }

    /// Opens the device, runs `task` and closes the device.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no such device or it cannot be opened, [`Failure::Run`] if it refused the task.
    pub fn with_device<T: DeviceTask>(&self, task: T) -> Result<T::Output, Failure> {
        self.with_configured_device(DeviceConfig::default(), task)
    }

    /// The same for a device that is opened in another way.
    pub(crate) fn with_configured_device<T: DeviceTask>(
        &self,
        config: DeviceConfig,
        task: T,
    ) -> Result<T::Output, Failure> {
        self.try_configured(config, task).map_err(|failure| failure.into_failure(self))
    }

    /// Like [`Self::with_device`], for callers who need to know how far it got.
    ///
    /// # Errors
    /// See [`DeviceFailure`].
    pub fn try_with<T: DeviceTask>(&self, task: T) -> Result<T::Output, DeviceFailure> {
        self.try_configured(DeviceConfig::default(), task)
    }

    fn try_configured<T: DeviceTask>(
        &self,
        config: DeviceConfig,
        task: T,
    ) -> Result<T::Output, DeviceFailure> {
        on(self.open()?, config, task)
    }

    /// The place of the device.
    fn open(&self) -> Result<AnyHal, DeviceFailure> {
        Ok(match self {
            Self::Pci(address) => {
                let hal = VfioHal::open(*address, VfioConfig::default());
                of_vfio(hal.map_err(|error| DeviceFailure::Place(error.into()))?)
            }
            #[cfg(feature = "uverbs")]
            Self::Kernel(name) => {
                let hal = UverbsHal::open(name, UverbsConfig::default());
                of_kernel(hal.map_err(|error| DeviceFailure::Place(error.into()))?)
            }
            Self::VfioUser(path) => {
                let hal = VfioUserHal::connect(path, VfioUserConfig::default());
                of_vfio_user(hal.map_err(|error| DeviceFailure::Place(error.into()))?)
            }
            Self::Simulated(link_layer) => {
                let [hal, _] = simulated_pair(*link_layer)?;
                hal
            }
        })
    }
}

#[cfg(feature = "uverbs")]
fn kernel_view(name: &str) -> anyhow::Result<KernelView> {
    let (general, port) = (query_capabilities(name)?, query_port(name)?);
    Ok(KernelView {
        general,
        state: port.state,
        link: port.link,
        max_mtu: port.max_mtu,
        active_mtu: port.active_mtu,
        virtual_lanes: port.virtual_lanes,
        gid: port.gid,
        partition_keys: port.partition_keys,
    })
}

/// What a kernel would report of a port that is up with 25 Gbit/s.
#[cfg(test)]
pub(crate) fn view_of_test() -> KernelView {
    use bareverbs_core::port_link::{LinkSpeed, PhysicalState};
    let speed = Some(LinkSpeed { megabits: 25_000, lanes: 1, rate: None });
    KernelView {
        general: *GeneralCapabilities::new().set_xrc(true),
        state: PortState::Active,
        link: PortLink { physical: PhysicalState::LinkUp, speed, fastest: None },
        max_mtu: PathMtu::Mtu4096,
        active_mtu: PathMtu::Mtu1024,
        virtual_lanes: Some(4),
        gid: Gid([7; 16]),
        partition_keys: vec![0xffff],
    }
}

/// At which stage the work on a device failed.
#[derive(Debug)]
pub enum DeviceFailure {
    /// There is no such device, or it is not available.
    Place(anyhow::Error),
    /// It did not open.
    Open(OpenError),
    /// It refused the task.
    Task(CommandError),
    /// It did not close cleanly.
    Close(String),
}

impl DeviceFailure {
    /// Converts this into the failure of a subcommand.
    pub fn into_failure(self, device: &DeviceSelector) -> Failure {
        let unopened = |error: anyhow::Error| Failure::Input(error.context(format!("opening {device}")));
        match self {
            Self::Place(error) => unopened(error),
            Self::Open(error) => unopened(anyhow!("{error}")),
            Self::Task(error) => {
                let hint = if device.is_of_kernel() && error.status() == Some(CommandStatus::BadOpcode) {
                    KEPT_BY_KERNEL
                } else {
                    ""
                };
                Failure::Run(anyhow!("{error}{hint}").context(device.to_string()))
            }
            Self::Close(error) => Failure::Run(anyhow!("{error}").context(format!("closing {device}"))),
        }
    }
}

/// Opens the device behind `hal`, runs `task` and closes the device again.
pub(crate) fn on<T: DeviceTask>(
    hal: AnyHal,
    config: DeviceConfig,
    task: T,
) -> Result<T::Output, DeviceFailure> {
    let device = Device::open(hal, config).map_err(DeviceFailure::Open)?;
    let output = task.run(&device).map_err(DeviceFailure::Task)?;
    device.close().map_err(|error| DeviceFailure::Close(error.to_string()))?;
    Ok(output)
}

/// Two simulated devices in one world in virtual time, with a cable between them.
pub(crate) fn simulated_pair(link_layer: LinkLayer) -> Result<[AnyHal; 2], DeviceFailure> {
    let preset = Preset::STROM_100G;
    let world = SimWorld::new(1);
    let nodes = SIMULATED.map(|mac| {
        let nic = Nic::new(NicConfig { link_layer, ..NicConfig::new(mac) });
        world.add_node(&format!("{mac}"), nic, preset.node, MemoryConfig::default())
    });
    let joined = world.connect(nodes[0], nodes[1], preset.link).context("joining the simulated ports");
    joined.map_err(DeviceFailure::Place)?;
    Ok(nodes.map(|node| of_world(world.hal(node))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_as_it_is_written() {
        for text in ["0000:3b:00.0", "vfio-user:/run/nic.sock", "sim:ethernet", "sim:infiniband"] {
            assert_eq!(
                text.parse::<DeviceSelector>().map(|selector| selector.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!("sim".parse(), Ok(DeviceSelector::Simulated(LinkLayer::Ethernet)));
        assert_eq!(
            "3b:00.0".parse::<DeviceSelector>().map(|selector| selector.to_string()),
            Ok("0000:3b:00.0".into())
        );
    }

    #[test]
    fn a_kernel_device_needs_the_feature_uverbs() {
        let read = "uverbs:mlx5_0".parse::<DeviceSelector>().map(|selector| selector.to_string());
        if cfg!(feature = "uverbs") {
            assert_eq!(read, Ok("uverbs:mlx5_0".into()));
        } else {
            assert!(read.expect_err("not built").contains("--features uverbs"));
        }
    }

    #[test]
    fn a_selector_without_a_device_is_refused_with_an_example() {
        let refusal = |text: &str| text.parse::<DeviceSelector>().expect_err("names no device");
        assert!(refusal("mlx5_0").contains("use 0000:3b:00.0"));
        assert!(refusal("sim:token-ring").contains("sim:infiniband"));
        assert!(refusal("vfio-user:").contains("path of a socket"));
    }

    #[test]
    fn linux_gives_the_senders_mac_for_another_port_of_its_machine() {
        let entry =
            |last, mac| GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, last]), MacAddress([2, 0, 0, 0, 0, mac]));
        let table = [entry(1, 1), entry(3, 1)];
        let routes = KernelRoutes::new(DeviceSelector::SIMULATED, 0, &table[0], &table);
        let [own, peer] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
        let gid = |last| Gid::from_ipv4([10, 0, 0, last]);
        assert!(routes.is_other_port_here(gid(2), own));
        assert!(!routes.is_other_port_here(gid(2), peer), "the peer's own");
        assert!(!routes.is_other_port_here(gid(3), own), "the port sends to itself");
    }
}
