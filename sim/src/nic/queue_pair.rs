//! A queue pair: its context, both work queues, both halves of the transport.

use super::buffer::PagedBuffer;
use super::config::NicConfig;
use super::congestion::NotificationPoint;
use super::mkey::{Accessor, HostRange};
use super::port::{ends, version};
use super::queue_counters::QueuePairTally;
use super::receive_queue::{Landing, ReceiveQueue};
use super::reply::Replies;
use super::send_queue::SendQueue;
use super::user_memory::Record;
use super::wqe::Format;
use crate::transport::{ConnectionParameters, ReceivingSide, SendingSide};
use crate::wire::{HeaderTemplate, Network, ServiceClass};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Gid, Qpn, Srqn, Xrcdn};
use bareverbs_prm::numbering::{QpState, RoceVersion, ServiceType};
use bareverbs_prm::time::Time;
use bareverbs_prm::wqe::fence_mode;

/// First queue pair number that is handed out; lower ones are special or look like it.
pub(crate) const FIRST_QP: u32 = 0x40;

/// Size of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceiveGeometry {
    pub(crate) log_size: u8,
    pub(crate) log_stride: u8,
}

impl ReceiveGeometry {
    /// Bytes of the queue; the send queue follows.
    pub(crate) const fn bytes(self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) number: Qpn,
    /// What commands set; what runs is filled in by [`Self::shown_context`].
    pub(crate) context: QueuePairContext,
    /// Its doorbell record.
    pub(crate) record: Record,
    pub(crate) accessor: Accessor,
    pub(crate) send: SendQueue,
    pub(crate) receive: Option<ReceiveQueue>,
    /// Where the message that is being received goes.
    pub(crate) landing: Landing,
    /// The queue that several queue pairs receive from, if it does.
    pub(crate) shared: Option<Srqn>,
    /// Replies of the RPC engine.
    pub(crate) replies: Replies,
    /// What it remembers of congestion that it has to tell of.
    pub(crate) notification: NotificationPoint,
    /// What it counted for its counter set, besides what the transport counts.
    pub(crate) tally: QueuePairTally,
    /// From RTS on.
    pub(crate) requester: Option<SendingSide>,
    /// From RTR on.
    pub(crate) responder: Option<ReceivingSide<HostRange>>,
    /// From RTR on.
    pub(crate) path: Option<Path>,
    /// Whether a packet of the peer was taken since the queue pair is in RTR.
    pub(crate) heard: bool,
    /// Whether the number stands in the device's list of queue pairs with work.
    pub(crate) ready: bool,
    /// Deadline for which the device's clock is set; `Time::MAX` if for none.
    pub(crate) alarm: Time,
    /// Looks at the receive queue that an idle queue pair in the error state still has, see
    /// [`RESCANS`](super::error::RESCANS).
    pub(crate) rescans: u32,
}

/// Where packets go to and must come from.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) headers: HeaderTemplate,
    pub(crate) local: Gid,
    pub(crate) remote: Gid,
    pub(crate) version: RoceVersion,
    pub(crate) partition_key: u16,
    /// Frames come back to this device.
    pub(crate) loops_back: bool,
}

impl Path {
    /// Whether a packet comes from the other end of the path.
    #[inline]
    pub(crate) fn leads_to_sender(&self, network: &Network) -> bool {
        let (source, destination) = ends(network);
        self.remote == source && self.local == destination && self.version == version(network)
    }
}

impl QueuePair {
    pub(crate) fn new(
        number: Qpn,
        context: QueuePairContext,
        (buffer, record): (PagedBuffer, Record),
        receive: Option<ReceiveGeometry>,
    ) -> Self {
        let send_base = receive.map_or(0, ReceiveGeometry::bytes);
        let blocks = (!context.no_sq()).then(|| context.log_sq_size());
        Self {
            number,
            accessor: Accessor { pd: context.pd(), qpn: number },
            send: SendQueue::new(buffer.clone(), send_base, blocks),
            receive: receive.map(|geometry| ReceiveQueue::new(buffer, geometry, record.clone())),
            record,
            context,
            landing: Landing::default(),
            shared: None,
            replies: Replies::default(),
            notification: NotificationPoint::default(),
            tally: QueuePairTally::default(),
            requester: None,
            responder: None,
            path: None,
            heard: false,
            ready: false,
            alarm: Time::MAX,
            rescans: 0,
        }
    }

