//! Gathers facts from the machine and the device.

use super::facts::{
    DeviceFacts, EndFacts, Facts, GidFact, KernelPort, LinkLayer, Opening, Physical, PortFacts, SlotFacts,
    State,
};
use super::rules::suits;
use crate::Failure;
use crate::counters::{Readings, port_counters};
use crate::gids::table::{Fill, GidRow};
use crate::gids::{addresses_are_the_kernels, no_way};
use crate::place::{DeviceFailure, DeviceSelector, DeviceTask, KernelView};
use crate::port_address::PortAddress;
use crate::seat::HostArguments;
use anyhow::anyhow;
use bareverbs_core::Device;
use bareverbs_core::command::CommandError;
use bareverbs_core::device::{GidError, OpenCause};
use bareverbs_core::hal::Hal;
use bareverbs_core::port::{PortAttributes, PortState};
use bareverbs_core::port_link::{PhysicalState, PortLink};
use bareverbs_hal::pci::{Address, Need, Tree};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::{PortType, RoceVersion};
use bareverbs_uverbs::VirtualHost;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Memory that a device can access from the start.
pub(super) const MEMORY: usize = 32 << 20;
/// Entries of the P_Key table that are read: as many as the driver asks the device for.
const PARTITION_KEYS: u16 = 128;
/// Addresses of a peer whose way the kernel is asked for.
const MOST_WAYS: usize = 8;

/// What the machine says without any device being opened.
///
/// # Errors
/// [`Failure::Input`] if the device is a PCI function that this machine does not have.
pub(super) fn machine(tree: &Tree, device: Option<&DeviceSelector>, need: &Need) -> Result<Facts, Failure> {
    let mut facts = Facts { selector: device.map(ToString::to_string), ..Facts::default() };
    facts.kernel = kernel_ports(tree.root());
    facts.of_kernel = device.is_some_and(DeviceSelector::is_of_kernel);
    // Another device of the kernel may be as it likes.
    if let Some(name) = device.and_then(DeviceSelector::kernel_name) {
        facts.kernel.retain(|port| port.device == name);
    }
    facts.own_addresses = own_addresses(tree.root());
    if let Some(DeviceSelector::Pci(address)) = device {
        let checks = tree.preflight(*address, need).map_err(|error| Failure::Input(error.into()))?;
        facts.preflight = Some(checks);
        facts.slot = slot(tree, *address);
    }
    Ok(facts)
}

fn slot(tree: &Tree, address: Address) -> Option<SlotFacts> {
    let read = |name: &str| fs::read_to_string(tree.directory(address).join(name)).ok();
    let text = |name: &str| read(name).map(|text| text.trim().to_owned());
    let number = |name: &str| text(name)?.parse().ok();
    // Linux writes this if the slot does not report a speed, as in a virtual machine.
    let speed = |name: &str| text(name).filter(|speed| !speed.starts_with("Unknown"));
    Some(SlotFacts {
        speed: speed("current_link_speed")?,
        fastest: speed("max_link_speed")?,
        width: number("current_link_width")?,
        widest: number("max_link_width")?,
    })
}

/// Ports of the kernel's RDMA devices, from `/sys/class/infiniband`.
pub(super) fn kernel_ports(root: &Path) -> Vec<KernelPort> {
    let mut found = Vec::new();
    let class = root.join("sys/class/infiniband");
    for device in names(&class) {
        for port in names(&class.join(&device).join("ports")) {
            let directory = class.join(&device).join("ports").join(&port);
            let Ok(number) = port.parse() else { continue };
            found.push(kernel_port(root, &directory, device.clone(), number));
        }
    }
    found
}

fn kernel_port(root: &Path, directory: &Path, device: String, port: u8) -> KernelPort {
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    let (mut gids, mut interfaces) = (Vec::new(), Vec::new());
    for index in names(&directory.join("gids")) {
        let gid = read(&format!("gids/{index}")).trim().parse::<Ipv6Addr>();
        let Some(gid) = gid.ok().filter(|gid| !gid.is_unspecified()) else { continue };
        gids.push(gid);
        let interface = read(&format!("gid_attrs/ndevs/{index}")).trim().to_owned();
        if !interface.is_empty() && !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    let here = |name: &&String| root.join("sys/class/net").join(name).exists();
    let present = interfaces.iter().filter(here).cloned().collect();
    KernelPort { device, port, ethernet: read("link_layer").trim() == "Ethernet", gids, interfaces, present }
}

/// Addresses of this network namespace: `/proc/net/if_inet6`, and the local ones of `/proc/net/fib_trie`.
pub(super) fn own_addresses(root: &Path) -> Vec<IpAddr> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let six = read("proc/net/if_inet6");
    let six = six.lines().filter_map(|line| {
        let digits = line.split_whitespace().next()?;
        u128::from_str_radix(digits, 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    });
    let trie = read("proc/net/fib_trie");
    let mut addresses: Vec<IpAddr> = six.collect();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in trie.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            leaf = address.trim().parse().ok();
        } else if line.contains("host LOCAL") {
            addresses.extend(leaf.map(IpAddr::V4));
        }
    }
    addresses.sort();
    addresses.dedup();
    addresses
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // Indices are numbers: 10 comes after 9.
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

