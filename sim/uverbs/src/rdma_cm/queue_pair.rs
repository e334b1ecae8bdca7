//! INIT_QP_ATTR: the attributes that librdmacm has to set on a queue pair in each state on the way to the
//! connection (`ib_cm_init_qp_attr`, `cma_ib_init_qp_attr`).

use super::call::{CmCall, ResponseBuffer};
use super::connections::DATAGRAM_Q_KEY;
use super::events::route;
use super::identifier::{Identifier, qp_type};
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;
use bareverbs_cm::Connection;
use zerocopy::FromZeros;

const PORT: u8 = 1;

/// States of queue pairs, as programs number them.
const INIT: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;

/// `enum ib_qp_attr_mask`.
mod mask {
    pub(super) const STATE: u32 = 1;
    pub(super) const ACCESS: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const Q_KEY: u32 = 1 << 6;
    pub(super) const PATH: u32 = 1 << 7;
    pub(super) const PATH_MTU: u32 = 1 << 8;
    pub(super) const TIMEOUT: u32 = 1 << 9;
    pub(super) const RETRY_COUNT: u32 = 1 << 10;
    pub(super) const RNR_RETRY: u32 = 1 << 11;
    pub(super) const RECEIVE_PSN: u32 = 1 << 12;
    pub(super) const INITIATOR_DEPTH: u32 = 1 << 13;
    pub(super) const RNR_TIMER: u32 = 1 << 15;
    pub(super) const SEND_PSN: u32 = 1 << 16;
    pub(super) const RESPONDER_RESOURCES: u32 = 1 << 17;
    pub(super) const REMOTE_QPN: u32 = 1 << 20;
}

impl<P: Process> CmCall<'_, P> {
    pub(super) fn init_qp_attr(
        &mut self,
        file: ConnectionFileId,
        command: &CmInitQpAttr,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room }.needs(size_of::<UverbsQpAttr>())?;
        self.identifier(file, command.id)?;
        let known = self.cm.identifiers.get(&command.id).ok_or(Errno::NoEntry)?;
        // The device has to be known.
        let path = known.path.ok_or(Errno::Invalid)?;
        let connection = known.communication.and_then(|id| self.cm.manager.get(id));
        let connection = connection.filter(|_| !known.is_datagram());
        let mut response = match (connection, command.qp_state) {
            (connection, INIT) => init(known, connection),
            (Some(connection), READY_TO_RECEIVE) => {
                let way = route(path, &self.port_of(command.id).gids, connection.terms.traffic_class);
                ready_to_receive(known, connection, way)
            }
            (Some(connection), READY_TO_SEND) => ready_to_send(known, connection),
            _ => return Err(Errno::Invalid),
        };
        (response.qp_state, response.qp_attr_mask) = (command.qp_state, response.qp_attr_mask | mask::STATE);
        self.put(place, &response)
    }
}

/// Available as soon as the device is known.
fn init(known: &Identifier, connection: Option<&Connection>) -> UverbsQpAttr {
    let mut response = UverbsQpAttr { port_num: PORT, ..UverbsQpAttr::new_zeroed() };
    response.qp_attr_mask = mask::PKEY_INDEX | mask::PORT;
    if known.is_datagram() {
        response.qp_attr_mask |= mask::Q_KEY;
        response.qkey = if known.q_key == 0 { DATAGRAM_Q_KEY } else { known.q_key };
        return response;
    }
    response.qp_attr_mask |= mask::ACCESS;
    if let Some(connection) = connection {
        response.qp_access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE;
        if connection.terms.responder_resources != 0 {
            response.qp_access_flags |= IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        }
    }
    response
}

fn ready_to_receive(known: &Identifier, connection: &Connection, way: AhAttr) -> UverbsQpAttr {
    let terms = &connection.terms;
    let mut response = UverbsQpAttr {
        qp_attr_mask: mask::PATH | mask::PATH_MTU | mask::REMOTE_QPN | mask::RECEIVE_PSN,
        ah_attr: way,
        path_mtu: terms.path_mtu.into(),
        dest_qp_num: terms.remote_qpn.value(),
        rq_psn: terms.receive_psn.value(),
        ..UverbsQpAttr::new_zeroed()
    };
    if let qp_type::RELIABLE | qp_type::XRC_RECEIVE = known.qp_type {
        response.qp_attr_mask |= mask::RESPONDER_RESOURCES | mask::RNR_TIMER;
        response.max_dest_rd_atomic = terms.responder_resources;
    }
    response
}

fn ready_to_send(known: &Identifier, connection: &Connection) -> UverbsQpAttr {
    let terms = &connection.terms;
    let mut response = UverbsQpAttr {
        qp_attr_mask: mask::SEND_PSN,
        sq_psn: terms.send_psn.value(),
        ..UverbsQpAttr::new_zeroed()
    };
    if let qp_type::RELIABLE | qp_type::XRC_SEND = known.qp_type {
        response.qp_attr_mask |= mask::RETRY_COUNT | mask::RNR_RETRY | mask::INITIATOR_DEPTH;
        (response.retry_cnt, response.rnr_retry) = (terms.retry_count, terms.rnr_retry);
        response.max_rd_atomic = terms.initiator_depth;
    }
    if known.qp_type != qp_type::UNRELIABLE {
        response.qp_attr_mask |= mask::TIMEOUT;
        response.timeout = terms.ack_timeout;
    }
    response
}
