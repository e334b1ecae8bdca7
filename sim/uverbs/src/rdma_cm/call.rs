//! The context of a command: parses its body, writes its response, finds the objects that it names.

use super::events::WaitingEvent;
use super::identifier::Identifier;
use super::port_facts::PortFacts;
use super::state::RdmaCm;
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Time;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Everything that a command may access.
pub(super) struct CmCall<'a, P> {
    pub(super) cm: &'a mut RdmaCm,
    pub(super) process: &'a mut P,
    pub(super) now: Time,
}

/// The program's buffer for a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseBuffer {
    pub(super) address: u64,
    pub(super) room: usize,
}

impl ResponseBuffer {
    /// Checks that there is room for `length` bytes.
    pub(super) const fn needs(self, length: usize) -> Result<Self, Errno> {
        if self.room < length { Err(Errno::NoSpace) } else { Ok(self) }
    }
}

/// The body of a command. A shorter one, from another version of the library, is padded with zeros.
pub(super) fn body<T: FromBytes + FromZeros + IntoBytes>(bytes: &[u8]) -> T {
    read_extended(bytes)
}

impl<P: Process> CmCall<'_, P> {
    /// Runs a command of a file.
    pub(super) fn run(
        &mut self,
        file: ConnectionFileId,
        header: &CmHeader,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let room = usize::from(header.out);
        match header.cmd {
            RDMA_USER_CM_CMD_CREATE_ID => self.create_id(file, &body(bytes), room),
            RDMA_USER_CM_CMD_DESTROY_ID => self.destroy_id(file, &body(bytes), room),
            RDMA_USER_CM_CMD_BIND_IP => self.bind_ip(file, &body(bytes)),
            RDMA_USER_CM_CMD_BIND => self.bind(file, &body(bytes)),
            RDMA_USER_CM_CMD_RESOLVE_IP => self.resolve_ip(file, &body(bytes)),
            RDMA_USER_CM_CMD_RESOLVE_ADDR => self.resolve_address(file, &body(bytes)),
            RDMA_USER_CM_CMD_RESOLVE_ROUTE => self.resolve_route(file, &body(bytes)),
            RDMA_USER_CM_CMD_QUERY_ROUTE => self.query_route(file, &body(bytes), room),
            RDMA_USER_CM_CMD_QUERY => self.query(file, &body(bytes), room),
            RDMA_USER_CM_CMD_CONNECT => self.connect(file, &body(bytes)),
            RDMA_USER_CM_CMD_LISTEN => self.listen(file, &body(bytes)),
            RDMA_USER_CM_CMD_ACCEPT => self.accept(file, &body(bytes)),
            RDMA_USER_CM_CMD_REJECT => self.reject(file, &body(bytes)),
            RDMA_USER_CM_CMD_DISCONNECT => self.disconnect(file, &body(bytes)),
            RDMA_USER_CM_CMD_INIT_QP_ATTR => self.init_qp_attr(file, &body(bytes), room),
            RDMA_USER_CM_CMD_GET_EVENT => self.get_event(file, &body(bytes), room),
            RDMA_USER_CM_CMD_GET_OPTION => Err(Errno::NoCommand),
            RDMA_USER_CM_CMD_SET_OPTION => self.set_option(file, &body(bytes)),
            RDMA_USER_CM_CMD_NOTIFY => self.notify(file, &body(bytes)),
            RDMA_USER_CM_CMD_JOIN_IP_MCAST => self.join_ip_multicast(file, &body(bytes), room),
            RDMA_USER_CM_CMD_JOIN_MCAST => self.join_multicast(file, &body(bytes), room),
            RDMA_USER_CM_CMD_LEAVE_MCAST => self.leave_multicast(file, &body(bytes), room),
            RDMA_USER_CM_CMD_MIGRATE_ID => self.migrate_id(file, &body(bytes), room),
            _ => Err(Errno::Invalid),
        }
    }

    /// An identifier of a file.
    pub(super) fn identifier(&mut self, file: ConnectionFileId, id: u32) -> Result<&mut Identifier, Errno> {
        let known = self.cm.identifiers.get_mut(&id).ok_or(Errno::NoEntry)?;
        if known.file == file { Ok(known) } else { Err(Errno::Invalid) }
    }

    /// The local port of an identifier's path; the first port as long as it has none.
    pub(super) fn port_of(&self, id: u32) -> &PortFacts {
        let path = self.cm.identifiers.get(&id).and_then(|known| known.path);
        path.map_or_else(|| self.cm.facts.first(), |path| self.cm.facts.with_gid(path.local))
    }

    /// Code of the largest path MTU of an identifier's path: that of the port, or, to a peer outside the
    /// network, what fits into an Ethernet frame of 1500 bytes. Such a peer refuses more than its own port
    /// carries, and no message tells us how much that is.
    pub(super) fn path_mtu(&mut self, id: u32) -> u8 {
        let own = self.port_of(id).mtu;
        let path = self.cm.identifiers.get(&id).and_then(|known| known.path);
        let is_outside = path.is_some_and(|path| path.lids.is_none() && self.process.is_outside(path.remote));
        if is_outside { own.min(PathMtu::Mtu1024.raw()) } else { own }
    }

    /// Writes a response to the program.
    pub(super) fn put<T: IntoBytes + Immutable>(
        &mut self,
        place: ResponseBuffer,
        response: &T,
    ) -> Result<(), Errno> {
        let bytes = response.as_bytes();
        Ok(self.process.write(place.address, &bytes[..bytes.len().min(place.room)])?)
    }

    /// Queues an event in its file.
    pub(super) fn tell(&mut self, event: WaitingEvent) {
        if let Some(waiting) = self.cm.files.get_mut(&event.file) {
            waiting.push_back(event);
        }
    }

    /// Removes the events that satisfy `which` from all queues.
    pub(super) fn take_events(&mut self, which: impl Fn(&WaitingEvent) -> bool) -> Vec<WaitingEvent> {
        let mut taken = Vec::new();
        for waiting in self.cm.files.values_mut() {
            let (gone, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(&which);
            waiting.extend(left);
            taken.extend(gone);
        }
        taken
    }

    /// GET_EVENT: the next event, or EAGAIN.
    fn get_event(&mut self, file: ConnectionFileId, command: &CmGetEvent, room: usize) -> Result<(), Errno> {
        // Programs from before enhanced connection establishment have no room for the last field.
        let least = core::mem::offset_of!(CmEventResp, reserved);
        let place = ResponseBuffer { address: command.response, room }.needs(least)?;
        let waiting = self.cm.files.get(&file).and_then(|waiting| waiting.front());
        let response = waiting.ok_or(Errno::Again)?.response;
        self.put(place, &response)?;
        let Some(event) = self.cm.files.get_mut(&file).and_then(|waiting| waiting.pop_front()) else {
            return Err(Errno::Again);
        };
        if let Some(group) = event.group.and_then(|group| self.cm.groups.get_mut(&group)) {
            group.events_reported += 1;
        } else if let Some(known) = self.cm.identifiers.get_mut(&event.counted) {
            known.events_reported += 1;
        }
        Ok(())
    }
}
