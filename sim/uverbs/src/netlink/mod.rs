//! Answers on NETLINK_RDMA sockets: devices, their ports, device files and objects. libibverbs, librdmacm and the
//! `rdma` tool use them.
//!
//! **What this is.** Turns a datagram of requests into datagrams of responses, like `ib_core` (`linux/rdma_netlink.h`).
//!
//! **What it may not do.** It is read-only: requests that would change something are refused, as are unknown ones
//! (`EOPNOTSUPP`). It only knows our devices.

mod message;
mod naming;
mod objects;

use crate::Errno;
use crate::attributes::DeviceAttributes;
use crate::device_index::DeviceIndex;
use crate::files::Object;
use crate::port_state::PortState;
use crate::sysfs::NULL_DEVICE_NUMBER;
use crate::uapi::{
    RDMA_DRIVER_MLX5, RDMA_NL_NLDEV, RDMA_NLDEV_ATTR_CAP_FLAGS, RDMA_NLDEV_ATTR_CHARDEV,
    RDMA_NLDEV_ATTR_CHARDEV_ABI, RDMA_NLDEV_ATTR_CHARDEV_NAME, RDMA_NLDEV_ATTR_CHARDEV_TYPE,
    RDMA_NLDEV_ATTR_DEV_DIM, RDMA_NLDEV_ATTR_DEV_INDEX, RDMA_NLDEV_ATTR_DEV_NODE_TYPE,
    RDMA_NLDEV_ATTR_DEV_PROTOCOL, RDMA_NLDEV_ATTR_FW_VERSION, RDMA_NLDEV_ATTR_LID, RDMA_NLDEV_ATTR_LMC,
    RDMA_NLDEV_ATTR_NODE_GUID, RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_ATTR_PORT_PHYS_STATE,
    RDMA_NLDEV_ATTR_PORT_STATE, RDMA_NLDEV_ATTR_RES_SUMMARY, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY,
    RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, RDMA_NLDEV_ATTR_SM_LID,
    RDMA_NLDEV_ATTR_SUBNET_PREFIX, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID,
    RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_GET_CHARDEV, RDMA_NLDEV_CMD_PORT_GET, RDMA_NLDEV_CMD_RES_GET,
    RDMA_NLDEV_CMD_SYS_GET, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, RDMA_NLDEV_SYS_ATTR_NETNS_MODE,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use message::{Reply, RequestMessage, flag};
use naming::{PORT, put_name};

pub(crate) use message::Attributes;
pub use objects::{ListedObject, ListedObjects, ObjectKind, ObjectOwner};

/// `RDMA_NODE_IB_CA`: a channel adapter.
const CHANNEL_ADAPTER: u8 = 1;
/// Interface of mlx5's device files.
const MLX5_ABI: u64 = 1;
/// Position of the client in a message's type.
const CLIENT_SHIFT: u16 = 10;
const COMMAND_MASK: u16 = (1 << CLIENT_SHIFT) - 1;

/// Numbers of a program's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectCounts {
    /// Protection domains.
    pub protection_domains: u64,
    /// Completion queues.
    pub completion_queues: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Identifiers of connections.
    pub connection_identifiers: u64,
    /// Memory regions.
    pub memory_regions: u64,
    /// Open device files.
    pub contexts: u64,
    /// Shared receive queues.
    pub shared_receive_queues: u64,
}

impl ObjectCounts {
    /// Counts an object of a file. The kernel does not report some kinds.
    pub(crate) const fn add(&mut self, object: Object) {
        let count = match object {
            Object::ProtectionDomain(_) => &mut self.protection_domains,
            Object::CompletionQueue(_) => &mut self.completion_queues,
            Object::QueuePair(_) => &mut self.queue_pairs,
            Object::MemoryRegion(_) => &mut self.memory_regions,
            Object::SharedReceiveQueue(_) => &mut self.shared_receive_queues,
            // DEVX objects are not in the kernel's resource tracking.
            Object::MemoryWindow(_)
            | Object::Uar(_)
            | Object::AddressHandle
            | Object::XrcDomain(_)
            | Object::Devx(_)
            | Object::UserMemory(_) => return,
        };
        *count += 1;
    }

