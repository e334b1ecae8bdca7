//! Multicast groups: the program joins by itself, and learns here how to reach the group. On InfiniBand every
//! multicast LID leads to all ports, so nobody else has to know.

use super::address::SocketAddress;
use super::call::{CmCall, ResponseBuffer};
use super::connections::DATAGRAM_Q_KEY;
use super::events::{EventType, Parameters, WaitingEvent, route};
use super::group_address::GroupAddress;
use super::identifier::Stage;
use super::naming::sized;
use super::state::Group;
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;

/// `RDMA_MC_JOIN_FLAG_RESERVED`: values from here on do not exist.
const UNKNOWN_FLAGS: u16 = 2;

/// A request to join a group.
struct JoinRequest {
    id: u32,
    uid: u64,
    address: SocketAddress,
    place: ResponseBuffer,
}

impl<P: Process> CmCall<'_, P> {
    pub(super) fn join_ip_multicast(
        &mut self,
        file: ConnectionFileId,
        command: &CmJoinIpMulticast,
        room: usize,
    ) -> Result<(), Errno> {
        let address = SocketAddress::parse(&command.addr).ok_or(Errno::Invalid)?;
        let place = ResponseBuffer { address: command.response, room };
        self.join(file, &JoinRequest { id: command.id, uid: command.uid, address, place })
    }

    pub(super) fn join_multicast(
        &mut self,
        file: ConnectionFileId,
        command: &CmJoinMulticast,
        room: usize,
    ) -> Result<(), Errno> {
        if command.join_flags >= UNKNOWN_FLAGS {
            return Err(Errno::Invalid);
        }
        let address = sized(&command.addr, command.addr_size)?;
        let place = ResponseBuffer { address: command.response, room };
        self.join(file, &JoinRequest { id: command.id, uid: command.uid, address, place })
    }

    fn join(&mut self, file: ConnectionFileId, command: &JoinRequest) -> Result<(), Errno> {
        let place = command.place.needs(size_of::<CmCreateIdResp>())?;
        let is_infiniband = self.port_of(command.id).lid.is_some();
        let known = self.identifier(file, command.id)?;
        let group = GroupAddress::of(&command.address, known.space, is_infiniband).ok_or(Errno::Invalid)?;
        let is_ready = matches!(known.stage, Stage::Bound | Stage::AddressResolved | Stage::RouteResolved);
        let path = known.path.filter(|_| is_ready && known.is_datagram()).ok_or(Errno::Invalid)?;
        let same = |joined: &Group| joined.identifier == command.id && joined.address == command.address;
        if self.cm.groups.values().any(same) {
            return Err(Errno::AddressInUse);
        }
        let id = self.new_number()?;
        self.put(place, &CmCreateIdResp { id })?;
        let joined = Group { identifier: command.id, address: command.address, events_reported: 0 };
        self.cm.groups.insert(id, joined);
        let known = self.cm.identifiers.get(&command.id).ok_or(Errno::NoEntry)?;
        let port = self.port_of(command.id);
        let way = route(group.path(port, path.local), &port.gids, known.traffic_class);
        let q_key = if known.q_key == 0 { DATAGRAM_Q_KEY } else { known.q_key };
        let parameters = Parameters::of_group(way, q_key);
        let mut event = WaitingEvent::new(command.id, known, EventType::MulticastJoin, 0, &parameters);
        // The event is about the group, with the group's ID.
        (event.response.uid, event.response.id, event.group) = (command.uid, id, Some(id));
        self.tell(event);
        Ok(())
    }

    /// LEAVE_MCAST has the layout of DESTROY_ID.
    pub(super) fn leave_multicast(
        &mut self,
        file: ConnectionFileId,
        command: &CmDestroyId,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room }.needs(size_of::<CmDestroyIdResp>())?;
        let owner = self.cm.groups.get(&command.id).ok_or(Errno::NoEntry)?.identifier;
        self.identifier(file, owner)?;
        self.take_events(|event| event.group == Some(command.id));
        let left = self.cm.groups.remove(&command.id).ok_or(Errno::NoEntry)?;
        self.put(place, &CmDestroyIdResp { events_reported: left.events_reported })
    }

    /// Ends the memberships of a destroyed identifier.
    pub(super) fn leave_groups(&mut self, identifier: u32) {
        let theirs = |(id, group): (&u32, &Group)| (group.identifier == identifier).then_some(*id);
        let gone: Vec<u32> = self.cm.groups.iter().filter_map(theirs).collect();
        for id in gone {
            self.cm.groups.remove(&id);
            self.take_events(|event| event.group == Some(id));
        }
    }
}
