//! What connection management knows about the ports of its host; each belongs to a device.

use crate::ip_network::share_network;
use alloc::vec::Vec;
use bareverbs_cm::{Lids, Path};
use bareverbs_prm::ids::Gid;

/// The P_Key of full members of the default partition: subnets of `bareverbs run` have no other.
const DEFAULT_PARTITION: u16 = 0xffff;

/// What connection management knows about a port.
#[derive(Debug, Clone)]
pub(crate) struct PortFacts {
    pub(crate) guid: u64,
    pub(crate) gids: Vec<Gid>,
    /// Addresses that peers can connect to, as GIDs: on Ethernet those of the port; on InfiniBand the IP
    /// addresses as well.
    pub(crate) addresses: Vec<Gid>,
    /// LID of an InfiniBand port.
    pub(crate) lid: Option<u16>,
    /// Code of the largest path MTU: 128 · 2^code bytes.
    pub(crate) mtu: u8,
}

/// The scope of a GID's address: packets go between two of the same scope (RFC 6724 §5, rule 2).
#[derive(PartialEq, Eq)]
enum Scope {
    Ipv4,
    LinkLocal,
    Ipv6,
}

impl Scope {
    fn of(gid: &Gid) -> Self {
        match (gid.to_ipv4(), gid.0) {
            (Some(_), _) => Self::Ipv4,
            (None, [0xfe, second, ..]) if second & 0xc0 == 0x80 => Self::LinkLocal,
            (None, _) => Self::Ipv6,
        }
    }
}

impl PortFacts {
    /// The own GID to reach a peer from: that GID itself, one of the same scope, or one of the same family.
    pub(super) fn source_for(&self, remote: Gid) -> Gid {
        Self::choose(&self.gids, remote)
    }

    /// The own address to reach a peer's from, chosen in the same way.
    pub(super) fn address_for(&self, remote: Gid) -> Gid {
        Self::choose(&self.addresses, remote)
    }

    /// The GID of the port that has an own address.
    pub(super) fn gid_of(&self, address: Gid) -> Gid {
        if self.lid.is_none() { address } else { self.source_for(address) }
    }

    /// The path to a peer, whose LID only matters on InfiniBand.
    pub(super) fn path(&self, local: Gid, remote: Gid, remote_lid: u16) -> Path {
        let lids =
            |local| Lids { local, remote: remote_lid, partition_key: DEFAULT_PARTITION, service_level: 0 };
        Path { local, remote, lids: self.lid.map(lids) }
    }

    /// The path from a port to itself.
    pub(super) fn own_path(&self, local: Gid) -> Path {
        self.path(local, local, self.lid.unwrap_or(0))
    }

    fn choose(gids: &[Gid], remote: Gid) -> Gid {
        let same_kind = |gid: &&Gid| Scope::of(gid) == Scope::of(&remote);
        let same_family = |gid: &&Gid| gid.to_ipv4().is_some() == remote.to_ipv4().is_some();
        let found = gids.iter().find(|gid| **gid == remote).or_else(|| gids.iter().find(same_kind));
        let found = found.or_else(|| gids.iter().find(same_family));
        found.or(gids.first()).copied().unwrap_or_default()
    }

    fn is_beside(&self, remote: Gid) -> bool {
        self.addresses.iter().any(|own| share_network(*own, remote))
    }
}

/// The port of a host that has none.
static NONE: PortFacts = PortFacts { guid: 0, gids: Vec::new(), addresses: Vec::new(), lid: None, mtu: 0 };

/// The ports of a host, in the order of their devices.
#[derive(Debug)]
pub(crate) struct HostFacts(pub(crate) Vec<PortFacts>);

impl HostFacts {
    /// The port of the first device. It stands for the host where no port is named.
    pub(super) fn first(&self) -> &PortFacts {
        self.0.first().unwrap_or(&NONE)
    }

    /// The port of a device.
    pub(super) fn at(&self, device: usize) -> &PortFacts {
        self.0.get(device).unwrap_or_else(|| self.first())
    }

    /// The device whose port has a GID.
    pub(super) fn device_with(&self, gid: Gid) -> Option<usize> {
        self.0.iter().position(|port| port.gids.contains(&gid))
    }

    /// The port that has a GID.
    pub(super) fn with_gid(&self, gid: Gid) -> &PortFacts {
        self.at(self.device_with(gid).unwrap_or(0))
    }

    /// The port that has an address, if it is one of the host's.
    pub(super) fn with_address(&self, address: Gid) -> Option<&PortFacts> {
        self.0.iter().find(|port| port.addresses.contains(&address))
    }

    /// The port from which a peer is reached, as a routing table would choose it: the one that has the
    /// address itself, else the first in the peer's network, else the first.
    pub(super) fn towards(&self, remote: Gid) -> &PortFacts {
        let beside = || self.0.iter().find(|port| port.is_beside(remote));
        self.with_address(remote).or_else(beside).unwrap_or_else(|| self.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(gids: &[Gid]) -> PortFacts {
        PortFacts { guid: 1, addresses: gids.to_vec(), gids: gids.to_vec(), lid: None, mtu: 5 }
    }

    #[test]
    fn packets_go_between_addresses_of_one_kind() {
        let v6 = |first: u8, last: u8| Gid([first, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        let (v4, link_local, chosen) = (Gid::from_ipv4([198, 18, 0, 1]), v6(0xfe, 1), v6(0x20, 1));
        let facts = port(&[v4, link_local, chosen]);
        assert_eq!(facts.source_for(Gid::from_ipv4([10, 0, 0, 1])), v4);
        assert_eq!(facts.source_for(v6(0xfe, 2)), link_local);
        assert_eq!(facts.source_for(v6(0x20, 2)), chosen);
        assert_eq!(facts.source_for(chosen), chosen, "to itself");
        assert_eq!(port(&[v4, link_local]).source_for(v6(0x20, 2)), link_local, "same family preferred");
    }

    #[test]
    fn a_peer_is_reached_from_the_port_in_its_network() {
        let ip = |third, last| Gid::from_ipv4([10, 0, third, last]);
        let host = HostFacts([port(&[ip(1, 1)]), port(&[ip(2, 1)]), port(&[ip(2, 2)])].into());
        for (peer, device) in [(ip(1, 9), 0), (ip(2, 9), 1), (ip(2, 2), 2), (ip(3, 9), 0)] {
            assert_eq!(host.towards(peer).gids, host.at(device).gids, "{peer}");
        }
        assert_eq!(host.device_with(ip(2, 2)), Some(2));
        assert_eq!(HostFacts(Vec::new()).towards(ip(1, 1)).source_for(ip(1, 1)), Gid::default());
    }
}
