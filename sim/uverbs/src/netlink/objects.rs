//! Individual objects, as `rdma resource show` requests them: a dump of a kind, or one by number.
//!
//! Each process of a host lists its own objects (`fill_res_*_entry` in Linux's `nldev.c`) as attributes of the response;
//! they are combined here. Memory keys are left out: the kernel only reveals them to network administrators.

use super::message::{Attributes, Reply, RequestMessage, flag};
use super::naming::{PORT, put_name};
use crate::Errno;
use crate::device_index::DeviceIndex;
use crate::uapi::*;
use alloc::vec;
use alloc::vec::Vec;

/// Most bytes of attributes in a dump's message: libmnl receives into one page.
const MOST_BYTES: usize = 3072;
/// Longest attributes of an object: a shared receive queue lists its queue pairs.
const LONGEST: usize = 2048;
/// Number, port and length of an object in the exchange between processes.
const HEAD: usize = 7;

/// Kinds of objects that the kernel reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Queue pairs.
    QueuePair,
    /// Identifiers of connections.
    ConnectionIdentifier,
    /// Completion queues.
    CompletionQueue,
    /// Memory regions.
    MemoryRegion,
    /// Protection domains.
    ProtectionDomain,
    /// Open device files.
    Context,
    /// Shared receive queues.
    SharedReceiveQueue,
}

/// The netlink numbers of a kind.
struct Numbering {
    command: u16,
    /// The attributes for all objects of a response, for one of them, and for its number.
    table: u16,
    entry: u16,
    number: u16,
}

impl ObjectKind {
    const ALL: [Self; 7] = [
        Self::QueuePair,
        Self::ConnectionIdentifier,
        Self::CompletionQueue,
        Self::MemoryRegion,
        Self::ProtectionDomain,
        Self::Context,
        Self::SharedReceiveQueue,
    ];

    const fn numbering(self) -> Numbering {
        let [command, table, entry, number] = match self {
            Self::QueuePair => [
                RDMA_NLDEV_CMD_RES_QP_GET,
                RDMA_NLDEV_ATTR_RES_QP,
                RDMA_NLDEV_ATTR_RES_QP_ENTRY,
                RDMA_NLDEV_ATTR_RES_LQPN,
            ],
            Self::ConnectionIdentifier => [
                RDMA_NLDEV_CMD_RES_CM_ID_GET,
                RDMA_NLDEV_ATTR_RES_CM_ID,
                RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
                RDMA_NLDEV_ATTR_RES_CM_IDN,
            ],
            Self::CompletionQueue => [
                RDMA_NLDEV_CMD_RES_CQ_GET,
                RDMA_NLDEV_ATTR_RES_CQ,
                RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
                RDMA_NLDEV_ATTR_RES_CQN,
            ],
            Self::MemoryRegion => [
                RDMA_NLDEV_CMD_RES_MR_GET,
                RDMA_NLDEV_ATTR_RES_MR,
                RDMA_NLDEV_ATTR_RES_MR_ENTRY,
                RDMA_NLDEV_ATTR_RES_MRN,
            ],
            Self::ProtectionDomain => [
                RDMA_NLDEV_CMD_RES_PD_GET,
                RDMA_NLDEV_ATTR_RES_PD,
                RDMA_NLDEV_ATTR_RES_PD_ENTRY,
                RDMA_NLDEV_ATTR_RES_PDN,
            ],
            Self::Context => [
                RDMA_NLDEV_CMD_RES_CTX_GET,
                RDMA_NLDEV_ATTR_RES_CTX,
                RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
                RDMA_NLDEV_ATTR_RES_CTXN,
            ],
            Self::SharedReceiveQueue => [
                RDMA_NLDEV_CMD_RES_SRQ_GET,
                RDMA_NLDEV_ATTR_RES_SRQ,
                RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
                RDMA_NLDEV_ATTR_RES_SRQN,
            ],
        };
        Numbering { command, table, entry, number }
    }

    /// The kind that a command requests.
    pub(super) fn of_command(command: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.numbering().command == command)
    }

    /// A number for the kind, for use between processes.
    pub const fn raw(self) -> u16 {
        self.numbering().table
    }

    /// The kind with a number from [`Self::raw`].
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.raw() == raw)
    }

    /// Whether its objects belong to a device and not to one of its ports (`NLDEV_PER_DEV`).
    const fn is_of_device(self) -> bool {
        !matches!(self, Self::QueuePair | Self::ConnectionIdentifier)
    }
}

/// The process whose objects are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectOwner {
    /// PID of the process.
    pub process_id: u32,
    /// Number of the process within its host; the upper 8 bits of its objects' numbers.
    pub number: u8,
}

