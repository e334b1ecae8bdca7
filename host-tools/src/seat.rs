//! Where a device that talks to peers is attached: the command line options, the device's addresses, and its peers' MAC
//! addresses.
//!
//! A simulated device with `--host` is a host of a `bareverbs run` network, and its peers are the programs there. A
//! device without it only has its cable and the addresses given with `--address`.

use crate::any_place::of_host;
use crate::network::{HostLink, HostRequest};
use crate::place::{DeviceFailure, DeviceSelector, DeviceTask, KernelRoutes, SELECTOR_HELP, on};
use crate::port_address::{PortAddress, fill_table, gid_of, mac_of_link_local};
use crate::{Failure, network as networks};
use anyhow::{Context as _, anyhow, bail};
use bareverbs_core::device::GidError;
use bareverbs_core::hal::Hal;
use bareverbs_core::{Device, DeviceConfig, GidEntry};
use bareverbs_hal_sim::MemoryConfig;
use bareverbs_hal_sim::real_time::RealTimeHal;
use bareverbs_network::{Neighbours, NetworkIo, OutsideNeighbours, Wire, virtual_host};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{PortType, RoceVersion};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::{NetworkDirectory, Ports};
use bareverbs_serve::real_time::FaultScript;
use bareverbs_sim::net::Direction;
use bareverbs_sim::nic::{LinkLayer, Nic};
use bareverbs_sim::run::Seed;
use bareverbs_uverbs::{SubnetPort, VirtualHost};
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// A host as it is registered in its network, with all its settings.
#[derive(Debug, Clone)]
struct SettledHost {
    host: VirtualHost,
    network: NetworkDirectory,
}

/// Sleep between two polls of a device that another thread of this machine simulates: that thread needs a
/// core too.
const SHARED_REST: Duration = Duration::from_micros(20);
/// How long an InfiniBand port may wait for the subnet manager.
const ACTIVATION_LIMIT: Duration = Duration::from_secs(20);

/// Makes a simulated device a host of a `bareverbs run` network.
#[derive(Debug, Clone, Args)]
pub struct HostArguments {
    /// The simulated device is that of this host in a network of `bareverbs run`.
    #[arg(long, value_name = "NAME", value_parser = networks::parse_host)]
    pub(crate) host: Option<VirtualHost>,
    /// Network of the host.
    #[arg(long, requires = "host", default_value = "default", value_parser = networks::parse_name)]
    network: String,
    /// Link layer of the host's port, as with `bareverbs run`: eth (RoCEv2) or ib (InfiniBand, with a LID from the
    /// network's subnet manager). [default: that of the host's running programs, or that of --device]
    #[arg(long, requires = "host")]
    link: Option<HostLink>,
}

/// Which entry of its GID table an end uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GidSelection {
    /// The first RoCEv2 entry, IPv4 before IPv6.
    #[default]
    Any,
    Index(u8),
    /// The first RoCEv2 entry with an IPv6 address.
    IPv6,
    /// The entry with this address.
    Address(IpAddr),
}

impl From<Option<u8>> for GidSelection {
    fn from(index: Option<u8>) -> Self {
        index.map_or(Self::Any, Self::Index)
    }
}

/// Which device, and where it is plugged in.
#[derive(Debug, Clone, Args)]
pub struct SeatArguments {
    /// Which device.
    #[arg(long, short = 'd', visible_alias = "ib-dev", value_name = "DEVICE", default_value = "sim",
          long_help = format!("Which device: {SELECTOR_HELP}"))]
    pub(crate) device: DeviceSelector,
    #[command(flatten)]
    place: HostArguments,
    /// An address of the port besides its link-local one: 10.0.0.1/24, or with a VLAN 10.0.0.1/24@7. Can be repeated.
    /// On InfiniBand it is an IPoIB address, by which RDMA CM (-R) finds the port.
    #[arg(long = "address", value_name = "IP/BITS[@VLAN]", conflicts_with = "host")]
    addresses: Vec<PortAddress>,
    /// MAC address of the peer, or of the router to it: 02:00:00:00:00:01. Required for a peer whose GID is not
    /// link-local, unless it is in the network of --host.
    #[arg(long, value_name = "MAC", value_parser = parse_mac)]
    peer_mac: Option<MacAddress>,
    /// Faults between the host and its network, as with `bareverbs run`:
    /// "loss=0.01,duplicate=0.01,reorder=0.05,out:7=drop".
    #[arg(long, requires = "host", value_parser = str::parse::<FaultScript>)]
    faults: Option<FaultScript>,
    /// Seed of the random faults.
    #[arg(long, requires = "faults", default_value_t = 1)]
    seed: u64,
}

