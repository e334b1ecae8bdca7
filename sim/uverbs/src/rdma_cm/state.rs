//! All that connection management of a process knows.

use super::address::SocketAddress;
use super::events::WaitingEvent;
use super::identifier::Identifier;
use crate::connection_names::ConnectionFileId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bareverbs_cm::{CommunicationId, Lids, Manager, Message, Path};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;

/// Identifiers and groups that a process may have.
pub(super) const MOST_IDENTIFIERS: usize = 1 << 14;

/// What connection management knows of the port.
#[derive(Debug, Clone)]
pub(crate) struct PortFacts {
    pub(crate) guid: u64,
    pub(crate) gids: Vec<Gid>,
    /// Addresses that connections may be made to, as GIDs: on Ethernet those of the port; of InfiniBand those of IP as well.
    pub(crate) addresses: Vec<Gid>,
    /// LID of an InfiniBand port.
    pub(crate) lid: Option<u16>,
    /// Code of the largest path MTU: 128 · 2^code bytes.
    pub(crate) mtu: u8,
}

/// What kind of address a GID is: packets go between two of one kind (RFC 6724 §5, rule 2).
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
    /// The own GID from which packets go to a peer: that GID itself, one of the same kind, or one of the same family.
    pub(super) fn source_for(&self, remote: Gid) -> Gid {
        Self::choose(&self.gids, remote)
    }

    /// The own address from which a peer's is reached, chosen in the same way.
    pub(super) fn address_for(&self, remote: Gid) -> Gid {
        Self::choose(&self.addresses, remote)
    }

    /// The GID of the port that has an own address.
    pub(super) fn gid_of(&self, address: Gid) -> Gid {
        if self.lid.is_none() { address } else { self.source_for(address) }
    }

    /// The path to a peer, whose LID counts on InfiniBand only.
    pub(super) fn path(&self, local: Gid, remote: Gid, remote_lid: u16) -> Path {
        Path { local, remote, lids: self.lid.map(|local| Lids { local, remote: remote_lid }) }
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
}

/// Connection management of a process; see the module.
#[derive(Debug)]
pub(crate) struct RdmaCm {
    pub(super) manager: Manager,
    pub(super) facts: PortFacts,
    pub(super) files: BTreeMap<ConnectionFileId, VecDeque<WaitingEvent>>,
    pub(super) next_file: u32,
    pub(super) identifiers: BTreeMap<u32, Identifier>,
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) next_id: u32,
    pub(super) next_ephemeral: u16,
    /// Whose a connection is.
    pub(super) owners: BTreeMap<CommunicationId, u32>,
    /// Requests that nobody listens for yet: the oldest is first.
    pub(super) waiting_requests: VecDeque<WaitingRequest>,
}

/// A request of a peer for a port where nobody listens yet.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    pub(super) id: CommunicationId,
    pub(super) message: Message,
    /// When it is refused.
    pub(super) until: Time,
}

/// A group that an identifier has joined.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) identifier: u32,
    pub(super) address: SocketAddress,
    pub(super) events_reported: u32,
}

impl RdmaCm {
    /// For a process of this number within its host.
    pub(crate) fn new(facts: PortFacts, process: u8, seed: u64) -> Self {
        Self {
            manager: Manager::new(facts.guid, process, seed),
            facts,
            files: BTreeMap::new(),
            next_file: 0,
            identifiers: BTreeMap::new(),
            groups: BTreeMap::new(),
            next_id: 0,
            next_ephemeral: seed as u16,
            owners: BTreeMap::new(),
            waiting_requests: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_between_addresses_of_one_kind() {
        let v6 = |first: u8, last: u8| Gid([first, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        let (v4, link_local, chosen) = (Gid::from_ipv4([198, 18, 0, 1]), v6(0xfe, 1), v6(0x20, 1));
        let gids = Vec::from([v4, link_local, chosen]);
        let facts = PortFacts { guid: 1, addresses: gids.clone(), gids, lid: None, mtu: 5 };
        assert_eq!(facts.source_for(Gid::from_ipv4([10, 0, 0, 1])), v4);
        assert_eq!(facts.source_for(v6(0xfe, 2)), link_local);
        assert_eq!(facts.source_for(v6(0x20, 2)), chosen);
        assert_eq!(facts.source_for(chosen), chosen, "to itself");
        let without = PortFacts { gids: [v4, link_local].into(), ..facts };
        assert_eq!(without.source_for(v6(0x20, 2)), link_local, "the same family at least");
    }
}
