//! Scenes: simulated worlds and trees of files, from which facts are gathered as the command gathers them.

use super::super::facts::{Facts, Opening};
use super::super::gather::{Ask, kernel_ports, machine, own_addresses};
use crate::counters::{port_counters, queue_counters};
use crate::place::{DeviceSelector, DeviceTask as _, KernelView};
use crate::port_address::{PortAddress, fill_table};
use crate::traffic::{Traffic, TrafficConfig};
use bareverbs_core::device::OpenCause;
use bareverbs_core::{Device, DeviceConfig};
use bareverbs_hal::pci::{Need, Tree};
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::{LinkConfig, Partitions, SubnetConfig, SwitchConfig};
use bareverbs_sim::nic::{Nic, NicConfig, SubnetMembership};
use bareverbs_sim::run::{Latency, LinkId, NodeId};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// The PCI function in the trees of files, in a domain that no machine has.
pub(super) const FUNCTION: &str = "ffff:3b:00.0";

/// Two hosts with a cable.
pub(super) struct Scene {
    pub(super) world: SimWorld,
    pub(super) nodes: [NodeId; 2],
    pub(super) link: LinkId,
}

pub(super) const fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

/// A port with pause frames and congestion control on, like a ConnectX.
pub(super) fn ethernet(number: u8) -> NicConfig {
    NicConfig { starts_with_pause: true, congestion_control: true, ..NicConfig::new(mac(number)) }
}

pub(super) fn infiniband(number: u8) -> NicConfig {
    NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac(number)) }
}

fn add(world: &SimWorld, number: usize, config: NicConfig) -> NodeId {
    world.add_node(&format!("host{number}"), Nic::new(config), Latency::default(), MemoryConfig::default())
}

impl Scene {
    /// Connected back to back.
    pub(super) fn new(configs: [NicConfig; 2]) -> Self {
        let world = SimWorld::new(1);
        let nodes = [add(&world, 1, configs[0]), add(&world, 2, configs[1])];
        let link = world.connect(nodes[0], nodes[1], LinkConfig::gigabits(100)).expect("two free ports");
        Self { world, nodes, link }
    }

    /// Connected by a switch with a subnet manager.
    pub(super) fn managed(partition_keys: Vec<u16>) -> Self {
        let world = SimWorld::new(1);
        let nodes = [1, 2].map(|number| add(&world, number, infiniband(number as u8)));
        let partitions = Partitions::of_all(&partition_keys);
        let config = SubnetConfig { partitions, ..SubnetConfig::default() };
        let switch = world.with(|world| world.add_subnet("switch", SwitchConfig::default(), config));
        let link = world.connect(nodes[0], switch, LinkConfig::gigabits(100)).expect("a free port");
        world.connect(nodes[1], switch, LinkConfig::gigabits(100)).expect("a free port");
        Self { world, nodes, link }
    }

    /// Facts of one end, as the command gathers them. `then` may break something in between.
    pub(super) fn facts_after(
        &self,
        end: usize,
        address: &str,
        then: impl FnOnce(&Self, &Device<SimHal>),
    ) -> Facts {
        let mut facts = Facts { selector: Some("sim".to_owned()), ..Facts::default() };
        // Gives links and subnet managers time.
        self.world.run_until(self.world.now() + Duration::from_secs(1));
        match Device::open(self.world.hal(self.nodes[end]), DeviceConfig::default()) {
            Ok(device) => {
                self.world.run_until(self.world.now() + Duration::from_secs(2));
                then(self, &device);
                let addresses: Vec<PortAddress> = address.split_whitespace().map(parsed).collect();
                let ask = Ask { addresses: &addresses, host: None, kernel: None, kept: &mut None };
                let asked = ask.run(&device);
                let asked = asked.expect("an answer").expect("addresses that fit");
                (facts.opening, facts.counters) = asked.into_opening();
            }
            Err(error) if matches!(error.cause, OpenCause::FirmwareNotReady { .. }) => {
                facts.opening = Opening::NotReady(error.to_string());
            }
            Err(error) => facts.opening = Opening::Failed(error.to_string()),
        }
        facts
    }

    /// Facts of the first end if its kernel owned the device and had given it this address, with the second end as its peer.
    pub(super) fn of_kernel(&self, view: &KernelView, addresses: [&str; 2]) -> Facts {
        let peer = self.facts(1, addresses[1]).port().cloned();
        let mut facts = Facts { of_kernel: true, peer, ..Facts::default() };
        let device = Device::open(self.world.hal(self.nodes[0]), DeviceConfig::default()).expect("it opens");
        let given = fill_table(&device, &[parsed(addresses[0])]).expect("a table");
        given.expect("addresses that fit");
        let asked = Ask { addresses: &[], host: None, kernel: Some(view), kept: &mut None }.run(&device);
        (facts.opening, _) = asked.expect("an answer").expect("a table").into_opening();
        facts
    }

    pub(super) fn facts(&self, end: usize, address: &str) -> Facts {
        self.facts_after(end, address, |_, _| ())
    }