/// What a task that talks to peers needs to know in addition to the device.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Entries of the RoCE address table in order; none on InfiniBand.
    pub(crate) gids: Vec<GidEntry>,
    /// IPoIB addresses that an InfiniBand port is to have in its subnet.
    pub(crate) subnet_addresses: Vec<IpAddr>,
    /// Longest sleep between two polls of an idle device.
    pub(crate) rest: Duration,
    network: Option<NetworkDirectory>,
    /// The host that the device belongs to, and the number of this process within it.
    process: Option<(VirtualHost, u8)>,
    peer_mac: Option<MacAddress>,
    /// The device, if it and the addresses of its port are the kernel's.
    of_kernel: Option<DeviceSelector>,
}

/// A task for an open device in its seat.
pub(crate) trait SeatedTask {
    /// Its result.
    type Output;
    /// Runs it.
    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<Self::Output, Failure>;
}

impl SeatArguments {
    /// The arguments for a device and its host.
    pub(crate) const fn of(
        device: DeviceSelector,
        place: HostArguments,
        addresses: Vec<PortAddress>,
    ) -> Self {
        Self { device, place, addresses, peer_mac: None, faults: None, seed: 1 }
    }

    /// Refuses a simulated device without a network, because it has no peers.
    pub(crate) fn check_cable(&self) -> Result<(), Failure> {
        if self.host().is_none() && matches!(self.device, DeviceSelector::Simulated(_)) {
            return Err(Failure::Input(anyhow!(
                "{} is not connected to another process: name its host in a network of `bareverbs run` (--host NAME), or a device \
                 that `bareverbs serve` serves (--device vfio-user:PATH)",
                self.device
            )));
        }
        Ok(())
    }

    /// Opens the device, gives it its addresses, runs `task` and closes the device again.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no such device or it cannot have these addresses, otherwise the task's
    /// error.
    pub(crate) fn with_device<T: SeatedTask>(
        &self,
        config: DeviceConfig,
        task: T,
    ) -> Result<T::Output, Failure> {
        let settled = self.place.settle(&self.device).map_err(Failure::Input)?;
        let rest = match self.device {
            DeviceSelector::Pci(_) => Duration::ZERO,
            // A machine without the kernel's interrupts: other programs and the kernel itself need the core, too.
            #[cfg(feature = "uverbs")]
            DeviceSelector::Kernel(_) => SHARED_REST,
            DeviceSelector::VfioUser(_) | DeviceSelector::Simulated(_) => SHARED_REST,
        };
        let of_kernel = self.device.is_of_kernel().then(|| self.device.clone());
        let seat = Seat { rest, peer_mac: self.peer_mac, of_kernel, ..Seat::in_world(Vec::new()) };
        let mut seated = Seated { seat, addresses: &self.addresses, task };
        let Some(settled) = settled else {
            return self.device.with_configured_device(config, seated)?;
        };
        let (hal, number) = plug(&settled).map_err(Failure::Input)?;
        if let Some(script) = &self.faults {
            let on_infiniband = settled.host.link() == LinkLayer::InfiniBand;
            let [inbound, outbound] = [Direction::Inbound, Direction::Outbound].map(|direction| {
                let faults = script.faults(direction, Seed(self.seed));
                Some(if on_infiniband { faults.of_infiniband() } else { faults })
            });
            hal.with(|runner| runner.set_faults(inbound, outbound));
        }
        seated.seat.network = Some(settled.network);
        seated.seat.process = Some((settled.host, number));
        on(of_host(hal), config, seated).map_err(|failure| failure.into_failure(&self.device))?
    }

