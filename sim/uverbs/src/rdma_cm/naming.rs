//! Identifiers and their own addresses: create, bind, listen, destroy.

use super::address::{Place, SocketAddress};
use super::call::{CmCall, ResponseBuffer};
use super::identifier::{Identifier, Stage, qp_type};
use super::state::MOST_IDENTIFIERS;
use crate::Errno;
use crate::connection_names::{ConnectionFileId, Port};
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;

/// Backlog if a program does not choose one (`max_backlog`).
const MOST_BACKLOG: u32 = 1024;

/// The kind of queue pair of a port space, if the program does not choose one.
fn kind_of(command: &CmCreateId) -> Result<u8, Errno> {
    match command.ps {
        RDMA_PS_TCP => Ok(qp_type::RELIABLE),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(qp_type::DATAGRAM),
        RDMA_PS_IB => Ok(command.qp_type),
        _ => Err(Errno::Invalid),
    }
}

impl<P: Process> CmCall<'_, P> {
    /// A new number for an identifier or a group.
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
        command: &CmCreateId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room }.needs(size_of::<CmCreateIdResp>())?;
        let qp_type = kind_of(command)?;
        let id = self.new_number()?;
        self.put(place, &CmCreateIdResp { id })?;
        self.cm.identifiers.insert(id, Identifier::new(file, command.uid, command.ps, qp_type));
        Ok(())
    }

    pub(super) fn destroy_id(
        &mut self,
        file: ConnectionFileId,
        command: &CmDestroyId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room }.needs(size_of::<CmDestroyIdResp>())?;
        self.identifier(file, command.id)?;
        let events_reported = self.destroy(command.id);
        self.put(place, &CmDestroyIdResp { events_reported })
    }

    /// Destroys an identifier and everything that depends on it. Returns how many of its events were read.
    pub(super) fn destroy(&mut self, id: u32) -> u32 {
        let Some(known) = self.cm.identifiers.remove(&id) else { return 0 };
        if let Some(due) = known.stage.next_look() {
            self.cm.resolutions.remove(&(due, id));
        }
        self.leave_groups(id);
        if let Some(communication) = known.communication {
            self.cm.owners.remove(&communication);
            self.cm.manager.destroy(self.now, communication);
        }
        self.leave_port(&known);
        // Unread requests have created identifiers that the program does not know.
        let requests: Vec<u32> =
            self.take_events(|event| event.counted == id).iter().filter_map(|event| event.new).collect();
        for request in requests {
            self.destroy(request);
        }
        known.events_reported
    }

    pub(super) fn bind_ip(&mut self, file: ConnectionFileId, command: &CmBindIp) -> Result<(), Errno> {
        let address = SocketAddress::parse(&command.addr).ok_or(Errno::AddressFamily)?;
        self.identifier(file, command.id)?;
        self.bind_to(command.id, address)
    }

    pub(super) fn bind(&mut self, file: ConnectionFileId, command: &CmBind) -> Result<(), Errno> {
        let address = sized(&command.addr, command.addr_size)?;
        if command.reserved != 0 {
            return Err(Errno::Invalid);
        }
        self.identifier(file, command.id)?;
        self.bind_to(command.id, address)
    }

    pub(super) fn bind_to(&mut self, id: u32, address: SocketAddress) -> Result<(), Errno> {
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
        let path = local.map(|local| self.cm.facts.with_gid(local).own_path(local));
        if let Some(known) = self.cm.identifiers.get_mut(&id) {
            known.source = Some(address.with_port(port.number));
            known.path = path;
            known.stage = Stage::Bound;
        }
        Ok(())
    }

    /// The GID of the port that has an address, if it is one of the host's.
    pub(super) fn own(&self, address: Gid) -> Option<Gid> {
        self.cm.facts.with_address(address).map(|port| port.gid_of(address))
    }

    pub(super) fn listen(&mut self, file: ConnectionFileId, command: &CmListen) -> Result<(), Errno> {
        if self.identifier(file, command.id)?.stage == Stage::Idle {
            self.bind_to(command.id, SocketAddress::ANY)?;
        }
        let known = self.identifier(file, command.id)?;
        if known.stage != Stage::Bound {
            return Err(Errno::Invalid);
        }
        let port = known.port;
        let others = self.cm.identifiers.iter().filter(|(id, _)| **id != command.id);
        // Identifiers that share a port cannot share its requests.
        if others.into_iter().any(|(_, other)| other.port == port) {
            return Err(Errno::AddressInUse);
        }
        let known = self.identifier(file, command.id)?;
        let backlog =
            if (1..MOST_BACKLOG).contains(&command.backlog) { command.backlog } else { MOST_BACKLOG };
        (known.stage, known.backlog) = (Stage::Listening, backlog as usize);
        self.look_at_requests(self.now);
        Ok(())
    }

    /// MIGRATE_ID: moves an identifier from another file to this one, with its unread events.
    pub(super) fn migrate_id(
        &mut self,
        file: ConnectionFileId,
        command: &CmMigrateId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room }.needs(size_of::<CmMigrateResp>())?;
        let from = i32::try_from(command.fd).ok().and_then(|fd| self.process.connection_file(fd));
        let from = from.filter(|from| self.cm.files.contains_key(from)).ok_or(Errno::BadDescriptor)?;
        let known = self.identifier(from, command.id)?;
        known.file = file;
        let events_reported = known.events_reported;
        if from != file {
            let moving = self.take_events(|event| event.counted == command.id);
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

/// An address whose length the program states.
pub(super) fn sized(bytes: &[u8; SOCKADDR_STORAGE], size: u16) -> Result<SocketAddress, Errno> {
    let given = bytes.get(..size.into()).ok_or(Errno::Invalid)?;
    SocketAddress::parse(given).ok_or(Errno::Invalid)
}
