//! Connecting, accepting, rejecting, disconnecting.

use super::address::{AddressHeader, SocketAddress};
use super::call::CmCall;
use super::identifier::{Identifier, Stage, qp_type};
use crate::Errno;
use crate::connection_names::{ConnectionFileId, Port};
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_cm::{
    Acceptance, CommunicationId, ConnectionState, Extension, IP_ENDS, Offer, Refusal, Role, Service,
    ServiceOffer, ServiceReply, reason, reject, reply, request, service_reply, service_request,
};
use bareverbs_prm::ids::Qpn;

/// The Q_Key of datagrams if a program names none (`RDMA_UDP_QKEY`).
pub(super) const DATAGRAM_Q_KEY: u32 = 0x0123_4567;
/// Code of the local ACK timeout that follows from the packet lifetime, if a program sets none.
const ACK_TIMEOUT: u8 = 17;
/// Rejection codes that a program may give, apart from none.
const VENDOR_OPTION: u8 = 35;
const LONGEST_RETRY: u8 = 7;
/// `IB_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: u32 = 4;

/// The private data of a program, if it fits into a message.
fn private(bytes: &[u8; 256], length: u8, room: usize) -> Result<Vec<u8>, Errno> {
    let given = &bytes[..length.into()];
    if given.len() > room { Err(Errno::Invalid) } else { Ok(given.to_vec()) }
}

/// The vendor's options of a connection, as a program passes them.
const fn extension(ece: CmEce) -> Extension {
    Extension { vendor_id: ece.vendor_id & 0xff_ffff, options: ece.attr_mod }
}

/// The transport service of a kind of queue pair.
const fn service(qp_type: u8) -> Service {
    match qp_type {
        qp_type::UNRELIABLE => Service::UnreliableConnection,
        qp_type::XRC_SEND | qp_type::XRC_RECEIVE => Service::Xrc,
        _ => Service::ReliableConnection,
    }
}

/// Addresses of both ends, followed by the program's private data (IBTA annex A11).
fn with_ends(known: &Identifier, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let (source, destination) = known.source.zip(known.destination).ok_or(Errno::Invalid)?;
    let mut private = AddressHeader { source, destination }.write().to_vec();
    private.extend_from_slice(bytes);
    Ok(private)
}

/// The service ID of an identifier's destination.
fn wanted(known: &Identifier) -> Result<u64, Errno> {
    let number =
        known.destination.map(|destination: SocketAddress| destination.port()).ok_or(Errno::Invalid)?;
    Ok(Port { space: known.space, number }.service_id())
}

