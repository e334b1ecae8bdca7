//! IPoIB's requests to the subnet administration: to join and leave groups, and for the path to a port (RFC
//! 4391 §§5, 8; IBTA v1.4 §15.2.5). An unanswered request is retransmitted.

use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::wire::management::administration::{
    AdministrationPacket, CLASS_VERSION, McMemberRecord, PathRecord, method, record,
};
use bareverbs_sim::wire::management::{SIZE, class};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// How long to wait for an answer, and how often a request is sent.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
const TIMES: u8 = 4;
/// Requests that may wait for answers.
const MOST: usize = 512;
const BASE_VERSION: u8 = 1;
const GET: u8 = 1;
const SET: u8 = 2;
/// Components that identify a membership, and those that describe its group (IBTA v1.4 §15.2.5.17).
const MEMBERSHIP: u64 = 0b11 | 1 << 16;
const PARTITION: u64 = 1 << 7;
const GROUP: u64 = 1 << 2 | 0x30 | 1 << 6 | 0x300 | 1 << 12 | 1 << 13 | 1 << 14;
/// Both ends, one path, traffic class and partition (IBTA v1.4 §15.2.5.16).
const PATH: u64 = 1 << 2 | 1 << 3 | 1 << 10 | 1 << 12 | 1 << 13;
/// Join states of a port: full member, or send-only in a group that exists without it.
const FULL_MEMBER: u8 = 1;
const SENDS_ONLY: u8 = 4;
const EXACTLY: u8 = 2;

/// The role of a port in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Member,
    Sender,
}

