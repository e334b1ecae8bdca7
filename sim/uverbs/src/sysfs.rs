//! The files that describe the devices of a host: what Linux shows for mlx5 functions under `/sys` and `/dev`, as a
//! list of paths below a private directory.

use crate::attributes::{DeviceAttributes, InfiniBandPort};
use crate::device_index::DeviceIndex;
use crate::port_state::PortState;
use crate::uapi::RDMA_USER_CM_ABI_VERSION;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_sim::nic::{NicConfig, PortSpeed, VENDOR_ID};

/// Directory of the functions.
const BUS_PATH: &str = "sys/devices/pci0000:e0";
/// `uverbs` interface revision of the kernel, and mlx5's own.
const VERBS_ABI: u32 = 6;
const PROVIDER_ABI: u32 = 1;
/// Capability mask of a RoCE port: `IB_UVERBS_PCF_CM_SUP` and `IB_UVERBS_PCF_IP_BASED_GIDS`.
const ETHERNET_CAPABILITIES: u32 = 0x0401_0000;
/// PCI class of an Ethernet controller.
const CLASS: u32 = 0x02_0000;
/// Device number of `/dev/null`, which stands for the device file.
const NULL_DEVICE: &str = "1:3";
/// The same as the kernel encodes it: major number in bits 8 to 15, minor number below.
pub(crate) const NULL_DEVICE_NUMBER: u64 = 1 << 8 | 3;

/// Directories of the machine that are replaced by those of [`tree`].
pub const REPLACED: &[&str] = &[
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/infiniband_mad",
    "/sys/class/misc/rdma_cm",
    "/sys/bus/pci",
    "/sys/devices/pci0000:e0",
    "/dev/infiniband",
];

/// Path of the connection management file.
pub const CONNECTION_FILE: &str = "/dev/infiniband/rdma_cm";

/// Below the replaced directories, a port's files are those of a port with a cable. This is where the others are.
fn unplugged(index: DeviceIndex) -> String {
    format!("unplugged/{}", index.name())
}

/// A file of a port that reads differently while its cable is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStateFile {
    /// Whose port it is.
    pub device: DeviceIndex,
    /// Path below the directory of the tree, without a leading slash, of what it reads while the cable is out.
    pub unplugged: String,
}

impl PortStateFile {
    /// The file that a path leads to; `None` for other files.
    ///
    /// ```
    /// use bareverbs_uverbs::sysfs::PortStateFile;
    ///
    /// let file = PortStateFile::of(b"/sys/class/infiniband/mlx5_1/ports/1/state").unwrap();
    /// assert_eq!((file.device.number(), file.unplugged.as_str()), (1, "unplugged/mlx5_1/state"));
    /// assert_eq!(PortStateFile::of(b"/sys/class/infiniband/mlx5_1/ports/1/rate"), None);
    /// ```
    pub fn of(path: &[u8]) -> Option<Self> {
        let (_, below) = core::str::from_utf8(path).ok()?.rsplit_once("/infiniband/")?;
        let (device, name) = below.split_once("/ports/1/")?;
        let name = ["state", "phys_state"].into_iter().find(|known| *known == name)?;
        let device = DeviceIndex::all().find(|index| index.name() == device)?;
        Some(Self { device, unplugged: format!("{}/{name}", unplugged(device)) })
    }
}

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A file with its contents.
    File(Vec<u8>),
    /// A symbolic link with this target.
    Link(String),
}

/// A path below the directory, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: String,
    /// What the path is.
    pub node: Node,
}

/// A device to describe.
#[derive(Debug, Clone, Copy)]
pub struct DescribedDevice<'a> {
    /// Attributes known to the kernel.
    pub attributes: &'a DeviceAttributes,
    /// Configuration of the NIC.
    pub config: &'a NicConfig,
}

/// All files for these devices, in index order, with directories before their contents. Devices beyond
/// [`DeviceIndex::all`] are skipped.
pub fn tree(devices: &[DescribedDevice<'_>]) -> Vec<Entry> {
    let mut tree = Tree::default();
    for (index, device) in DeviceIndex::all().zip(devices) {
        pci_function(&mut tree, index, device.attributes);
        ib_device(&mut tree, index, device.attributes);
        port(&mut tree, index, device);
        verbs_device(&mut tree, index);
        device_classes(&mut tree, index);
    }
    classes(&mut tree);
    tree.entries
}

fn function_path(index: DeviceIndex) -> String {
    format!("{BUS_PATH}/{}", index.function())
}

#[derive(Debug, Default)]
struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    fn add(&mut self, path: String, node: Node) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entries.push(Entry { path, node });
    }

    fn directory(&mut self, path: &str) {
        if !self.entries.iter().any(|entry| entry.path == path) {
            self.add(path.into(), Node::Directory);
        }
    }

    fn file(&mut self, directory: &str, name: &str, line: &str) {
        self.add(format!("{directory}/{name}"), Node::File(format!("{line}\n").into_bytes()));
    }

    fn link(&mut self, path: &str, target: &str) {
        self.add(path.into(), Node::Link(target.into()));
    }
}

