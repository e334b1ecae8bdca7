//! Initial state of a connection, and the messages with many fields: REQ and SIDR_REQ.

use super::connection::{CommunicationId, Connection, ConnectionState, Path, Role, Service, Terms, time_of};
use super::message::{Field, Kind, Message, reply, request, service_request};
use super::parameters::{Extension, Offer};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// Timeout and retry count as Linux sets them (`CMA_CM_RESPONSE_TIMEOUT`, `CMA_MAX_CM_RETRIES`).
const RESPONSE_TIMEOUT: u8 = 20;
const MOST_RETRIES: u8 = 15;
/// Packet lifetime in the network as a time code: what Linux assumes for RoCE since 6.2.
const PACKET_LIFE: u8 = 16;
/// LID field of a message between ports without LIDs.
const NO_LID: u16 = 0xffff;
/// Extended transport type of XRC (IBTA annex A14).
const EXTENDED_XRC: u8 = 1;

pub(super) fn begin(
    role: Role,
    state: ConnectionState,
    path: Path,
    transaction: u64,
    terms: Terms,
) -> Connection {
    Connection {
        role,
        state,
        path,
        remote_id: 0,
        remote_guid: 0,
        first_transaction: transaction,
        transaction,
        terms,
        repetition: None,
        last_message: None,
        time_wait: None,
        listed: None,
        // Response time of the peer, plus one packet lifetime each way.
        response_time: time_of(RESPONSE_TIMEOUT) + time_of(PACKET_LIFE) + time_of(PACKET_LIFE),
        retries: MOST_RETRIES,
        is_orphan: false,
        service_id: 0,
    }
}

/// Terms of a service resolution, which negotiates nothing.
pub(super) const fn no_terms() -> Terms {
    Terms {
        service: Service::UnreliableConnection,
        local_qpn: Qpn::from_low_bits(0),
        remote_qpn: Qpn::from_low_bits(0),
        send_psn: Psn::new(0),
        receive_psn: Psn::new(0),
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry: 0,
        ack_timeout: 0,
        path_mtu: 0,
        traffic_class: 0,
    }
}

/// A connection or a resolution that a peer has requested.
pub(super) fn requested(path: Path, message: &Message) -> Connection {
    let get8 = |field| message.get8(field);
    if message.kind() == Kind::ServiceRequest {
        let state = ConnectionState::ServiceRequestReceived;
        let connection = begin(Role::Passive, state, path, message.transaction(), no_terms());
        let (remote_id, service_id) =
            (message.get32(service_request::REQUEST_ID), message.get(service_request::SERVICE_ID));
        return Connection { remote_id, service_id, ..connection };
    }
    let terms = Terms {
        service: service(message),
        local_qpn: Qpn::from_low_bits(0),
        remote_qpn: Qpn::from_low_bits(message.get32(request::LOCAL_QPN)),
        // A REQ states the PSN that the peer expects from us, not the one it starts to send with.
        send_psn: Psn::new(message.get32(request::STARTING_PSN)),
        receive_psn: Psn::new(0),
        responder_resources: get8(request::INITIATOR_DEPTH),
        initiator_depth: get8(request::RESPONDER_RESOURCES),
        retry_count: get8(request::RETRY_COUNT),
        rnr_retry: get8(request::RNR_RETRY),
        ack_timeout: get8(request::ACK_TIMEOUT),
        path_mtu: get8(request::PATH_MTU),
        traffic_class: get8(request::TRAFFIC_CLASS),
    };
    Connection {
        remote_id: message.get32(request::LOCAL_ID),
        remote_guid: message.get(request::LOCAL_GUID),
        response_time: time_of(get8(request::LOCAL_TIMEOUT)),
        retries: get8(request::MAX_RETRIES),
        ..begin(Role::Passive, ConnectionState::RequestReceived, path, message.transaction(), terms)
    }
}

/// Transport service that a REQ asks for.
fn service(message: &Message) -> Service {
    match message.get(request::SERVICE_TYPE) {
        1 => Service::UnreliableConnection,
        3 => Service::Xrc,
        _ => Service::ReliableConnection,
    }
}

