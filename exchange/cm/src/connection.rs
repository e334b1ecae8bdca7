//! One connection, or one resolution of a service, as one side of it has it.

use super::message::Message;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};

/// Number of a connection on this side: the number of the process in the upper 8 bits, as with queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommunicationId(
    /// Local communication ID of messages.
    pub u32,
);

/// LIDs of both ends of a path through an InfiniBand subnet, and what else the path says of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lids {
    /// Ours.
    pub local: u16,
    /// The peer's.
    pub remote: u16,
    /// Partition that the path is in.
    pub partition_key: u16,
    /// Service level of its packets.
    pub service_level: u8,
}

/// Between whom messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// GID of our port.
    pub local: Gid,
    /// GID of the peer's.
    pub remote: Gid,
    /// `None` on Ethernet.
    pub lids: Option<Lids>,
}

impl Path {
    /// Whether packets have a global route header: RoCE's always, InfiniBand's to groups alone, since there is one subnet (IBTA
    /// v1.4 §8.1, §10.5.1).
    pub fn is_global(&self) -> bool {
        self.lids.is_none() || self.remote.is_multicast()
    }

    /// Partition: on Ethernet there is one, of full members.
    pub const fn partition_key(&self) -> u16 {
        match self.lids {
            Some(lids) => lids.partition_key,
            None => DEFAULT_PARTITION,
        }
    }

    /// Limit of hops: that of RoCE is Linux's; a path within a subnet has none.
    pub const fn hop_limit(&self) -> u8 {
        if self.lids.is_none() { ROCE_HOPS } else { 0 }
    }
}

/// The default partition as full members name it.
const DEFAULT_PARTITION: u16 = 0xffff;
/// Hop limit of RoCE, as Linux has it.
const ROCE_HOPS: u8 = 64;

/// What is to be connected (IBTA v1.4 §12.6.5, transport service type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// RC.
    ReliableConnection,
    /// UC.
    UnreliableConnection,
    /// Extended reliable connection.
    Xrc,
}

/// Who has sent a management datagram: on InfiniBand it has no global route header within a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// By its global route header.
    Gid(Gid),
    /// By its LID.
    Lid(u16),
}

/// Who began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Has sent the REQ.
    Active,
    /// Has got it.
    Passive,
}

/// Where a connection stands (IBTA v1.4 §12.9.6, §12.9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// A REQ is under way.
    RequestSent,
    /// A REQ waits for its answer.
    RequestReceived,
    /// A REP is under way.
    ReplySent,
    /// A REP waits for the RTU.
    ReplyReceived,
    /// Data may go.
    Established,
    /// A DREQ is under way.
    DisconnectSent,
    /// A DREQ waits for its DREP.
    DisconnectReceived,
    /// It is over, but packets may be on their way.
    TimeWait,
    /// A service is being resolved (§12.11).
    ServiceRequestSent,
    /// A peer resolves one.
    ServiceRequestReceived,
}

/// What both sides have agreed on, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Transport service.
    pub service: Service,
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// First PSN that we send: the peer said it (`Starting PSN`).
    pub send_psn: Psn,
    /// First PSN that the peer sends: we said it.
    pub receive_psn: Psn,
    /// READs and atomics of the peer that we serve at a time.
    pub responder_resources: u8,
    /// READs and atomics of ours that the peer serves at a time.
    pub initiator_depth: u8,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after a receiver was not ready; 7: without end.
    pub rnr_retry: u8,
    /// Code of the local ACK timeout: 4.096 µs · 2^code.
    pub ack_timeout: u8,
    /// Code of the path MTU: 128 · 2^code bytes.
    pub path_mtu: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
}

/// A message that is sent again until it is answered.
#[derive(Debug, Clone)]
pub(crate) struct Repetition {
    pub(crate) message: Message,
    pub(crate) at: Time,
    pub(crate) left: u8,
    pub(crate) pause: Duration,
}

/// One connection, or one resolution of a service.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Who began.
    pub role: Role,
    /// Where it stands.
    pub state: ConnectionState,
    /// Between whom.
    pub path: Path,
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    /// The exchange that it began with, by which a repeated request is known.
    pub(crate) first_transaction: u64,
    /// The exchange that the next answer belongs to.
    pub(crate) transaction: u64,
    /// What was agreed on.
    pub terms: Terms,
    pub(crate) repetition: Option<Repetition>,
    /// What is sent again when the other side repeats itself: an MRA, REP or RTU.
    pub(crate) answer: Option<Message>,
    /// End of [`ConnectionState::TimeWait`].
    pub(crate) time_wait: Option<Time>,
    /// How long the other side may take, and how often it is asked.
    pub(crate) response_time: Duration,
    pub(crate) retries: u8,
    /// Nobody hears of it any more: its owner has destroyed it, and what is left to say is said.
    pub(crate) is_orphan: bool,
    /// What a resolution asks for.
    pub(crate) service_id: u64,
}

impl Connection {
    /// When there is something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let repetition = self.repetition.as_ref().map(|repetition| repetition.at);
        [repetition, self.time_wait].into_iter().flatten().min()
    }
}

/// The time of a code: 4.096 µs · 2^code (IBTA v1.4 §9.7.6.1.3); code 0 is the shortest here.
pub(crate) const fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << (if code > 31 { 31 } else { code }))
}
