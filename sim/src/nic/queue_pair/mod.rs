//! The queue pair: it owns its send queue, its receive source, its requester and its responder.
//!
//! **What this is.** [`QueuePair`] takes inputs, [`on_packet`](QueuePair::on_packet), [`on_datagram`](QueuePair::on_datagram),
//! [`on_doorbell`](QueuePair::on_doorbell), [`on_timeout`](QueuePair::on_timeout), and gives frames,
//! [`poll_frame`](QueuePair::poll_frame) and [`poll_datagram`](QueuePair::poll_datagram). Each gets a [`Bus`] with what it may touch of
//! the device and returns [`Effects`], what it wants of the scheduler.
//!
//! **What it may not do.** It knows no other queue pair, no scheduler, no firmware and no router.
//!
//! **Where to read first.** `input` for what arrives, `poll` for what leaves, `settle` for what follows every input.

mod connection;
mod counting;
mod datagram;
mod dma;
mod drain;
mod effects;
mod error;
mod frames;
mod input;
mod key_update;
mod notification;
mod notification_point;
mod observed;
mod pacer;
mod path;
mod poll;
mod reaction;
mod replies;
mod responder_host;
mod settle;
mod tally;

pub(crate) use datagram::{Datagram, OutgoingDatagram};
pub(crate) use effects::{Effects, earlier};
pub(crate) use frames::FinishedFrame;
pub use frames::{Transmit, TransmitClass};
pub(crate) use notification::is_notification;
pub(crate) use path::path_mtu;
pub(crate) use tally::Tally;

use super::buffer::PagedBuffer;
use super::bus::Bus;
use super::cqe::CompletionOwner;
use super::doorbell_record::DoorbellRecord;
use super::memory::HostMemory;
use super::mkey::{Accessor, HostRange};
use super::receive_queue::ScatterList;
use super::send_queue::SendQueue;
use super::shared_receive::ReceiveSource;
use super::work_queue::WorkQueue;
use super::wqe::Format;
use crate::transport::{ReceivingSide, SendingSide};
use crate::wire::{Packet, ServiceClass};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Qpn, Xrcdn};
use bareverbs_prm::numbering::{QpState, ServiceType};
use bareverbs_prm::time::Time;
use notification_point::NotificationPoint;
use pacer::Pacer;
use path::Path;
use replies::RpcReplies;
use tally::QueuePairTally;

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// What commands set; what runs is filled in by [`Self::shown_context`].
    pub(crate) context: QueuePairContext,
    pub(crate) accessor: Accessor,
    /// What its WQEs look like.
    pub(crate) format: Format,
    /// The class of service of its packets.
    class: ServiceClass,
    send: SendQueue,
    pub(crate) receives: ReceiveSource,
    /// Where the message that is being received goes.
    scatter: ScatterList,
    /// Replies of the RPC engine; most queue pairs never have any.
    replies: Option<Box<RpcReplies>>,
    /// What it remembers of congestion that it has to tell of.
    notification: NotificationPoint,
    /// When its requests may leave.
    pacer: Pacer,
    /// What it counted for its counter set, besides what the transport counts; most queue pairs never count anything here.
    tally: Option<Box<QueuePairTally>>,
    /// From RTS on.
    requester: Option<SendingSide>,
    /// From RTR on.
    responder: Option<ReceivingSide<HostRange>>,
    /// From RTR on.
    path: Option<Path>,
    /// Whether a packet of the peer was taken since the queue pair is in RTR.
    heard: bool,
    /// Whether it takes memory-to-memory operations.
    mmo: bool,
    /// How often a queue pair in the error state looked for new receives, see [`RESCANS`](settle::RESCANS).
    rescans: u32,
    /// The scheduler's: whether the number stands in the list of queue pairs that want a turn.
    pub(crate) queued: bool,
    /// The scheduler's: deadline for which an alarm is set; `Time::MAX` if none is.
    pub(crate) alarm: Time,
}

/// Where the work queues of a queue pair lie.
pub(crate) struct WorkQueueMemory {
    /// The receive queue, if there is one, and behind it the send queue.
    pub(crate) buffer: PagedBuffer,
    pub(crate) record: DoorbellRecord,
}