/// Opens the device and queries it. A device that does not open is a fact and not a failure.
///
/// # Errors
/// [`Failure::Input`] if the device cannot be reached and is not a PCI slot of this machine, or does not
/// accept such addresses, or if the host is impossible.
pub(super) fn device(
    facts: &mut Facts,
    root: &Path,
    selector: &DeviceSelector,
    place: &HostArguments,
    addresses: &[PortAddress],
) -> Result<(), Failure> {
    let kernel = selector.kernel_view()?;
    if kernel.is_some() && !addresses.is_empty() {
        return Err(Failure::Input(addresses_are_the_kernels(selector)));
    }
    let (mut kept, kernel) = (None, kernel.as_ref());
    let opened = place.try_with(selector, |host| Ask { addresses, host, kernel, kept: &mut kept })?;
    facts.opening = match opened {
        Ok(Ok(asked)) => {
            facts.no_way = ways_of_kernel(facts, selector, &asked);
            let (opening, counters) = asked.into_opening();
            facts.counters = match selector.kernel_name() {
                Some(name) => kernel_counters(root, name),
                None => counters,
            };
            opening
        }
        Ok(Err(error)) => return Err(Failure::Input(anyhow!("{selector}: {error}"))),
        Err(DeviceFailure::Place(error)) if facts.preflight.is_some() => {
            Opening::Unreachable(format!("{error:#}"))
        }
        Err(DeviceFailure::Open(error)) if matches!(error.cause, OpenCause::FirmwareNotReady { .. }) => {
            Opening::NotReady(error.to_string())
        }
        Err(DeviceFailure::Open(error)) => Opening::Failed(error.to_string()),
        Err(DeviceFailure::Task(error)) => Opening::Failed(error.to_string()),
        // A broken device does not close cleanly either; what it reported before is worth more.
        Err(DeviceFailure::Close(error)) => match kept {
            Some(fault) => Opening::Open(DeviceFacts { fault: Some(fault), end: None }),
            None => Opening::Failed(error),
        },
        Err(other) => return Err(other.into_failure(selector)),
    };
    Ok(())
}

/// Counters of a port of the kernel, which passes no register with counters on: `/sys/class/infiniband`.
fn kernel_counters(root: &Path, device: &str) -> Option<Readings> {
    let port = root.join("sys/class/infiniband").join(device).join("ports/1");
    let of_infiniband =
        fs::read_to_string(port.join("link_layer")).is_ok_and(|layer| layer.trim() == "InfiniBand");
    let mut readings = Readings::new();
    // `counters` are those that a subnet's performance manager reads.
    let leaves = ["hw_counters", "counters"].into_iter().take(1 + usize::from(of_infiniband));
    for directory in leaves.map(|leaf| port.join(leaf)) {
        for name in names(&directory) {
            let value =
                fs::read_to_string(directory.join(&name)).ok().and_then(|text| text.trim().parse().ok());
            readings.extend(value.map(|value| (name, value)));
        }
    }
    (!readings.is_empty()).then_some(readings)
}

/// Addresses of the peer to which the kernel finds no route, and why. The kernel asks the network, so the number of
/// addresses is limited to what a peer may reasonably have.
fn ways_of_kernel(facts: &Facts, selector: &DeviceSelector, asked: &Asked) -> Vec<(Ipv6Addr, String)> {
    let (Some(peer), Ok((own, _))) = (&facts.peer, &asked.end) else { return Vec::new() };
    let ways = peer.gids.iter().take(MOST_WAYS).filter_map(|far| {
        let near = own.gids.iter().find(|near| near.prefix.is_none() && suits(near, far))?;
        let row = asked.rows.iter().find(|row| row.index == near.index)?;
        Some((far.gid, no_way(selector, &asked.rows, row, Gid(far.gid.octets()))?))
    });
    ways.collect()
}

/// Queries an open device for everything that rules judge.
pub(super) struct Ask<'a> {
    pub(super) addresses: &'a [PortAddress],
    /// The host whose addresses the port has instead.
    pub(super) host: Option<VirtualHost>,
    /// What the kernel says if it owns the device.
    pub(super) kernel: Option<&'a KernelView>,
    /// What the health buffer reported, in case the device does not close.
    pub(super) kept: &'a mut Option<String>,
}

/// The answers of an open device.
pub(super) struct Asked {
    /// What the health buffer reports, if it reports a fault. It is read last, because a fault shows once a
    /// command has failed.
    pub(super) fault: Option<String>,
    pub(super) end: Result<(EndFacts, Readings), CommandError>,
    /// The GID table.
    rows: Vec<GidRow>,
}

