//! The route of a packet: everything below the BTH.

use bareverbs_prm::ids::MacAddress;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// UDP destination port of RoCEv2. RoCEv2 A17.3.2.2.
pub const ROCE_UDP_PORT: u16 = 4791;

/// Mask of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// Source, destination and treatment of a packet in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Ethernet source.
    pub source_mac: MacAddress,
    /// Ethernet destination.
    pub destination_mac: MacAddress,
    /// 802.1Q tag.
    pub vlan: Option<VlanTag>,
    /// IP addresses.
    pub network: Network,
    /// DSCP in the six high bits, ECN in the two low bits.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits; zero over IPv4.
    pub flow_label: u32,
    /// UDP source port, the entropy for ECMP; zero without UDP.
    pub udp_source_port: u16,
}

/// A decoded IP header.
pub(super) struct IpHeader {
    pub(super) network: Network,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) flow_label: u32,
}

/// IP addresses of both ends.
// The tag has a byte of its own. Hidden in a field of the last variant, it would take seven more instructions to compare,
// and every packet is compared twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Network {
    /// RoCEv2 over IPv4.
    V4 {
        /// Source.
        source: Ipv4Addr,
        /// Destination.
        destination: Ipv4Addr,
    },
    /// RoCEv2 over IPv6.
    V6 {
        /// Source.
        source: Ipv6Addr,
        /// Destination.
        destination: Ipv6Addr,
    },
    /// RoCE version 1: a GRH directly after the Ethernet header. No UDP port.
    Version1(GlobalRoute),
    /// An InfiniBand link instead of Ethernet: MAC addresses, VLAN and UDP port are unused.
    InfiniBand(LocalRoute),
}

/// Route within an InfiniBand subnet. IBTA v1.4 §7.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRoute {
    /// LID of the source.
    pub source: u16,
    /// LID of the destination.
    pub destination: u16,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Virtual lane, 4 bits.
    pub virtual_lane: u8,
    /// GIDs of the GRH, if there is one.
    pub global: Option<GlobalRoute>,
}

/// GIDs of both ends. IBTA v1.4 §8.3.
///
/// ```
/// use bareverbs_sim::wire::{GlobalRoute, Network};
///
/// let there = GlobalRoute { source: "fe80::1".parse().unwrap(), destination: "fe80::2".parse().unwrap() };
/// let back = GlobalRoute { source: there.destination, destination: there.source };
/// assert_eq!(Network::Version1(there).reversed(), Network::Version1(back));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalRoute {
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub destination: Ipv6Addr,
}

/// An 802.1Q tag.
///
/// ```
/// use bareverbs_sim::wire::VlanTag;
///
/// let tag = VlanTag { id: 100, priority: 3, drop_eligible: false };
/// assert_eq!(tag.to_raw(), 0x6064);
/// assert_eq!(VlanTag::from_raw(0x6064), tag);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// VLAN, 12 bits.
    pub id: u16,
    /// Priority, 3 bits.
    pub priority: u8,
    /// Drop eligible.
    pub drop_eligible: bool,
}

impl Network {
    /// The reverse route: source and destination swapped.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => Self::V4 { source: destination, destination: source },
            Self::V6 { source, destination } => Self::V6 { source: destination, destination: source },
            Self::Version1(global) => Self::Version1(global.reversed()),
            Self::InfiniBand(local) => {
                let LocalRoute { source, destination, .. } = local;
                let global = match local.global {
                    Some(global) => Some(global.reversed()),
                    None => None,
                };
                Self::InfiniBand(LocalRoute { source: destination, destination: source, global, ..local })
            }
        }
    }
}

impl GlobalRoute {
    const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

impl Route {
    /// A placeholder for no route.
    pub(super) const NONE: Self = Self {
        source_mac: MacAddress([0; 6]),
        destination_mac: MacAddress([0; 6]),
        vlan: None,
        network: Network::V4 { source: Ipv4Addr::UNSPECIFIED, destination: Ipv4Addr::UNSPECIFIED },
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        udp_source_port: 0,
    };

    /// The route as a receiver decodes it from a frame: fields that this network does not carry are zero, and others
    /// are truncated to their width on the wire.
    pub(super) fn as_received(&self) -> Self {
        let vlan = self.vlan.map(|tag| VlanTag::from_raw(tag.to_raw()));
        let flow_label = self.flow_label & FLOW_LABEL;
        match self.network {
            Network::V4 { .. } => Self { vlan, flow_label: 0, ..*self },
            Network::V6 { .. } => Self { vlan, flow_label, ..*self },
            Network::Version1(_) => Self { vlan, flow_label, udp_source_port: 0, ..*self },
            Network::InfiniBand(local) => self.as_received_locally(local, flow_label),
        }
    }

    fn as_received_locally(&self, local: LocalRoute, flow_label: u32) -> Self {
        let (service_level, virtual_lane) = (local.service_level & 0xf, local.virtual_lane & 0xf);
        let received = Self::from(LocalRoute { service_level, virtual_lane, ..local });
        match local.global {
            Some(_) => {
                Self { traffic_class: self.traffic_class, hop_limit: self.hop_limit, flow_label, ..received }
            }
            None => received,
        }
    }
}

impl VlanTag {
    /// Encodes the tag control information.
    pub const fn to_raw(self) -> u16 {
        (self.priority as u16 & 7) << 13 | (self.drop_eligible as u16) << 12 | (self.id & 0xfff)
    }
    /// Decodes the tag control information.
    pub const fn from_raw(raw: u16) -> Self {
        Self { id: raw & 0xfff, priority: (raw >> 13) as u8, drop_eligible: raw & 0x1000 != 0 }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4 { source, destination } => write!(f, "{source} → {destination}"),
            Self::V6 { source, destination } => write!(f, "{source} → {destination}"),
            Self::Version1(GlobalRoute { source, destination }) => {
                write!(f, "{source} → {destination} (RoCE v1)")
            }
            Self::InfiniBand(local) => write!(f, "LID {} → LID {}", local.source, local.destination),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.fmt(f)?;
        match self.vlan {
            Some(tag) => write!(f, " vlan {}", tag.id),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_tag_survives() {
        for raw in [0, 1, 0x0fff, 0x1000, 0xe000, 0xffff, 0x6123] {
            assert_eq!(VlanTag::from_raw(raw).to_raw(), raw);
        }
    }
}
