//! `/dev/infiniband/rdma_cm`: what `rdma_ucm` and `rdma_cm` are to librdmacm on Linux.
//!
//! **What this is.** Commands that a program writes to the file, on identifiers of connections, listeners and groups, and the
//! events that it reads. The protocol is `cm`'s; addresses of IP, ports and listeners are here.
//!
//! **What it may not do.** It moves no queue pair: librdmacm does, by what INIT_QP_ATTR says. It knows no other process of its
//! host; whose a port is, it asks the [`Process`].
//!
//! Every process of a host hears every message for the host's queue pair 1. A request goes to the process that listens on its
//! port; if none has the port, the first process of the host refuses it. All other messages name a connection, whose number has
//! the process in its upper 8 bits.

mod address;
mod call;
mod connections;
mod events;
mod groups;
mod identifier;
mod naming;
mod news;
mod options;
mod ports;
mod queries;
mod queue_pair;

use crate::Errno;
use crate::cm::{CommunicationId, Manager, Message, Path};
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;
use call::CmCall;
use events::WaitingEvent;
use groups::Group;
use identifier::{Identifier, Stage};
use zerocopy::FromBytes;

/// Identifiers and groups that a process may have.
const MOST_IDENTIFIERS: usize = 1 << 14;

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
    manager: Manager,
    facts: PortFacts,
    files: BTreeMap<ConnectionFileId, VecDeque<WaitingEvent>>,
    next_file: u32,
    identifiers: BTreeMap<u32, Identifier>,
    groups: BTreeMap<u32, Group>,
    next_id: u32,
    next_ephemeral: u16,
    /// Whose a connection is.
    owners: BTreeMap<CommunicationId, u32>,
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

    /// Opens the file.
    pub(crate) fn open(&mut self) -> ConnectionFileId {
        let file = ConnectionFileId(self.next_file);
        self.next_file = (self.next_file + 1) % (u32::MAX - 1);
        self.files.insert(file, VecDeque::new());
        file
    }

    /// The last descriptor of the file is gone, and with it everything that was made through it: peers are told.
    pub(crate) fn close<P: Process>(&mut self, process: &mut P, now: Time, file: ConnectionFileId) {
        let theirs = |(id, known): (&u32, &Identifier)| (known.file == file).then_some(*id);
        let ids: Vec<u32> = self.identifiers.iter().filter_map(theirs).collect();
        let mut call = CmCall { cm: self, process, now };
        for id in ids {
            call.destroy(id);
        }
        self.files.remove(&file);
    }

    /// Files that are open.
    pub(crate) fn open_files(&self) -> Vec<ConnectionFileId> {
        self.files.keys().copied().collect()
    }

    /// Events that wait in a file.
    pub(crate) fn waiting(&self, file: ConnectionFileId) -> usize {
        self.files.get(&file).map_or(0, VecDeque::len)
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Time> {
        let resolutions = self.identifiers.values().filter_map(|known| match known.stage {
            Stage::Resolving(until) => Some(until),
            _ => None,
        });
        // Whoever is looked for may come at any time; nobody tells.
        let resolutions = resolutions.min().map(|_| Time::ZERO);
        [self.manager.next_deadline(), resolutions].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn advance<P: Process>(&mut self, process: &mut P, now: Time) {
        self.manager.handle_timeout(now);
        let mut call = CmCall { cm: self, process, now };
        call.resolve_waiting();
        call.tell_news();
    }

    /// A message has come from a peer.
    pub(crate) fn handle<P: Process>(&mut self, process: &mut P, now: Time, remote: Gid, payload: &[u8]) {
        let Some(message) = Message::parse(payload) else { return };
        let path = Path { local: self.local_for(remote), remote };
        self.manager.handle(now, path, &message);
        CmCall { cm: self, process, now }.tell_news();
    }

    /// The own GID from which a peer is answered: of its family.
    fn local_for(&self, remote: Gid) -> Gid {
        let same = |gid: &&Gid| gid.to_ipv4().is_some() == remote.to_ipv4().is_some();
        let gids = &self.facts.gids;
        gids.iter().find(same).or(gids.first()).copied().unwrap_or_default()
    }

    /// The next message to be sent, and between whom.
    pub(crate) fn poll_message(&mut self) -> Option<(Path, Message)> {
        self.manager.poll_message()
    }

    /// A program writes a command to a file. Answers are written to the program's memory.
    pub(crate) fn write<P: Process>(
        &mut self,
        process: &mut P,
        now: Time,
        file: ConnectionFileId,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let (header, body) = CmHeader::read_from_prefix(bytes).map_err(|_| Errno::Invalid)?;
        if !self.files.contains_key(&file) {
            return Err(Errno::Io);
        }
        if body.len() < usize::from(header.r#in) {
            return Err(Errno::Invalid);
        }
        let mut call = CmCall { cm: self, process, now };
        let done = call.run(file, &header, &body[..header.r#in.into()]);
        call.tell_news();
        done
    }
}