impl QueuePair {
    pub(crate) fn new(
        number: Qpn,
        context: QueuePairContext,
        memory: WorkQueueMemory,
        receives: ReceiveSource,
    ) -> Self {
        let WorkQueueMemory { buffer, record } = memory;
        let send_base = if let ReceiveSource::Own(queue) = &receives { queue.bytes() } else { 0 };
        let blocks = (!context.no_sq()).then(|| context.log_sq_size());
        let privileged = context.st() == ServiceType::RegUmr;
        Self {
            accessor: Accessor { pd: context.pd(), qpn: number, privileged, reserved_lkey: context.rlky() },
            format: format_of(context.st()),
            class: class_of(context.st()),
            send: SendQueue::new(WorkQueue::new(buffer, send_base, record, blocks)),
            receives,
            context,
            scatter: ScatterList::default(),
            replies: None,
            notification: NotificationPoint::default(),
            pacer: Pacer::default(),
            tally: None,
            requester: None,
            responder: None,
            path: None,
            heard: false,
            mmo: false,
            rescans: 0,
            queued: false,
            alarm: Time::MAX,
        }
    }

    pub(crate) const fn number(&self) -> Qpn {
        self.accessor.qpn
    }

    /// As completions name it.
    fn owner(&self) -> CompletionOwner {
        CompletionOwner::queue_pair(&self.context, self.accessor.qpn)
    }

    pub(crate) fn state(&self) -> QpState {
        self.context.state()
    }

    /// Whether every message has an address of its own (IBTA v1.4 §10.2.4.3).
    pub(crate) fn is_datagram(&self) -> bool {
        self.format == Format::Datagram
    }

    /// Whether a packet of a connection is for this queue pair: it receives, and is connected with the sender.
    #[inline]
    pub(crate) fn accepts(&self, packet: &Packet<'_>) -> bool {
        let from_peer = self.path.as_ref().is_some_and(|path| path.leads_to_sender(&packet.route.network));
        from_peer && self.class == packet.bth.service && self.receives_now(packet.bth.opcode.is_response())
    }

    /// Requests are taken from RTR on, answers from RTS on; what stops the send queue alone stops neither (IBTA v1.4
    /// §10.3.1).
    fn receives_now(&self, response: bool) -> bool {
        match self.state() {
            QpState::Rts | QpState::SqDraining | QpState::SqDrained | QpState::SqError => true,
            QpState::Rtr => !response,
            _ => false,
        }
    }

    /// The P_Key of its packets; 0 without a path.
    pub(crate) fn partition_key(&self) -> u16 {
        self.path.as_ref().map_or(0, |path| path.partition_key)
    }

    /// Takes the context that a command made of the old one.
    pub(crate) fn set_context(&mut self, context: QueuePairContext) {
        self.context = context;
        if let Some(responder) = &mut self.responder {
            responder.set_min_rnr_timer(context.min_rnr_nak());
        }
    }

    /// Switches memory-to-memory operations on or off (`qpc_ext.mmo`).
    pub(crate) const fn set_mmo(&mut self, on: bool) {
        self.mmo = on;
    }

    /// As QUERY_QP shows it.
    pub(crate) fn shown_context(&self) -> QueuePairContext {
        let mut context = self.context;
        context
            .set_sw_sq_wqebb_counter(self.send.queue().posted())
            .set_hw_sq_wqebb_counter(self.send.queue().fetched());
        if let Some(requester) = &self.requester {
            context.set_next_send_psn(requester.next_psn());
        }
        if let Some(responder) = &self.responder {
            context.set_next_rcv_psn(responder.expected_psn());
        }
        if let ReceiveSource::Own(queue) = &self.receives {
            context.set_hw_rq_counter(queue.taken().into()).set_sw_rq_counter(queue.posted().into());
        }
        context
    }

    /// Back to where CREATE_QP left it.
    pub(crate) fn reset(&mut self) {
        self.context.set_state(QpState::Reset);
        self.send.reset();
        if let ReceiveSource::Own(queue) = &mut self.receives {
            queue.reset();
        }
        if let Some(replies) = &mut self.replies {
            replies.clear();
        }
        self.keep_transport_tally();
        self.notification = NotificationPoint::default();
        self.pacer = Pacer::default();
        self.requester = None;
        self.responder = None;
        self.path = None;
        self.heard = false;
        self.mmo = false;
        self.rescans = 0;
    }
}

/// The XRC domain of a target queue pair. What has a send queue is an initiator and takes no requests.
pub(crate) fn xrc_target_domain(context: &QueuePairContext) -> Option<Xrcdn> {
    let target = context.st() == ServiceType::Xrc && context.no_sq();
    target.then(|| context.xrcd())
}

/// What the WQEs of a service look like.
const fn format_of(service: ServiceType) -> Format {
    match service {
        ServiceType::RegUmr => Format::KeyUpdate,
        ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => Format::Datagram,
        _ => Format::Connected,
    }
}

const fn class_of(service: ServiceType) -> ServiceClass {
    match service {
        ServiceType::Uc => ServiceClass::UnreliableConnection,
        ServiceType::Xrc => ServiceClass::ExtendedReliableConnection,
        ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => ServiceClass::UnreliableDatagram,
        _ => ServiceClass::ReliableConnection,
    }
}
