//! A simulated host with an open device: the start of every scenario.

use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::{Latency, NodeId};
use std::rc::Rc;

/// Handle to the device of a node, as every object holds it.
pub type Handle = Rc<Device<SimHal<Nic>>>;

/// All rights.
pub fn all_access() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_ATOMIC
}

/// How the hosts of one test differ from those of another.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeOptions {
    /// Addresses are IPv6 instead of IPv4.
    pub ipv6: bool,
    /// RoCE version 1 instead of 2.
    pub version_1: bool,
    /// Whether memory exposes missing barriers, and the device insists that reserved bits are zero.
    pub unforgiving: bool,
}

/// A host, its NIC, and the driver that was opened on it.
pub struct Node {
    /// Its number in the world.
    pub id: NodeId,
    /// The device.
    pub device: Handle,
    /// A protection domain.
    pub domain: ProtectionDomain<Handle>,
}

impl Node {
    /// Adds host number `number` to the world, without a cable.
    pub fn add(world: &SimWorld<Nic>, number: u8, options: NodeOptions) -> NodeId {
        let config = NicConfig { strict: options.unforgiving, ..NicConfig::new(mac(number)) };
        let memory = if options.unforgiving { MemoryConfig::unforgiving() } else { MemoryConfig::default() };
        world.add_node(&format!("host{number}"), Nic::new(config), Latency::default(), memory)
    }

    /// Opens the device of host `number` and gives it an address.
    pub fn open(world: &SimWorld<Nic>, id: NodeId, number: u8, options: NodeOptions) -> Self {
        let device =
            Device::open(world.hal(id), DeviceConfig::default()).unwrap_or_else(|error| panic!("{error}"));
        let of_version = if options.version_1 { GidEntry::roce_v1 } else { GidEntry::roce_v2 };
        let entry = of_version(gid(number, options.ipv6), mac(number));
        device.set_gid(0, entry).expect("the first entry of the address table");
        let device = Rc::new(device);
        let domain = ProtectionDomain::allocate(device.clone()).expect("a protection domain");
        Self { id, device, domain }
    }

    /// A completion queue of at least `entries` completions.
    pub fn completion_queue(&self, entries: u32) -> CompletionQueue<Handle> {
        CompletionQueue::create(self.device.clone(), CompletionQueueConfig { entries })
            .expect("a completion queue")
    }

    /// Memory with rights.
    pub fn memory(&self, length: usize, access: AccessFlags) -> MemoryRegion<Handle> {
        MemoryRegion::allocate(&self.domain, length, access).expect("a memory region")
    }
}

/// Ethernet address of host `number`.
pub fn mac(number: u8) -> MacAddress {
    MacAddress([0x02, 0xc9, 0, 0, 0, number])
}

/// RoCE address of host `number`: 10.0.0.n or fe80::c9ff:fe00:n.
pub fn gid(number: u8, ipv6: bool) -> Gid {
    if ipv6 {
        Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0xc9, 0xff, 0xfe, 0, 0, number])
    } else {
        Gid::from_ipv4([10, 0, 0, number])
    }
}