impl Role {
    const fn join_state(self) -> u8 {
        match self {
            Self::Member => FULL_MEMBER,
            Self::Sender => SENDS_ONLY,
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdministrationRequest {
    Join { group: Gid, role: Role },
    Leave { group: Gid, role: Role },
    Path { gid: Gid },
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    /// The record of the membership.
    Joined(McMemberRecord),
    Left,
    Path(PathRecord),
    /// The status, or `None` if nobody answered.
    Failed(Option<u16>),
}

/// The port that sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskingPort {
    pub(super) gid: Gid,
    pub(super) partition_key: u16,
}

struct Waiting {
    request: AdministrationRequest,
    datagram: Box<[u8; SIZE]>,
    due: Time,
    times: u8,
}

/// Requests and their answers; see the module's comment.
#[derive(Default)]
pub(super) struct AdministrationClient {
    waiting: BTreeMap<u64, Waiting>,
    last: u64,
}

impl AdministrationClient {
    /// A client whose transaction IDs start after `first`: answers to an earlier user of the port are
    /// ignored.
    pub(super) const fn new(first: u64) -> Self {
        Self { waiting: BTreeMap::new(), last: first }
    }

    /// Whether a request is waiting for its answer.
    pub(super) fn is_asked(&self, request: &AdministrationRequest) -> bool {
        self.waiting.values().any(|waiting| waiting.request == *request)
    }

    /// Starts a request and returns the datagram to send. `None` if it is in progress already, or too many
    /// are. `like` is the broadcast group, whose parameters other groups share.
    pub(super) fn ask(
        &mut self,
        now: Time,
        asker: AskingPort,
        request: AdministrationRequest,
        like: Option<&McMemberRecord>,
    ) -> Option<[u8; SIZE]> {
        if self.is_asked(&request) || self.waiting.len() >= MOST {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        let datagram = compose(self.last, asker, request, like);
        let waiting =
            Waiting { request, datagram: Box::new(datagram), due: now + RESPONSE_TIMEOUT, times: 1 };
        self.waiting.insert(self.last, waiting);
        Some(datagram)
    }

    /// Handles a datagram if it is an answer.
    pub(super) fn handle(
        &mut self,
        datagram: &[u8; SIZE],
    ) -> Option<(AdministrationRequest, RequestOutcome)> {
        let packet = AdministrationPacket::of(datagram);
        let is_answer = packet.mad.class() == class::ADMINISTRATION && packet.mad.method() & 0x80 != 0;
        let waiting = is_answer.then(|| self.waiting.remove(&packet.mad.transaction())).flatten()?;
        let outcome = match (packet.mad.status(), waiting.request) {
            (0, AdministrationRequest::Join { .. }) => packet.record().map(RequestOutcome::Joined),
            (0, AdministrationRequest::Path { .. }) => packet.record().map(RequestOutcome::Path),
            (0, AdministrationRequest::Leave { .. }) => Some(RequestOutcome::Left),
            (status, _) => Some(RequestOutcome::Failed(Some(status))),
        };
        Some((waiting.request, outcome.unwrap_or(RequestOutcome::Failed(None))))
    }

    /// The next request to retransmit or to give up.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<Result<[u8; SIZE], AdministrationRequest>> {
        let (&transaction, waiting) = self.waiting.iter_mut().find(|(_, waiting)| waiting.due <= now)?;
        if waiting.times < TIMES {
            (waiting.due, waiting.times) = (now + RESPONSE_TIMEOUT, waiting.times + 1);
            return Some(Ok(*waiting.datagram));
        }
        let request = waiting.request;
        self.waiting.remove(&transaction);
        Some(Err(request))
    }

    /// Whether no request is waiting for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets all requests, because their answers would be for the port as it was before.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

fn compose(
    transaction: u64,
    asker: AskingPort,
    request: AdministrationRequest,
    like: Option<&McMemberRecord>,
) -> [u8; SIZE] {
    let mut packet = AdministrationPacket::of(&[0; SIZE]);
    let (method, attribute) = match request {
        AdministrationRequest::Join { .. } => (SET, record::MC_MEMBER),
        AdministrationRequest::Leave { .. } => (method::DELETE, record::MC_MEMBER),
        AdministrationRequest::Path { .. } => (GET, record::PATH),
    };
    packet.mad.set_base_version(BASE_VERSION).set_class(class::ADMINISTRATION);
    packet.mad.set_class_version(CLASS_VERSION).set_method(method).set_attribute(attribute);
    packet.mad.set_transaction(transaction);
    let (mask, length) = match request {
        AdministrationRequest::Join { group, role } => {
            let (member, components) = membership(asker, group, role, like);
            (components, put(&mut packet, &member))
        }
        AdministrationRequest::Leave { group, role } => {
            let (member, _) = membership(asker, group, role, None);
            (MEMBERSHIP, put(&mut packet, &member))
        }
        AdministrationRequest::Path { gid } => (PATH, put(&mut packet, &path(asker, gid))),
    };
    packet.sa.set_component_mask(mask).set_attribute_offset((length / 8) as u16);
    packet.to_bytes()
}

fn put<T: IntoBytes + zerocopy::Immutable>(packet: &mut AdministrationPacket, record: &T) -> usize {
    let bytes = record.as_bytes();
    packet.data[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// A membership, and its component mask. Only a port that may create the group gives its parameters, as in
/// Linux.
fn membership(
    asker: AskingPort,
    group: Gid,
    role: Role,
    like: Option<&McMemberRecord>,
) -> (McMemberRecord, u64) {
    let mut member = McMemberRecord::new();
    member.set_mgid(group.0).set_port_gid(asker.gid.0).set_join_state(role.join_state());
    member.set_partition_key(asker.partition_key);
    let Some(like) = like.filter(|_| role == Role::Member) else { return (member, MEMBERSHIP | PARTITION) };
    member.set_q_key(like.q_key()).set_traffic_class(like.traffic_class());
    member.set_mtu_selector(EXACTLY).set_mtu(like.mtu()).set_rate_selector(EXACTLY).set_rate(like.rate());
    member.set_service_level(like.service_level()).set_flow_label(like.flow_label());
    member.set_hop_limit(like.hop_limit());
    (member, MEMBERSHIP | PARTITION | GROUP)
}

fn path(asker: AskingPort, gid: Gid) -> PathRecord {
    let mut path = PathRecord::new();
    path.set_dgid(gid.0).set_sgid(asker.gid.0).set_number_of_paths(1).set_partition_key(asker.partition_key);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: AskingPort = AskingPort { gid: Gid([1; 16]), partition_key: 0xffff };
    const GROUP_GID: Gid = Gid([0xff; 16]);

    /// The components of Linux's IPoIB (`ipoib_mcast_join`, `path_rec_start`).
    #[test]
    fn requests_name_the_components_of_linux() {
        let mask = |request, like: Option<&McMemberRecord>| {
            let packet = AdministrationPacket::of(&compose(1, ASKER, request, like));
            (packet.mad.method(), packet.mad.attribute(), packet.sa.component_mask())
        };
        let like = McMemberRecord::new();
        let join = AdministrationRequest::Join { group: GROUP_GID, role: Role::Member };
        assert_eq!(mask(join, None), (2, 0x38, 0x1_0083), "the broadcast group");
        assert_eq!(mask(join, Some(&like)), (2, 0x38, 0x1_73f7));
        let send = AdministrationRequest::Join { group: GROUP_GID, role: Role::Sender };
        assert_eq!(mask(send, Some(&like)), (2, 0x38, 0x1_0083));
        assert_eq!(
            mask(AdministrationRequest::Leave { group: GROUP_GID, role: Role::Member }, None),
            (0x15, 0x38, 0x1_0003)
        );
        assert_eq!(mask(AdministrationRequest::Path { gid: GROUP_GID }, None), (1, 0x35, 0x340c));
    }

    #[test]
    fn a_request_is_repeated_and_then_given_up() {
        let (mut client, request) =
            (AdministrationClient::new(7), AdministrationRequest::Path { gid: GROUP_GID });
        let asked = client.ask(Time::ZERO, ASKER, request, None).expect("asked");
        assert_eq!(client.ask(Time::ZERO, ASKER, request, None), None, "it waits");
        let mut now = Time::ZERO;
        for _ in 1..TIMES {
            assert!(client.handle_timeout(now).is_none());
            now += RESPONSE_TIMEOUT;
            assert_eq!(client.handle_timeout(now), Some(Ok(asked)));
        }
        assert_eq!(client.handle_timeout(now + RESPONSE_TIMEOUT), Some(Err(request)));
        assert!(client.handle_timeout(now + RESPONSE_TIMEOUT).is_none());
    }

    #[test]
    fn a_response_is_taken_once() {
        let (mut client, request) =
            (AdministrationClient::new(7), AdministrationRequest::Path { gid: GROUP_GID });
        let asked = client.ask(Time::ZERO, ASKER, request, None).expect("asked");
        assert!(client.handle(&asked).is_none(), "a request is not an answer");
        let mut answer = AdministrationPacket::of(&asked);
        answer.mad.set_method(0x81);
        let taken = client.handle(&answer.to_bytes());
        assert!(matches!(taken, Some((of, RequestOutcome::Path(_))) if of == request));
        assert!(client.handle(&answer.to_bytes()).is_none());
        answer.mad.set_status(0x0300);
        client.ask(Time::ZERO, ASKER, request, None).expect("asked");
        answer.mad.set_transaction(9);
        assert!(matches!(client.handle(&answer.to_bytes()), Some((_, RequestOutcome::Failed(Some(0x0300))))));
    }
}
