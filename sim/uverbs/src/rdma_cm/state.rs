//! The state of a process's connection management.

use super::address::SocketAddress;
use super::events::WaitingEvent;
use super::identifier::Identifier;
use super::port_facts::HostFacts;
use crate::connection_names::ConnectionFileId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use bareverbs_cm::{CommunicationId, Manager, Message};
use bareverbs_prm::time::Time;

/// Identifiers and groups that a process may have.
pub(super) const MOST_IDENTIFIERS: usize = 1 << 14;

/// Connection management of a process; see the module's comment.
#[derive(Debug)]
pub(crate) struct RdmaCm {
    pub(super) manager: Manager,
    pub(super) facts: HostFacts,
    pub(super) files: BTreeMap<ConnectionFileId, VecDeque<WaitingEvent>>,
    pub(super) next_file: u32,
    pub(super) identifiers: BTreeMap<u32, Identifier>,
    /// When the resolutions of which identifiers continue. The NIC's thread asks for the next time in every turn.
    pub(super) resolutions: BTreeSet<(Time, u32)>,
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) next_id: u32,
    pub(super) next_ephemeral: u16,
    /// The identifier that owns a connection.
    pub(super) owners: BTreeMap<CommunicationId, u32>,
    /// Requests for which nobody listens yet, oldest first.
    pub(super) waiting_requests: VecDeque<WaitingRequest>,
}

/// A peer's request for a port where nobody listens yet.
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
    /// For the process with this number within its host.
    pub(crate) fn new(facts: HostFacts, process: u8, seed: u64) -> Self {
        let mut manager = Manager::new(facts.first().guid, process, seed);
        for port in facts.0.iter().skip(1) {
            manager.add_port(port.guid, &port.gids);
        }
        Self {
            manager,
            facts,
            files: BTreeMap::new(),
            next_file: 0,
            identifiers: BTreeMap::new(),
            resolutions: BTreeSet::new(),
            groups: BTreeMap::new(),
            next_id: 0,
            next_ephemeral: seed as u16,
            owners: BTreeMap::new(),
            waiting_requests: VecDeque::new(),
        }
    }
}
