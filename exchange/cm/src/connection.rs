//! One connection, or one service resolution, as one side sees it.

use super::message::Message;
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};

/// Number of a connection on this side. The upper 8 bits are the process number, as in queue pair numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommunicationId(
    /// Local communication ID in messages.
    pub u32,
);

/// LIDs of both ends of a path through an InfiniBand subnet, with the path's partition and service level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lids {
    /// Our LID.
    pub local: u16,
    /// The peer's LID.
    pub remote: u16,
    /// P_Key of the path.
    pub partition_key: u16,
    /// Service level of the path.
    pub service_level: u8,
}

/// The path that messages take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// GID of our port.
    pub local: Gid,
    /// GID of the peer's port.
    pub remote: Gid,
    /// `None` on Ethernet.
    pub lids: Option<Lids>,
}

impl Path {
    /// Whether packets carry a GRH. RoCE packets always do; on InfiniBand only multicast packets do, since there is a
    /// single subnet (IBTA v1.4 §8.1, §10.5.1).
    pub fn is_global(&self) -> bool {
        self.lids.is_none() || self.remote.is_multicast()
    }

    /// P_Key of the path. Ethernet has only the default partition with full membership.
    pub const fn partition_key(&self) -> u16 {
        match self.lids {
            Some(lids) => lids.partition_key,
            None => DEFAULT_PARTITION,
        }
    }

    /// Hop limit: Linux's value on RoCE, 0 within an InfiniBand subnet.
    pub const fn hop_limit(&self) -> u8 {
        if self.lids.is_none() { ROCE_HOPS } else { 0 }
    }
}

/// P_Key of a full member of the default partition.
const DEFAULT_PARTITION: u16 = 0xffff;
/// Hop limit that Linux uses for RoCE.
const ROCE_HOPS: u8 = 64;

/// Transport service type (IBTA v1.4 §12.6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// RC.
    ReliableConnection,
    /// UC.
    UnreliableConnection,
    /// Extended reliable connection (XRC).
    Xrc,
}

/// Sender of a management datagram. Within an InfiniBand subnet a datagram has no GRH, so only its LID is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Known by the GRH.
    Gid(Gid),
    /// Known by the LID.
    Lid(u16),
}

/// Which side of a connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This side sent the REQ.
    Active,
    /// This side received the REQ.
    Passive,
}

/// State of a connection (IBTA v1.4 §12.9.6, §12.9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Sent a REQ; no answer yet.
    RequestSent,
    /// Received a REQ that this side has not answered yet.
    RequestReceived,
    /// Sent a REP; no RTU yet.
    ReplySent,
    /// Received a REP; this side has not sent its RTU yet.
    ReplyReceived,
    /// Connected: data may flow.
    Established,
    /// Sent a DREQ; no DREP yet.
    DisconnectSent,
    /// Received a DREQ that this side has not answered yet.
    DisconnectReceived,
    /// Disconnected, but packets may still be in flight.
    TimeWait,
    /// Sent a SIDR_REQ (§12.11).
    ServiceRequestSent,
    /// Received a SIDR_REQ.
    ServiceRequestReceived,
}

/// Negotiated parameters, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Transport service.
    pub service: Service,
    /// Our queue pair number.
    pub local_qpn: Qpn,
    /// The peer's queue pair number.
    pub remote_qpn: Qpn,
    /// First PSN that we send. The peer chose it (`Starting PSN`).
    pub send_psn: Psn,
    /// First PSN that the peer sends. We chose it.
    pub receive_psn: Psn,
    /// Most outstanding READs and atomics of the peer that we serve.
    pub responder_resources: u8,
    /// Most outstanding READs and atomics of ours that the peer serves.
    pub initiator_depth: u8,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// Local ACK timeout code: 4.096 µs · 2^code.
    pub ack_timeout: u8,
    /// Path MTU code: 128 · 2^code bytes.
    pub path_mtu: u8,
    /// Traffic class of the path.
    pub traffic_class: u8,
}

/// A message that is resent until it is answered.
#[derive(Debug, Clone)]
pub(crate) struct Repetition {
    pub(crate) message: Message,
    pub(crate) at: Time,
    pub(crate) left: u8,
    pub(crate) pause: Duration,
}

/// One connection, or one service resolution.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Which side we are.
    pub role: Role,
    /// Current state.
    pub state: ConnectionState,
    /// Path of the messages.
    pub path: Path,
    pub(crate) remote_id: u32,
    pub(crate) remote_guid: u64,
    /// Transaction ID of the first message. It identifies a repeated request.
    pub(crate) first_transaction: u64,
    /// Transaction ID for the next answer.
    pub(crate) transaction: u64,
    /// Negotiated parameters.
    pub terms: Terms,
    pub(crate) repetition: Option<Repetition>,
    /// The last message of ours (MRA, REP or RTU), resent when the peer repeats its message.
    pub(crate) last_message: Option<Message>,
    /// End of [`ConnectionState::TimeWait`].
    pub(crate) time_wait: Option<Time>,
    /// How long to wait for the peer's answer, and how often to resend.
    pub(crate) response_time: Duration,
    pub(crate) retries: u8,
    /// Whether the owner has destroyed it: its events are no longer reported, and only the last messages remain to be
    /// sent.
    pub(crate) is_orphan: bool,
    /// Service ID of a resolution.
    pub(crate) service_id: u64,
    /// The deadline by which the manager finds it.
    pub(crate) listed: Option<Time>,
}

impl Connection {
    /// When the next timeout is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let repetition = self.repetition.as_ref().map(|repetition| repetition.at);
        [repetition, self.time_wait].into_iter().flatten().min()
    }
}

/// Time of a code: 4.096 µs · 2^code (IBTA v1.4 §9.7.6.1.3). Code 0 is treated as the shortest time.
pub(crate) const fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << (if code > 31 { 31 } else { code }))
}