impl ObjectOwner {
    /// The number of an object, which no other process of the host has.
    pub(crate) const fn number_of(self, own: u32) -> u32 {
        (self.number as u32) << 24 | own & 0xff_ffff
    }
}

/// An object as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    number: u32,
    /// Whether it uses the port. That is known once a queue pair leaves the state Reset, or an identifier is
    /// bound.
    has_port: bool,
    attributes: Attributes,
}

impl ListedObject {
    /// An object of a process, with its number and its port, if it has one.
    pub(crate) fn new(
        kind: ObjectKind,
        number: u32,
        owner: ObjectOwner,
        has_port: bool,
        fill: impl FnOnce(&mut Attributes),
    ) -> Self {
        let mut attributes = Attributes::default();
        if has_port {
            attributes.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
        }
        attributes.put_u32(kind.numbering().number, number);
        attributes.put_u32(RDMA_NLDEV_ATTR_RES_PID, owner.process_id);
        fill(&mut attributes);
        Self { number, has_port, attributes }
    }

    /// Its number.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Encodes the objects with a number of at least `from`, as many as fit into `room` bytes.
    pub fn encode(mut objects: Vec<Self>, from: u32, room: usize) -> Vec<u8> {
        objects.sort_unstable_by_key(|object| object.number);
        let mut bytes = Vec::new();
        for object in objects.iter().filter(|object| object.number >= from) {
            let attributes = object.attributes.bytes();
            let Ok(length) = u16::try_from(attributes.len()) else { continue };
            if bytes.len() + HEAD + attributes.len() > room {
                break;
            }
            bytes.extend_from_slice(&object.number.to_le_bytes());
            bytes.push(object.has_port.into());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(attributes);
        }
        bytes
    }

    /// Decodes [`Self::encode`]. Stops where another process's bytes make no sense.
    pub fn decode(bytes: &[u8]) -> Vec<Self> {
        let mut rest = bytes;
        core::iter::from_fn(|| {
            let (head, behind) = rest.split_first_chunk::<HEAD>()?;
            let [n0, n1, n2, n3, port, l0, l1] = *head;
            let (attributes, behind) = behind.split_at_checked(u16::from_le_bytes([l0, l1]).into())?;
            rest = behind;
            let attributes = Attributes::checked(attributes).filter(|all| all.bytes().len() <= LONGEST)?;
            Some(Self { number: u32::from_le_bytes([n0, n1, n2, n3]), has_port: port != 0, attributes })
        })
        .collect()
    }
}

/// Objects of a device, by kind.
pub type ListedObjects = alloc::collections::BTreeMap<ObjectKind, Vec<ListedObject>>;

/// Answers a request for objects of a kind on the device that it names.
pub(super) fn replies(
    request: &RequestMessage<'_>,
    port: u32,
    kind: ObjectKind,
    index: DeviceIndex,
    objects: &[ListedObject],
) -> Result<Vec<Reply>, Errno> {
    let at_port = request.number(RDMA_NLDEV_ATTR_PORT_INDEX);
    if at_port.is_some_and(|number| number != PORT) {
        return Err(Errno::Invalid);
    }
    if request.has(flag::DUMP) {
        let wanted =
            objects.iter().filter(|object| at_port.is_none() || kind.is_of_device() || object.has_port);
        return Ok(dump(request, port, kind, index, wanted));
    }
    // As in the kernel, an object belongs either to a port or to a device.
    if at_port.is_some() == kind.is_of_device() {
        return Err(Errno::Invalid);
    }
    let number = request.number(kind.numbering().number).ok_or(Errno::Invalid)?;
    let found = objects.iter().find(|object| object.number == number).ok_or(Errno::NoEntry)?;
    if at_port.is_some() && !found.has_port {
        return Err(Errno::Again);
    }
    let mut reply = request.reply(port);
    put_name(&mut reply, index);
    reply.append(&found.attributes);
    Ok(vec![reply])
}

/// Messages with some objects each; none without objects.
fn dump<'a>(
    request: &RequestMessage<'_>,
    port: u32,
    kind: ObjectKind,
    index: DeviceIndex,
    objects: impl Iterator<Item = &'a ListedObject>,
) -> Vec<Reply> {
    let Numbering { table, entry, .. } = kind.numbering();
    let mut tables = Vec::new();
    let mut current = Attributes::default();
    for object in objects {
        if current.bytes().len() + object.attributes.bytes().len() > MOST_BYTES {
            tables.push(core::mem::take(&mut current));
        }
        current.put(entry, object.attributes.bytes());
    }
    if !current.bytes().is_empty() {
        tables.push(current);
    }
    let message = |entries: Attributes| {
        let mut reply = request.reply(port);
        put_name(&mut reply, index);
        reply.put(table, entries.bytes());
        reply
    };
    tables.into_iter().map(message).collect()
}