    /// The sum of two processes' objects.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            protection_domains: self.protection_domains + other.protection_domains,
            completion_queues: self.completion_queues + other.completion_queues,
            queue_pairs: self.queue_pairs + other.queue_pairs,
            connection_identifiers: self.connection_identifiers + other.connection_identifiers,
            memory_regions: self.memory_regions + other.memory_regions,
            contexts: self.contexts + other.contexts,
            shared_receive_queues: self.shared_receive_queues + other.shared_receive_queues,
        }
    }

    /// Text form: lines of a name and a number.
    pub fn to_lines(&self) -> String {
        self.named().iter().map(|(name, count)| format!("{name} {count}\n")).collect()
    }

    /// Parses [`Self::to_lines`]; ignores other lines.
    pub fn from_lines(text: &str) -> Self {
        let mut counts = Self::default();
        for (name, count) in text.lines().filter_map(|line| line.split_once(' ')) {
            let Some(place) = counts.place(name) else { continue };
            *place = count.parse().unwrap_or(0);
        }
        counts
    }

    fn place(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "pd" => &mut self.protection_domains,
            "cq" => &mut self.completion_queues,
            "qp" => &mut self.queue_pairs,
            "cm_id" => &mut self.connection_identifiers,
            "mr" => &mut self.memory_regions,
            "ctx" => &mut self.contexts,
            "srq" => &mut self.shared_receive_queues,
            _ => return None,
        })
    }

    /// Names that the kernel uses, in its order.
    const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("pd", self.protection_domains),
            ("cq", self.completion_queues),
            ("qp", self.queue_pairs),
            ("cm_id", self.connection_identifiers),
            ("mr", self.memory_regions),
            ("ctx", self.contexts),
            ("srq", self.shared_receive_queues),
        ]
    }
}

/// A device to report.
#[derive(Debug, Clone, Copy)]
pub struct InventoryDevice<'a> {
    /// Attributes known to the kernel.
    pub attributes: &'a DeviceAttributes,
    /// Whether its cable is plugged in.
    pub has_cable: bool,
    /// Numbers of objects on it, of all processes of the host.
    pub objects: ObjectCounts,
    /// Single objects, of the kinds that were asked for ([`kinds_asked_for`]).
    pub listed: &'a ListedObjects,
}

/// The devices to report, in index order.
#[derive(Debug, Clone, Copy)]
pub struct Inventory<'a>(pub &'a [InventoryDevice<'a>]);

/// Whether a datagram of requests asks about objects. Other processes of the host have to be asked about theirs.
pub fn asks_for_objects(datagram: &[u8]) -> bool {
    message::requests(datagram).any(|request| command(&request) == Some(RDMA_NLDEV_CMD_RES_GET))
}

/// Kinds of objects that a datagram of requests asks for individually.
pub fn kinds_asked_for(datagram: &[u8]) -> Vec<ObjectKind> {
    let commands = message::requests(datagram).filter_map(|request| command(&request));
    let mut kinds: Vec<ObjectKind> = commands.filter_map(ObjectKind::of_command).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Answers a datagram of requests from the socket with this port number; each element is a datagram.
pub fn answer(datagram: &[u8], port: u32, inventory: &Inventory<'_>) -> Vec<Vec<u8>> {
    let asked = message::requests(datagram).filter(|request| request.has(flag::REQUEST));
    asked.flat_map(|request| answer_one(&request, port, inventory)).collect()
}

/// The command of a request to the device client.
fn command(request: &RequestMessage<'_>) -> Option<u16> {
    (request.kind >> CLIENT_SHIFT == RDMA_NL_NLDEV).then_some(request.kind & COMMAND_MASK)
}

fn answer_one(request: &RequestMessage<'_>, port: u32, inventory: &Inventory<'_>) -> Vec<Vec<u8>> {
    let written = replies(request, port, inventory);
    if request.has(flag::DUMP) {
        let error = written.as_ref().err().copied();
        let messages = written.unwrap_or_default().into_iter().map(Reply::finish);
        return messages.chain([request.done(port, error)]).collect();
    }
    match written {
        Ok(replies) => {
            let acknowledgement = request.has(flag::ACK).then(|| request.acknowledge(port, None));
            replies.into_iter().map(Reply::finish).chain(acknowledgement).collect()
        }
        Err(error) => vec![request.acknowledge(port, Some(error))],
    }
}

/// A dump of devices or objects covers all devices; any other request names one.
fn replies(request: &RequestMessage<'_>, port: u32, inventory: &Inventory<'_>) -> Result<Vec<Reply>, Errno> {
    let command = command(request).ok_or(Errno::Invalid)?;
    if let Some(kind) = ObjectKind::of_command(command) {
        let index = named_index(request, inventory)?;
        let device = inventory.0.get(usize::from(index.number())).ok_or(Errno::NoDevice)?;
        let listed = device.listed.get(&kind).map_or(&[][..], Vec::as_slice);
        return objects::replies(request, port, kind, index, listed);
    }
    let tells_all = match command {
        RDMA_NLDEV_CMD_SYS_GET => return Ok(vec![system(request.reply(port))]),
        RDMA_NLDEV_CMD_GET | RDMA_NLDEV_CMD_RES_GET => request.has(flag::DUMP),
        RDMA_NLDEV_CMD_PORT_GET | RDMA_NLDEV_CMD_GET_CHARDEV => false,
        _ => return Err(Errno::NotSupported),
    };
    let devices = DeviceIndex::all().zip(inventory.0);
    let wanted = if tells_all { None } else { Some(named_index(request, inventory)?) };
    let told = devices.filter(|(index, _)| wanted.is_none_or(|wanted| wanted == *index));
    told.map(|(index, device)| {
        let mut reply = request.reply(port);
        fill(request, &mut reply, index, device)?;
        Ok(reply)
    })
    .collect()
}

/// Devices belong to all network namespaces, and memory is copied when a process forks.
fn system(mut reply: Reply) -> Reply {
    reply.put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);
    reply.put_u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
    reply
}

fn fill(
    request: &RequestMessage<'_>,
    reply: &mut Reply,
    index: DeviceIndex,
    device: &InventoryDevice<'_>,
) -> Result<(), Errno> {
    match command(request).ok_or(Errno::Invalid)? {
        RDMA_NLDEV_CMD_GET => put_device(reply, index, device.attributes),
        RDMA_NLDEV_CMD_PORT_GET => {
            let is_there = request.number(RDMA_NLDEV_ATTR_PORT_INDEX) == Some(PORT);
            if !is_there && !request.has(flag::DUMP) {
                return Err(Errno::Invalid);
            }
            put_port(reply, index, device);
        }
        RDMA_NLDEV_CMD_GET_CHARDEV => put_device_file(request, reply, index)?,
        RDMA_NLDEV_CMD_RES_GET => put_objects(reply, index, &device.objects),
        _ => return Err(Errno::NotSupported),
    }
    Ok(())
}

/// The device that a request names.
fn named_index(request: &RequestMessage<'_>, inventory: &Inventory<'_>) -> Result<DeviceIndex, Errno> {
    let number = request.number(RDMA_NLDEV_ATTR_DEV_INDEX).ok_or(Errno::Invalid)?;
    let index = DeviceIndex::new(number).filter(|index| usize::from(index.number()) < inventory.0.len());
    index.ok_or(Errno::NoDevice)
}

fn put_device(reply: &mut Reply, index: DeviceIndex, attributes: &DeviceAttributes) {
    let [major, minor, subminor] = attributes.firmware_revision;
    put_name(reply, index);
    reply.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
    reply.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, attributes.device_flags().into());
    reply.put_text(RDMA_NLDEV_ATTR_FW_VERSION, &format!("{major}.{minor}.{subminor:04}"));
    reply.put_u64(RDMA_NLDEV_ATTR_NODE_GUID, attributes.node_guid);
    reply.put_u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, attributes.system_image_guid);
    reply.put_u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, CHANNEL_ADAPTER);
    reply.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
    let protocol = if attributes.infiniband.is_some() { "ib" } else { "roce" };
    reply.put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, protocol);
}

