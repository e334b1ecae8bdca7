//! What an interface is at its port, whence datagrams come to it, and what is to be done for it.

use super::neighbours::SubnetLane;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_sim::wire::management::SIZE;

/// What the port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortIdentity {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    /// Where the administrator is.
    pub(crate) manager_lid: u16,
    pub(crate) partition_key: u16,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramWay {
    Port(SubnetLane),
    Group { lane: SubnetLane, gid: Gid, hop_limit: u8, traffic_class: u8, flow_label: u32 },
}

/// From whom a datagram came, and to which group if not to us alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) lid: u16,
    pub(super) qpn: Qpn,
    pub(super) group: Option<Gid>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InterfaceOutput {
    /// A datagram for an interface or a group.
    Datagram {
        way: DatagramWay,
        qpn: Qpn,
        q_key: u32,
        packet: Vec<u8>,
    },
    /// A question for the administrator.
    Question(Box<[u8; SIZE]>),
    /// The group of broadcasts is joined: it says the Q_Key and the largest packet of IP.
    Ready {
        q_key: u32,
        mtu: usize,
    },
    /// The queue pair belongs to a group from now on, or no longer.
    Attach(Gid),
    Detach(Gid),
}
