//! One connection, or one resolution of a service, as one side of it has it.

use super::message::Message;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};

/// Number of a connection on this side: the number of the process in the upper 8 bits, as with queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommunicationId(pub(crate) u32);

/// LIDs of both ends of a path through an InfiniBand subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lids {
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

/// Between whom messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) local: Gid,
    pub(crate) remote: Gid,
    /// `None` on Ethernet.
    pub(crate) lids: Option<Lids>,
}

impl Path {
    /// Whether packets have a global route header: RoCE's always, InfiniBand's to groups alone, since there is one subnet (IBTA
    /// v1.4 §8.1, §10.5.1).
    pub(crate) fn is_global(&self) -> bool {
        self.lids.is_none() || self.remote.is_multicast()
    }

    /// Limit of hops: that of RoCE is Linux's; a path within a subnet has none.
    pub(crate) const fn hop_limit(&self) -> u8 {
        if self.lids.is_none() { ROCE_HOPS } else { 0 }
    }
}

/// Hop limit of RoCE, as Linux has it.
const ROCE_HOPS: u8 = 64;

/// What is to be connected (IBTA v1.4 §12.6.5, transport service type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    ReliableConnection,
    UnreliableConnection,
    /// Extended reliable connection.
    Xrc,
}

/// Who has sent a management datagram: on InfiniBand it has no global route header within a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Gid(Gid),
    Lid(u16),
}

/// Who began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Active,
    Passive,
}

/// Where a connection stands (IBTA v1.4 §12.9.6, §12.9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    RequestSent,
    RequestReceived,
    ReplySent,
    ReplyReceived,
    Established,
    DisconnectSent,
    DisconnectReceived,
    TimeWait,
    /// A service is being resolved (§12.11).
    ServiceRequestSent,
    ServiceRequestReceived,
}

/// What both sides have agreed on, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) service: Service,
    pub(crate) local_qpn: Qpn,
    pub(crate) remote_qpn: Qpn,
    pub(crate) send_psn: Psn,
    pub(crate) receive_psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// Code of the local ACK timeout: 4.096 µs · 2^code.
    pub(crate) ack_timeout: u8,
    /// Code of the path MTU: 128 · 2^code bytes.
    pub(crate) path_mtu: u8,
    pub(crate) traffic_class: u8,
}

/// A message that is sent again until it is answered.
#[derive(Debug, Clone)]
pub(crate) struct Repetition {
    pub(crate) message: Message,
    pub(crate) at: Time,
    pub(crate) left: u8,
    pub(crate) pause: Duration,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) role: Role,
    pub(crate) state: ConnectionState,
    pub(crate) path: Path,
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    /// The exchange that it began with, by which a repeated request is known.
    pub(crate) first_transaction: u64,
    /// The exchange that the next answer belongs to.
    pub(crate) transaction: u64,
    pub(crate) terms: Terms,
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
