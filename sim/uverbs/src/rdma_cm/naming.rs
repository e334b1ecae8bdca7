//! Identifiers and their addresses: making, binding, resolving, listening, destroying.

use super::address::{Place, SocketAddress};
use super::call::{AnswerPlace, CmCall};
use super::events::{EventType, Parameters, WaitingEvent};
use super::identifier::{Identifier, Stage, qp_type};
use super::state::MOST_IDENTIFIERS;
use crate::Errno;
use crate::cm::Path;
use crate::connection_names::{ConnectionFileId, Port};
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Duration;

/// Requests that may wait, if a program does not say (`max_backlog`).
const MOST_BACKLOG: u32 = 1024;

/// Which kind of queue pair a port space has, if the program does not choose.
fn kind_of(wish: &CmCreateId) -> Result<u8, Errno> {
    match wish.ps {
        RDMA_PS_TCP => Ok(qp_type::RELIABLE),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(qp_type::DATAGRAM),
        RDMA_PS_IB => Ok(wish.qp_type),
        _ => Err(Errno::Invalid),
    }
}

impl<P: Process> CmCall<'_, P> {
    /// A number for an identifier or a group.
    pub(super) fn new_number(&mut self) -> Result<u32, Errno> {
        if self.cm.identifiers.len() + self.cm.groups.len() >= MOST_IDENTIFIERS {
            return Err(Errno::NoMemory);
        }
        loop {
            let id = self.cm.next_id;
            self.cm.next_id = id.wrapping_add(1);
            if !self.cm.identifiers.contains_key(&id) && !self.cm.groups.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    pub(super) fn create_id(
        &mut self,
        file: ConnectionFileId,
        wish: &CmCreateId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = AnswerPlace { address: wish.response, room }.needs(size_of::<CmCreateIdResp>())?;
        let qp_type = kind_of(wish)?;
        let id = self.new_number()?;
        self.put(place, &CmCreateIdResp { id })?;
        self.cm.identifiers.insert(id, Identifier::new(file, wish.uid, wish.ps, qp_type));
        Ok(())
    }

    pub(super) fn destroy_id(
        &mut self,
        file: ConnectionFileId,
        wish: &CmDestroyId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = AnswerPlace { address: wish.response, room }.needs(size_of::<CmDestroyIdResp>())?;
        self.identifier(file, wish.id)?;
        let events_reported = self.destroy(wish.id);
        self.put(place, &CmDestroyIdResp { events_reported })
    }

    /// Ends an identifier and all that hangs on it, and gives how many events of it were read.
    pub(super) fn destroy(&mut self, id: u32) -> u32 {
        let Some(known) = self.cm.identifiers.remove(&id) else { return 0 };
        self.leave_groups(id);
        if let Some(communication) = known.communication {
            self.cm.owners.remove(&communication);
            self.cm.manager.destroy(self.now, communication);
        }
        self.leave_port(&known);
        // Requests that nobody will read have made identifiers that nobody knows.
        let requests: Vec<u32> =
            self.take_events(|event| event.counted == id).iter().filter_map(|event| event.new).collect();
        for request in requests {
            self.destroy(request);
        }
        known.events_reported
    }

    pub(super) fn bind_ip(&mut self, file: ConnectionFileId, wish: &CmBindIp) -> Result<(), Errno> {
        let address = SocketAddress::parse(&wish.addr).ok_or(Errno::AddressFamily)?;
        self.identifier(file, wish.id)?;
        self.bind_to(wish.id, address)
    }

    pub(super) fn bind(&mut self, file: ConnectionFileId, wish: &CmBind) -> Result<(), Errno> {
        let address = sized(&wish.addr, wish.addr_size)?;
        if wish.reserved != 0 {
            return Err(Errno::Invalid);
        }
        self.identifier(file, wish.id)?;
        self.bind_to(wish.id, address)
    }

    fn bind_to(&mut self, id: u32, address: SocketAddress) -> Result<(), Errno> {
        let known = self.cm.identifiers.get(&id).ok_or(Errno::NoEntry)?;
        if known.stage != Stage::Idle {
            return Err(Errno::Invalid);
        }
        let space = address.named_space().unwrap_or(known.space);
        let local = match address.place() {
            // The loopback names no device, as with the kernel (`cma_any_addr`).
            Place::Any | Place::Loopback => None,
            Place::Gid(gid) => Some(self.own(gid).ok_or(Errno::AddressNotAvailable)?),
        };
        let port = self.take_port(id, Port { space, number: address.port() })?;
        if let Some(known) = self.cm.identifiers.get_mut(&id) {
            known.source = Some(address.with_port(port.number));
            known.path = local.map(|local| Path { local, remote: local });
            known.stage = Stage::Bound;
        }
        Ok(())
    }

    /// A GID of the port, if it is one.
    fn own(&self, gid: Gid) -> Option<Gid> {
        self.cm.facts.gids.contains(&gid).then_some(gid)
    }

    /// The own GID from which packets go to an address; for one that names nobody, the first of its family.
    fn own_gid(&self, address: &SocketAddress) -> Gid {
        if let Place::Gid(gid) = address.place() {
            return self.cm.facts.source_for(gid);
        }
        let is_v6 = matches!(address, SocketAddress::V6 { .. });
        let gids = &self.cm.facts.gids;
        let same = |gid: &&Gid| gid.to_ipv4().is_none() == is_v6;
        gids.iter().find(same).or(gids.first()).copied().unwrap_or_default()
    }

    pub(super) fn resolve_ip(&mut self, file: ConnectionFileId, wish: &CmResolveIp) -> Result<(), Errno> {
        self.identifier(file, wish.id)?;
        let source = SocketAddress::parse(&wish.src_addr);
        let destination = SocketAddress::parse(&wish.dst_addr).ok_or(Errno::AddressFamily)?;
        self.resolve(wish.id, source, destination, wish.timeout_ms)
    }

    pub(super) fn resolve_address(
        &mut self,
        file: ConnectionFileId,
        wish: &CmResolveAddr,
    ) -> Result<(), Errno> {
        if wish.reserved != 0 {
            return Err(Errno::Invalid);
        }
        self.identifier(file, wish.id)?;
        let source = if wish.src_size == 0 { None } else { Some(sized(&wish.src_addr, wish.src_size)?) };
        let destination = sized(&wish.dst_addr, wish.dst_size)?;
        self.resolve(wish.id, source, destination, wish.timeout_ms)
    }

    fn resolve(
        &mut self,
        id: u32,
        source: Option<SocketAddress>,
        destination: SocketAddress,
        timeout_ms: u32,
    ) -> Result<(), Errno> {
        // Addresses of native InfiniBand name no peer on Ethernet.
        if matches!(destination, SocketAddress::Native(_)) {
            return Err(Errno::Invalid);
        }
        let stage = self.cm.identifiers.get(&id).ok_or(Errno::NoEntry)?.stage;
        if stage == Stage::Idle {
            let any = match destination {
                SocketAddress::V6 { .. } => SocketAddress::V6 { address: [0; 16], port: 0, rest: [0; 8] },
                _ => SocketAddress::ANY,
            };
            self.bind_to(id, source.unwrap_or(any))?;
        } else if stage != Stage::Bound {
            return Err(Errno::Invalid);
        }
        let until = self.now + Duration::from_millis(timeout_ms.into());
        let known = self.cm.identifiers.get_mut(&id).ok_or(Errno::NoEntry)?;
        if known.source.is_some_and(|source| source.family() != destination.family()) {
            return Err(Errno::Invalid);
        }
        (known.destination, known.stage) = (Some(destination), Stage::Resolving(until));
        self.look_for_peer(id);
        Ok(())
    }

    /// Looks for every peer that is looked for.
    pub(super) fn resolve_waiting(&mut self) {
        let waits =
            |(id, known): (&u32, &Identifier)| matches!(known.stage, Stage::Resolving(_)).then_some(*id);
        let waiting: Vec<u32> = self.cm.identifiers.iter().filter_map(waits).collect();
        for id in waiting {
            self.look_for_peer(id);
        }
    }

    /// Whether the peer of an identifier is there by now; gives up when its time is over.
    fn look_for_peer(&mut self, id: u32) {
        let Some(known) = self.cm.identifiers.get(&id) else { return };
        let (Stage::Resolving(until), Some(destination)) = (known.stage, known.destination) else { return };
        let bound = known.path.map(|path| path.local);
        let own = bound.unwrap_or_else(|| self.own_gid(&destination));
        let remote = match destination.place() {
            Place::Any | Place::Loopback => Some(own),
            Place::Gid(gid) if self.own(gid).is_some() => Some(gid),
            // Groups need nobody to be there.
            Place::Gid(gid) if gid.is_multicast() => Some(gid),
            Place::Gid(gid) => self.process.is_reachable(gid).then_some(gid),
        };
        let now = self.now;
        let Some(known) = self.cm.identifiers.get_mut(&id) else { return };
        let (kind, status) = match remote {
            Some(remote) => {
                let path = Path { local: own, remote };
                (known.path, known.stage) = (Some(path), Stage::AddressResolved);
                known.source = known.source.map(|source| resolved_source(source, path, &destination));
                (EventType::AddressResolved, 0)
            }
            None if now >= until => {
                known.stage = Stage::Bound;
                (EventType::AddressError, -Errno::TimedOut.raw())
            }
            None => return,
        };
        let event = WaitingEvent::new(id, known, kind, status, &Parameters::None);
        self.tell(event);
    }

    pub(super) fn resolve_route(
        &mut self,
        file: ConnectionFileId,
        wish: &CmResolveRoute,
    ) -> Result<(), Errno> {
        self.identifier(file, wish.id)?;
        self.take_route(wish.id)
    }

    /// RoCE has one route.
    pub(super) fn take_route(&mut self, id: u32) -> Result<(), Errno> {
        let known = self.cm.identifiers.get_mut(&id).ok_or(Errno::NoEntry)?;
        if known.stage != Stage::AddressResolved {
            return Err(Errno::Invalid);
        }
        known.stage = Stage::RouteResolved;
        let event = WaitingEvent::new(id, known, EventType::RouteResolved, 0, &Parameters::None);
        self.tell(event);
        Ok(())
    }

    pub(super) fn listen(&mut self, file: ConnectionFileId, wish: &CmListen) -> Result<(), Errno> {
        if self.identifier(file, wish.id)?.stage == Stage::Idle {
            self.bind_to(wish.id, SocketAddress::ANY)?;
        }
        let known = self.identifier(file, wish.id)?;
        if known.stage != Stage::Bound {
            return Err(Errno::Invalid);
        }
        let port = known.port;
        let others = self.cm.identifiers.iter().filter(|(id, _)| **id != wish.id);
        // Those that share a port cannot share its requests.
        if others.into_iter().any(|(_, other)| other.port == port) {
            return Err(Errno::AddressInUse);
        }
        let known = self.identifier(file, wish.id)?;
        let backlog = if (1..MOST_BACKLOG).contains(&wish.backlog) { wish.backlog } else { MOST_BACKLOG };
        (known.stage, known.backlog) = (Stage::Listening, backlog as usize);
        Ok(())
    }

    /// MIGRATE_ID: an identifier of another file becomes one of this file, with the events that wait.
    pub(super) fn migrate_id(
        &mut self,
        file: ConnectionFileId,
        wish: &CmMigrateId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = AnswerPlace { address: wish.response, room }.needs(size_of::<CmMigrateResp>())?;
        let from = i32::try_from(wish.fd).ok().and_then(|fd| self.process.connection_file(fd));
        let from = from.filter(|from| self.cm.files.contains_key(from)).ok_or(Errno::BadDescriptor)?;
        let known = self.identifier(from, wish.id)?;
        known.file = file;
        let events_reported = known.events_reported;
        if from != file {
            let moving = self.take_events(|event| event.counted == wish.id);
            for mut event in moving {
                event.file = file;
                if let Some(new) = event.new.and_then(|new| self.cm.identifiers.get_mut(&new)) {
                    new.file = file;
                }
                self.tell(event);
            }
        }
        self.put(place, &CmMigrateResp { events_reported })
    }
}

/// An address whose length a program says.
pub(super) fn sized(bytes: &[u8; SOCKADDR_STORAGE], size: u16) -> Result<SocketAddress, Errno> {
    let given = bytes.get(..size.into()).ok_or(Errno::Invalid)?;
    SocketAddress::parse(given).ok_or(Errno::Invalid)
}

/// The source as it is known after resolution: that of the loopback stays the loopback for whoever asks.
fn resolved_source(source: SocketAddress, path: Path, destination: &SocketAddress) -> SocketAddress {
    match (source.place(), destination.place()) {
        (Place::Any, Place::Any | Place::Loopback) => destination.with_port(source.port()),
        (Place::Any, _) => SocketAddress::of_gid(path.local, source.port()),
        _ => source,
    }
}