    /// Facts of the first end, with the second one as its peer.
    pub(super) fn both(&self, addresses: [&str; 2]) -> Facts {
        let peer = self.facts(1, addresses[1]).port().cloned();
        Facts { peer, ..self.facts(0, addresses[0]) }
    }
}

/// Opens a device as the command does.
pub(super) fn open(facts: &mut Facts, selector: &str) {
    let arguments: crate::doctor::DoctorArguments = super::parsed(&["--device", selector]);
    let device = arguments.device().expect("a device");
    super::super::gather::device(facts, Path::new("/"), &device, &arguments.place, &[])
        .unwrap_or_else(|failure| panic!("{failure:?}"));
}

fn parsed(address: &str) -> PortAddress {
    address.parse().expect("an address")
}

/// The counters after some traffic, at the sender or at the receiver.
pub(super) fn counted(config: TrafficConfig, receiver: bool, after: impl FnOnce(&mut Traffic)) -> Facts {
    let mut traffic = Traffic::start(config).expect("two hosts");
    (0..40).for_each(|_| traffic.step().expect("a message"));
    after(&mut traffic);
    let device = if receiver { traffic.receiver() } else { traffic.device() };
    let mut readings = port_counters(device).expect("counters of the port");
    let set = traffic.counter_sets()[usize::from(receiver)].read().expect("counters of queue pairs");
    readings.extend(queue_counters(&set));
    Facts { counters: Some(readings), ..Facts::default() }
}

/// A virtual time that no boot takes.
pub(super) const NEVER: Duration = Duration::from_secs(1000);

/// Advances a world without events.
pub(super) fn later(world: &SimWorld, time: Duration) {
    let until: Time = world.now() + time;
    world.run_until(until);
}

/// A tree of files, removed on drop.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("written");
    }

    pub(super) fn link(&self, to: &str, at: &str) {
        let at = self.path().join(at);
        let _ = fs::remove_file(&at);
        fs::create_dir_all(self.path().join(to)).expect("a directory");
        symlink(self.path().join(to), at).expect("a link");
    }

    pub(super) fn remove(&self, path: &str) {
        let path = self.path().join(path);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }

    /// Facts of the machine, with the function as the device.
    pub(super) fn facts(&self, locked_limit: Option<u64>) -> Facts {
        let need = Need { memory: 32 << 20, no_iommu: false, locked_limit };
        let device: DeviceSelector = FUNCTION.parse().expect("an address");
        machine(&Tree::at(self.path()), Some(&device), &need).unwrap_or_else(|failure| panic!("{failure:?}"))
    }
}

/// A machine with a function that is ready for user space.
pub(super) fn ready_machine() -> Files {
    let files = Files::new();
    let device = format!("sys/bus/pci/devices/{FUNCTION}");
    for (name, text) in [
        ("vendor", "0x15b3\n"),
        ("device", "0x1017\n"),
        ("class", "0x020000\n"),
        ("numa_node", "0\n"),
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("max_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "16\n"),
        ("max_link_width", "16\n"),
    ] {
        files.write(&format!("{device}/{name}"), text);
    }
    files.link("sys/bus/pci/drivers/vfio-pci", &format!("{device}/driver"));
    files.link("sys/kernel/iommu_groups/7", &format!("{device}/iommu_group"));
    files.write(&format!("sys/kernel/iommu_groups/7/devices/{FUNCTION}"), "");
    files.write("dev/vfio/7", "");
    files.write("dev/vfio/vfio", "");
    files.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
    files.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "64\n");
    files
}

/// A container with `mlx5_0`, whose GIDs belong to `eth0` and `address`; it has the interface `interface` with 10.0.0.1.
pub(super) fn container(interface: &str, address: &str) -> Files {
    let files = Files::new();
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    files.write(&format!("{port}/link_layer"), "Ethernet\n");
    let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
    let four: std::net::Ipv4Addr = address.parse().expect("an address");
    let [a, b, c, d] = four.octets();
    let gids = [
        "fe80:0000:0000:0000:0000:00ff:fe00:0001".to_owned(),
        format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"),
        zero.to_owned(),
    ];
    for (index, gid) in gids.iter().enumerate() {
        files.write(&format!("{port}/gids/{index}"), &format!("{gid}\n"));
        if gid != zero {
            files.write(&format!("{port}/gid_attrs/ndevs/{index}"), "eth0\n");
        }
    }
    files.write(&format!("sys/class/net/{interface}/mtu"), "1500\n");
    files.write(
        "proc/net/if_inet6",
        "00000000000000000000000000000001 01 80 10 80       lo\nfe80000000000000000000fffe000001 02 40 20 80     eth0\n",
    );
    files.write(
        "proc/net/fib_trie",
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.1\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n",
    );
    files
}

/// Facts of a container.
pub(super) fn contained(files: &Files) -> Facts {
    Facts {
        kernel: kernel_ports(files.path()),
        own_addresses: own_addresses(files.path()),
        ..Facts::default()
    }
}