    /// The name of the device in results.
    pub(crate) fn name(&self) -> String {
        self.place.name_of(&self.device)
    }

    /// The host whose device it is.
    pub(crate) const fn host(&self) -> Option<&VirtualHost> {
        self.place.host.as_ref()
    }

    /// Where the peer listens for TCP. The name of a host of the network resolves to this machine, as in the
    /// programs there.
    pub(crate) fn resolve(&self, peer: &str, port: u16) -> anyhow::Result<SocketAddr> {
        self.resolve_by(peer, port, false)
    }

    /// Like [`Self::resolve`], for IPv6 only.
    pub(crate) fn resolve_ipv6(&self, peer: &str, port: u16) -> anyhow::Result<SocketAddr> {
        self.resolve_by(peer, port, true)
    }

    fn resolve_by(&self, peer: &str, port: u16, ipv6: bool) -> anyhow::Result<SocketAddr> {
        let settled = self.place.settle(&self.device)?;
        if settled.is_some_and(|settled| settled.network.has_host(peer)) {
            return Ok(if ipv6 {
                (Ipv6Addr::LOCALHOST, port).into()
            } else {
                (Ipv4Addr::LOCALHOST, port).into()
            });
        }
        let resolved = (peer, port).to_socket_addrs();
        let mut addresses: Vec<SocketAddr> = resolved
            .with_context(|| format!("{peer:?} is neither a host of the network nor the name of a machine"))?
            .collect();
        addresses.sort_by_key(|address| address.is_ipv6() != ipv6);
        if ipv6 {
            addresses.retain(SocketAddr::is_ipv6);
        }
        let first = addresses.first().copied();
        first.with_context(|| format!("{peer:?} has no address{}", if ipv6 { " of IPv6" } else { "" }))
    }
}

impl HostArguments {
    /// No host.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self { host: None, network: String::new(), link: None }
    }

    /// Whether there is a host.
    pub(crate) const fn is_given(&self) -> bool {
        self.host.is_some()
    }

    /// The name of the device in results.
    pub(crate) fn name_of(&self, device: &DeviceSelector) -> String {
        self.host.as_ref().map_or_else(|| device.to_string(), |host| format!("sim (host {})", host.name()))
    }

    /// Opens the device, or that of the host, runs a task and closes it again. `make` gets the host with all
    /// its settings.
    ///
    /// # Errors
    /// As [`DeviceSelector::with_device`], and if the host cannot be in the network.
    pub(crate) fn with_device<T: DeviceTask>(
        &self,
        device: &DeviceSelector,
        make: impl FnOnce(Option<VirtualHost>) -> T,
    ) -> Result<T::Output, Failure> {
        self.try_with(device, make)?.map_err(|failure| failure.into_failure(device))
    }

    /// Like [`Self::with_device`], for callers that need to know how far it got with the device.
    ///
    /// # Errors
    /// The host cannot be in the network. A failure of the device is the inner error.
    pub(crate) fn try_with<T: DeviceTask>(
        &self,
        device: &DeviceSelector,
        make: impl FnOnce(Option<VirtualHost>) -> T,
    ) -> Result<Result<T::Output, DeviceFailure>, Failure> {
        let Some(settled) = self.settle(device).map_err(Failure::Input)? else {
            return Ok(device.try_with(make(None)));
        };
        let (hal, _) = plug(&settled).map_err(Failure::Input)?;
        let task = Managed(make(Some(settled.host)));
        Ok(on(of_host(hal), DeviceConfig::default(), task))
    }

    /// Registers the host in its network. Its running programs and a tool share one link layer and the same
    /// addresses.
    fn settle(&self, device: &DeviceSelector) -> anyhow::Result<Option<SettledHost>> {
        let Some(host) = &self.host else { return Ok(None) };
        let DeviceSelector::Simulated(layer) = device else {
            bail!("--host is for a simulated device; {device} has a wire of its own");
        };
        let of_device = (*layer == LinkLayer::InfiniBand).then_some(LinkLayer::InfiniBand);
        let link = self.link.map(LinkLayer::from).or(of_device);
        let network = networks::open(&networks::home()?, &self.network)?;
        let host = networks::add(&network, host, &HostRequest { link, ..HostRequest::default() })?;
        Ok(Some(SettledHost { host, network }))
    }
}