pub(super) fn request_message(
    guid: u64,
    id: CommunicationId,
    transaction: u64,
    offer: &Offer,
    terms: &Terms,
) -> Message {
    let mut message = Message::new(Kind::Request, transaction);
    let (service, extended) = match offer.service {
        Service::ReliableConnection => (0_u8, 0),
        Service::UnreliableConnection => (1, 0),
        Service::Xrc => (3, EXTENDED_XRC),
    };
    let (local_lid, remote_lid) = offer.path.lids.map_or((NO_LID, NO_LID), |lids| (lids.local, lids.remote));
    let numbers: [(Field, u64); 22] = [
        (request::LOCAL_ID, id.0.into()),
        (request::SERVICE_ID, offer.service_id),
        (request::LOCAL_GUID, guid),
        (request::LOCAL_QPN, offer.qpn.value().into()),
        (request::RESPONDER_RESOURCES, offer.responder_resources.into()),
        (request::INITIATOR_DEPTH, offer.initiator_depth.into()),
        (request::REMOTE_TIMEOUT, RESPONSE_TIMEOUT.into()),
        (request::SERVICE_TYPE, service.into()),
        (request::EXTENDED_TYPE, extended.into()),
        (request::FLOW_CONTROL, offer.flow_control.into()),
        (request::STARTING_PSN, terms.receive_psn.value().into()),
        (request::LOCAL_TIMEOUT, RESPONSE_TIMEOUT.into()),
        (request::RETRY_COUNT, offer.retry_count.into()),
        (request::PARTITION_KEY, offer.path.partition_key().into()),
        (request::PATH_MTU, offer.path_mtu.into()),
        (request::RNR_RETRY, offer.rnr_retry.into()),
        (request::MAX_RETRIES, MOST_RETRIES.into()),
        (request::SHARED_RECEIVES, offer.shared_receives.into()),
        (request::LOCAL_LID, local_lid.into()),
        (request::REMOTE_LID, remote_lid.into()),
        (request::TRAFFIC_CLASS, offer.traffic_class.into()),
        (request::ACK_TIMEOUT, offer.ack_timeout.into()),
    ];
    for (field, value) in numbers {
        message.set(field, value);
    }
    message.set(request::HOP_LIMIT, offer.path.hop_limit());
    message.set(request::SUBNET_LOCAL, u8::from(offer.path.lids.is_some()));
    message.set(request::SERVICE_LEVEL, offer.path.lids.map_or(0, |lids| lids.service_level));
    message
        .set_gid(request::LOCAL_GID_AT, offer.path.local)
        .set_gid(request::REMOTE_GID_AT, offer.path.remote);
    message.set_private(request::PRIVATE, &offer.private);
    set_extension(&mut message, offer.extension);
    message
}

/// The vendor ID is one field in a REQ and three fields in a REP.
pub(super) fn set_extension(message: &mut Message, extension: Extension) {
    message.set_modifier(extension.options);
    if message.kind() == Kind::Request {
        message.set(request::VENDOR_ID, extension.vendor_id);
        return;
    }
    let [_, high, middle, low] = extension.vendor_id.to_be_bytes();
    message
        .set(reply::VENDOR_ID_HIGH, high)
        .set(reply::VENDOR_ID_MIDDLE, middle)
        .set(reply::VENDOR_ID_LOW, low);
}

impl Extension {
    /// The extension of a REQ or a REP.
    pub fn of(message: &Message) -> Self {
        let vendor_id = if message.kind() == Kind::Request {
            message.get32(request::VENDOR_ID)
        } else {
            let part = |field| message.get8(field);
            let (high, middle) = (part(reply::VENDOR_ID_HIGH), part(reply::VENDOR_ID_MIDDLE));
            u32::from_be_bytes([0, high, middle, part(reply::VENDOR_ID_LOW)])
        };
        Self { vendor_id, options: message.modifier() }
    }
}