/// A port of Ethernet has an interface, one of InfiniBand what its subnet's manager said.
fn put_port(reply: &mut Reply, index: DeviceIndex, device: &InventoryDevice<'_>) {
    let attributes = device.attributes;
    put_name(reply, index);
    reply.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
    if let Some(told) = &attributes.infiniband {
        let prefix = attributes.gids.first().and_then(|gid| gid.0.first_chunk()).copied();
        reply.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, told.capabilities.into());
        reply.put_u64(RDMA_NLDEV_ATTR_SUBNET_PREFIX, u64::from_be_bytes(prefix.unwrap_or_default()));
        reply.put_u32(RDMA_NLDEV_ATTR_LID, told.lid.into());
        reply.put_u32(RDMA_NLDEV_ATTR_SM_LID, told.sm_lid.into());
        reply.put_u8(RDMA_NLDEV_ATTR_LMC, told.lmc);
    }
    let state = PortState::of(attributes, device.has_cable);
    reply.put_u8(RDMA_NLDEV_ATTR_PORT_STATE, state.logical);
    reply.put_u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, state.physical);
    // No network interface is named: a reader would look up its addresses, and the machine has none of this host's.
}

/// Only verbs have a device file.
fn put_device_file(request: &RequestMessage<'_>, reply: &mut Reply, index: DeviceIndex) -> Result<(), Errno> {
    if request.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE).ok_or(Errno::Invalid)? != b"uverbs" {
        return Err(Errno::NotSupported);
    }
    reply.put_u64(RDMA_NLDEV_ATTR_CHARDEV, NULL_DEVICE_NUMBER);
    reply.put_u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, MLX5_ABI);
    reply.put_text(RDMA_NLDEV_ATTR_CHARDEV_NAME, &index.verbs_name());
    reply.put_u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_DRIVER_MLX5);
    Ok(())
}

fn put_objects(reply: &mut Reply, index: DeviceIndex, objects: &ObjectCounts) {
    put_name(reply, index);
    reply.nest(RDMA_NLDEV_ATTR_RES_SUMMARY, |reply| {
        for (name, count) in objects.named() {
            reply.nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, |reply| {
                reply.put_text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
                reply.put_u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
            });
        }
    });
}

#[cfg(test)]
mod tests;