/// The device of a host, with its cable in the network, and the number of this process within the host.
fn plug(SettledHost { host, network }: &SettledHost) -> anyhow::Result<(RealTimeHal<Nic, NetworkIo>, u8)> {
    let wire = Wire::plug(network.clone(), host)?;
    let number = wire.number();
    let nic = Nic::new(host.nic_config(number));
    Ok((RealTimeHal::new(nic, NetworkIo::new(wire, host), MemoryConfig::default(), 1), number))
}

/// A task on a port that has to wait for its subnet manager first.
struct Managed<T>(T);

impl<T: DeviceTask> DeviceTask for Managed<T> {
    type Output = T::Output;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<T::Output, bareverbs_core::command::CommandError> {
        if device.capabilities().port_type != PortType::Ethernet {
            wait_until_active(device)?;
        }
        self.0.run(device)
    }
}

impl Seat {
    /// A seat at a cable within one world in virtual time.
    pub(crate) fn in_world(gids: Vec<GidEntry>) -> Self {
        let subnet_addresses = Vec::new();
        Self {
            gids,
            subnet_addresses,
            rest: SHARED_REST,
            network: None,
            process: None,
            peer_mac: None,
            of_kernel: None,
        }
    }

    /// The MAC address of the peer with a GID, or of the router to it, for packets from entry `gid_index` of the RoCE address table.
    pub(crate) fn mac_of(&self, gid_index: u8, gid: Gid) -> anyhow::Result<MacAddress> {
        if let (None, Some(routes)) = (self.peer_mac, self.kernel_routes(gid_index)) {
            // A neighbour by its link-local address needs no route.
            return routes.mac_of(gid).or_else(|error| mac_of_link_local(gid).ok_or(error));
        }
        let in_network = || Neighbours::new(self.network.clone()?).resolve(Time::ZERO, gid);
        let outside = || {
            let (host, _) = self.process.as_ref()?;
            OutsideNeighbours::new(self.network.clone()?, host).resolve(Time::ZERO, gid)
        };
        let found = self.peer_mac.or_else(in_network).or_else(|| mac_of_link_local(gid)).or_else(outside);
        found.with_context(|| {
            format!(
                "the MAC address of the peer is not known: its GID {gid} is not link-local, and nobody answers ARP for a device \
                 that the kernel does not have. Give --peer-mac, or let both ends use their link-local GIDs (-x)"
            )
        })
    }

    /// Whom to ask for the MAC addresses of peers if the kernel knows them.
    pub(crate) fn kernel_routes(&self, gid_index: u8) -> Option<KernelRoutes> {
        let source = self.gids.get(usize::from(gid_index))?;
        Some(KernelRoutes::new(self.of_kernel.clone()?, gid_index, source, &self.gids))
    }

    /// The GID of a peer, named as for RDMA CM: a host of the network or an IP address, in the family of
    /// `own`.
    pub(crate) fn gid_of_peer(&self, peer: &str, own: Gid) -> anyhow::Result<Gid> {
        let of_family = |gid: &Gid| gid.to_ipv4().is_some() == own.to_ipv4().is_some();
        let network = self.network.as_ref().filter(|network| network.has_host(peer));
        let host = network.and_then(|network| virtual_host(network, peer));
        let named: Vec<Gid> = match host {
            Some(host) => host.gids(),
            None => {
                let resolved = (peer, 0).to_socket_addrs();
                let resolved = resolved
                    .with_context(|| format!("{peer:?} is neither an IP address nor a name that has one"))?;
                resolved.map(|address| gid_of(address.ip())).collect()
            }
        };
        // A link-local address comes first in the table, as in our own, and leads nowhere behind a router.
        let found =
            named.iter().copied().filter(of_family).max_by_key(|gid| mac_of_link_local(*gid).is_none());
        found.with_context(|| {
            format!("{peer} has no address of the same family as {own}, this port's address: choose another GID with -x")
        })
    }

