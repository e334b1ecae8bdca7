//! Events of identifiers, as programs read them.

use super::identifier::Identifier;
use crate::connection_names::ConnectionFileId;
use crate::uapi::{AhAttr, CmConnParam, CmEce, CmEventResp, CmUdParam, GlobalRoute};
use bareverbs_cm::{Extension, Message, Path, reject, reply, request, service_reply};
use bareverbs_prm::ids::Gid;
use zerocopy::{FromZeros, IntoBytes};

/// `enum rdma_cm_event_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum EventType {
    AddressResolved = 0,
    AddressError = 1,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectResponse = 5,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    MulticastJoin = 12,
    TimeWaitExit = 15,
}

/// Number of a group's queue pair (IBTA v1.4 §3.5.10).
const GROUP_QPN: u32 = 0xff_ffff;
const PORT: u8 = 1;

/// An unread event.
#[derive(Debug)]
pub(super) struct WaitingEvent {
    pub(super) file: ConnectionFileId,
    /// The identifier that counts the event: the listener if a request created a new identifier.
    pub(super) counted: u32,
    /// The identifier that a request created.
    pub(super) new: Option<u32>,
    /// The group that was joined. A group counts its own events.
    pub(super) group: Option<u32>,
    pub(super) response: CmEventResp,
}

/// The parameters of an event.
pub(super) enum Parameters {
    None,
    Connection(CmConnParam),
    Datagram(CmUdParam),
}

impl WaitingEvent {
    /// An event of an identifier.
    pub(super) fn new(
        id: u32,
        of: &Identifier,
        kind: EventType,
        status: i32,
        parameters: &Parameters,
    ) -> Self {
        let response = CmEventResp {
            uid: of.uid,
            id,
            event: kind as u32,
            status: status.cast_unsigned(),
            param: parameters.bytes(),
            reserved: 0,
            ece: CmEce { vendor_id: 0, attr_mod: 0 },
        };
        Self { file: of.file, counted: id, new: None, group: None, response }
    }

    /// The same with options of enhanced connection establishment.
    pub(super) fn extended(mut self, extension: Extension) -> Self {
        self.response.ece = CmEce { vendor_id: extension.vendor_id, attr_mod: extension.options };
        self
    }
}

impl Parameters {
    fn bytes(&self) -> [u8; 304] {
        let mut bytes = [0; 304];
        let known = match self {
            Self::None => &[],
            Self::Connection(parameters) => parameters.as_bytes(),
            Self::Datagram(parameters) => parameters.as_bytes(),
        };
        bytes[..known.len()].copy_from_slice(known);
        bytes
    }

    /// The parameters of a REQ for the listening program. The first `skip` bytes of its private data do not
    /// belong to the peer's program.
    pub(super) fn of_request(message: &Message, skip: usize) -> Self {
        let get8 = |field| message.get8(field);
        Self::Connection(CmConnParam {
            qp_num: message.get32(request::LOCAL_QPN),
            responder_resources: get8(request::INITIATOR_DEPTH),
            initiator_depth: get8(request::RESPONDER_RESOURCES),
            flow_control: get8(request::FLOW_CONTROL),
            retry_count: get8(request::RETRY_COUNT),
            rnr_retry_count: get8(request::RNR_RETRY),
            srq: get8(request::SHARED_RECEIVES),
            ..private(&message.private(request::PRIVATE)[skip..])
        })
    }

    /// The parameters of a REP for the connecting program.
    pub(super) fn of_reply(message: &Message) -> Self {
        let get8 = |field| message.get8(field);
        Self::Connection(CmConnParam {
            qp_num: message.get32(reply::LOCAL_QPN),
            responder_resources: get8(reply::INITIATOR_DEPTH),
            initiator_depth: get8(reply::RESPONDER_RESOURCES),
            flow_control: get8(reply::FLOW_CONTROL),
            rnr_retry_count: get8(reply::RNR_RETRY),
            srq: get8(reply::SHARED_RECEIVES),
            ..private(message.private(reply::PRIVATE))
        })
    }

    /// The parameters of a REJ.
    pub(super) fn of_reject(message: &Message) -> Self {
        Self::Connection(private(message.private(reject::PRIVATE)))
    }

    /// The private data of a SIDR_REQ without the first `skip` bytes.
    pub(super) fn of_service_request(bytes: &[u8], skip: usize) -> Self {
        Self::Datagram(datagram_private(&bytes[skip..]))
    }

    /// The parameters of a SIDR_REP, with the route to the peer.
    pub(super) fn of_service_reply(message: &Message, route: AhAttr) -> Self {
        Self::Datagram(CmUdParam {
            qp_num: message.get32(service_reply::QPN),
            qkey: message.get32(service_reply::Q_KEY),
            ah_attr: route,
            ..datagram_private(message.private(service_reply::PRIVATE))
        })
    }

    /// The parameters of a joined group, with the route to its members.
    pub(super) fn of_group(route: AhAttr, qkey: u32) -> Self {
        Self::Datagram(CmUdParam { qp_num: GROUP_QPN, qkey, ah_attr: route, ..CmUdParam::new_zeroed() })
    }
}

fn private(bytes: &[u8]) -> CmConnParam {
    let mut parameters = CmConnParam::new_zeroed();
    parameters.private_data[..bytes.len()].copy_from_slice(bytes);
    parameters.private_data_len = bytes.len() as u8;
    parameters
}

fn datagram_private(bytes: &[u8]) -> CmUdParam {
    let mut parameters = CmUdParam::new_zeroed();
    parameters.private_data[..bytes.len()].copy_from_slice(bytes);
    parameters.private_data_len = bytes.len() as u8;
    parameters
}

/// A path in the form of address handles.
pub(super) fn route(path: Path, gids: &[Gid], traffic_class: u8) -> AhAttr {
    let sgid_index = gids.iter().position(|gid| *gid == path.local).unwrap_or(0) as u8;
    let grh = GlobalRoute {
        dgid: path.remote.0,
        flow_label: 0,
        sgid_index,
        hop_limit: path.hop_limit(),
        traffic_class,
        reserved: 0,
    };
    let dlid = path.lids.map_or(0, |lids| lids.remote);
    if !path.is_global() {
        return AhAttr { dlid, port_num: PORT, ..AhAttr::new_zeroed() };
    }
    AhAttr { grh, dlid, is_global: 1, port_num: PORT, ..AhAttr::new_zeroed() }
}