fn pci_function(tree: &mut Tree, index: DeviceIndex, attributes: &DeviceAttributes) {
    let (vendor, device) = (VENDOR_ID, attributes.device_id);
    let modalias = format!("pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd00000000bc02sc00i00");
    for (name, line) in [
        ("vendor", format!("{vendor:#06x}")),
        ("device", format!("{device:#06x}")),
        ("subsystem_vendor", format!("{vendor:#06x}")),
        ("subsystem_device", "0x0000".into()),
        ("class", format!("{CLASS:#08x}")),
        ("revision", "0x00".into()),
        ("modalias", modalias),
        ("irq", "0".into()),
        ("resource", resources()),
        ("numa_node", "-1".into()),
        ("local_cpus", "ffffffff".into()),
    ] {
        tree.file(&function_path(index), name, &line);
    }
    let header = configuration(device);
    tree.add(format!("{}/config", function_path(index)), Node::File(header.to_vec()));
    let function = index.function();
    tree.link(&format!("sys/bus/pci/devices/{function}"), &format!("../../../devices/pci0000:e0/{function}"));
}

/// The regions of the function: first address, last address and flags of six base addresses and the ROM. They
/// are empty, because a program cannot access them.
fn resources() -> String {
    let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    [none; 7].join("\n")
}

/// The configuration space header (PCI Local Bus Specification 3.0 §6.1), with the fields that identify the
/// function.
fn configuration(device: u16) -> [u8; 64] {
    let mut header = [0; 64];
    header[..2].copy_from_slice(&VENDOR_ID.to_le_bytes());
    header[2..4].copy_from_slice(&device.to_le_bytes());
    header[9..12].copy_from_slice(&CLASS.to_le_bytes()[..3]);
    header[0x2c..0x2e].copy_from_slice(&VENDOR_ID.to_le_bytes());
    header
}

fn ib_device(tree: &mut Tree, index: DeviceIndex, attributes: &DeviceAttributes) {
    let device = format!("{}/infiniband/{}", function_path(index), index.name());
    let [major, minor, subminor] = attributes.firmware_revision;
    let board = attributes.board_id.split(|&byte| byte == 0).next().unwrap_or(&[]);
    for (name, line) in [
        ("node_type", "1: CA".into()),
        ("node_guid", guid(attributes.node_guid)),
        ("sys_image_guid", guid(attributes.system_image_guid)),
        ("fw_ver", format!("{major}.{minor}.{subminor:04}")),
        ("hw_rev", "0".into()),
        ("hca_type", format!("MT{}", attributes.device_id)),
        ("board_id", String::from_utf8_lossy(board).into_owned()),
        ("node_desc", "bareverbs".into()),
    ] {
        tree.file(&device, name, &line);
    }
    tree.link(&format!("{device}/device"), &format!("../../../{}", index.function()));
}

/// Port 1. Empty entries of the GID table have no attributes, and those of InfiniBand have no interface.
fn port(tree: &mut Tree, index: DeviceIndex, device: &DescribedDevice<'_>) {
    let DescribedDevice { attributes, config } = device;
    let port = format!("{}/infiniband/{}/ports/1", function_path(index), index.name());
    let told = attributes.infiniband;
    let number = |of: fn(&InfiniBandPort) -> u32| told.as_ref().map_or(0, of);
    for (name, line) in [
        ("rate", rate(config.link_speed()).into()),
        ("lid", format!("{:#x}", number(|told| told.lid.into()))),
        ("lid_mask_count", number(|told| told.lmc.into()).to_string()),
        ("sm_lid", format!("{:#x}", number(|told| told.sm_lid.into()))),
        ("sm_sl", number(|told| told.sm_sl.into()).to_string()),
        ("cap_mask", format!("{:#010x}", told.map_or(ETHERNET_CAPABILITIES, |told| told.capabilities))),
        ("link_layer", if told.is_some() { "InfiniBand" } else { "Ethernet" }.into()),
    ] {
        tree.file(&port, name, &line);
    }
    for (has_cable, directory) in [(true, port.as_str()), (false, &unplugged(index))] {
        for (name, line) in PortState::of(attributes, has_cable).lines() {
            tree.file(directory, name, &line);
        }
    }
    for index in 0..attributes.pkey_table_length() {
        tree.file(&port, &format!("pkeys/{index}"), if index == 0 { "0xffff" } else { "0x0000" });
    }
    for index in 0..attributes.gid_table_length() as usize {
        let gid = attributes.gids.get(index).copied();
        tree.file(&port, &format!("gids/{index}"), &groups(gid.unwrap_or_default()));
        if gid.is_some() && told.is_some() {
            tree.file(&port, &format!("gid_attrs/types/{index}"), "IB/RoCE v1");
        } else if gid.is_some() {
            tree.file(&port, &format!("gid_attrs/types/{index}"), "RoCE v2");
            tree.file(&port, &format!("gid_attrs/ndevs/{index}"), "lo");
        }
    }
}

