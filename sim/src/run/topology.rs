//! The topology of a world: IDs of nodes, switches and links.

use crate::net::fault::Faults;
use crate::net::queue::EgressQueue;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;
use core::fmt;

/// Identifies a node of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// Identifies a switch of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwitchId(pub(crate) u32);

/// Identifies a link of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

impl NodeId {
    /// Index of the node, counted from 0 in the order of addition.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SwitchId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where to plug in an end of a link: the only port of a node, or a port of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeOrSwitch {
    /// A node.
    Node(NodeId),
    /// A switch; uses the next port that has never had a cable.
    Switch(SwitchId),
    /// A specific port of a switch, counted from 1.
    SwitchPort {
        /// The switch.
        switch: SwitchId,
        /// Its port.
        port: u8,
    },
}

impl NodeOrSwitch {
    /// The same place without its port.
    pub(crate) const fn place(self) -> Self {
        match self {
            Self::SwitchPort { switch, .. } => Self::Switch(switch),
            other => other,
        }
    }
}

impl From<NodeId> for NodeOrSwitch {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl From<SwitchId> for NodeOrSwitch {
    fn from(switch: SwitchId) -> Self {
        Self::Switch(switch)
    }
}

/// Why two ports could not be connected, or a part of the world was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyError {
    /// No such node, switch or link in this world.
    Unknown,
    /// The node's port already has a cable.
    PortInUse(NodeId),
    /// The two are already connected, directly or through switches, and are not both InfiniBand switches, which can
    /// handle loops.
    Loop,
    /// No link connects the two.
    NotJoined,
    /// Both InfiniBand switches have an SM, or are connected to one that has.
    SecondSubnetManager,
    /// The switch has no such port, or the port already has a cable.
    SwitchPort(SwitchId, u8),
    /// The InfiniBand switch has no free port.
    SwitchFull(SwitchId),
    /// Two nodes of one network have the same MAC address.
    SameAddress(MacAddress),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("no such node, switch or link in this world: use the identifier that the world returned")
            }
            Self::PortInUse(node) => {
                write!(f, "node {} already has a cable: join it to a switch instead", node.0)
            }
            Self::Loop => {
                f.write_str("the two are already joined: a second path would make a loop")
            }
            Self::NotJoined => f.write_str("the two ports are not joined by a link: connect them first"),
            Self::SecondSubnetManager => f.write_str(
                "both switches are in a subnet with a manager: add one of them by add_subnet_switch, which has none",
            ),
            Self::SwitchFull(switch) => {
                write!(f, "all ports of InfiniBand switch {} have a cable: use another switch", switch.0)
            }
            Self::SwitchPort(switch, port) => {
                write!(f, "switch {} has no port {port}, or that has a cable: ports are counted from 1", switch.0)
            }
            Self::SameAddress(mac) => {
                write!(f, "two nodes behind the same switch have the MAC address {mac}: give one another")
            }
        }
    }
}

impl core::error::Error for TopologyError {}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Node(NodeId),
    Switch { switch: SwitchId, port: usize },
}

impl End {
    pub(crate) fn place(self) -> NodeOrSwitch {
        match self {
            Self::Node(node) => NodeOrSwitch::Node(node),
            Self::Switch { switch, .. } => NodeOrSwitch::Switch(switch),
        }
    }
}

/// One direction of a link. Its number is twice the link's, plus one for the reverse direction.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) name: String,
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) queue: EgressQueue,
    /// From the last bit sent until the frame takes effect at the other end.
    pub(crate) delay: Duration,
    pub(crate) faults: Option<Box<Faults>>,
    pub(crate) held: Vec<Held>,
    pub(crate) up: bool,
    pub(crate) counters: LinkCounters,
    /// Whether a wakeup of the sender is scheduled for when there is room.
    pub(crate) room_awaited: bool,
}

/// A frame that a fault is holding back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) frame: crate::net::FrameId,
    pub(crate) behind: u32,
    pub(crate) until: bareverbs_prm::time::Time,
}

/// Traffic of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Frames that arrived.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames lost to a fault, a full buffer, or because the link was down.
    pub lost: u64,
}

pub(crate) fn way_numbers(link: LinkId) -> [usize; 2] {
    let there = link.0 as usize * 2;
    [there, there + 1]
}
