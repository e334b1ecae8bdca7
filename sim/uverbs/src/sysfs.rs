//! The files that describe the device: what Linux shows of an mlx5 function under `/sys` and `/dev`, as a list of paths below
//! a directory of one's own.

use crate::attributes::{DeviceAttributes, InfiniBandPort};
use crate::uapi::RDMA_USER_CM_ABI_VERSION;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_sim::nic::{NicConfig, PortSpeed, VENDOR_ID};

/// The PCI function, on a bus that machines do not have.
const FUNCTION: &str = "0000:e1:00.0";
const FUNCTION_PATH: &str = "sys/devices/pci0000:e0/0000:e1:00.0";
/// `uverbs` interface revision of the kernel, and mlx5's own.
const VERBS_ABI: u32 = 6;
const PROVIDER_ABI: u32 = 1;
/// Capability mask of a port of RoCE: `IB_UVERBS_PCF_CM_SUP` and `IB_UVERBS_PCF_IP_BASED_GIDS`.
const ETHERNET_CAPABILITIES: u32 = 0x0401_0000;
/// Class of a network controller for Ethernet.
const CLASS: u32 = 0x02_0000;
/// Device number of `/dev/null`, which stands for the device file.
const NULL_DEVICE: &str = "1:3";
/// The same as the kernel encodes it: major number in bits 8 to 15, minor number below.
pub(crate) const NULL_DEVICE_NUMBER: u64 = 1 << 8 | 3;

/// Directories of the machine in whose place those of [`tree`] are seen.
pub const REPLACED: &[&str] = &[
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/infiniband_mad",
    "/sys/class/misc/rdma_cm",
    "/sys/bus/pci",
    "/sys/devices/pci0000:e0",
    "/dev/infiniband",
];

/// The device file.
pub const DEVICE_FILE: &str = "/dev/infiniband/uverbs0";
/// The file of connection management.
pub const CONNECTION_FILE: &str = "/dev/infiniband/rdma_cm";

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A file with its contents.
    File(Vec<u8>),
    /// A symbolic link and where it leads.
    Link(String),
}

/// A path below the directory, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: String,
    /// What stands there.
    pub node: Node,
}

/// Everything that describes the device, directories before what they contain.
pub fn tree(attributes: &DeviceAttributes, config: &NicConfig) -> Vec<Entry> {
    let mut tree = Tree::default();
    pci_function(&mut tree, attributes);
    ib_device(&mut tree, attributes);
    port(&mut tree, attributes, config);
    verbs_device(&mut tree);
    classes(&mut tree);
    tree.entries
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

fn pci_function(tree: &mut Tree, attributes: &DeviceAttributes) {
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
        tree.file(FUNCTION_PATH, name, &line);
    }
    let header = configuration(device);
    tree.add(format!("{FUNCTION_PATH}/config"), Node::File(header.to_vec()));
    tree.link("sys/bus/pci/devices/0000:e1:00.0", &format!("../../../devices/pci0000:e0/{FUNCTION}"));
}

/// The regions of the function: first address, last address and flags of six base addresses and the ROM. It has none, since
/// a program does not reach them.
fn resources() -> String {
    let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    [none; 7].join("\n")
}

/// The header of the configuration space (PCI Local Bus Specification 3.0 §6.1), as far as it says what the function is.
fn configuration(device: u16) -> [u8; 64] {
    let mut header = [0; 64];
    header[..2].copy_from_slice(&VENDOR_ID.to_le_bytes());
    header[2..4].copy_from_slice(&device.to_le_bytes());
    header[9..12].copy_from_slice(&CLASS.to_le_bytes()[..3]);
    header[0x2c..0x2e].copy_from_slice(&VENDOR_ID.to_le_bytes());
    header
}

fn ib_device(tree: &mut Tree, attributes: &DeviceAttributes) {
    let device = format!("{FUNCTION_PATH}/infiniband/mlx5_0");
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
    tree.link(&format!("{device}/device"), &format!("../../../{FUNCTION}"));
}

/// Port 1. Entries of the GID table that are empty have no attributes, and those of InfiniBand have no interface.
fn port(tree: &mut Tree, attributes: &DeviceAttributes, config: &NicConfig) {
    let port = format!("{FUNCTION_PATH}/infiniband/mlx5_0/ports/1");
    let told = attributes.infiniband;
    let number = |of: fn(&InfiniBandPort) -> u32| told.as_ref().map_or(0, of);
    for (name, line) in [
        ("state", "4: ACTIVE".into()),
        ("phys_state", "5: LinkUp".into()),
        ("rate", rate(config.speed).into()),
        ("lid", format!("{:#x}", number(|told| told.lid.into()))),
        ("lid_mask_count", number(|told| told.lmc.into()).to_string()),
        ("sm_lid", format!("{:#x}", number(|told| told.sm_lid.into()))),
        ("sm_sl", number(|told| told.sm_sl.into()).to_string()),
        ("cap_mask", format!("{:#010x}", told.map_or(ETHERNET_CAPABILITIES, |told| told.capabilities))),
        ("link_layer", if told.is_some() { "InfiniBand" } else { "Ethernet" }.into()),
    ] {
        tree.file(&port, name, &line);
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

fn verbs_device(tree: &mut Tree) {
    let verbs = format!("{FUNCTION_PATH}/infiniband_verbs/uverbs0");
    tree.file(&verbs, "ibdev", "mlx5_0");
    tree.file(&verbs, "dev", NULL_DEVICE);
    tree.file(&verbs, "abi_version", &format!("{PROVIDER_ABI}"));
    tree.link(&format!("{verbs}/device"), &format!("../../../{FUNCTION}"));
}

fn classes(tree: &mut Tree) {
    let function = format!("../../devices/pci0000:e0/{FUNCTION}");
    tree.link("sys/class/infiniband/mlx5_0", &format!("{function}/infiniband/mlx5_0"));
    tree.file("sys/class/infiniband_verbs", "abi_version", &format!("{VERBS_ABI}"));
    tree.link("sys/class/infiniband_verbs/uverbs0", &format!("{function}/infiniband_verbs/uverbs0"));
    tree.link("dev/infiniband/uverbs0", "/dev/null");
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

/// Eight groups that are never shortened.
fn groups(Gid(bytes): Gid) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}