    pub(crate) fn state(&self) -> QpState {
        self.context.state()
    }

    /// What its WQEs look like.
    pub(crate) fn format(&self) -> Format {
        match self.context.st() {
            ServiceType::RegUmr => Format::KeyUpdate,
            _ if self.is_datagram() => Format::Datagram,
            _ => Format::Connected,
        }
    }

    /// The XRC domain of a target queue pair. What has a send queue is an initiator and takes no requests.
    pub(crate) fn xrc_domain(&self) -> Option<Xrcdn> {
        let target = self.context.st() == ServiceType::Xrc && self.context.no_sq();
        target.then(|| self.context.xrcd())
    }

    /// The class of service of its packets.
    pub(crate) fn service_class(&self) -> ServiceClass {
        match self.context.st() {
            ServiceType::Uc => ServiceClass::UnreliableConnection,
            ServiceType::Xrc => ServiceClass::ExtendedReliableConnection,
            _ if self.is_datagram() => ServiceClass::UnreliableDatagram,
            _ => ServiceClass::ReliableConnection,
        }
    }

    /// Whether every message has an address of its own (IBTA v1.4 §10.2.4.3).
    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.context.st(), ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1)
    }

    /// Whether a frame may come of it when its turn comes.
    pub(crate) fn has_work(&self) -> bool {
        if self.format() != Format::Connected {
            return self.state() == QpState::Rts && self.send.wants_fetch();
        }
        let answers = self.notification.due || self.responder.as_ref().is_some_and(ReceivingSide::has_work);
        let sends = matches!(self.state(), QpState::Rts | QpState::SqDraining);
        let Some(requester) = self.requester.as_ref().filter(|_| sends) else {
            return answers;
        };
        let wanted = self.send.wants_fetch() && self.send.held.is_none_or(|fence| is_clear(requester, fence));
        let fresh =
            self.state() == QpState::Rts && requester.has_room() && (wanted || self.replies.is_waiting());
        answers || requester.has_work() || fresh
    }

    /// How the transport is to be set up.
    pub(crate) fn parameters(&self, path_mtu: u32, config: &NicConfig) -> ConnectionParameters {
        let context = &self.context;
        ConnectionParameters {
            path_mtu,
            send_psn: context.next_send_psn(),
            receive_psn: context.next_rcv_psn(),
            ack_timeout: context.primary_address_path().ack_timeout(),
            ack_timeout_factor: config.ack_timeout_factor,
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            min_rnr_timer: context.min_rnr_nak(),
            max_outstanding_reads: 1 << context.log_sra_max(),
            max_remembered_reads: 1 << context.log_rra_max(),
        }
    }

    /// As QUERY_QP shows it.
    pub(crate) fn shown_context(&self) -> QueuePairContext {
        let mut context = self.context;
        context.set_sw_sq_wqebb_counter(self.send.posted()).set_hw_sq_wqebb_counter(self.send.fetched());
        if let Some(requester) = &self.requester {
            context.set_next_send_psn(requester.next_psn());
        }
        if let Some(responder) = &self.responder {
            context.set_next_rcv_psn(responder.expected_psn());
        }
        if let Some(receive) = &self.receive {
            context.set_hw_rq_counter(receive.taken().into()).set_sw_rq_counter(receive.posted().into());
        }
        context
    }

    /// Back to where CREATE_QP left it.
    pub(crate) fn reset(&mut self) {
        self.context.set_state(QpState::Reset);
        self.send.reset();
        if let Some(receive) = &mut self.receive {
            receive.reset();
        }
        self.replies.clear();
        self.keep_transport_tally();
        self.notification = NotificationPoint::default();
        self.requester = None;
        self.responder = None;
        self.path = None;
        self.heard = false;
        self.rescans = 0;
    }
}

/// Whether a change of a memory key may be done after what `requester` holds. It always follows the last byte of it on
/// the wire; with a fence also the answers to READs and atomics, with strong ordering all answers (IBTA v1.4 §10.8.3.3;
/// contract §5.8).
pub(crate) fn is_clear(requester: &SendingSide, fence: u8) -> bool {
    match fence {
        fence_mode::STRONG_ORDERING => requester.outstanding() == 0,
        fence_mode::FENCE | fence_mode::SMALL_AND_FENCE => {
            requester.is_all_sent() && !requester.awaits_data()
        }
        _ => requester.is_all_sent(),
    }
}
