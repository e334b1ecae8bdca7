//! Identifiers, as the kernel reports them over NETLINK_RDMA (`fill_res_cm_id_entry` of Linux's `nldev.c`).

use super::identifier::{Identifier, Stage};
use super::state::RdmaCm;
use crate::netlink::{ListedObject, ObjectKind, ObjectOwner};
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_cm::{Connection, ConnectionState};

/// States of `enum rdma_cm_state`.
const IDLE: u8 = 0;
const ADDRESS_QUERY: u8 = 1;
const ADDRESS_RESOLVED: u8 = 2;
const ROUTE_QUERY: u8 = 3;
const ROUTE_RESOLVED: u8 = 4;
const CONNECT: u8 = 5;
const DISCONNECT: u8 = 6;
const ADDRESS_BOUND: u8 = 7;
const LISTEN: u8 = 8;

/// The state of an identifier and its connection.
fn state(stage: Stage, connection: Option<&Connection>) -> u8 {
    match stage {
        Stage::Idle => IDLE,
        Stage::Bound => ADDRESS_BOUND,
        Stage::ResolvingAddress { .. } => ADDRESS_QUERY,
        Stage::AddressResolved => ADDRESS_RESOLVED,
        Stage::ResolvingRoute { .. } => ROUTE_QUERY,
        Stage::RouteResolved => ROUTE_RESOLVED,
        Stage::Listening => LISTEN,
        Stage::Connecting => match connection.map(|connection| connection.state) {
            Some(
                ConnectionState::DisconnectSent
                | ConnectionState::DisconnectReceived
                | ConnectionState::TimeWait,
            ) => DISCONNECT,
            _ => CONNECT,
        },
    }
}

impl RdmaCm {
    /// The identifiers of a device. One that listens on any address is listed at every device, without a
    /// port.
    pub(crate) fn list(&self, device: usize, owner: ObjectOwner) -> Vec<ListedObject> {
        let at_device = self.identifiers.iter().filter(|(_, known)| self.is_at(known, device));
        at_device.map(|(id, known)| self.listed(*id, known, owner)).collect()
    }

    /// The number of these identifiers.
    pub(crate) fn count(&self, device: usize) -> u64 {
        self.identifiers.values().filter(|known| self.is_at(known, device)).count() as u64
    }

    fn is_at(&self, known: &Identifier, device: usize) -> bool {
        match known.path {
            Some(path) => self.facts.device_with(path.local) == Some(device),
            None => known.stage == Stage::Listening,
        }
    }

    fn listed(&self, id: u32, known: &Identifier, owner: ObjectOwner) -> ListedObject {
        let connection = known.communication.and_then(|communication| self.manager.get(communication));
        let queue_pair = connection.map_or(0, |connection| connection.terms.local_qpn.value());
        let (kind, has_port) = (ObjectKind::ConnectionIdentifier, known.path.is_some());
        ListedObject::new(kind, owner.number_of(id), owner, has_port, |told| {
            if queue_pair != 0 {
                told.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, queue_pair);
                told.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, known.qp_type);
            }
            told.put_u32(RDMA_NLDEV_ATTR_RES_PS, known.space.into());
            told.put_u8(RDMA_NLDEV_ATTR_RES_STATE, state(known.stage, connection));
            let ends = [
                (RDMA_NLDEV_ATTR_RES_SRC_ADDR, known.source),
                (RDMA_NLDEV_ATTR_RES_DST_ADDR, known.destination),
            ];
            for (attribute, address) in ends.into_iter().filter_map(|(end, address)| Some((end, address?))) {
                told.put(attribute, &address.write().bytes);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_the_kernels_number() {
        use bareverbs_prm::time::Time;
        let stages = [
            (Stage::Idle, 0),
            (Stage::ResolvingAddress { next_look: Time::ZERO, until: Time::ZERO }, 1),
            (Stage::AddressResolved, 2),
            (Stage::ResolvingRoute { at: Time::ZERO }, 3),
            (Stage::RouteResolved, 4),
            (Stage::Connecting, 5),
            (Stage::Bound, 7),
            (Stage::Listening, 8),
        ];
        for (stage, number) in stages {
            assert_eq!(state(stage, None), number, "{stage:?}");
        }
    }
}
