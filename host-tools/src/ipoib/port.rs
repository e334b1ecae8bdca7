//! An interface's port, the origin of its datagrams, and its outputs.

use super::neighbours::SubnetLane;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_sim::wire::management::SIZE;

/// The identity of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortIdentity {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    /// LID of the subnet administration.
    pub(crate) manager_lid: u16,
    pub(crate) partition_key: u16,
}

/// The path of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramWay {
    Port(SubnetLane),
    Group { lane: SubnetLane, gid: Gid, hop_limit: u8, traffic_class: u8, flow_label: u32 },
}

/// The sender of a datagram, and its group if it was sent to one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) lid: u16,
    pub(super) qpn: Qpn,
    pub(super) group: Option<Gid>,
}

/// An output of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InterfaceOutput {
    /// A datagram for an interface or a group.
    Datagram {
        way: DatagramWay,
        qpn: Qpn,
        q_key: u32,
        packet: Vec<u8>,
    },
    /// A request to the administration.
    Request(Box<[u8; SIZE]>),
    /// The broadcast group is joined; it determines the Q_Key and the MTU for IP packets.
    Ready {
        q_key: u32,
        mtu: usize,
    },
    /// Attach the queue pair to a group, or detach it.
    Attach(Gid),
    Detach(Gid),
}