    /// The InfiniBand port of our host in its network; `None` elsewhere, where nothing assigns IP addresses
    /// to ports.
    pub(crate) fn infiniband_host(&self) -> Option<(&VirtualHost, SubnetPort)> {
        let (host, _) = self.process.as_ref()?;
        Some((host, host.subnet_port()?))
    }

    /// The InfiniBand port of a peer, named as for RDMA CM, and the IP address by which it is called.
    pub(crate) fn subnet_port_of(&self, peer: &str) -> anyhow::Result<(SubnetPort, IpAddr)> {
        let network = self.network.as_ref().context("the port is in no network of `bareverbs run`")?;
        let ip = match virtual_host(network, peer).filter(|_| network.has_host(peer)) {
            Some(host) => host.ipv4().into(),
            None => peer.parse().with_context(|| {
                format!("{peer:?} is neither a host of the network nor an IP address; InfiniBand ports are found by these")
            })?,
        };
        let found = Neighbours::new(network.clone()).subnet_port(Time::ZERO, gid_of(ip));
        let port = found.with_context(|| {
            format!("no InfiniBand host has the address {ip}, or none of its programs is running; start that end first")
        })?;
        Ok((port, ip))
    }

    /// The GID of the network's port with this LID.
    pub(crate) fn gid_of_lid(&self, lid: u16) -> Option<Gid> {
        Neighbours::new(self.network.clone()?).gid_of_lid(Time::ZERO, lid)
    }

    /// The ports of this process in its network of `bareverbs run`; `None` elsewhere, where no other process
    /// shares the device.
    pub(crate) fn ports(&self) -> anyhow::Result<Option<Ports>> {
        let (Some(network), Some((host, number))) = (&self.network, &self.process) else { return Ok(None) };
        Ok(Some(Ports::of(network, host.name(), *number)?))
    }

    /// The upper 8 bits of communication IDs: the number of this process among those of its host.
    pub(crate) fn process_number(&self) -> u8 {
        self.process.as_ref().map_or(0, |(_, number)| *number)
    }

    /// The GID index to use: the requested one, or the first of RoCEv2, IPv4 before IPv6.
    pub(crate) fn gid_index(&self, selection: &GidSelection) -> anyhow::Result<u8> {
        if self.gids.is_empty() {
            return match selection {
                GidSelection::Any => Ok(0),
                GidSelection::Index(index) => Ok(*index),
                GidSelection::IPv6 | GidSelection::Address(_) => {
                    bail!("the GIDs of an InfiniBand port are not IP addresses; choose one by its index (-x)")
                }
            };
        }
        let find = |is_wanted: &dyn Fn(Gid) -> bool| {
            let of_version_2 = |entry: &GidEntry| entry.version == RoceVersion::Version2;
            self.gids.iter().position(|entry| of_version_2(entry) && is_wanted(entry.gid))
        };
        let has_ipv4 = |gid: Gid| gid.to_ipv4().is_some();
        let index = match selection {
            GidSelection::Index(index) => {
                let count = self.gids.len();
                let known = self.gids.get(usize::from(*index)).map(|_| usize::from(*index));
                known.with_context(|| {
                    format!("the port has no GID index {index}, it has 0 to {}", count - 1)
                })?
            }
            GidSelection::Any => find(&has_ipv4)
                .or_else(|| find(&|gid| !has_ipv4(gid)))
                .context("the port has no RoCEv2 GID")?,
            // As with perftest, an address that reaches beyond the link takes precedence.
            GidSelection::IPv6 => find(&|gid| !has_ipv4(gid) && mac_of_link_local(gid).is_none())
                .or_else(|| find(&|gid| !has_ipv4(gid)))
                .context("the port has no RoCEv2 GID that is an IPv6 address; give it one with --address")?,
            GidSelection::Address(ip) => {
                let found = find(&|gid| gid == gid_of(*ip));
                found.with_context(|| {
                    let gids: Vec<String> = self.gids.iter().map(|entry| entry.gid.to_string()).collect();
                    format!("no GID of the port is the address {ip}; it has {}", gids.join(", "))
                })?
            }
        };
        Ok(index as u8)
    }
}