impl<P: Process> CmCall<'_, P> {
    pub(super) fn connect(&mut self, file: ConnectionFileId, command: &CmConnect) -> Result<(), Errno> {
        let mtu = self.path_mtu(command.id);
        let known = self.identifier(file, command.id)?;
        if command.conn_param.valid == 0 || known.stage != Stage::RouteResolved {
            return Err(Errno::Invalid);
        }
        known.extension = extension(command.ece);
        let communication = if known.is_datagram() {
            let offer = service_offer(known, &command.conn_param)?;
            self.cm.manager.resolve_service(self.now, &offer)
        } else {
            let offer = offer(known, &command.conn_param, mtu)?;
            self.cm.manager.connect(self.now, &offer)
        };
        let communication = communication.ok_or(Errno::NoMemory)?;
        self.cm.owners.insert(communication, command.id);
        let known = self.identifier(file, command.id)?;
        (known.stage, known.communication) = (Stage::Connecting, Some(communication));
        Ok(())
    }

    fn communication(&mut self, file: ConnectionFileId, id: u32) -> Result<CommunicationId, Errno> {
        let known = self.identifier(file, id)?;
        known.communication.filter(|_| known.stage == Stage::Connecting).ok_or(Errno::Invalid)
    }

    /// ACCEPT: sends a REP on the passive side, and an RTU on the active side, whose library has finished with the
    /// queue pair.
    pub(super) fn accept(&mut self, file: ConnectionFileId, command: &CmAccept) -> Result<(), Errno> {
        let communication = self.communication(file, command.id)?;
        let is_datagram = self.identifier(file, command.id)?.is_datagram();
        if is_datagram {
            self.accept_datagrams(file, command, communication)?;
        } else {
            let role = self.cm.manager.get(communication).ok_or(Errno::Invalid)?.role;
            let done = match role {
                Role::Active => self.cm.manager.ready(communication),
                Role::Passive => {
                    let response = acceptance(command)?;
                    self.cm.manager.accept(self.now, communication, &response)
                }
            };
            done.map_err(|_| Errno::Invalid)?;
        }
        if command.conn_param.valid != 0 {
            self.identifier(file, command.id)?.uid = command.uid;
        }
        Ok(())
    }

    fn accept_datagrams(
        &mut self,
        file: ConnectionFileId,
        command: &CmAccept,
        communication: CommunicationId,
    ) -> Result<(), Errno> {
        let given = &command.conn_param;
        let known = self.identifier(file, command.id)?;
        let q_key = if given.qkey == 0 { DATAGRAM_Q_KEY } else { given.qkey };
        known.q_key = q_key;
        let private = private(&given.private_data, given.private_data_len, service_reply::PRIVATE.len())?;
        let qpn = Qpn::from_low_bits(given.qp_num & 0xff_ffff);
        let response = ServiceReply { status: 0, qpn, q_key, private };
        self.cm.manager.answer_service(communication, &response).map_err(|_| Errno::Invalid)
    }

    pub(super) fn reject(&mut self, file: ConnectionFileId, command: &CmReject) -> Result<(), Errno> {
        let communication = self.communication(file, command.id)?;
        let reason = match command.reason {
            0 => reason::CONSUMER,
            known if u16::from(known) == reason::CONSUMER || known == VENDOR_OPTION => known.into(),
            _ => return Err(Errno::Invalid),
        };
        let is_datagram = self.identifier(file, command.id)?.is_datagram();
        let room = if is_datagram { service_reply::PRIVATE.len() } else { reject::PRIVATE.len() };
        let private = private(&command.private_data, command.private_data_len, room)?;
        let done = if is_datagram {
            let qpn = Qpn::from_low_bits(0);
            let response = ServiceReply { status: SERVICE_REJECTED, qpn, q_key: 0, private };
            self.cm.manager.answer_service(communication, &response)
        } else {
            self.cm.manager.reject(communication, &Refusal { reason, private })
        };
        done.map_err(|_| Errno::Invalid)
    }

    /// DISCONNECT. It succeeds if the connection has already ended.
    pub(super) fn disconnect(&mut self, file: ConnectionFileId, command: &CmDisconnect) -> Result<(), Errno> {
        let known = self.identifier(file, command.id)?;
        let communication = known.communication.ok_or(Errno::Invalid)?;
        let _ = self.cm.manager.disconnect(self.now, communication);
        Ok(())
    }

    /// NOTIFY: the program has seen data on a connection whose RTU has not arrived.
    pub(super) fn notify(&mut self, file: ConnectionFileId, command: &CmNotify) -> Result<(), Errno> {
        let communication = self.identifier(file, command.id)?.communication.ok_or(Errno::Invalid)?;
        if command.event != COMMUNICATION_ESTABLISHED {
            return Err(Errno::Invalid);
        }
        let state = self.cm.manager.get(communication).map(|connection| connection.state);
        match state {
            // The RTU arrived first.
            Some(ConnectionState::Established) => Ok(()),
            _ => self.cm.manager.establish(communication).map_err(|_| Errno::Invalid),
        }
    }
}

/// Status of a SIDR_REP that rejects.
const SERVICE_REJECTED: u8 = 2;

fn offer(known: &Identifier, given: &CmConnParam, mtu: u8) -> Result<Offer, Errno> {
    let given_private =
        private(&given.private_data, given.private_data_len, request::PRIVATE.len() - IP_ENDS)?;
    Ok(Offer {
        service_id: wanted(known)?,
        path: known.path.ok_or(Errno::Invalid)?,
        service: service(known.qp_type),
        qpn: Qpn::from_low_bits(given.qp_num & 0xff_ffff),
        psn: None,
        shared_receives: given.srq != 0,
        responder_resources: given.responder_resources,
        initiator_depth: given.initiator_depth,
        flow_control: given.flow_control != 0,
        retry_count: given.retry_count.min(LONGEST_RETRY),
        rnr_retry: given.rnr_retry_count.min(LONGEST_RETRY),
        ack_timeout: known.ack_timeout.unwrap_or(ACK_TIMEOUT),
        path_mtu: mtu,
        traffic_class: known.traffic_class,
        extension: known.extension,
        private: with_ends(known, &given_private)?,
    })
}

fn service_offer(known: &Identifier, given: &CmConnParam) -> Result<ServiceOffer, Errno> {
    let room = service_request::PRIVATE.len() - IP_ENDS;
    let given = private(&given.private_data, given.private_data_len, room)?;
    let path = known.path.ok_or(Errno::Invalid)?;
    Ok(ServiceOffer { service_id: wanted(known)?, path, private: with_ends(known, &given)? })
}

fn acceptance(command: &CmAccept) -> Result<Acceptance, Errno> {
    let given = &command.conn_param;
    if given.valid == 0 {
        return Err(Errno::Invalid);
    }
    Ok(Acceptance {
        qpn: Qpn::from_low_bits(given.qp_num & 0xff_ffff),
        psn: None,
        shared_receives: given.srq != 0,
        responder_resources: given.responder_resources,
        initiator_depth: given.initiator_depth,
        flow_control: given.flow_control != 0,
        rnr_retry: given.rnr_retry_count.min(LONGEST_RETRY),
        extension: extension(command.ece),
        private: private(&given.private_data, given.private_data_len, reply::PRIVATE.len())?,
    })
}
