//! All that connection management of a process knows.

use super::address::SocketAddress;
use super::events::WaitingEvent;
use super::identifier::Identifier;
use crate::cm::{CommunicationId, Manager};
use crate::connection_names::ConnectionFileId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;

/// Identifiers and groups that a process may have.
pub(super) const MOST_IDENTIFIERS: usize = 1 << 14;

/// What connection management knows of the port.
#[derive(Debug, Clone)]
pub(crate) struct PortFacts {
    pub(crate) guid: u64,
    pub(crate) gids: Vec<Gid>,
    /// Code of the largest path MTU: 128 · 2^code bytes.
    pub(crate) mtu: u8,
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
        }
    }
}