/// What the port of a device that works answers.
struct PortAnswers {
    end: EndFacts,
    counters: Readings,
    /// The GID table.
    rows: Vec<GidRow>,
}

impl Asked {
    pub(super) fn into_opening(self) -> (Opening, Option<Readings>) {
        match (self.end, self.fault) {
            (Ok((end, counters)), fault) => {
                (Opening::Open(DeviceFacts { fault, end: Some(end) }), Some(counters))
            }
            (Err(_), fault @ Some(_)) => (Opening::Open(DeviceFacts { fault, end: None }), None),
            (Err(error), None) => (Opening::Failed(error.to_string()), None),
        }
    }
}

impl DeviceTask for Ask<'_> {
    type Output = Result<Asked, GidError>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, CommandError> {
        let (end, rows) = match self.end(device) {
            Ok(Err(error)) => return Ok(Err(error)),
            Ok(Ok(PortAnswers { end, counters, rows })) => (Ok((end, counters)), rows),
            Err(error) => (Err(error), Vec::new()),
        };
        let health = device.health();
        let faulty = health.device_gone || health.syndrome.raw() != 0;
        let fault = faulty.then(|| health.to_string());
        self.kept.clone_from(&fault);
        Ok(Ok(Asked { fault, end, rows }))
    }
}

impl Ask<'_> {
    fn end<H: Hal>(&self, device: &Device<H>) -> Result<Result<PortAnswers, GidError>, CommandError> {
        let fill = Fill { addresses: self.addresses, host: self.host.clone(), kernel: self.kernel };
        let rows = match fill.run(device)? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let gids = rows.iter().filter_map(|row| {
            let roce = row.roce?;
            let version = if roce.entry.version == RoceVersion::Version1 { 1 } else { 2 };
            Some(GidFact {
                index: row.index,
                gid: row.gid.0.into(),
                version,
                vlan: roce.entry.vlan,
                prefix: roce.address.map(|address| address.prefix),
            })
        });
        let end = EndFacts {
            port: Some(port(device, self.kernel)?),
            gids: gids.collect(),
            partition_keys: partition_keys(device, self.kernel)?,
        };
        let counters = if self.kernel.is_some() { Readings::new() } else { port_counters(device)? };
        Ok(Ok(PortAnswers { end, counters, rows }))
    }
}

fn partition_keys<H: Hal>(device: &Device<H>, kernel: Option<&KernelView>) -> Result<Vec<u16>, CommandError> {
    if device.capabilities().port_type == PortType::Ethernet {
        return Ok(Vec::new());
    }
    if let Some(view) = kernel {
        return Ok(view.partition_keys.clone());
    }
    let keys = (0..PARTITION_KEYS).map(|index| device.partition_key(index));
    keys.filter(|key| !matches!(key, Ok(0))).collect()
}

fn port<H: Hal>(device: &Device<H>, kernel: Option<&KernelView>) -> Result<PortFacts, CommandError> {
    let port = device.port()?;
    let (port, link) = match kernel {
        Some(view) => view.describe(port),
        None => (port, device.port_link()?),
    };
    let ethernet = port.link_layer == PortType::Ethernet;
    let tells = ethernet && device.capabilities().congestion_query;
    Ok(PortFacts {
        flow_control: match kernel {
            None if ethernet => Some(!device.flow_control()?.is_off()),
            _ => None,
        },
        port_max_mtu: kernel.is_none().then_some(port.max_mtu.into()),
        congestion_control: if tells { Some(!device.congestion_control()?.is_off()) } else { None },
        ..port_facts(&port, &link)
    })
}

fn port_facts(port: &PortAttributes, link: &PortLink) -> PortFacts {
    let ethernet = port.link_layer == PortType::Ethernet;
    PortFacts {
        link_layer: if ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand },
        state: match port.state {
            PortState::Down => State::Down,
            PortState::Initialize => State::Initialize,
            PortState::Armed => State::Armed,
            PortState::Active => State::Active,
            PortState::Follow | PortState::Unknown(_) => State::Unknown,
        },
        physical: match link.physical {
            PhysicalState::LinkUp => Physical::LinkUp,
            PhysicalState::Polling => Physical::Polling,
            PhysicalState::Disabled => Physical::Disabled,
            PhysicalState::Training => Physical::Training,
            _ => Physical::Other,
        },
        active_mtu: 128 << port.active_mtu.raw(),
        port_mtu: port.operational_mtu.into(),
        port_max_mtu: None,
        rate_mbps: link.speed.map(|speed| speed.megabits),
        fastest_mbps: link.fastest.map(|speed| speed.megabits),
        lid: port.lid,
        sm_lid: port.subnet_manager_lid,
        flow_control: None,
        congestion_control: None,
    }
}