/// A task with the ingredients of its seat.
struct Seated<'a, T> {
    seat: Seat,
    addresses: &'a [PortAddress],
    task: T,
}

impl<T: SeatedTask> DeviceTask for Seated<'_, T> {
    type Output = Result<T::Output, Failure>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, bareverbs_core::command::CommandError> {
        let Self { mut seat, addresses, task } = self;
        let gids = match (device.capabilities().port_type, &seat.process) {
            (PortType::Ethernet, None) if seat.of_kernel.is_some() => Ok(table_of_kernel(device)?),
            (PortType::Ethernet, Some((host, _))) => fill_as_host(device, host),
            (PortType::Ethernet, None) => {
                fill_table(device, addresses)?.map(|rows| rows.into_iter().map(|(entry, _)| entry).collect())
            }
            _ => {
                wait_until_active(device)?;
                seat.subnet_addresses = addresses.iter().map(|address| address.ip).collect();
                Ok(Vec::new())
            }
        };
        seat.gids = match gids {
            Ok(gids) => gids,
            Err(error) => return Ok(Err(Failure::Input(anyhow!("{error}")))),
        };
        Ok(task.run(device, &seat))
    }
}

/// Gives the port the addresses that programs of the host have, with the same indices.
pub(crate) fn fill_as_host<H: Hal>(
    device: &Device<H>,
    host: &VirtualHost,
) -> Result<Vec<GidEntry>, GidError> {
    let entries: Vec<GidEntry> =
        host.gids().into_iter().map(|gid| GidEntry::roce_v2(gid, host.mac())).collect();
    for (index, entry) in entries.iter().enumerate() {
        device.set_gid(index as u16, *entry)?;
    }
    Ok(entries)
}

/// The RoCE address table as the kernel has filled it. An empty entry is zero here, and nobody chooses it.
fn table_of_kernel<H: Hal>(
    device: &Device<H>,
) -> Result<Vec<GidEntry>, bareverbs_core::command::CommandError> {
    let mut table = Vec::new();
    for (index, entry) in device.adopt_gids()? {
        let empty = GidEntry::roce_v2(Gid([0; 16]), entry.mac);
        table.resize(index.into(), empty);
        table.push(entry);
    }
    Ok(table)
}

/// Waits for the subnet manager to assign the LID. A port without a manager stays as it is, and sending then
/// reports that.
fn wait_until_active<H: Hal>(device: &Device<H>) -> Result<(), bareverbs_core::command::CommandError> {
    let hal = device.hal();
    let deadline = hal.now() + ACTIVATION_LIMIT;
    while device.port()?.state.is_down() && hal.now() < deadline {
        hal.relax(hal.now() + SHARED_REST);
    }
    Ok(())
}

/// Parses the MAC address of a single port.
pub(crate) fn parse_mac(text: &str) -> Result<MacAddress, String> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2);
        *byte = part
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or_else(|| format!("{text:?} is not a MAC address; write it as 02:00:00:00:00:01"))?;
    }
    match (parts.next(), bytes[0] & 1) {
        (None, 0) => Ok(MacAddress(bytes)),
        (None, _) => Err(format!("{text} is a multicast address, not that of a peer")),
        (Some(_), _) => Err(format!("{text:?} has more than six bytes")),
    }
}
