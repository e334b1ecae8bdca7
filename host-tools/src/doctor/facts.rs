//! Facts about a machine, a device and a peer. Rules see nothing else.

use crate::counters::Readings;
use bareverbs_hal::pci::Finding;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Everything that rules judge. A fact that could not be gathered is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// The device as the user named it.
    pub(super) selector: Option<String>,
    /// Whether the kernel owns the device.
    pub(super) of_kernel: bool,
    /// The checks of `bareverbs vfio check`, for a PCI function.
    pub(super) preflight: Option<Vec<Finding>>,
    /// The slot of a PCI function.
    pub(super) slot: Option<SlotFacts>,
    /// RDMA devices of the kernel.
    pub(super) kernel: Vec<KernelPort>,
    /// Addresses of this network namespace.
    pub(super) own_addresses: Vec<IpAddr>,
    /// The device.
    pub(super) opening: Opening,
    /// The other end.
    pub(super) peer: Option<EndFacts>,
    /// Whether a router forwards to networks that the port is not in.
    pub(super) routed: bool,
    /// Addresses of the peer to which the kernel of its own device finds no way, and why.
    pub(super) no_way: Vec<(Ipv6Addr, String)>,
    /// Counters of the port and of queue pairs.
    pub(super) counters: Option<Readings>,
}

/// The result of opening the device.
#[derive(Debug, Clone, Default)]
pub(super) enum Opening {
    #[default]
    NotTried,
    /// The device could not be reached, for example because VFIO refused.
    Unreachable(String),
    /// Firmware never became ready.
    NotReady(String),
    /// A step of opening failed.
    Failed(String),
    Open(DeviceFacts),
}

impl Facts {
    /// The port of the open device.
    pub(super) fn port(&self) -> Option<&EndFacts> {
        match &self.opening {
            Opening::Open(device) => device.end.as_ref(),
            _ => None,
        }
    }
}

/// An open device.
#[derive(Debug, Clone)]
pub(super) struct DeviceFacts {
    /// What the health buffer reports, if it reports a fault.
    pub(super) fault: Option<String>,
    /// Its port; `None` if a command failed because of the fault.
    pub(super) end: Option<EndFacts>,
}

/// A PCI slot, in transfers per second and lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotFacts {
    /// Text of `current_link_speed`.
    pub(super) speed: String,
    pub(super) fastest: String,
    pub(super) width: u8,
    pub(super) widest: u8,
}

/// A port of a kernel RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelPort {
    /// `mlx5_0`
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) ethernet: bool,
    /// Used entries of the GID table.
    pub(super) gids: Vec<Ipv6Addr>,
    /// Interfaces of these entries.
    pub(super) interfaces: Vec<String>,
    /// Those of the interfaces that this network namespace has.
    pub(super) present: Vec<String>,
}

/// One end of a connection: the port of a device. `bareverbs doctor --json` prints it, and the other end reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndFacts {
    /// `None` for a peer of which only an address is known.
    pub(super) port: Option<PortFacts>,
    /// The RoCE address table, on Ethernet.
    pub(super) gids: Vec<GidFact>,
    /// The P_Key table, on InfiniBand.
    pub(super) partition_keys: Vec<u16>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortFacts {
    pub(super) link_layer: LinkLayer,
    pub(super) state: State,
    pub(super) physical: Physical,
    /// Largest payload of an RDMA packet in bytes.
    pub(super) active_mtu: u32,
    /// Current and largest possible payload of a frame in bytes.
    pub(super) port_mtu: u32,
    /// `None` if the kernel keeps it to itself.
    pub(super) port_max_mtu: Option<u32>,
    pub(super) rate_mbps: Option<u32>,
    pub(super) fastest_mbps: Option<u32>,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    /// Whether anything makes senders wait; `None` if the device did not tell, or on InfiniBand.
    pub(super) flow_control: Option<bool>,
    /// Whether marks of a switch slow senders down (ECN); `None` if the device did not tell, or on
    /// InfiniBand.
    pub(super) congestion_control: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkLayer {
    Ethernet,
    InfiniBand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Down,
    Initialize,
    Armed,
    Active,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Physical {
    LinkUp,
    Polling,
    Disabled,
    Training,
    Other,
}

/// An entry of the RoCE address table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GidFact {
    pub(super) index: u16,
    pub(super) gid: Ipv6Addr,
    /// RoCE version: 1 or 2.
    pub(super) version: u8,
    pub(super) vlan: Option<u16>,
    /// Prefix length of the address's network; `None` if the address is the kernel's.
    pub(super) prefix: Option<u8>,
}

impl GidFact {
    /// The address as an IP address.
    pub(super) fn ip(&self) -> IpAddr {
        ip_of(self.gid)
    }
}

/// An address from a GID: IPv4 is mapped (RoCEv2 A17.4.3).
pub(super) fn ip_of(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}

/// A GID from an address.
pub(super) fn gid_of(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// fe80::/10 (RFC 4291 §2.5.6) or 169.254.0.0/16 (RFC 3927).
pub(super) fn is_link_local(gid: Ipv6Addr) -> bool {
    gid.to_ipv4_mapped().map_or(gid.segments()[0] & 0xffc0 == 0xfe80, |ip: Ipv4Addr| ip.is_link_local())
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::InfiniBand => "InfiniBand",
        })
    }
}