fn verbs_device(tree: &mut Tree, index: DeviceIndex) {
    let verbs = format!("{}/infiniband_verbs/{}", function_path(index), index.verbs_name());
    tree.file(&verbs, "ibdev", &index.name());
    tree.file(&verbs, "dev", NULL_DEVICE);
    tree.file(&verbs, "abi_version", &format!("{PROVIDER_ABI}"));
    tree.link(&format!("{verbs}/device"), &format!("../../../{}", index.function()));
}

/// The class directories through which programs find a device.
fn device_classes(tree: &mut Tree, index: DeviceIndex) {
    let function = format!("../../devices/pci0000:e0/{}", index.function());
    let (name, verbs) = (index.name(), index.verbs_name());
    tree.link(&format!("sys/class/infiniband/{name}"), &format!("{function}/infiniband/{name}"));
    tree.link(
        &format!("sys/class/infiniband_verbs/{verbs}"),
        &format!("{function}/infiniband_verbs/{verbs}"),
    );
    tree.link(&format!("dev/infiniband/{verbs}"), "/dev/null");
}

/// What all devices share.
fn classes(tree: &mut Tree) {
    tree.file("sys/class/infiniband_verbs", "abi_version", &format!("{VERBS_ABI}"));
    tree.file("sys/class/misc/rdma_cm", "abi_version", &format!("{RDMA_USER_CM_ABI_VERSION}"));
    tree.file("sys/class/misc/rdma_cm", "dev", NULL_DEVICE);
    tree.link("dev/infiniband/rdma_cm", "/dev/null");
}

const fn rate(speed: PortSpeed) -> &'static str {
    match speed {
        PortSpeed::Gbps10 => "10 Gb/sec (1X QDR)",
        PortSpeed::Gbps25 => "25 Gb/sec (1X EDR)",
        PortSpeed::Gbps40 => "40 Gb/sec (4X QDR)",
        PortSpeed::Gbps50 => "50 Gb/sec (2X EDR)",
        PortSpeed::Gbps100 => "100 Gb/sec (4X EDR)",
    }
}

fn guid(guid: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| guid >> shift & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

/// A GID as eight groups without abbreviation.
fn groups(Gid(bytes): Gid) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NullProcess, Uverbs, VirtualHost};

    #[test]
    fn each_device_has_files_of_its_own_and_their_links_lead_to_them() {
        let hosts = ["a", "b"].map(|name| VirtualHost::new(name).unwrap());
        let configs = hosts.each_ref().map(|host| host.nic_config(0));
        let booted = [0, 1]
            .map(|at| Uverbs::boot(configs[at], &hosts[at].port_addresses(), &mut NullProcess).unwrap());
        let devices =
            [0, 1].map(|at| DescribedDevice { attributes: booted[at].attributes(), config: &configs[at] });
        let entries = tree(&devices);
        let node = |path: &str| &entries.iter().find(|entry| entry.path == path).expect(path).node;
        for (at, host) in hosts.iter().enumerate() {
            let Node::Link(target) = node(&format!("sys/class/infiniband/mlx5_{at}")) else {
                panic!("no link")
            };
            let device = target.replace("../../", "sys/");
            let gid = groups(host.gids()[0]) + "\n";
            assert_eq!(*node(&format!("{device}/ports/1/gids/0")), Node::File(gid.into_bytes()));
            let Node::Link(target) = node(&format!("sys/class/infiniband_verbs/uverbs{at}")) else {
                panic!("no link")
            };
            let name = format!("mlx5_{at}\n").into_bytes();
            assert_eq!(*node(&(target.replace("../../", "sys/") + "/ibdev")), Node::File(name));
            assert_eq!(*node(&format!("dev/infiniband/uverbs{at}")), Node::Link("/dev/null".into()));
        }
        let file = PortStateFile::of(b"/sys/class/infiniband/mlx5_1/ports/1/phys_state").unwrap();
        assert_eq!(*node(&file.unplugged), Node::File(b"3: Disabled\n".to_vec()));
        let mut paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        paths.sort_unstable();
        assert!(paths.windows(2).all(|pair| pair[0] != pair[1]), "two entries share a path");
    }
}
